"""The names register: which device ID each piece of hardware has, over restarts, edits and reboots.

A device ID is what the kubelet, its checkpoint and pods know of hardware. So the same hardware keeps its ID,
and no other hardware gets it, also where several devices have the same serial number.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from devplug.devices import stable_id
from devplug.holds.hardware import Hardware
from devplug.linux.durable_file import read_state, remove_remains, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

FILE_NAME: Final = "names.json"
KEPT_DAYS: Final = 30
"""How long the name of absent hardware is kept, in days."""

_DAY_SECONDS: Final = 86_400
_VERSION: Final = 1


# ── one machine ──


class Ranks(Struct):
    """The ranks of equal devices, such as the ports of a serial card.

    The kernel gives such devices only numbers that depend on what came before. So a present device keeps its
    rank when other devices come and go, also while devplug is down.
    """

    known: dict[str, dict[str, int]] = field(default_factory=dict)
    """By group of equal devices: their ranks by their folders below /sys/devices."""
    is_changed: bool = False
    """Whether the file has something else."""

    def assign(self, groups: Mapping[str, Sequence[str]]) -> dict[str, int]:
        """Return the rank of each present device by its folder: the lowest free one, in this order.

        `groups` has for each group the folders of all its present devices.
        """
        ranks: dict[str, int] = {}
        for group, folders in groups.items():
            known = self.known.get(group, {})
            kept = {folder: known[folder] for folder in folders if folder in known}
            taken = set(kept.values())
            free = (rank for rank in count() if rank not in taken)
            kept.update((folder, next(free)) for folder in folders if folder not in kept)
            if kept != known:
                self.known[group], self.is_changed = kept, True
            ranks |= kept
        return ranks


# ── one resource ──


class Wanted(Struct, frozen=True):
    """The IDs that one present device may get."""

    hardware: str
    """Where it is plugged in, the same after a re-plug: its folder below /sys/devices, or what stands for it
    where the kernel numbers anew, as with USB buses."""
    preferred: str
    """The ID by what the device says of itself, as a serial number; another device may say the same."""
    by_place: str
    """The ID with the address and the port where it is plugged in, which only one device can have."""

    def choices(self) -> tuple[str, str, str]:
        """The IDs, best first."""
        return (
            stable_id(self.preferred),
            stable_id(self.by_place),
            stable_id(f"{self.by_place}@{self.hardware}"),
        )

    @property
    def key(self) -> str:
        """What the register knows it by: its place and what it says of itself."""
        return f"{self.by_place}\n{self.preferred}"


class Known(Struct):
    """A name that the register has."""

    name: str
    day: int
    """The last day on which the hardware was present, in days since 1970."""


class Names(Struct):
    """The IDs of one resource's devices.

    Many devices of one make have the same serial number. Those that are first seen together get the IDs of
    their places. A device that was seen before the others keeps its ID, because a pod may hold it, also while
    it is unplugged.
    """

    known: dict[str, Known] = field(default_factory=dict)
    """By `Wanted.key`, of absent devices too."""
    twins: set[str] = field(default_factory=set)
    """The preferred IDs that two present devices ever had."""
    today: Callable[[], int] = lambda: int(time.time()) // _DAY_SECONDS
    on_change: Callable[[], None] = lambda: None
    ranks: Ranks = field(default_factory=Ranks)
    """The ranks of the whole machine, shared by all resources."""
    _present: frozenset[str] = frozenset()
    _by_hardware: dict[str, str] = field(default_factory=dict)
    """The names of devices whose key another present device has, too: they imitate each other's places."""

    def assign(self, wanted: Iterable[Wanted]) -> dict[str, str]:
        """Return the ID of each present device, by hardware. Order does not matter."""
        by_hardware = {one.hardware: one for one in wanted}
        counted = Counter(one.preferred for one in by_hardware.values())
        twins = {name for name, number in counted.items() if number > 1}
        is_changed = self.ranks.is_changed or not twins <= self.twins
        self.twins |= twins
        owner_of: dict[str, str] = {}
        # The devices of the last scan come first, then those of earlier ones, then new ones.
        for hardware in sorted(by_hardware, key=lambda one: (one not in self._present, one)):
            name = self._known_name(by_hardware[hardware])
            if name is not None and name not in owner_of and name in by_hardware[hardware].choices():
                owner_of[name] = hardware
        for hardware in sorted(by_hardware.keys() - set(owner_of.values())):
            owner_of[self._new_name(by_hardware[hardware], owner_of)] = hardware
        assigned = {hardware: name for name, hardware in owner_of.items()}
        is_changed |= self._remember(by_hardware, assigned)
        self._present = frozenset(assigned)
        if is_changed:
            self.on_change()
        return assigned

    def assign_in_order(self, wanted: Sequence[Wanted], reserved: Iterable[str] = ()) -> dict[str, str]:
        """Return the ID of each present device, by hardware: the first of equal ones has the preferred ID.

        A device that the register knows keeps its ID. No other device gets one that is `reserved`.
        """
        by_hardware = {one.hardware: one for one in wanted}
        taken, assigned = set(reserved), dict[str, str]()
        for one in by_hardware.values():
            name = self._known_name(one)
            if name is not None and name not in taken and name in one.choices():
                assigned[one.hardware] = name
                taken.add(name)
        for hardware in [one for one in by_hardware if one not in assigned]:
            assigned[hardware] = next(
                name for name in self._choices(by_hardware[hardware]) if name not in taken
            )
            taken.add(assigned[hardware])
        if self._remember(by_hardware, assigned) | self.ranks.is_changed:
            self.on_change()
        return assigned

    def write_ranks(self) -> None:
        """Have the file written if ranks have changed, where no name has to be assigned."""
        if self.ranks.is_changed:
            self.on_change()

    def _known_name(self, one: Wanted) -> str | None:
        if one.hardware in self._by_hardware:
            return self._by_hardware[one.hardware]
        known = self.known.get(one.key)
        return None if known is None else known.name

    def _new_name(self, one: Wanted, taken: Mapping[str, str]) -> str:
        choices = self._choices(one)
        if one.preferred in self.twins:
            next(choices)
        return next(name for name in choices if name not in taken)

    def _choices(self, one: Wanted) -> Iterator[str]:
        yield from one.choices()
        # Only USB devices that imitate each other's places get as far as a number.
        yield from (stable_id(f"{one.by_place}@{one.hardware}#{number}") for number in count(2))

    def _remember(self, by_hardware: Mapping[str, Wanted], assigned: Mapping[str, str]) -> bool:
        """Keep these names; return whether that changes what the register has."""
        counted = Counter(one.key for one in by_hardware.values())
        today, is_changed = self.today(), False
        for hardware, name in assigned.items():
            key = by_hardware[hardware].key
            if counted[key] > 1:
                self._by_hardware[hardware] = name
                continue
            known = self.known.get(key)
            if known is None or (known.name, known.day) != (name, today):
                self.known[key] = Known(name, today)
                is_changed = True
        return is_changed


