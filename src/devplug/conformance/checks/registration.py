"""Registration with a kubelet that is as it should be: the endpoint, the calls, the socket's mode."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.conformance.runner import ARRIVAL
from devplug.conformance.verdicts import MUST, NOTE, SHOULD, FailedError, SkippedError, check
from devplug.errors import RegistrationError, quoted
from devplug.k8s.resource_names import resource_name_fault
from devplug.kubelet.pluginfolder import dialled_path
from devplug.kubelet_dir import KUBELET_PLUGIN_DIR, KUBELET_SOCKET
from devplug.linux.unix_sockets import SOCKET_PATH_LIMIT_BYTES
from devplug.wire.deviceplugin import GET_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.conformance.scripted_kubelet import Attempt, Client
    from devplug.conformance.testbed import TestBed
    from devplug.wire.values import PluginOptions

_OTHERS_WRITE: Final = 0o022

_ASKED: Final = 3
_NO_UMASK: Final = 0o777


# ── rules on values ──


def endpoint_fault(endpoint: str) -> str | None:
    """Return what keeps `endpoint` from being the name of a socket in the plugin folder, or None.

    The kubelet checks nothing of it: it joins it to the folder, cleans the path (server.go) and parses that
    as a URL (client.go), so some faulty ones are dialled elsewhere, and some by luck where they should be.
    """
    if not endpoint:
        return "is empty, so the kubelet dials the folder"
    if endpoint in {".", ".."} or "/" in endpoint:
        return f"is {quoted(endpoint)}, which is a path and no file name"
    if endpoint == KUBELET_SOCKET:
        return f"is {quoted(endpoint)}, the kubelet's own socket"
    path = Path(KUBELET_PLUGIN_DIR, endpoint)
    try:
        dialled = dialled_path(path)
    except RegistrationError:
        return f"is {quoted(endpoint)}, which the kubelet cannot dial: it has to be valid in a URL"
    if dialled != path:
        return (
            f"is {quoted(endpoint)}, for which the kubelet dials {quoted(dialled.name)}: it parses the path "
            "as a URL"
        )
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT_BYTES:
        return (
            f"makes a path of {length} bytes in {KUBELET_PLUGIN_DIR}, and a socket's has "
            f"{SOCKET_PATH_LIMIT_BYTES} at most"
        )
    return None


def longest_overlap_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Return for how long two of these were open at once, at most; 0 if they came one after the other."""
    overlaps = (
        min(one_end, other_end) - max(one_start, other_start)
        for (one_start, one_end), (other_start, other_end) in combinations(spans, 2)
    )
    return max((0.0, *overlaps))


def loose_bits(mode: int, umask: int) -> int:
    """Return the bits of a socket's mode that let others write, unless the umask that it was given let them.

    To connect to a socket is to write to it (unix(7)).
    """
    return mode & _OTHERS_WRITE & umask


# ── checks ──


@check(
    "REG01",
    MUST,
    "A plugin registers with the kubelet that it finds.",
    why="a resource that no plugin registers is not in the node's status",
    change="call Register on kubelet.sock in the plugin folder when the plugin starts",
    source="v1beta1 api.proto, service Registration",
    lane=ARRIVAL,
)
async def registers(bed: TestBed) -> str:
    """Start the plugin in a folder where a kubelet listens, and wait for its call of Register."""
    attempts = bed.kubelet.attempts_since(0.0)
    if not attempts:
        others = ", ".join(bed.kubelet.resource_names)
        words = (
            f"the plugin registered only {others}"
            if others
            else f"it last printed: {bed.program.last_words()}"
        )
        if (code := bed.program.exit_code) is not None:
            raise FailedError(f"the plugin ended with {code} before it called Register; {words}")
        raise FailedError(f"no call of Register came within {bed.times.start_seconds:g} s; {words}")
    after = attempts[0].started_at - bed.program.started_at
    return f"{1000 * after:.0f} ms after its start"


def _first(bed: TestBed) -> Attempt:
    attempts = bed.kubelet.attempts_since(0.0)
    if not attempts:
        raise SkippedError("nothing was registered (REG01)")
    return attempts[0]


