"""The mask of the playback: which values of a recorded session differ from run to run, and why each may.

A value is masked only where it stands, and only if it has the form that is given: anything else is compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tests.sandbox.kubectl.leaves import Leaf

_AGE: Final = r"(\d+[dhms]){1,2}"
_TIME: Final = r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"
_STAMP: Final = r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"'
_IP: Final = r"\d+\.\d+\.\d+\.\d+"
_UID: Final = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_CONTAINER: Final = r"(containerd|sandbox)://\S+"
_IMAGE: Final = r"(sha256:|sandbox(-image)?://)\S+"
_ARCHITECTURE: Final = "amd64|arm64"
_SHOWN: Final = r"\S.*"
"""Anything, but not nothing."""

_NO_ADDRESSES: Final = "the recorded node told no addresses"


@dataclass(frozen=True, slots=True)
class Masked:
    """A value that differs from run to run."""

    steps: str
    """A glob of the steps."""
    place: str
    """A glob of the places."""
    form: str
    """A regular expression that the whole value must match to be masked."""
    why: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Values that are not compared at all, on either side."""

    steps: str
    place: str
    why: str


@dataclass(frozen=True, slots=True)
class NotPlayed:
    """Lines of a recording that tell of something else than the session."""

    steps: str
    line: str
    """A regular expression that is found in the line."""
    why: str


MASKED: Final = (
    # ── ages and times ──
    Masked("*", "*:AGE", _AGE, "how long ago is a matter of the run"),
    Masked("*", "*:LAST SEEN", _AGE, "how long ago is a matter of the run"),
    Masked("1[012]-*", "Events/*:Age", _AGE, "how long ago is a matter of the run"),
    Masked("12-*", "Non-terminated Pods/*:Age", _AGE, "how long ago is a matter of the run"),
    Masked("11-*", "Start Time", _TIME, "the time of the run"),
    Masked("11-*", "Containers/c/State/Started", _TIME, "the time of the run"),
    Masked("12-*", "CreationTimestamp", _TIME, "the time of the run"),
    Masked("12-*", "Lease/RenewTime", _TIME, "the time of the run"),
    Masked("12-*", "Conditions/*:Last*Time", _TIME, "the time of the run"),
    Masked("*", "*.metadata.creationTimestamp", _STAMP, "the time of the run"),
    Masked("*", "*.last*Time", _STAMP, "the time of the run"),
    Masked("*", "*.startTime", _STAMP, "the time of the run"),
    Masked("*", "*.startedAt", _STAMP, "the time of the run"),
    Masked("6[01]-*", "*.rows.*.cells.[34]", f'"{_AGE}"', "how long ago is a matter of the run"),
    Masked("62-*", "*.rows.*.cells.[07]", f'"{_AGE}"', "how long ago is a matter of the run"),
    # ── addresses ──
    Masked("*", "*:IP", _IP, "pods' addresses are given out as they come"),
    Masked("11-*", "IP", _IP, "pods' addresses are given out as they come"),
    Masked("11-*", "IPs/IP", _IP, "pods' addresses are given out as they come"),
    Masked("*", "*.status.podIP", f'"{_IP}"', "pods' addresses are given out as they come"),
    Masked("*", "*.status.podIPs.0.ip", f'"{_IP}"', "pods' addresses are given out as they come"),
    Masked("60-*", "*.rows.*.cells.5", f'"{_IP}"', "pods' addresses are given out as they come"),
    Masked("11-*", "Node", r"worker-0/(192\.0\.2\.1)?", _NO_ADDRESSES),
    Masked("61-*", "*.rows.0.cells.5", r'"(<none>|192\.0\.2\.1)"', _NO_ADDRESSES),
    # ── identities ──
    Masked("*", "*.metadata.uid", f'"{_UID}"', "made for each object"),
    Masked("*", "*.metadata.resourceVersion", r'"\d+"', "counts the changes of a cluster"),
    Masked("11-*", "Containers/c/Container ID", _CONTAINER, "made for each container"),
    Masked("11-*", "Containers/c/Image ID", _IMAGE, "no image is there in the sandbox"),
    Masked("*", "*.containerStatuses.0.containerID", f'"{_CONTAINER}"', "made for each container"),
    Masked("*", "*.containerStatuses.0.imageID", f'"{_IMAGE}"', "no image is there in the sandbox"),
    Masked("62-*", "*.rows.*.cells.9", r'"k8sio\.[0-9a-f]+"', "an event is named after its time"),
    Masked(
        "62-*",
        "*.rows.*.cells.5",
        r'"default-scheduler, default-scheduler-[^"]+"',
        "the scheduler is named after its machine",
    ),
    # ── the machine ──
    Masked("12-*", "*/cpu", r"\d+", "the machine's processors"),
    Masked("12-*", "*/memory", r"\d+Ki", "the machine's memory"),
    Masked("*", "*.cpu", r'"\d+"', "the machine's processors"),
    Masked("*", "*.memory", r'"\d+Ki"', "the machine's memory"),
    Masked(
        "12-*", "Labels", rf"(beta\.)?kubernetes\.io/arch=({_ARCHITECTURE})", "the machine's architecture"
    ),
    Masked("12-*", "System Info/Machine ID", _SHOWN, "the machine's; REDACTED in the recording"),
    Masked("12-*", "System Info/System UUID", _SHOWN, "the machine's; REDACTED in the recording"),
    Masked("12-*", "System Info/Boot ID", _SHOWN, "the machine's; REDACTED in the recording"),
    Masked("12-*", "System Info/Kernel Version", _SHOWN, "the machine's kernel"),
    Masked("12-*", "System Info/OS Image", _SHOWN, "the machine's system"),
    Masked("12-*", "System Info/Architecture", _ARCHITECTURE, "the machine's architecture"),
    Masked(
        "12-*",
        "System Info/Container Runtime Version",
        r"(containerd|devplug-sandbox)://\S+",
        "the sandbox has no container runtime, and says so",
    ),
    Masked("14-*", "*.labels.*/arch", f'"({_ARCHITECTURE})"', "the machine's architecture"),
    Masked("14-*", "*.nodeInfo.architecture", f'"({_ARCHITECTURE})"', "the machine's architecture"),
    Masked("14-*", "*.nodeInfo.*ID", f'"{_SHOWN}"', "the machine's; REDACTED in the recording"),
    Masked("14-*", "*.nodeInfo.kernelVersion", f'"{_SHOWN}"', "the machine's kernel"),
    Masked("14-*", "*.nodeInfo.osImage", f'"{_SHOWN}"', "the machine's system"),
    Masked(
        "14-*",
        "*.nodeInfo.containerRuntimeVersion",
        r'"(containerd|devplug-sandbox)://\S+"',
        "the sandbox has no container runtime, and says so",
    ),
    Masked("61-*", "*.rows.0.cells.7", f'"{_SHOWN}"', "the machine's system"),
    Masked("61-*", "*.rows.0.cells.8", rf'"\S+ \(({_ARCHITECTURE})\)"', "the machine's kernel"),
    Masked(
        "61-*",
        "*.rows.0.cells.9",
        r'"(containerd|devplug-sandbox)://\S+"',
        "the sandbox has no container runtime, and says so",
    ),
    # ── the kubelet's metrics ──
    Masked("43-*", "*_bucket{*", "0.0|1.0", "in which bucket the one call falls is its duration"),
    Masked("43-*", "*_sum{*", r"\d+\.\d+(e-\d+)?", "a duration"),
    # ── who serves ──
    Masked("64-*", "*.gitCommit", '".*"', "no commit of Kubernetes is built in"),
    Masked("64-*", "*.gitTreeState", '".*"', "no commit of Kubernetes is built in"),
    Masked("64-*", "*.buildDate", _STAMP, "the time of a build"),
    Masked("64-*", "*.goVersion", '".+"', "the recorded server was built with Go"),
    Masked("64-*", "*.compiler", '".+"', "the recorded server was built with Go"),
    Masked("64-*", "*.platform", f'"linux/({_ARCHITECTURE})"', "the machine's architecture"),
)

