"""The constraints of a claim while its devices are searched: matchAttribute and distinctAttribute. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from devplug.dra.pools import LIKE_1_36, Like

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.dra.objects import Attribute, Constraint, Device


class ClaimConstraints:
    """All constraints of a claim, with the devices chosen for it so far."""

    def __init__(self, constraints: Iterable[Constraint], like: Like) -> None:
        self._trackers = tuple(_tracker(one, like) for one in constraints)

    def add(self, request: str, alternative: str, device: Device) -> bool:
        """Add a device for a request to all constraints, or to none; return whether it was added."""
        for index, one in enumerate(self._trackers):
            if not one.add(request, alternative, device):
                for added in self._trackers[:index]:
                    added.remove(request, alternative)
                return False
        return True

    def remove(self, request: str, alternative: str) -> None:
        """Take back the device that was added last for a request."""
        for one in self._trackers:
            one.remove(request, alternative)

    @property
    def is_broken(self) -> bool:
        """Whether what was added does not hold some constraint, which only D82 lets happen."""
        return any(one.is_broken for one in self._trackers)


class _Tracker(Protocol):
    """One constraint with the devices chosen so far; each add that holds is taken back by one remove."""

    def add(self, request: str, alternative: str, device: Device) -> bool: ...

    def remove(self, request: str, alternative: str) -> None: ...

    @property
    def is_broken(self) -> bool: ...


def _tracker(constraint: Constraint, like: Like) -> _Tracker:
    """Return a constraint with no devices."""
    if not constraint.is_distinct:
        return _Match(constraint)
    return _DistinctPerRequest(constraint) if like == LIKE_1_36 else _Distinct(constraint)


def concerns(constraint: Constraint, request: str, alternative: str) -> bool:
    """Whether a constraint is about a request; the name of a list covers its alternatives (D81)."""
    if not constraint.requests or request in constraint.requests:
        return True
    return bool(alternative) and f"{request}/{alternative}" in constraint.requests


class _Match:
    """All devices have the attribute, of one type and with one value; versions are compared as texts."""

    is_broken = False

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self._value: Attribute | None = None
        self._count = 0

    def add(self, request: str, alternative: str, device: Device) -> bool:
        if not concerns(self._constraint, request, alternative):
            return True
        found = device.attribute(self._constraint.attribute)
        if found is None or (self._count and found != self._value):
            return False
        self._value = found
        self._count += 1
        return True

    def remove(self, request: str, alternative: str) -> None:
        if concerns(self._constraint, request, alternative):
            self._count -= 1


class _Distinct:
    """All devices have the attribute, no two with one value."""

    is_broken = False

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self._values: list[Attribute] = []

    def add(self, request: str, alternative: str, device: Device) -> bool:
        if not concerns(self._constraint, request, alternative):
            return True
        found = device.attribute(self._constraint.attribute)
        if found is None or found in self._values:
            return False
        self._values.append(found)
        return True

    def remove(self, request: str, alternative: str) -> None:
        if concerns(self._constraint, request, alternative):
            self._values.pop()


class _DistinctPerRequest:
    """As 1.36 has it: one value is remembered for each request, that of its latest device (D82).

    So x, y, x passes inside one request; and once a device was taken back, nothing is remembered of its
    request.
    """

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self._values: dict[str, Attribute] = {}
        self._all: list[Attribute] = []

    def add(self, request: str, alternative: str, device: Device) -> bool:
        if not concerns(self._constraint, request, alternative):
            return True
        found = device.attribute(self._constraint.attribute)
        if found is None or (self._all and found in self._values.values()):
            return False
        self._values[request] = found
        self._all.append(found)
        return True

    def remove(self, request: str, alternative: str) -> None:
        if concerns(self._constraint, request, alternative):
            self._values.pop(request, None)
            self._all.pop()

    @property
    def is_broken(self) -> bool:
        return len(set(self._all)) < len(self._all)
