"""The oracle of ownership: what may not happen on a node, whatever the names for hardware are. Pure.

It sees the physical machine, what each container was given, and what a container would get if it restarted.
It knows nothing of device IDs. O1 to O5 are the statements of the specification that it judges; O6, about
streams and registrations, is the kubelet's to see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

Numbers = frozenset[tuple[int, int]]
"""Major and minor of device nodes."""

NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Machine:
    """A machine at one moment."""

    hardware: Mapping[str, Numbers]
    """The device numbers of each piece of hardware that is present."""
    paths: Mapping[str, Numbers] = field(default_factory=dict)
    """The device numbers to which paths of the host lead; a path that is missing leads nowhere."""

    def behind(self, numbers: Numbers) -> frozenset[str]:
        """Return the hardware that is opened by these numbers."""
        return frozenset(name for name, own in self.hardware.items() if own & numbers)

    def led_to(self, paths: Iterable[str]) -> Numbers:
        """Return the numbers to which these paths lead."""
        return frozenset(number for path in paths for number in self.paths.get(path, frozenset()))


@dataclass(frozen=True)
class Container:
    """A container, or a claim, from its start to its end."""

    name: str
    resource: str
    numbers: Numbers
    """The device numbers that it may open since its start."""
    paths: tuple[str, ...]
    """The host paths of the answer, which a restart resolves again."""
    hardware: frozenset[str]
    """The hardware that it was given at its start."""
    is_sharing: bool = False
    """Whether the configuration let others have the same hardware when it started."""
    is_privileged: bool = False

    def has(self, machine: Machine) -> frozenset[str]:
        """Return the hardware that is its own: given, open now, or open after a restart."""
        return self.hardware | machine.behind(self.numbers | machine.led_to(self.paths))


@dataclass(frozen=True)
class Offer:
    """What the node offers under one resource name."""

    matches: frozenset[str]
    """The hardware that its configuration matches, present or not; empty if it is configured no more."""
    healthy: int
    capacity: int


@dataclass
class Oracle:
    """The judge of one node; lives as long as the node. Each violation is a line for people."""

    violations: list[str] = field(default_factory=list)
    live: dict[str, Container] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    """The hardware that was used since its last clean-up, and is in use no more."""
    late: set[str] = field(default_factory=set)
    """Those of them that were unplugged meanwhile: their clean-up may fail, and comes later."""

    # ── what happens ──

    def started(self, container: Container, machine: Machine) -> None:
        """Note a start; O1: no hardware of a live container is given, unless both share it."""
        for other in self.live.values():
            if container.is_privileged or other.is_privileged or (container.is_sharing and other.is_sharing):
                continue
            for name in sorted(container.has(machine) & other.has(machine)):
                self._violated(1, f"{container.name} was given {name}, which {other.name} has")
        for name in sorted(container.hardware & self.used):
            self._violated(2, f"{container.name} was given {name}, which was not cleaned after its last use")
        self.live[container.name] = container

    def started_again(self, name: str, machine: Machine) -> None:
        """Note that a container has started again: it may open what its paths lead to now.

        What it could open before counts, too: the node's plugins do not hear of the start.
        """
        before = self.live[name]
        self.live[name] = replace(before, numbers=before.numbers | machine.led_to(before.paths))

    def ended(self, name: str, *, is_cleaned: bool = False) -> None:
        """Note an end; `is_cleaned`: the configuration wants the hardware cleaned after its last use."""
        ended = self.live.pop(name)
        in_use = {one for other in self.live.values() for one in other.hardware}
        if is_cleaned:
            self.used |= ended.hardware - in_use

    def unplugged(self, hardware: str) -> None:
        """Note that hardware was pulled out."""
        self.late |= self.used & {hardware}

    def cleaned(self, hardware: str) -> None:
        """Note a clean-up; O2: no live container was given the hardware."""
        for container in self.live.values():
            if hardware in container.hardware:
                self._violated(2, f"{hardware} was cleaned while {container.name} has it")
        self.used.discard(hardware)
        self.late.discard(hardware)

    # ── what is so once all is quiet ──

    def quiet(
        self, machine: Machine, offers: Mapping[str, Offer], health: Mapping[str, str] = NOTHING
    ) -> None:
        """Judge a quiet node; `offers` in the order of the file, `health` of containers as pods show it."""
        matched = {name for offer in offers.values() for name in offer.matches}
        had = {name for one in self.live.values() for name in one.has(machine)}
        for name in sorted((self.used - self.late - had) & machine.hardware.keys() & matched):
            self._violated(2, f"{name} was not cleaned after its last use")
        self._count(offers, machine.hardware.keys() | had)
        self._offered(offers, machine, had | self.late)
        for name, said in health.items():
            is_there = self.live[name].hardware <= machine.hardware.keys()
            if (said == "Healthy") != is_there:
                self._violated(5, f"the device of {name} is {said}; it is {_presence(is_there=is_there)}")

    def _count(self, offers: Mapping[str, Offer], counted: Iterable[str]) -> None:
        """O3: capacity is hardware that is present or held, counted once."""
        capacity, limit = sum(offer.capacity for offer in offers.values()), len([*counted])
        if capacity > limit:
            self._violated(3, f"the node has {capacity} devices of {limit} pieces of hardware")

    def _offered(self, offers: Mapping[str, Offer], machine: Machine, had: Iterable[str]) -> None:
        """O4: everything free is offered once, by the first resource that matches it."""
        expected = dict.fromkeys(offers, 0)
        for container in self.live.values():
            expected.setdefault(container.resource, 0)
            expected[container.resource] += len(container.hardware & machine.hardware.keys())
        for name in machine.hardware.keys() - set(had):
            if (first := _first(offers, name)) is not None:
                expected[first] += 1
        for resource, count in expected.items():
            healthy = offers[resource].healthy if resource in offers else 0
            if healthy != count:
                self._violated(4, f"{resource} has {healthy} healthy devices; {count} are free or held")

    def _violated(self, statement: int, text: str) -> None:
        self.violations.append(f"O{statement}: {text}")


def _first(offers: Mapping[str, Offer], hardware: str) -> str | None:
    return next((name for name, offer in offers.items() if hardware in offer.matches), None)


def _presence(*, is_there: bool) -> str:
    return "present" if is_there else "unplugged"
