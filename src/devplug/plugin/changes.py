"""What is logged of a change of the list: one line per device and change, or one for all of many. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.devices import HealthState
from devplug.plugin.slices import slices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.devices import Device
    from devplug.plugin.slices import Slices
    from devplug.plugin.snapshot import Snapshot

__all__ = ["LINES_LIMIT", "Line", "lines_of"]

LINES_LIMIT: Final = 20
"""Most lines about one change; where there were more, one line says how many devices are what."""

REASONS_LIMIT: Final = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One line for the log: a constant message, and its facts."""

    message: str
    facts: Mapping[str, object]
    is_warning: bool = False


def lines_of(
    before: Snapshot, after: Snapshot, *, is_first: bool, changes: int = 1
) -> Slices[tuple[Line, ...]]:
    """Return what to log when `after` takes the place of `before`; nothing for what no one must know.

    Of a first list only the unhealthy devices are told, as its registration tells the number. The reason
    alone is no change: it may have a reading in it, which is another one at each look. `changes` is how many
    lists have come since `before`: of those in between nothing else is told than that there were some.
    """
    fast = (Line("the list changes too fast to tell each change", {"changes": changes}),)
    lines = yield from _lines_of(before, after, is_first=is_first)
    return (*lines, *(fast if changes > 1 else ()))


def _lines_of(before: Snapshot, after: Snapshot, *, is_first: bool) -> Slices[tuple[Line, ...]]:
    worse: list[Device] = []
    better: list[Device] = []
    came: list[Device] = []
    moved: list[Device] = []
    for is_later, part in slices(after.devices.items()):
        if is_later:
            yield
        for id_, device in part:
            old = before.devices.get(id_)
            if old is device:
                continue
            is_healthy = device.health.state is HealthState.HEALTHY
            if old is None and not is_first:
                came.append(device)
            if not is_healthy and (old is None or old.health.state is HealthState.HEALTHY):
                worse.append(device)
            elif old is not None and is_healthy and old.health.state is not HealthState.HEALTHY:
                better.append(device)
            if old is not None and old.numa_nodes != device.numa_nodes:
                moved.append(device)
    left = yield from _left(before, after)
    if len(worse) + len(better) + len(came) + len(moved) + len(left) > LINES_LIMIT:
        counts = {
            "unhealthy": len(worse),
            "healthy": len(better),
            "appeared": len(came),
            "left": len(left),
            "moved": len(moved),
        }
        return (
            (yield from _summary(after, {name: count for name, count in counts.items() if count}, worse)),
        )
    return (
        *(Line("a device appeared", {"device_id": one.id}) for one in came),
        *(
            Line("a device is unhealthy", {"device_id": one.id, "reason": one.health.reason}, is_warning=True)
            for one in worse
        ),
        *(Line("a device is healthy again", {"device_id": one.id}) for one in better),
        *(
            Line("a device has other NUMA nodes", {"device_id": one.id, "numa_nodes": list(one.numa_nodes)})
            for one in moved
        ),
        *(Line("a device left the list", {"device_id": id_}) for id_ in left),
    )


def _left(before: Snapshot, after: Snapshot) -> Slices[list[str]]:
    left: list[str] = []
    for is_later, ids in slices(before.devices):
        if is_later:
            yield
        left += [id_ for id_ in ids if id_ not in after.devices]
    return left


def _summary(after: Snapshot, counts: Mapping[str, int], worse: list[Device]) -> Slices[Line]:
    reasons: Counter[str] = Counter()
    for is_later, part in slices(worse):
        if is_later:
            yield
        reasons.update(device.health.reason for device in part)
    facts: dict[str, object] = {"devices": len(after.devices), **counts}
    if reasons:
        facts["reasons"] = [f"{count} of {reason}" for reason, count in reasons.most_common(REASONS_LIMIT)]
    return Line("many devices changed at once", facts, is_warning=bool(worse))
