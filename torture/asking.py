"""Requests for devices whose answer is known beforehand: good ones, and each kind of bad one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug import Device, Health
from devplug.errors import InvalidRequestError, LimitError, UnhealthyDeviceError, UnknownDeviceError
from torture.beds import RESOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from devplug.devices import DeviceNode
    from devplug.errors import AllocationError

__all__ = ["MOST", "Granted", "Refused", "Request", "Requests", "states"]

MOST: Final = 10_000
"""How many devices one call may ask for."""

REASON: Final = "it is broken"
_ADVICE: Final = "delete and recreate the pod to get another device"


@dataclass(frozen=True, slots=True)
class Granted:
    """What each container gets."""

    nodes: list[tuple[DeviceNode, ...]]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no answer, as the code says it and as the kubelet is told."""

    kind: type[AllocationError]
    text: str
    status: str
    told: str


@dataclass(frozen=True, slots=True)
class Request:
    """What containers ask for, and what must come of it."""

    containers: list[tuple[str, ...]]
    outcome: Granted | Refused


def states(count: int) -> dict[str, tuple[Device, Device]]:
    """Return devices by ID, each healthy and not."""
    return {
        id_: (
            Device(id_, device_nodes=[f"/dev/{id_}"]),
            Device(id_, device_nodes=[f"/dev/{id_}"], health=Health.unhealthy(REASON)),
        )
        for id_ in (f"d{number:05}" for number in range(count))
    }


class Requests:
    """Draws requests for a list of devices; lives as long as that list."""

    def __init__(self, devices: Mapping[str, Device], sick: Sequence[str]) -> None:
        self._devices = devices
        self._sick = sick
        is_sick = set(sick)
        self._well = [id_ for id_ in devices if id_ not in is_sick]

    def draw(self, chance: Random) -> Request:
        """Return one of any kind, nearly always a small one."""
        faults: tuple[Callable[[Random, list[str]], Request], ...] = (
            self._unknown,
            self._unhealthy,
            self._twice,
            self._without_ids,
        )
        size = chance.choices((1, chance.randint(2, 8), chance.randint(9, 100)), (85, 14, 1))[0]
        ids = chance.sample(self._well, min(size, len(self._well)))
        return chance.choice(faults)(chance, ids) if chance.random() < 0.3 else self._good(chance, ids)

    def largest(self, chance: Random) -> list[Request]:
        """Return one for as many devices as a call may ask for, and one for one more."""
        ids = chance.sample(self._well, min(MOST, len(self._well)))
        many = ids + [f"x{number}" for number in range(MOST + 1 - len(ids))]
        text = f"{MOST + 1} devices are asked for; at most {MOST} in one call"
        return [
            self._good(chance, ids),
            Request([tuple(many)], _refused(LimitError, text, "ResourceExhausted")),
        ]

    def _good(self, chance: Random, ids: list[str]) -> Request:
        containers = _split(chance, ids)
        nodes = [
            tuple(node for id_ in sorted(part) for node in self._devices[id_].device_nodes)
            for part in containers
        ]
        return Request(containers, Granted(nodes))

    def _unknown(self, chance: Random, ids: list[str]) -> Request:
        # None that is known comes after it: of two faults the first one is told.
        stranger = chance.choice(("d", "a b", "\u2028", "d00000 ", "../d00000"))
        text = f"device {_quoted(stranger)} is not known to {RESOURCE}"
        return Request(_split(chance, [*ids, stranger]), _refused(UnknownDeviceError, text, "NotFound"))

    def _unhealthy(self, chance: Random, ids: list[str]) -> Request:
        if not self._sick:
            return self._unknown(chance, ids)
        sick = chance.choice(self._sick)
        text = f'device "{sick}" is unhealthy ({REASON})'
        refused = _refused(UnhealthyDeviceError, text, "FailedPrecondition", f"; {_ADVICE}")
        return Request(_split(chance, [*ids, sick]), refused)

    def _twice(self, chance: Random, ids: list[str]) -> Request:
        twice = chance.choice(ids)
        text = f'device "{twice}" is asked for twice'
        return Request(_split(chance, [*ids, twice]), _refused(InvalidRequestError, text, "InvalidArgument"))

    def _without_ids(self, chance: Random, ids: list[str]) -> Request:
        long = "x" * chance.randint(64, 300)
        containers, text = chance.choice(
            [
                ([], "no container requests"),
                ([tuple(ids), ()], "container 1 asks for no devices"),
                ([(*ids, "")], "a device ID is empty"),
                (
                    [(long, *ids)],
                    f"device ID {_quoted(long)} is {len(long)} characters long; at most 63 fit",
                ),
            ]
        )
        return Request(containers, _refused(InvalidRequestError, text, "InvalidArgument"))


def _split(chance: Random, ids: list[str]) -> list[tuple[str, ...]]:
    """Return IDs in any order, for one container or two."""
    ids = chance.sample(ids, len(ids))
    if len(ids) == 1 or chance.random() < 0.7:
        return [tuple(ids)]
    at = chance.randint(1, len(ids) - 1)
    return [tuple(ids[:at]), tuple(ids[at:])]


def _refused(kind: type[AllocationError], text: str, status: str, advice: str = "") -> Refused:
    return Refused(kind, text, status, f"allocate: {text}{advice}")


def _quoted(text: str) -> str:
    """Return a text as errors show it: escaped as in JSON, and cut to 64 characters."""
    shown = '"' + "".join(one if " " <= one <= "~" else f"\\u{ord(one):04x}" for one in text) + '"'
    return shown if len(shown) <= 64 else f'{shown[:60]}..."'