_NOT_TOLD: Final = "the sandbox has nothing to reach through it; who asks anyway is told why"

LEFT_OUT: Final = (
    LeftOut(
        "04-*",
        "0.status.resources*",
        "a kubelet tells the spec's resources at first, and seconds later what 65 shows, which is compared",
    ),
    LeftOut("04-*", "0.status.hostIP*", _NO_ADDRESSES),
    LeftOut("12-*", "Addresses/*", _NO_ADDRESSES),
    LeftOut("14-*", "0.status.addresses*", _NO_ADDRESSES),
    LeftOut("65-*", "0.status.hostIP*", _NO_ADDRESSES),
    LeftOut("14-*", "0.status.images*", "the images on the machine"),
    LeftOut("65-*", "0.metadata.managedFields*", "the sandbox does not note who set which field"),
    LeftOut("63-*", "0.resources.nodes/proxy.*", _NOT_TOLD),
    LeftOut("63-*", "0.resources.pods/attach.*", _NOT_TOLD),
    LeftOut("63-*", "0.resources.pods/exec.*", _NOT_TOLD),
    LeftOut("63-*", "0.resources.pods/portforward.*", _NOT_TOLD),
    LeftOut("63-*", "0.resources.pods/proxy.*", _NOT_TOLD),
    LeftOut("63-*", "0.resources.pods/ephemeralcontainers.*", "nothing runs that could be debugged"),
    LeftOut("63-*", "0.resources.pods/eviction.*", "kubectl drain deletes pods where this is not told"),
    LeftOut("63-*", "0.resources.pods/resize.*", "pods of the sandbox keep their sizes"),
    LeftOut("6[012]-*", "0.rows.*.object*", "the recording has left the rows' objects out"),
)

NOT_PLAYED: Final = (
    NotPlayed("11-*", "MissingClusterDNS", "a kubelet with no DNS server set; the sandbox has no DNS"),
    NotPlayed(
        "09-*", r"^\d+m .* Insufficient example\.com/resource\.", "of pods of that name in former runs"
    ),
)


def masked(step: str, leaves: Iterable[Leaf]) -> Iterator[Leaf]:
    """Yield the values with those masked that may differ, and without those that are not compared."""
    out = [entry.place for entry in LEFT_OUT if fnmatchcase(step, entry.steps)]
    masks = [entry for entry in MASKED if fnmatchcase(step, entry.steps)]
    for place, value in leaves:
        if any(fnmatchcase(place, glob) for glob in out):
            continue
        hit = any(fnmatchcase(place, mask.place) and re.fullmatch(mask.form, value) for mask in masks)
        yield place, "<masked>" if hit else value


def without_lines(step: str, recorded: str) -> str:
    """Return a recording without the lines that are not of this session."""
    lines = [entry.line for entry in NOT_PLAYED if fnmatchcase(step, entry.steps)]
    return "".join(
        line for line in recorded.splitlines(keepends=True) if not any(re.search(one, line) for one in lines)
    )
