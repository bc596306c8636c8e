"""Suggestions for a key that the file must not have: what to write instead, by table or by spelling. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WORD_LIMIT: Final = 64
"""Longer words are not compared: nobody misspells one, and the time grows with the square of their length."""

SUGGESTIONS: Final[Mapping[str, str]] = {
    # squat/generic-device-plugin
    "mountPath": "write expose.containerPath",
    "count": "write share.replicas",
    "limit": "write share.replicas",
    "groups": "write one resource for each group",
    "domain": "write it into name, as in example.com/serial",
    # smarter-device-manager
    "devicematch": "write discover.path, which is a glob and not a regex",
    "nummaxdevices": "write share.replicas",
    # NVIDIA's
    "failRequestsGreaterThanOne": "write share.maxPerContainer: 1",
    "migStrategy": "write discover.nvidia.mig",
    "deviceListStrategy": "write expose.strategy",
    "failOnInitError": "write whenNone: fail",
    "rename": "write another name",
    "renameByDefault": "write another name",
    "sharing": "write share.replicas",
    "timeSlicing": "write share.replicas",
    "sharedDevicesAllocationPolicy": "write prefer",
    # SR-IOV's
    "resourceList": "write resources",
    "resourceName": "write name, as in example.com/vf",
    "resourcePrefix": "write it into name, as in example.com/vf",
    "selectors": "write discover",
    "pfNames": "write discover.pci.virtualFunctionOf with the address of the physical function",
    "rootDevices": "write discover.pci.virtualFunctionOf",
    "pciAddresses": "write discover.pci.address",
    # words that look like ours
    "nodes": "write expose.deviceNodes for files in /dev, or nodeNames for machines",
    "udev": "write discover.sysfs",
    "bdf": "write discover.pci.address",
}
"""What to write instead of keys of other device plugins' files, by key; it comes before the nearest key of
ours, which would often be the wrong one."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the one of `known` that is most like `word`, whatever its case, or "" if none is."""
    if not word or len(word) > WORD_LIMIT:
        return ""
    import difflib  # only a mistake in the file needs it

    ours = {one.lower(): one for one in sorted(known)}
    found = difflib.get_close_matches(word.lower().replace("_", "").replace("-", ""), ours, n=1, cutoff=0.7)
    return ours[found[0]] if found else ""