def _end_of(attempt: Attempt) -> str:
    """Return how a call of Register ended that the kubelet could not grant."""
    if attempt.failure:
        return attempt.failure
    seconds = (attempt.ended_at or time.monotonic()) - attempt.started_at
    behavior = "the plugin gave up after" if attempt.was_given_up else "the kubelet waited for"
    return f"{behavior} {seconds:.1f} s"


@check(
    "REG02",
    MUST,
    "A plugin serves its socket before it registers, and while it does.",
    why="the kubelet dials it from inside Register, waits 10 s, and refuses the registration",
    change="listen and serve, in another thread if need be, before you call Register",
    source="pkg/kubelet/cm/devicemanager/plugin/v1beta1: server.go, client.go (dial)",
    lane=ARRIVAL,
)
async def serves_before_it_registers(bed: TestBed) -> str:
    """Dial the socket that the first Register names, before that call is answered."""
    attempt = _first(bed)
    if attempt.dialled_seconds is None:
        raise FailedError(f"nobody answered at the plugin's socket: {_end_of(attempt)}")
    return f"dialled in {1000 * attempt.dialled_seconds:.0f} ms"


@check(
    "REG03",
    MUST,
    "The resource name is a valid name of an extended resource.",
    why="the kubelet refuses the registration",
    change="use a domain of your own and a kind, as in vendor.com/device",
    source="pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName",
    lane=ARRIVAL,
)
async def has_a_valid_name(bed: TestBed) -> str:
    """Compare the name in the first Register with the rule that the kubelet applies to it."""
    name = _first(bed).request.resource_name
    if fault := resource_name_fault(name):
        raise FailedError(f"the resource name {quoted(name)} {fault}")
    return name


@check(
    "REG04",
    MUST,
    "The version in a registration is v1beta1.",
    why="the kubelet refuses any other, and an empty one",
    change='set `version` to "v1beta1"',
    source="v1beta1 constants.go; pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go",
    lane=ARRIVAL,
)
async def has_the_version(bed: TestBed) -> None:
    """Look at the first Register."""
    version = _first(bed).request.version
    if version != "v1beta1":
        raise FailedError(f"the version is {quoted(version)}")


@check(
    "REG05",
    MUST,
    "The endpoint is the name of a socket in the plugin folder, and short enough for one.",
    why="the kubelet appends it to the path of the plugin folder and dials the result",
    change="send only the socket's file name, without a folder, of at most 75 bytes",
    source="pkg/kubelet/cm/devicemanager/plugin/v1beta1: server.go, client.go; unix(7)",
    lane=ARRIVAL,
)
async def has_a_plain_endpoint(bed: TestBed) -> str:
    """Look at the first Register; the path is measured in the folder where kubelets have it."""
    endpoint = _first(bed).request.endpoint
    if fault := endpoint_fault(endpoint):
        raise FailedError(f"the endpoint {fault}")
    return endpoint


@check(
    "REG06",
    MUST,
    "GetDevicePluginOptions is answered while Register still waits.",
    why="the kubelet asks it from inside Register, and refuses the registration without an answer",
    change="implement it, and hold no lock during Register that it needs",
    source="pkg/kubelet/cm/devicemanager/manager.go; e2e_node device_plugin_failures_test.go",
    lane=ARRIVAL,
)
async def answers_the_options(bed: TestBed) -> None:
    """Ask for the options after the dial and before the first Register is answered."""
    attempt = _first(bed)
    if attempt.dialled_seconds is None:
        raise SkippedError("nobody listened at the plugin's socket (REG02)")
    if attempt.client is None:
        raise FailedError(_end_of(attempt))


def _accepted(bed: TestBed) -> tuple[Attempt, Client]:
    attempt = _first(bed)
    if attempt.client is None:
        raise SkippedError("the registration failed (REG02, REG06)")
    return attempt, attempt.client


def _words(options: PluginOptions) -> str:
    abilities = {
        "pre-start": options.pre_start_required,
        "preferred allocation": options.preferred_allocation_available,
    }
    return " and ".join(ability for ability, is_offered in abilities.items() if is_offered) or "nothing"