# ── the file ──


class NamesRegister:
    """The names of all resources of a node; lives as long as the daemon. Without a path it keeps nothing.

    The file is read once, and written when a device gets a name that it had not: before any list has it.
    """

    def __init__(
        self, path: Path | None = None, *, boot: str = "", today: Callable[[], int] | None = None
    ) -> None:
        self._path = path
        self._boot = boot
        self._today = today or Names().today
        self._names: dict[str, Names] = {}
        self.twins: set[str] = set()
        """The serial numbers that several present devices had in this boot."""
        self.ranks = Ranks()
        self.fault = ""
        """Why the file cannot be read or written; empty if it can."""
        self._read()

    def of(self, resource_name: str) -> Names:
        """Return the names of one resource."""
        if resource_name not in self._names:
            self._names[resource_name] = Names(today=self._today, on_change=self.write, ranks=self.ranks)
        return self._names[resource_name]

    def known(self) -> Iterator[tuple[str, str]]:
        """Yield the resource name and the ID of each device that has a name."""
        for resource_name, names in self._names.items():
            for one in names.known.values():
                yield resource_name, one.name

    def hardware_of(self, resource_name: str, name: str) -> Hardware | None:
        """Return the hardware that has a name in a resource, at its last place; None if that is not known."""
        names = self._names.get(resource_name, Names())
        keys = [key for key, known in names.known.items() if known.name == name]
        by_place, _, preferred = keys[-1].partition("\n") if keys else ("", "", "")
        if not keys or by_place.startswith(f"{preferred}@/"):
            return None  # what has only a path may be any hardware
        return Hardware(by_place, "" if preferred == by_place else preferred, is_whole=True)

    def note_twins(self, serials: Iterable[str]) -> None:
        """Record serial numbers that several present devices have."""
        fresh = set(serials) - self.twins
        if fresh:
            self.twins |= fresh
            self.write()

    def _read(self) -> None:
        if self._path is None:
            return
        remove_remains(self._path)
        try:
            content = json.loads(read_state(self._path))
            if content["version"] != _VERSION:
                raise ValueError(f"version {content['version']} is not {_VERSION}")
            for resource_name, entry in content["resources"].items():
                self._names[str(resource_name)] = self._names_of(entry)
            if content.get("boot") == self._boot:
                self.twins = set(map(str, content.get("twins", ())))
                self.ranks.known.update(_ranks_of(content.get("ranks", {})))
        except FileNotFoundError:
            return
        except (
            OSError,
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            self._names.clear()
            self.fault = f"cannot read {self._path}: {error}"
            logger.warning(
                "cannot read the register of device names; devices with equal serial numbers may change IDs",
                extra={"path": str(self._path), "reason": str(error)},
            )
            self._put_aside(self._path)

    def _put_aside(self, path: Path) -> None:
        try:
            path.replace(path.with_name(f"{path.name}.unreadable"))
        except OSError as error:
            logger.warning("cannot put a damaged file aside", extra={"path": str(path), "reason": str(error)})

    def _names_of(self, entry: Mapping[str, Any]) -> Names:
        oldest = self._today() - KEPT_DAYS
        known = {
            str(key): Known(str(name), int(day))
            for key, (name, day) in entry["names"].items()
            if int(day) >= oldest
        }
        return Names(known, set(map(str, entry["twins"])), self._today, self.write, self.ranks)

    def write(self) -> None:
        """Replace the file. It blocks until the disk has it; a failure is logged once."""
        if self._path is None:
            return
        resources = {
            name: {
                "names": {key: [one.name, one.day] for key, one in names.known.items()},
                "twins": sorted(names.twins),
            }
            for name, names in sorted(self._names.items())
        }
        content = {
            "version": _VERSION,
            "boot": self._boot,
            "twins": sorted(self.twins),
            "ranks": self.ranks.known,
            "resources": resources,
        }
        self.ranks.is_changed = False
        try:
            write_whole(self._path, json.dumps(content, separators=(",", ":")) + "\n")
        except OSError as error:
            if not self.fault:
                logger.warning(
                    "cannot write the register of device names; after a restart devices with equal serial "
                    "numbers may change IDs",
                    extra={"path": str(self._path), "reason": error.strerror or str(error)},
                )
            self.fault = f"cannot write {self._path}: {error.strerror or error}"
        else:
            self.fault = ""


def _ranks_of(entry: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    return {
        str(group): {str(folder): int(rank) for folder, rank in ranks.items()}
        for group, ranks in entry.items()
    }
