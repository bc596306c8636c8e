"""Which kinds of device one program at a time can use, and what happens to the second one. Pure.

The table is what Linux's drivers do when a node is opened twice; sharing such a device is allowed, since
programs can agree on turns, but seldom meant.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devplug.daemon.grammar.config import Resource
    from devplug.daemon.sources.found import Found

__all__ = ["reason_of_resource", "reasons_of_found"]

_REASONS: Final = {
    "tty": "two programs on one serial line take each other's data",
    "video4linux": "only one program can stream from a camera",
    "sound": "most sound hardware plays for one program only",
    "tpm": "/dev/tpm0 opens once; discover /dev/tpmrm0 instead, which takes turns",
    "vfio": "a VFIO group opens once",
    "usb": "only one program can claim a USB interface",
    "block": "two programs that write to one disk destroy its content",
    "watchdog": "a watchdog opens once",
    "rtc": "a clock opens once",
    "spidev": "transfers of two programs mix on the bus",
    "gpio": "each line has one owner",
}
"""By the kernel's subsystem."""

_SUBSYSTEM_OF_FILE: Final = tuple(
    (re.compile(pattern), subsystem)
    for pattern, subsystem in (
        (r"/dev/(tty(USB|ACM|S|AMA|XR|mxc|O)|serial/).*", "tty"),
        (r"/dev/(video|v4l/).*", "video4linux"),
        (r"/dev/snd/.*", "sound"),
        (r"/dev/tpm\d.*", "tpm"),
        (r"/dev/vfio/(?!vfio$).*", "vfio"),
        (r"/dev/bus/usb/.*", "usb"),
        (r"/dev/(sd|vd|xvd|hd|nvme\d+n|mmcblk|disk/).*", "block"),
        (r"/dev/watchdog.*", "watchdog"),
        (r"/dev/rtc.*", "rtc"),
        (r"/dev/spidev.*", "spidev"),
        (r"/dev/gpiochip.*", "gpio"),
    )
)
_ALIASES: Final = {"vfio-dev": "vfio", "scsi_generic": "block", "serial": "tty"}


def reason_of_resource(resource: Resource) -> str:
    """Return why the devices of a resource are bad to share, as far as the file shows; empty: it does not."""
    discover, asked = resource.discover, resource.expose.device_nodes or ()
    subsystems = [one.subsystem for one in asked if one.subsystem]
    subsystems += [one.subsystem for one in discover.sysfs]
    subsystems += [
        _subsystem(f"/dev/{one.file.replace('*', '0')}") for one in asked if one.file and not one.subsystem
    ]
    paths = [one.glob for one in discover.path] + [node.path for one in discover.bundle for node in one.paths]
    subsystems += [_subsystem(path.replace("*", "0").replace("?", "0")) for path in paths]
    subsystems += ["vfio" for one in discover.pci if one.driver in {"vfio-pci", "mlx5_vfio_pci"}]
    return next(_reasons(subsystems), "")


def reasons_of_found(found: Found) -> Iterator[str]:
    """Yield why a found device is bad to share, for each kind of its own nodes."""
    own = [node for node in found.nodes if not node.is_shared]
    yield from _reasons(
        "block" if node.is_block else node.subsystem or _subsystem(node.real_path or node.host_path)
        for node in own
        # The raw way to a gadget is given out only where there is no other.
        if node.subsystem != "usb" or len(own) == 1
    )


def _reasons(subsystems: Iterable[str]) -> Iterator[str]:
    known = (_REASONS.get(_ALIASES.get(one, one), "") for one in subsystems)
    return iter(dict.fromkeys(reason for reason in known if reason))


def _subsystem(path: str) -> str:
    return next((name for pattern, name in _SUBSYSTEM_OF_FILE if pattern.fullmatch(path)), "")
