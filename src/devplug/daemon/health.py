"""Health checks: when each rule is applied to each device, so that no hung device holds up the others.

A check reads an attribute or a file, opens nodes, or runs a command, as its rule says. What a reading means
is in `health_rules`.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import fnmatch
import logging
import math
import os
import re
import stat
import time
import zlib
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.daemon.config.templates import Missing, Writing, render_one
from devplug.daemon.device_list import combined
from devplug.daemon.sources.hardware import device_at
from devplug.devices import Health, HealthState
from devplug.errors import one_line, quoted
from devplug.linux.notifier import Event
from devplug.linux.threads import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from devplug.daemon.commands import CommandResult
    from devplug.daemon.config.templates import Template
    from devplug.daemon.config.types import HealthCommand, HealthRule
    from devplug.daemon.sources.device import HostDevice, HostDeviceNode
    from devplug.daemon.sources.hardware import SysDevice
    from devplug.daemon.sources.host import Host


logger = logging.getLogger(__name__)

CONTENT_LIMIT_BYTES: Final = 4096

AT_ONCE_LIMIT: Final = 8
"""Most checks of one resource that are waited for at the same time."""

THREADS_LIMIT: Final = 64
"""Most threads of one resource; a read that hangs in the kernel keeps one for as long as it hangs."""


# ── one reading ───────────────────────────────────────────────────────────────────────────────────


def _blocking_reading(rule: HealthRule, found: HostDevice, host: Host) -> Reading:
    """Return the reading of a `rule` without a command. It may block for ever: use a thread."""
    if rule.attribute is not None:
        return _read_attribute(rule, rule.attribute, found, host)
    if rule.file is not None:
        return _read_file(rule, rule.file, found, host)
    return _open_nodes(found, host)


def _read_attribute(rule: HealthRule, name: str, found: HostDevice, host: Host) -> Reading:
    """Read an attribute of the device, or of its nearest parent that has one of this name."""
    device = _sys_device(found, host)
    if device is None:
        return Reading.unknown("sysfs has no folder for it")
    for one in (device, *device.parents()):
        if os.path.exists(host.inside(f"{one.path}/{name}")):  # noqa: PTH110
            return judge(rule, name, one.attribute(name))
    return Reading.unknown(f"neither the device nor a parent has an attribute {name}")


def _sys_device(found: HostDevice, host: Host) -> SysDevice | None:
    if found.hardware and (device := device_at(host, found.hardware)):
        return device
    return _sys_device_of_node(found.nodes[0], host) if found.nodes else None


def _sys_device_of_node(node: HostDeviceNode, host: Host) -> SysDevice | None:
    kind = "block" if node.is_block else "char"
    return device_at(host, f"/sys/dev/{kind}/{node.number[0]}:{node.number[1]}")


def _read_file(rule: HealthRule, template: Template, found: HostDevice, host: Host) -> Reading:
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


def _open_nodes(found: HostDevice, host: Host) -> Reading:
    """Open each node that is the device's own. The worst reading counts."""
    readings = [_open_node(node, host) for node in found.nodes if not node.is_shared]
    if not readings:
        return Reading.unknown("it has no device node of its own to open")
    order = (Outcome.BAD, Outcome.UNKNOWN, Outcome.GOOD)
    return min(readings, key=lambda reading: order.index(reading.outcome))


