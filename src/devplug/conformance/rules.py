"""Rules on what a plugin said, as functions on values: lists, preferences, restarts. Pure.

Each returns faults in sentences. What is wrong with a container response is in `response_rules`.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from devplug.devices import DEVICE_ID_LIMIT_BYTES, HEALTHY, UNHEALTHY
from devplug.errors import quoted
from devplug.wire.deviceplugin import LIST_AND_WATCH
from devplug.wire.values import LIST_LIMIT_BYTES, PreferenceRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from devplug.conformance.figures import Figures
    from devplug.wire.values import AdvertisedDevice

NUMA_LIMIT: Final = 1023
"""The highest number that a NUMA node of Linux can have (CONFIG_NODES_SHIFT is at most 10)."""

SHOWN: Final = 3
"""How many faults or IDs a sentence names."""

MEBIBYTE: Final = 1024 * 1024
ENOUGH: Final = 6
"""So many restarts at least tell a leak at each of them from what a runtime keeps for itself."""

DESCRIPTORS_MORE: Final = 5
"""So many descriptors may be there that were not, for what is opened late or closed late."""

_THREADS_MORE: Final = 3


# ── lists of devices, and rows of lists ──


def summary(faults: Sequence[str]) -> str:
    """Return the first few faults in one line, with the number of the others."""
    more = len(faults) - SHOWN
    return "; ".join(faults[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


# ── one list ──


def empty_id_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the places that have no ID."""
    return [
        f"device {number} of {len(devices)} has an empty ID"
        for number, device in enumerate(devices, 1)
        if not device.id
    ]


def duplicate_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the IDs that are there more than once; an empty one is another fault."""
    counts = Counter(device.id for device in devices if device.id)
    return [f"ID {quoted(id_)} is listed {count} times" for id_, count in counts.items() if count > 1]


def health_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the health words that the API does not have."""
    return [
        f"device {quoted(device.id)} has the health {quoted(device.health)}"
        for device in devices
        if device.health not in {HEALTHY, UNHEALTHY}
    ]


def long_id_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the IDs that are longer than the API text allows."""
    return [
        f"ID {quoted(device.id)} has {length} bytes; at most {DEVICE_ID_LIMIT_BYTES} are allowed"
        for device in devices
        if (length := len(device.id.encode())) > DEVICE_ID_LIMIT_BYTES
    ]


def awkward_id_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the IDs that break a list in an environment variable, or do not show in a log."""
    return [
        f"ID {quoted(device.id)} contains {quoted(found)}"
        for device in devices
        if (found := next((one for one in device.id if not "!" <= one <= "~" or one in ",="), None))
    ]


def numa_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the numbers that are none of a NUMA node."""
    return [
        f"device {quoted(device.id)} has the NUMA node {node}"
        for device in devices
        for node in device.numa_nodes or ()
        if not 0 <= node <= NUMA_LIMIT
    ]


def empty_topology_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the devices that have a topology message with no node in it."""
    return [
        f"device {quoted(device.id)} has a topology without a node"
        for device in devices
        if device.numa_nodes == ()
    ]


def absent_numa_faults(devices: Sequence[AdvertisedDevice], present: Collection[int]) -> list[str]:
    """Return the NUMA nodes that could be, but are not among those of the machine."""
    return [
        f"device {quoted(device.id)} has the NUMA node {node}; the machine has {sorted(present)}"
        for device in devices
        for node in device.numa_nodes or ()
        if 0 <= node <= NUMA_LIMIT and node not in present
    ]


def largest_size_bytes(devices: Sequence[AdvertisedDevice]) -> int:
    """Return the size of this list as a message if all its devices were Unhealthy.

    If some have NUMA nodes, all are taken to have one.
    """
    nodes = (0,) if any(device.numa_nodes for device in devices) else None
    worst = [
        replace(device, health=UNHEALTHY, numa_nodes=device.numa_nodes or nodes or device.numa_nodes)
        for device in devices
    ]
    return len(LIST_AND_WATCH.response.encode(worst))


