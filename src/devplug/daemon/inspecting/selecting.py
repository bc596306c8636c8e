"""Which selectors of a source find certain devices and no others, tried on all that the source sees. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.daemon.grammar.globs import has_wildcard, regex_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from devplug.daemon.inspecting.survey import Survey
    from devplug.daemon.sources.found import Found

__all__ = ["Selector", "View"]

Selector: TypeAlias = "Mapping[str, str | Mapping[str, str]]"
"""One selector of a kind of discovery, with the keys of the file."""

_DIGITS: Final = re.compile(r"\d+")

_FACTS: Final = {
    ("usb", "vendor"): "attr.idVendor",
    ("usb", "product"): "attr.idProduct",
    ("", "vendor"): "attr.vendor",
    ("", "device"): "attr.device",
    ("", "class"): "attr.class",
    ("", "driver"): "attr.driver",
    ("", "address"): "pciAddress",
    ("", "path"): "hostPath",
    ("pci", "virtualFunctionOf"): "attr.physfn",
    ("net", "virtualFunctionOf"): "attr.pf",
}
"""The fact that a key of a selector is compared with, by kind of discovery and key; "" is any kind."""

_HEX_FACTS: Final = frozenset({"attr.idVendor", "attr.idProduct", "attr.vendor", "attr.device", "attr.class"})


@dataclass(frozen=True, slots=True)
class View:
    """What one source sees, and what its selectors would make of that."""

    discover: str
    subsystem: str
    survey: Survey

    @property
    def seen(self) -> Sequence[Found]:
        """All devices that the source sees."""
        if self.discover == "sysfs":
            return self.survey.sysfs[self.subsystem]
        survey = self.survey
        found = {"nvidia": survey.nvidia, "net": survey.net, "usb": survey.usb, "pci": survey.pci}
        return found.get(self.discover, survey.paths)

    def exact(
        self, candidates: Iterable[Sequence[Selector]], devices: Sequence[Found]
    ) -> tuple[Selector, ...]:
        """Return the first selectors that find these devices and no others; none if there are no such."""
        wanted = {one.name for one in devices}
        for selectors in candidates:
            found = {one.name for one in self.seen if any(self.finds(each, one) for each in selectors)}
            if all(selectors) and found == wanted:
                return tuple(selectors)
        return ()

    def finds(self, selector: Selector, found: Found) -> bool:
        """Whether a selector finds a device that its source sees."""
        if self.discover == "nvidia" and self._told("mig", found) != selector.get("mig", ""):
            return False
        return all(self._fits(key, wanted, found) for key, wanted in selector.items())

    def _fits(self, key: str, wanted: str | Mapping[str, str], found: Found) -> bool:
        if not isinstance(wanted, str):
            return all(found.facts.get(f"attr.{name}") == text for name, text in wanted.items())
        told = self._told(key, found)
        if key == "class":
            return told.startswith(wanted)
        return fnmatchcase(told, wanted) if key == "name" else told == wanted

    def _told(self, key: str, found: Found) -> str:
        """Return what a device has for a key of its source's selectors; empty if it has nothing."""
        match self.discover, key:
            case _, "subsystem":
                return self.subsystem
            case "sysfs", "name":
                return found.hardware.rpartition("/")[2]
            case "nvidia", "mig":
                return self.survey.mig_profiles.get(str(found.facts.get("uuid", "")), "")
        fact = _FACTS.get((self.discover, key)) or _FACTS.get(("", key), key)
        text = str(found.facts.get(fact, ""))
        return text.lower().removeprefix("0x") if fact in _HEX_FACTS else text

    def candidates(self, kind: str, devices: Sequence[Found]) -> Iterator[list[Selector]]:
        """Yield selectors for these devices, those that say most of their kind first, the narrowest last."""
        match self.discover:
            case "path":
                yield self._each(devices, "path")
            case "usb":
                yield self._each(devices, "vendor", "product")
                yield self._each(devices, "vendor", "product", "serial")
            case "nvidia":
                yield self._each(devices, "mig", "model")
                yield self._each(devices, "mig", "uuid")
            case "pci":
                if kind == "vf":
                    yield self._each(devices, "virtualFunctionOf", "driver")
                if kind in {"fpga", "accelerator"}:
                    yield [
                        {**one, "class": str(one["class"])[:4]}
                        for one in self._each(devices, "class", "driver")
                    ]
                yield self._each(devices, "vendor", "device", "driver")
                yield self._each(devices, "address")
            case "net":
                if kind == "vf":
                    yield self._each(devices, "virtualFunctionOf")
                    yield self._each(devices, "virtualFunctionOf", "driver")
                yield self._each(devices, "interface")
                yield self._each(devices, "address")
            case _:
                yield from self._sysfs_candidates(devices)

    def _sysfs_candidates(self, devices: Sequence[Found]) -> Iterator[list[Selector]]:
        yield self._each(devices, "subsystem")
        if self.subsystem == "video4linux":
            yield [{"subsystem": self.subsystem, "attributes": {"index": "0"}}]
        named = self._each(devices, "subsystem", "name")
        stems = list(dict.fromkeys(_DIGITS.sub("*", str(one["name"])) for one in named))
        yield [{"subsystem": self.subsystem, "name": stem} for stem in stems]
        drivers = sorted({str(one.facts.get("attr.driver", "")) for one in devices})
        if all(drivers):
            yield [
                {"subsystem": self.subsystem, "name": stem, "attributes": {"driver": driver}}
                for stem in stems
                for driver in drivers
            ]
        yield named

    def _each(self, devices: Iterable[Found], *keys: str) -> list[Selector]:
        """Return a selector for each of the devices, of what they have for these keys; equal ones once."""
        selectors: list[Selector] = []
        for one in devices:
            told = {key: self._told(key, one) for key in keys}
            selector = {key: text for key, text in told.items() if text and _stands_for_itself(key, text)}
            if selector not in selectors:
                selectors.append(selector)
        return selectors


def _stands_for_itself(key: str, text: str) -> bool:
    """Whether a text can be written into a selector, where most are globs, and means only itself there."""
    if key == "virtualFunctionOf":
        return len(text) == len("0000:00:00.0")  # domains behind Intel's VMD are longer
    return not (has_wildcard(text) or regex_fault(text))