def _open_node(node: HostDeviceNode, host: Host) -> Reading:
    """Open a node that is still the one that was found, and close it again."""
    path = node.host_path
    try:
        place = os.open(host.inside(path), os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        return judge_open(path, error)
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


def _try_to_open(place: int, node: HostDeviceNode) -> OSError | None:
    """Open what `place` stands for, for writing or else for reading; return the error, None if it opened."""
    # udev answers the end of each writing to a disk with an event, which would make the source look again.
    modes = (os.O_RDONLY,) if node.is_block else (os.O_RDWR, os.O_RDONLY)
    failed: OSError | None = None
    for mode in modes:
        try:
            handle = os.open(f"/proc/self/fd/{place}", mode | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            failed = error.with_traceback(None)  # or it and this frame keep each other in memory
            if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
                break
        else:
            os.close(handle)
            return None
    return failed


# ── when ──────────────────────────────────────────────────────────────────────────────────────────


class _Watched(Struct, eq=False):
    """A device under the rules, from when it is first found until it is gone or replaced."""

    found: HostDevice
    judgements: list[Judgement]
    unchecked: set[int]
    """The rules that have not read anything yet, by their place in the file."""
    health: Health = field(default_factory=Health.healthy)
    is_checked: Event = field(default_factory=Event)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    logged_doubts: set[int] = field(default_factory=set)


class _Means(Struct, frozen=True):
    """What the checks need while the prober runs."""

    group: asyncio.TaskGroup
    threads: DaemonThreads


class Prober:
    """The health rules of one resource, and the health of its devices; lives as long as that is served.

    `run` does the work and owns all tasks. After each scan of a source call `first_check`, then `follow`.
    """

    def __init__(
        self,
        rules: Sequence[HealthRule],
        host: Host,
        *,
        resource_name: str,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.changed = Event()
        """Set when the result of `health_of` changes for any device. The waiting task clears it."""
        self._rules = tuple(rules)
        self._host = host
        self._resource_name = resource_name
        self._clock = clock
        self._sleep = sleep
        self._slots = asyncio.Semaphore(AT_ONCE_LIMIT)
        self._watched: dict[str, _Watched] = {}
        self._means: _Means | None = None

    async def run(self) -> None:
        """Check each device when its check is due, until cancelled. Without rules it only waits."""
        with DaemonThreads(THREADS_LIMIT, f"health-{self._resource_name}") as threads:
            async with asyncio.TaskGroup() as group:
                self._means = _Means(group, threads)
                try:
                    for watched in self._watched.values():
                        self._start(watched, self._means)
                    await Event().wait()
                finally:
                    self._means = None

    async def first_check(self, found: Iterable[HostDevice]) -> None:
        """Start to check the new devices, and return once every rule has read each, or has timed out.

        Needs `run` at work. A device is new if it was not there at the last `follow`, or if its hardware or
        its nodes are others now, for then it was plugged in again meanwhile.
        """
        if self._rules:
            for watched in [self._add(one) for one in found]:
                await watched.is_checked.wait()

    def follow(self, found: Iterable[HostDevice]) -> None:
        """Check these devices from now on, and forget all others: one that comes back starts anew."""
        present = {one.name: one for one in found} if self._rules else {}
        for name in [name for name in self._watched if name not in present]:
            self._forget(name)
        for one in present.values():
            self._add(one)

    def health_of(self, name: str) -> Health:
        """Return the health of a device by the rules: healthy or unhealthy; healthy for an unknown device.

        Never unknown. To a list, unknown means that the last word stands; that may be an "unplugged" which
        is over, or what another rule says. Each rule has its own last word, which outlasts what cannot be
        read; the log has the reason.
        """
        watched = self._watched.get(name)
        return watched.health if watched else Health.healthy()

    def _add(self, found: HostDevice) -> _Watched:
        known = self._watched.get(found.name)
        if known is not None:
            if known.found.plugged_in == found.plugged_in:
                known.found = found
                return known
            self._forget(found.name)
        judgements = [Judgement(rule.failure_threshold, rule.success_threshold) for rule in self._rules]
        watched = _Watched(found, judgements, set(range(len(judgements))))
        self._watched[found.name] = watched
        if self._means is not None:
            self._start(watched, self._means)
        return watched

    def _forget(self, name: str) -> None:
        watched = self._watched.pop(name)
        watched.is_checked.set()
        for task in watched.tasks:
            task.cancel()

    def _start(self, watched: _Watched, means: _Means) -> None:
        watched.tasks = [
            means.group.create_task(self._repeat(watched, number, means.threads))
            for number in range(len(self._rules))
        ]

    async def _repeat(self, watched: _Watched, number: int, threads: DaemonThreads) -> None:
        """Apply one rule to one device now, then at a phase of its own in each period."""
        period_seconds = self._rules[number].period_seconds
        await self._check(watched, number, threads)
        due = self._clock() + period_seconds * _phase(f"{number} {watched.found.name}")
        while True:
            await self._sleep(max(0.0, due - self._clock()))
            await self._check(watched, number, threads)
            # One that took longer than its period leaves out the turns that it missed.
            due += period_seconds * max(1, math.floor((self._clock() - due) / period_seconds) + 1)

    async def _check(self, watched: _Watched, number: int, threads: DaemonThreads) -> None:
        """Take one reading, which is unknown when it is late; return only when what was started has ended."""
        rule = self._rules[number]
        async with asyncio.TaskGroup() as group:
            async with self._slots:
                task = group.create_task(self._read(rule, watched.found, threads))
                await asyncio.wait({task}, timeout=rule.timeout_seconds)
            late = Reading.unknown(f"no answer within {rule.timeout_seconds:g} s")
            self._take(watched, number, task.result() if task.done() else late)

    def _take(self, watched: _Watched, number: int, reading: Reading) -> None:
        facts = {"resource_name": self._resource_name, "device_id": watched.found.name}
        watched.judgements[number] = watched.judgements[number].after(reading)
        if reading.outcome is Outcome.UNKNOWN and number not in watched.logged_doubts:
            watched.logged_doubts.add(number)
            logger.warning(
                "a health check has no result; the device keeps its health",
                extra={**facts, "reason": reading.reason},
            )
        health = combined(judgement.health for judgement in watched.judgements)
        if health.state is not HealthState.UNHEALTHY:
            health = Health.healthy()
        if health != watched.health:
            watched.health = health
            watched.logged_doubts.clear()
            self.changed.set()
        watched.unchecked.discard(number)
        if not watched.unchecked:
            watched.is_checked.set()

    async def _read(self, rule: HealthRule, found: HostDevice, threads: DaemonThreads) -> Reading:
        try:
            if rule.exec is not None:
                return await self._command(rule.exec, found, rule.timeout_seconds)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(threads, _blocking_reading, rule, found, self._host)
        except Exception as error:
            # One that is broken must not end the checks of all other devices.
            logger.warning(
                "a health check raised an error", extra={"resource_name": self._resource_name}, exc_info=error
            )
            return Reading.unknown(f"the check failed: {error!r}")

    async def _command(self, command: HealthCommand, found: HostDevice, timeout_seconds: float) -> Reading:
        from devplug.daemon.commands import command_arguments, command_environment, run_command

        arguments = command_arguments(command.command, found)
        if isinstance(arguments, Missing):
            return Reading.unknown(arguments.reason)
        env = command_environment(self._resource_name, found)
        return judge_command(await run_command(arguments, timeout_seconds=timeout_seconds, env=env))


def _phase(name: str) -> float:
    """Return a number above 0 and up to 1, always the same for a name: it spreads checks over the period."""
    return (zlib.crc32(name.encode()) % 1000 + 1) / 1000


# ── health rules ──


REASON_LIMIT_BYTES: Final = 100
"""Longest reason of one reading: several of them share one line in a refusal."""

WATCHDOG_NUMBER: Final = (10, 130)
"""/dev/watchdog, the misc device; /dev/watchdog0 and on have a major of their own (devices.txt)."""

# A pattern as text: `re` compiles and keeps it at its first use, which most daemons never have.
_NUMBER: Final = (
    r"([+-]?)(?:(0[xX][0-9a-fA-F]+)|([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?))(?:%|[ \t]+[^0-9\s].*)?"
)

_BROKEN: Final = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.ENODEV,
        errno.EIO,
        errno.EREMOTEIO,
        errno.ETIMEDOUT,
    }
)
"""The errors of an open for a device that is gone, or does not answer its driver."""


class Outcome(enum.Enum):
    """The result of one reading."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    """The reading failed, which is neither good nor bad."""


class Reading(Struct, frozen=True):
    """One reading of one device by one rule. Make one with the three class methods."""

    outcome: Outcome
    reason: str = ""

    @classmethod
    def good(cls) -> Reading:
        """The rule holds."""
        return _GOOD

    @classmethod
    def bad(cls, reason: str) -> Reading:
        """The rule does not hold, because of `reason`."""
        return cls(Outcome.BAD, one_line(reason, REASON_LIMIT_BYTES) or "no reason given")

    @classmethod
    def unknown(cls, reason: str) -> Reading:
        """It is not known whether the rule holds, because of `reason`."""
        return cls(Outcome.UNKNOWN, one_line(reason, REASON_LIMIT_BYTES) or "no reason given")


_GOOD: Final = Reading(Outcome.GOOD)


# ── one reading ───────────────────────────────────────────────────────────────────────────────────


def judge(rule: HealthRule, name: str, content: str | None) -> Reading:
    """Return the reading of an attribute or a file with this content; None if it could not be read.

    `name` is the attribute, or the path of the file. `min` and `max` want one number, decimal or 0x…, which a
    unit may follow: `8.0 GT/s PCIe`. Anything else is unknown, not bad: it is the rule that does not fit the
    file.
    """
    if content is None:
        return Reading.unknown(f"{name} cannot be read")
    if rule.equals is not None and not fnmatch.fnmatchcase(content, rule.equals):
        return Reading.bad(f"{name} is {quoted(content)}, not {quoted(rule.equals)}")
    if rule.min is None and rule.max is None:
        return Reading.good()
    number = _number(content)
    if number is None:
        return Reading.unknown(f"{name} is {quoted(content)}, which is no number")
    if rule.min is not None and number < rule.min:
        return Reading.bad(f"{name} is {content}, less than {rule.min:.15g}")
    if rule.max is not None and number > rule.max:
        return Reading.bad(f"{name} is {content}, more than {rule.max:.15g}")
    return Reading.good()


def judge_command(result: CommandResult) -> Reading:
    """Return the reading of a command's result: exit code 0 is good, 1 bad, any other or none unknown.

    These are node-problem-detector's codes (docs/custom_plugin_monitor.md); the first line that the command
    wrote is the reason.
    """
    if result.fault:
        return Reading.unknown(result.fault)
    if result.was_killed or result.exit_code is None:
        return Reading.unknown("the command did not end in time")
    if result.exit_code == 0:
        return Reading.good()
    if result.exit_code == 1:
        return Reading.bad(result.first_line or "the command ended with code 1 and printed no reason")
    said = f": {result.first_line}" if result.first_line else ""
    if result.exit_code < 0:
        return Reading.unknown(f"signal {-result.exit_code} ended the command{said}")
    return Reading.unknown(f"the command ended with code {result.exit_code}{said}")


def judge_open(path: str, error: OSError | None) -> Reading:
    """Return the reading of opening the device node at `path`; `error` is None if it opened."""
    if error is None or error.errno == errno.EBUSY:
        # Somebody uses it: it works.
        return Reading.good()
    if error.errno in _BROKEN:
        return Reading.bad(f"{path} cannot be opened: {error.strerror}")
    if error.errno in {errno.EPERM, errno.EACCES}:
        return Reading.unknown(f"devplug may not open {path}; an open rule needs a privileged container")
    return Reading.unknown(f"{path} cannot be opened: {error.strerror}")


def is_watchdog(node: HostDeviceNode, subsystem: str) -> bool:
    """Whether opening `node` would start the timer that reboots the machine."""
    is_misc = not node.is_block and node.number == WATCHDOG_NUMBER
    return is_misc or subsystem == "watchdog" or node.file_name.startswith("watchdog")


def _number(text: str) -> float | None:
    """Return the one number in `text`, a unit behind it left out, or None."""
    if not (found := re.fullmatch(_NUMBER, text)):
        return None
    sign, hexadecimal, decimal = found.groups()
    size = float(int(hexadecimal, 16)) if hexadecimal else float(decimal)
    return -size if sign == "-" else size


# ── many readings ─────────────────────────────────────────────────────────────────────────────────


class Judgement(Struct, frozen=True):
    """What one rule thinks of one device after all readings so far. Immutable: `after` returns the next.

    The first reading that is good or bad decides at once: nothing was vouched for before it. From then on
    it takes `failure_threshold` bad ones in a row to worsen and `success_threshold` good ones to recover. A
    reading that says nothing leaves all as it is, the counts too: bad, unknown, bad are two bad ones.
    """

    failure_threshold: int
    success_threshold: int
    health: Health = Health.unknown("not checked yet")
    """The health so far, with the reason of the reading that brought it; unknown until one said anything."""
    against: int = 0
    """How many readings in a row contradict it."""

    def after(self, reading: Reading) -> Judgement:
        """Return what the rule thinks once there is one more reading."""
        if reading.outcome is Outcome.UNKNOWN:
            is_open = self.health.state is HealthState.UNKNOWN
            return replace(self, health=Health.unknown(reading.reason)) if is_open else self
        said = Health.from_fault(reading.reason) if reading.outcome is Outcome.BAD else Health.healthy()
        if said.state is self.health.state:
            return replace(self, against=0)
        needed = {
            HealthState.UNKNOWN: 1,
            HealthState.HEALTHY: self.failure_threshold,
            HealthState.UNHEALTHY: self.success_threshold,
        }[self.health.state]
        if self.against + 1 < needed:
            return replace(self, against=self.against + 1)
        return replace(self, health=said, against=0)
