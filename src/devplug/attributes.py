"""What a device says of itself to claims: attributes, by which they select, and capacities. Pure.

Attributes are bools, integers, texts and versions; capacities are whole numbers, as of bytes. What is wrong
with one is told by `attribute_rules`, which each plugin loads: few have any of these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.attribute_rules import AttributeValue, capacity_faults, is_text
from devplug.errors import PluginError, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

__all__ = [
    "TEXT_LIMIT_BYTES",
    "AttributeValue",
    "Partition",
    "Version",
]

TEXT_LIMIT_BYTES: Final = 64
"""The longest text or version that an attribute of a ResourceSlice has (resource.k8s.io/v1 types.go)."""

COUNTERS_LIMIT: Final = 32
"""The most counters of a thing that is partitioned (resource.k8s.io/v1 types.go)."""

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Version(str):
    """A version by semver.org 2.0.0, `1.2.3-rc.1+build`, at most 64 bytes long: the value of an attribute.

    Claims can then ask for at least a version. To Python it is its text, and equals and sorts as that does.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Validate `text`; raises `PluginError` saying what is wrong with it."""
        from devplug.dra.semver import Semver, SemverError  # here: most plugins have no versions

        if not is_text(text):
            raise PluginError(f"version {text!r} is not a string")
        if len(text) > TEXT_LIMIT_BYTES:
            raise PluginError(
                f"version {quoted(text)} is {len(text)} characters long; {TEXT_LIMIT_BYTES} fit"
            )
        try:
            Semver.parse(text)
        except SemverError as error:
            raise PluginError(
                f'version {quoted(text)} is none by semver.org, as "1.2.3" is: {error}'
            ) from error
        return super().__new__(cls, text)


@dataclass(frozen=True, slots=True)
class Partition:
    """What a device takes of something larger, as a MIG instance of its GPU, and the GPU itself of all of it.

    Devices that together take more of it than there is are never in use at once.
    """

    of: str
    """What names the larger thing for all devices that take of it."""
    takes: Mapping[str, int] = field(hash=False)
    """By counter, as bytes of `memory`; a counter's name is a DNS label."""
    whole: Mapping[str, int] = field(hash=False)
    """How much of each counter there is."""

    def __post_init__(self) -> None:
        """Validate; raises `PluginError` naming every fault."""
        faults = [*capacity_faults(self.takes), *capacity_faults(self.whole)]
        faults += [
            f"counter {quoted(name)} is no DNS label: a to z, digits and -, 63 at most"
            for name in map(str, self.whole)
            if not _LABEL.fullmatch(name)
        ]
        faults += [
            f"it takes {number} of counter {quoted(name)}, of which there is less"
            for name, number in self.takes.items()
            if not number <= self.whole.get(name, -1)
        ]
        if not self.of or not self.whole or len(self.whole) > COUNTERS_LIMIT:
            faults.append(f"it needs a name and 1 to {COUNTERS_LIMIT} counters")
        if faults:
            raise PluginError(*(f"partition of {quoted(self.of)}: {fault}" for fault in faults))
