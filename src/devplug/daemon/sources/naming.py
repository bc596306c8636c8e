"""Which device has which ID: as the hardware says, and never two with one, nor one that changes. No I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain, count
from typing import TYPE_CHECKING

from devplug.daemon.grammar.templates import Missing, render_one
from devplug.devices import stable_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.daemon.grammar.templates import Template

__all__ = ["Names", "Wanted", "wanted_name"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one present device would like to be called."""

    hardware: str
    """Where it is plugged in, the same after a re-plug: its folder below /sys/devices, or what stands for it
    where the kernel numbers anew, as with USB buses."""
    preferred: str
    """What it says of itself, as with a serial number; another device may say the same."""
    by_place: str
    """What only one device can be called: with the address and the port it is plugged in."""

    def choices(self) -> tuple[str, str, str]:
        """Return the IDs it may have, best first."""
        return (
            stable_id(self.preferred),
            stable_id(self.by_place),
            stable_id(f"{self.by_place}@{self.hardware}"),
        )


def wanted_name(template: Template | None, facts: Mapping[str, str | int], default: str) -> str:
    """Return the ID that a template makes of a device's facts; that of `default` if it lacks one of them."""
    if template is not None:
        text = render_one(template, facts)
        if not isinstance(text, Missing):
            return stable_id(text)
    return stable_id(default)


@dataclass(slots=True)
class Names:
    """The IDs of one source's devices; lives as long as the source.

    Many gadgets of one make have one serial number. Those that are first seen together are called by their
    places. One that was alone before keeps its name, because a pod may hold it, also after it was unplugged
    and came back to its place; unless another that says the same was given that name in between.
    """

    _names: dict[str, str] = field(default_factory=dict)
    """By hardware, of absent devices too."""
    _present: frozenset[str] = frozenset()
    _ambiguous: set[str] = field(default_factory=set)

    def assign(self, wanted: Iterable[Wanted]) -> dict[str, str]:
        """Return the ID of each present device, by hardware. Order does not matter."""
        by_hardware = {one.hardware: one for one in wanted}
        counted = Counter(one.preferred for one in by_hardware.values())
        self._ambiguous.update(name for name, number in counted.items() if number > 1)
        owner_of: dict[str, str] = {}
        # Who was here at the last look comes first, then who was here before, then who is new.
        known = sorted(
            by_hardware.keys() & self._names.keys(), key=lambda one: (one not in self._present, one)
        )
        for hardware in known:
            name = self._names[hardware]
            if name not in owner_of and name in by_hardware[hardware].choices():
                owner_of[name] = hardware
        for hardware in sorted(by_hardware.keys() - set(owner_of.values())):
            owner_of[self._new_name(by_hardware[hardware], owner_of)] = hardware
        assigned = {hardware: name for name, hardware in owner_of.items()}
        self._names.update(assigned)
        self._present = frozenset(assigned)
        return assigned

    def is_ambiguous(self, preferred: str) -> bool:
        """Whether two present devices have said this of themselves at once, ever."""
        return preferred in self._ambiguous

    def _new_name(self, one: Wanted, taken: Mapping[str, str]) -> str:
        choices = one.choices()[1 if one.preferred in self._ambiguous else 0 :]
        # Only gadgets that imitate each other's places get as far as a number.
        numbered = (stable_id(f"{one.by_place}@{one.hardware}#{number}") for number in count(2))
        return next(name for name in chain(choices, numbered) if name not in taken)
