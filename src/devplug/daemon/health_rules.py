"""Health rules: what a reading means, and how many readings it takes. Pure: nothing is looked up."""

from __future__ import annotations

import enum
import errno
import fnmatch
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from devplug.devices import Health, HealthState
from devplug.errors import one_line, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.daemon.command_result import CommandResult
    from devplug.daemon.config.types import HealthRule
    from devplug.daemon.sources.device import HostDeviceNode

__all__ = [
    "Judgement",
    "Outcome",
    "Reading",
    "combined",
    "is_watchdog",
    "judge",
    "judge_command",
    "judge_open",
]

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
    doubt: str = ""
    """Why the last reading was unknown; empty if it was not."""
    against: int = 0
    """How many readings in a row contradict it."""

    def after(self, reading: Reading) -> Judgement:
        """Return what the rule thinks once there is one more reading."""
        if reading.outcome is Outcome.UNKNOWN:
            is_open = self.health.state is HealthState.UNKNOWN
            health = Health.unknown(reading.reason) if is_open else self.health
            return replace(self, health=health, doubt=reading.reason)
        said = Health.from_fault(reading.reason) if reading.outcome is Outcome.BAD else Health.healthy()
        if said.state is self.health.state:
            return replace(self, doubt="", against=0)
        needed = {
            HealthState.UNKNOWN: 1,
            HealthState.HEALTHY: self.failure_threshold,
            HealthState.UNHEALTHY: self.success_threshold,
        }[self.health.state]
        if self.against + 1 < needed:
            return replace(self, doubt="", against=self.against + 1)
        return replace(self, health=said, doubt="", against=0)


def combined(healths: Iterable[Health]) -> Health:
    """Return one health for several opinions on one device: each must be good for it to be healthy.

    Unhealthy wins over unknown, which wins over healthy; the reasons of those that win are joined.
    """
    given = list(healths)
    for state, made in ((HealthState.UNHEALTHY, Health.unhealthy), (HealthState.UNKNOWN, Health.unknown)):
        reasons = dict.fromkeys(health.reason for health in given if health.state is state)
        if reasons:
            return made("; ".join(reasons))
    return Health.healthy()
