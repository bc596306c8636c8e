"""One look at a device for its health: an attribute, a file, its nodes opened. Only what a rule names."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.templates import Missing, Writing, render_one
from devplug.daemon.health.judging import Outcome, Reading, is_watchdog, judge, judge_open
from devplug.daemon.sources.sysdevices import device_at

if TYPE_CHECKING:
    from devplug.daemon.grammar.config import HealthRule
    from devplug.daemon.grammar.templates import Template
    from devplug.daemon.sources.found import Found, FoundNode
    from devplug.daemon.sources.host import Host
    from devplug.daemon.sources.sysdevices import SysDevice

__all__ = ["blocking_reading"]

CONTENT_LIMIT_BYTES: Final = 4096


def blocking_reading(rule: HealthRule, found: Found, host: Host) -> Reading:
    """Return what `rule`, which has no command, sees of a device now. It may block for ever: use a thread."""
    if rule.attribute is not None:
        return _read_attribute(rule, rule.attribute, found, host)
    if rule.file is not None:
        return _read_file(rule, rule.file, found, host)
    return _open_nodes(found, host)


def _read_attribute(rule: HealthRule, name: str, found: Found, host: Host) -> Reading:
    """Read an attribute of the device, or of its nearest parent that has one of this name."""
    device = _sys_device(found, host)
    if device is None:
        return Reading.unknown("sysfs has no folder for it")
    for one in (device, *device.parents()):
        if os.path.exists(host.inside(f"{one.path}/{name}")):  # noqa: PTH110
            return judge(rule, name, one.attribute(name))
    return Reading.unknown(f"neither the device nor a parent has an attribute {name}")


def _sys_device(found: Found, host: Host) -> SysDevice | None:
    if found.hardware and (device := device_at(host, found.hardware)):
        return device
    return _sys_device_of_node(found.nodes[0], host) if found.nodes else None


def _sys_device_of_node(node: FoundNode, host: Host) -> SysDevice | None:
    kind = "block" if node.is_block else "char"
    return device_at(host, f"/sys/dev/{kind}/{node.number[0]}:{node.number[1]}")


def _read_file(rule: HealthRule, template: Template, found: Found, host: Host) -> Reading:
    path = render_one(template, {**found.facts, "id": found.name}, Writing.PATH)
    if isinstance(path, Missing):
        return Reading.unknown(path.reason)
    try:
        place = os.open(host.inside(path), os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        return Reading.unknown(f"{path}: {os.strerror(error.errno or errno.EIO)}")
    try:
        # Opening anything else could wait for ever, or do harm.
        if not stat.S_ISREG(os.fstat(place).st_mode):
            return Reading.unknown(f"{path} is no regular file")
        with open(f"/proc/self/fd/{place}", "rb") as file:  # noqa: PTH123
            content = file.read(CONTENT_LIMIT_BYTES)
    except OSError as error:
        return Reading.unknown(f"{path}: {os.strerror(error.errno or errno.EIO)}")
    finally:
        os.close(place)
    return judge(rule, path, content.decode("utf-8", "replace").strip("\0 \t\r\n"))


def _open_nodes(found: Found, host: Host) -> Reading:
    """Open each node that is the device's own. The worst reading counts."""
    readings = [_open_node(node, host) for node in found.nodes if not node.is_shared]
    if not readings:
        return Reading.unknown("it has no device node of its own to open")
    order = (Outcome.BAD, Outcome.UNKNOWN, Outcome.GOOD)
    return min(readings, key=lambda reading: order.index(reading.outcome))


def _open_node(node: FoundNode, host: Host) -> Reading:
    """Open a node that is still the one that was found, and close it again."""
    path = node.host_path
    try:
        place = os.open(host.inside(path), os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        return judge_open(path, error.errno)
    try:
        status = os.fstat(place)
        number = (os.major(status.st_rdev), os.minor(status.st_rdev))
        is_same_kind = stat.S_ISBLK(status.st_mode) if node.is_block else stat.S_ISCHR(status.st_mode)
        if not is_same_kind or number != node.number:
            return Reading.bad(f"{path} is another device now")
        device = _sys_device_of_node(node, host)
        if is_watchdog(node, node.subsystem or (device.subsystem if device else "")):
            return Reading.unknown(f"{path} is a watchdog: opening it would let it reboot the machine")
        return judge_open(path, _try_to_open(place, node))
    finally:
        os.close(place)


def _try_to_open(place: int, node: FoundNode) -> int | None:
    """Open what `place` stands for, for writing or else for reading; return the errno, None if it opened."""
    # udev answers the end of each writing to a disk with an event, which would make the source look again.
    modes = (os.O_RDONLY,) if node.is_block else (os.O_RDWR, os.O_RDONLY)
    failed: int | None = None
    for mode in modes:
        try:
            handle = os.open(f"/proc/self/fd/{place}", mode | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            failed = error.errno
            if failed not in {errno.EACCES, errno.EPERM, errno.EROFS}:
                break
        else:
            os.close(handle)
            return None
    return failed