def size_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return whether the list outgrows what the kubelet takes, and how many of its devices would fit."""
    size_bytes = largest_size_bytes(devices)
    if size_bytes <= LIST_LIMIT_BYTES:
        return []
    fitting = len(devices) * LIST_LIMIT_BYTES // size_bytes
    fault = (
        f"the list of {len(devices)} devices takes {size_bytes:,} bytes when all are Unhealthy, "
        f"{LIST_LIMIT_BYTES:,} are safe: about {fitting} such devices fit"
    )
    return [fault]


def is_undecodable(end_reason: str) -> bool:
    """Whether a stream ended because a list was no valid message."""
    return "cannot decode" in end_reason


def is_too_large(end_reason: str) -> bool:
    """Whether a stream ended because a list was larger than the kubelet takes."""
    return "larger than max" in end_reason


# ── a row of lists ──


def is_same_list(one: Sequence[AdvertisedDevice], other: Sequence[AdvertisedDevice]) -> bool:
    """Whether two lists say the same; their order says nothing."""
    return one == other or (len(one) == len(other) and Counter(one) == Counter(other))


def repeats(lists: Sequence[Sequence[AdvertisedDevice]]) -> int:
    """Return how many of the lists say the same as the one before."""
    return sum(is_same_list(one, next_) for one, next_ in pairwise(lists))


def flapping(lists: Iterable[Sequence[AdvertisedDevice]]) -> list[str]:
    """Return the devices that were dropped by a list and brought back by a later one."""
    listed: set[str] = set()
    dropped: set[str] = set()
    returns: Counter[str] = Counter()
    for devices in lists:
        ids = {device.id for device in devices}
        returns.update(dropped & ids)
        dropped = (dropped | listed) - ids
        listed = ids
    return [
        f"device {quoted(id_)} was dropped and came back {count} times"
        if count > 1
        else f"device {quoted(id_)} was dropped and came back"
        for id_, count in sorted(returns.items())
    ]


# ── preferred allocation: the questions of a kubelet, and the answers ──

Ids = tuple[str, ...]


def fresh_questions(ids: Sequence[str]) -> list[PreferenceRequest]:
    """Return questions for a container that has no device yet, each of a size of its own.

    The first device is not available, as if a pod held it, unless it is the only one.
    """
    available = tuple(reversed(ids[1:] or ids))
    most = len(available)
    sizes = sorted({1, 2, most - 1, most} & set(range(1, most + 1)))
    return [PreferenceRequest(available, (), size) for size in sizes]


def completing_questions(ids: Sequence[str]) -> list[PreferenceRequest]:
    """Return questions for a container that has some of its devices already; none for fewer than two devices.

    The kubelet never asks where nothing is left to choose, so `must_include` is always shorter than the size.
    """
    available = tuple(reversed(ids))
    most = len(available)
    questions: dict[PreferenceRequest, None] = {}
    for size in sorted({2, most - 1, most} & set(range(2, most + 1))):
        for held in (available[:1], available[-1:], available[: size - 1]):
            questions[PreferenceRequest(available, held, size)] = None
    return list(questions)


def total_question(ids: Sequence[str]) -> PreferenceRequest:
    """Return the question of a pod that is the first to come and wants one device."""
    return PreferenceRequest(tuple(reversed(ids)), (), 1)


def size_fault(question: PreferenceRequest, answer: Ids) -> str:
    """Return what is wrong with the number of devices, empty if nothing is; no devices are no preference."""
    if len(answer) in (0, question.size):
        return ""
    return f"of {len(question.available)} devices {question.size} were asked for, and {len(answer)} came"


def missing_fault(question: PreferenceRequest, answer: Ids) -> str:
    """Return which devices that had to be included are not, empty if none."""
    missing = sorted(set(question.must_include) - set(answer))
    if not answer or not missing:
        return ""
    return f"{_named(missing)} had to be included, and {_named(answer)} came"


def foreign_fault(question: PreferenceRequest, answer: Ids) -> str:
    """Return which devices were not available, empty if none."""
    foreign = sorted(set(answer) - set(question.available))
    return f"{_named(foreign)} came, and was not available" if foreign else ""


def repeat_fault(_: PreferenceRequest, answer: Ids) -> str:
    """Return which devices come more than once, empty if none."""
    repeated = sorted(id_ for id_, count in Counter(answer).items() if count > 1)
    return f"{_named(repeated)} came more than once in one answer" if repeated else ""


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return ", ".join(ids[:SHOWN]) + more


# ── restarts: the IDs, and what a process takes after many of them ──


def changed_ids(before: Collection[str], after: Collection[str]) -> str:
    """Return what became of the IDs, in words; empty if they are the same."""
    gone, new = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    parts = []
    if gone:
        parts.append(f"{len(gone)} of {len(set(before))} IDs are gone ({_few(gone)})")
    if new:
        parts.append(f"{len(new)} are new ({_few(new)})")
    return ", ".join(parts)


def more_descriptors(figures: Sequence[Figures]) -> int:
    """Return how many descriptors the last figures have above the first."""
    return figures[-1].descriptors - figures[0].descriptors


def more_threads(figures: Sequence[Figures]) -> int:
    """Return how many threads came in the later half: a runtime that starts them as it needs is done then."""
    return figures[-1].threads - _half(figures).threads


def threads_more(figures: Sequence[Figures]) -> int:
    """Return how many threads may come in the later half: one at every second restart is a leak."""
    return max(_THREADS_MORE, (len(figures) - 1) // 4)


def memory_growth_bytes(figures: Sequence[Figures]) -> int:
    """Return by how much the resident memory grew in the later half."""
    return figures[-1].resident_bytes - _half(figures).resident_bytes


def is_calm(figures: Sequence[Figures]) -> bool:
    """Whether the last figures have nothing left that might still be on its way out."""
    return more_descriptors(figures) <= DESCRIPTORS_MORE and more_threads(figures) <= threads_more(figures)


def _half(figures: Sequence[Figures]) -> Figures:
    return figures[len(figures) // 2]


def _few(ids: Sequence[str]) -> str:
    more = "" if len(ids) <= SHOWN else ", ..."
    return ", ".join(id_[:64] for id_ in ids[:SHOWN]) + more