@check(
    "REG07",
    NOTE,
    "The options in a registration are those that GetDevicePluginOptions answers.",
    why="the kubelet reads only the answer; other options in the registration mislead people",
    change="fill in both from one value",
    source="pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go (options are not read)",
    lane=ARRIVAL,
)
async def says_the_same_twice(bed: TestBed) -> None:
    """Compare the first Register with what the plugin answers when it is asked."""
    attempt, client = _accepted(bed)
    if attempt.request.options != client.options:
        raise FailedError(
            f"Register said {_words(attempt.request.options)}, the call {_words(client.options)}"
        )


@check(
    "REG14",
    MUST,
    "A plugin that is registered and has a stream does not register again.",
    why="the kubelet replaces its connection to the plugin and never closes the old one",
    change="register once with each kubelet, and again only when the stream ends or kubelet.sock is replaced",
    source="kubernetes/kubernetes#124716",
    lane="silence",
    quick=False,
)
async def registers_once(bed: TestBed) -> None:
    """Watch a registered plugin while nothing happens, and count its calls of Register."""
    opened_at = bed.client.stream_opened_at
    await asyncio.sleep(max(0.0, opened_at + bed.times.silence_seconds - time.monotonic()))
    attempts = bed.kubelet.attempts_since(0.0)
    again = [
        later
        for later in attempts
        if any(
            earlier.client and not earlier.client.has_ended and earlier.started_at < later.started_at
            for earlier in attempts
        )
    ]
    if again:
        raise FailedError(
            f"within {bed.times.silence_seconds:g} s the plugin registered {len(again)} times more while its "
            f"stream was open, the first time after {again[0].started_at - attempts[0].started_at:.1f} s"
        )


@check(
    "REG16",
    SHOULD,
    "The options are the same each time they are asked.",
    why="the kubelet asks once for each registration, so its behaviour depends on when it asked",
    change="answer from a constant; to change an ability, restart and register again",
    source="pkg/kubelet/cm/devicemanager/manager.go (asked once per registration)",
    harmless=True,
)
async def keeps_its_options(bed: TestBed) -> None:
    """Ask for the options three times more and compare the answers with the first."""
    for _ in range(_ASKED):
        options = await bed.call(GET_OPTIONS, None)
        if options != bed.options:
            raise FailedError(f"first the plugin answered {_words(bed.options)}, then {_words(options)}")


@check(
    "REG17",
    NOTE,
    "The socket can be dialled only by its owner.",
    why="every user who may write to the socket can call Allocate, and a call carries no credentials",
    change="leave the mode to the umask, or set it to 0700",
    source="unix(7): to connect is to write; the kubelet is root",
    harmless=True,
)
async def keeps_its_socket_to_itself(bed: TestBed) -> str:
    """Read the mode of the plugin's socket file; bits that the umask of this run leaves are allowed."""
    client = bed.client
    try:
        mode = stat.S_IMODE(client.path.stat().st_mode)
    except OSError as error:
        raise SkippedError(f"the socket's mode cannot be read: {error.strerror}") from error
    if loose_bits(mode, _umask() if bed.programs else _NO_UMASK):
        raise FailedError(f"its mode is {mode:04o}, so other users may write to it")
    return f"mode {mode:04o}"


def _umask() -> int:
    """Return the umask with which the plugin was started, which is ours."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return _NO_UMASK


@check(
    "REG18",
    SHOULD,
    "GetDevicePluginOptions is answered within a second.",
    why="a slow answer delays the registration, and in plugins_registry the kubelet gives up after 1 s",
    change="answer from a constant, without a look at the devices",
    source="kubernetes/kubernetes#71487; pkg/kubelet/pluginmanager (GetInfo, 1 s)",
    lane=ARRIVAL,
)
async def answers_the_options_at_once(bed: TestBed) -> str:
    """Take the time from the dial's end to the answer, at the first Register."""
    attempt, _ = _accepted(bed)
    if attempt.options_seconds is None or attempt.dialled_seconds is None:
        raise SkippedError("the kubelet did not ask")
    seconds = attempt.options_seconds - attempt.dialled_seconds
    if seconds > bed.times.options_limit_seconds:
        raise FailedError(f"the answer took {seconds:.1f} s")
    return f"{1000 * seconds:.0f} ms"
