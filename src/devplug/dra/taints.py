"""The taints of devices, those of DeviceTaintRules, and the tolerations of requests. Pure.

After resourceclaim/devicetoleration.go, and for the rules resourceslice/tracker/tracker.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from devplug.k8s.objects import Object, entries, fields, maps, part, text, with_part

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

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


def with_rules(one: Object, rules: Collection[Object]) -> Object:
    """Return a ResourceSlice whose devices also have the taints of the DeviceTaintRules that select them.

    A rule without a selector selects no device, and one with an empty selector selects all.
    """
    slice_spec = fields(one, "spec")
    place = {"driver": text(slice_spec, "driver"), "pool": text(slice_spec, "pool", "name")}
    matching = [rule for rule in rules if _selects(rule, place)]
    if not matching:
        return one

    def tainted(device: Object) -> Object:
        name = {"device": text(device, "name")}
        taints = [fields(rule, "spec", "taint") for rule in matching if _selects(rule, name)]
        return {**device, "taints": [*maps(device, "taints"), *taints]} if taints else device

    devices = [tainted(fields(device)) for device in entries(slice_spec, "devices")]
    return with_part(one, devices, "spec", "devices")


def _selects(rule: Object, names: Mapping[str, str]) -> bool:
    """Whether nothing in a rule's selector differs from these names."""
    selector = part(rule, "spec", "deviceSelector")
    return isinstance(selector, dict) and all(
        selector.get(word) in (None, name) for word, name in names.items()
    )
