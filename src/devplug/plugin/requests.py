"""What a request must be before anybody looks for its devices: pure rules that know no device."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from devplug.devices import DEVICE_ID_LIMIT_BYTES
from devplug.errors import InvalidRequestError, LimitError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["DEVICES_PER_CALL_LIMIT", "check_containers", "check_ids"]

DEVICES_PER_CALL_LIMIT: Final = 10_000


def check_containers(containers: Sequence[tuple[str, ...]]) -> None:
    """Raise `AllocationError` for a request that can never work."""
    if not containers:
        raise InvalidRequestError("no container requests")
    if (asked := sum(map(len, containers))) > DEVICES_PER_CALL_LIMIT:
        raise LimitError(f"{asked} devices are asked for; at most {DEVICES_PER_CALL_LIMIT} in one call")
    for number, device_ids in enumerate(containers):
        if not device_ids:
            raise InvalidRequestError(f"container {number} asks for no devices")
    check_ids(chain.from_iterable(containers))


def check_ids(device_ids: Iterable[str]) -> None:
    """Raise `AllocationError` for IDs that no device can have, and for one that is asked for twice."""
    seen: set[str] = set()
    for id_ in device_ids:
        if not id_:
            raise InvalidRequestError("a device ID is empty")
        if len(id_) > DEVICE_ID_LIMIT_BYTES:
            raise InvalidRequestError(
                f"device ID {quoted(id_)} is {len(id_)} characters long; at most {DEVICE_ID_LIMIT_BYTES} fit",
            )
        if id_ in seen:
            raise InvalidRequestError(f"device {quoted(id_)} is asked for twice")
        seen.add(id_)
