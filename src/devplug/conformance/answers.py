"""The responses of Allocate that many checks share; each is asked for once.

The first checks of Allocate are about which devices it allocates, and the shape of the response. All others
use the responses that came, and are skipped without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.conformance.response_rules import items
from devplug.conformance.verdicts import FailedError, SkippedError
from devplug.errors import RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from devplug.conformance.testbed import TestBed
    from devplug.devices import ContainerResponse

SAMPLE: Final = 16
"""The most devices that are asked for one by one: a plugin may have thousands."""

_NAMED_FAULTS: Final = 3


def sample(bed: TestBed, limit: int = SAMPLE) -> Sequence[str]:
    """Return the IDs of the first healthy devices, at least one. Raises `SkippedError` if there is none."""
    return bed.healthy_ids(max(1, min(limit, len(bed.client.healthy_ids))))


async def answer(bed: TestBed, *ids: str) -> ContainerResponse:
    """Return the response to one container that gets these devices.

    Raises `SkippedError` if there is not exactly one: other checks are about that.
    """
    try:
        responses = await bed.allocate(ids)
    except RemoteError as error:
        raise SkippedError(f"{' and '.join(ids)} cannot be had (see ALL01, ALL10): {error}") from error
    if len(responses) != 1:
        raise SkippedError(
            f"{' and '.join(ids)} came in {len(responses)} container responses (see ALL02, ALL04)"
        )
    return responses[0]


async def steady(bed: TestBed, id_: str) -> frozenset[tuple[str, ...]]:
    """Return the items that the response for a device has in every call."""
    return items(await answer(bed, id_)) & items(await answer(bed, id_))


async def answers(bed: TestBed) -> Mapping[tuple[str, ...], ContainerResponse]:
    """Return the responses by device IDs: one device each, then the first two together if they can be.

    For `once`. Raises `SkippedError` if no device can be allocated.
    """
    given: dict[tuple[str, ...], ContainerResponse] = {}
    failure: SkippedError | None = None
    ids = sample(bed)
    for group in [*((id_,) for id_ in ids), tuple(ids[:2])]:
        if group in given:
            continue
        try:
            given[group] = await answer(bed, *group)
        except SkippedError as error:
            failure = failure or error
    if not given:
        assert failure is not None
        raise failure
    return given


def demand_none(faults: Iterable[str]) -> None:
    """Raise `FailedError` with the faults, if there are any; the first few, each once."""
    found = list(dict.fromkeys(faults))
    if found:
        more = f"; and {len(found) - _NAMED_FAULTS} more" if len(found) > _NAMED_FAULTS else ""
        raise FailedError("; ".join(found[:_NAMED_FAULTS]) + more)
