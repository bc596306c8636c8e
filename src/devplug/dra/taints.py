"""The taints of devices and the tolerations of requests (resourceclaim/devicetoleration.go). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["NO_EXECUTE", "NO_SCHEDULE", "Taint", "Toleration", "is_kept_off", "untolerated"]

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
"""The effects that keep a device from being allocated; all others are informational (D80)."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a device."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Return the form that kubectl has for the taints of nodes."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Taint:
        """Read one entry of a device's `taints`."""
        return cls(found.get("key") or "", found.get("value") or "", found.get("effect") or "")


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration: of taints with this key and effect; without a key of all, without an effect of any."""

    key: str
    operator: str
    value: str
    effect: str

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Toleration:
        """Read one entry of a request's `tolerations`."""
        return cls(
            found.get("key") or "",
            found.get("operator") or "Equal",
            found.get("value") or "",
            found.get("effect") or "",
        )

    def covers(self, taint: Taint) -> bool:
        """Whether it tolerates a taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (self.operator == "Equal" and self.value == taint.value)


def is_kept_off(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Whether a taint that is not tolerated keeps a device from being allocated."""
    return next(untolerated(taints, tolerations), None) is not None


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Iterator[Taint]:
    """Yield the taints that keep a device from being allocated."""
    known = tuple(tolerations)
    for taint in taints:
        if taint.effect in {NO_SCHEDULE, NO_EXECUTE} and not any(one.covers(taint) for one in known):
            yield taint
