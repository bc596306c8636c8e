"""The ledger: which containers hold which devices, by the kubelet's answers and our Allocates. Pure."""

from __future__ import annotations

from functools import partial
from itertools import chain
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.holds.hardware import after_release
from devplug.holds.held_device import Allocated, Released, Remembered, Rules
from devplug.status import Holder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from devplug.holds.hardware import Use
    from devplug.holds.held_device import Difference, Key, Memory
    from devplug.wire.values import PodResources, SocketIdentity

# ── one resource ──


class _Hold(Struct, frozen=True):
    """One held ID."""

    remembered: Remembered = field(default_factory=Remembered)
    """What is kept for the next process."""
    allocated_at: float | None = None
    """Our last Allocate of it, if no answer has shown it since."""
    missing_since: float | None = None
    """The time of the first of the last answers in a row that lack it."""
    booked_by: SocketIdentity | None = None
    """The last kubelet whose checkpoint named it: it has not lost its books."""


FREE: Final = _Hold()

KEPT_LIMIT: Final = 10_240
"""The number of holds from which on no further ID is kept that we did not allocate. A kubelet may name any
number of IDs: of resources of others, and of plugins that had the name of a resource before."""

ID_LIMIT_BYTES: Final = 253
"""The longest ID that is kept: as many of these as are kept fit into one list, which the kubelet takes up to
4 MiB. No device of ours has a longer one."""

NO_USES: Mapping[str, Use] = MappingProxyType({})


class _Resource(Struct):
    """The holds of one resource. Lives as long as its ledger."""

    holds: dict[str, _Hold] = field(default_factory=dict)
    """By ID; none of them is in `pending`."""
    pending: dict[str, tuple[Released, Remembered]] = field(default_factory=dict)
    """The released IDs on which nobody has acted yet, each with how it was held."""
    is_kept: bool = False
    """Whether releases are kept until they are taken."""
    is_left: bool = False
    """Whether a process has left it that has ended: what it had to clean is kept, too."""
    revision: int = 0
    """A number that changes whenever the memory of this resource does."""
    ids: frozenset[str] | None = None
    """The IDs of `holds` and `pending`, if somebody has asked since they changed."""

    def put(self, device_id: str, hold: _Hold) -> None:
        """Record how an ID is held now."""
        before = self.holds.get(device_id)
        self.holds[device_id] = hold
        if before is None:
            self.ids = None
            self.pending.pop(device_id, None)
        if before is None or before.remembered != hold.remembered:
            self.revision += 1

    def release(self, device_id: str, released: Released) -> None:
        """Record that nobody holds an ID any more."""
        hold = self.holds.pop(device_id)
        self.ids = None
        self.revision += 1
        use = hold.remembered.use
        if self.is_kept or (self.is_left and use is not None and use.is_dirty):
            self.pending[device_id] = released, hold.remembered

    def take(self, released: Released) -> None:
        """Record that a release was acted upon."""
        if self.pending.get(released.device_id, (None,))[0] is released:
            del self.pending[released.device_id]
            self.ids = None
            self.revision += 1

    def forget_absences(self) -> None:
        """Forget which IDs were missing, so that two more answers without an ID are needed."""
        for device_id, hold in self.holds.items():
            if hold.missing_since is not None:
                self.holds[device_id] = replace(hold, missing_since=None)

    def held_ids(self) -> frozenset[str]:
        """Return the IDs that are held."""
        if self.ids is None:
            self.ids = frozenset((*self.holds, *self.pending))
        return self.ids

    def memory_later(self) -> Callable[[], Memory]:
        """Return a function that makes the memory of this moment, at any later time and in any thread."""
        return partial(_memory, self.holds.copy(), self.pending.copy())


def _memory(holds: Mapping[str, _Hold], pending: Mapping[str, tuple[Released, Remembered]]) -> Memory:
    held = {device_id: remembered for device_id, (_, remembered) in pending.items()}
    held.update((device_id, hold.remembered) for device_id, hold in holds.items())
    return held


# ── all resources ──


class Ledger:
    """The holders of each device ID, by resource. Times are seconds of one clock that never goes back."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = rules or Rules()
        self._resources: dict[str, _Resource] = {}
        self._kubelet: SocketIdentity | None = None
        self.is_checkpoint_old = False
        """Whether the last answer left an ID out that the checkpoint names. The kubelet may have dropped it:
        it does when it is asked who holds what, and writes the file only at the next list of any plugin."""
        self.is_any_missing = False
        """Whether the last answer left an ID out that counts as held: another answer confirms a release."""
        self.is_over = False
        """Whether IDs that we did not allocate are held and not kept: too many, or too long for a list."""
        self.is_known = False
        """Whether there was an answer since the start; before, any ID may be held."""

    def _resource(self, resource_name: str) -> _Resource:
        return self._resources.setdefault(resource_name, _Resource())

    # ── what happens ──

    def allocated(
        self, resource_name: str, ids: Iterable[str], now: float, uses: Mapping[str, Use] = NO_USES
    ) -> bool:
        """Record that we allocate these IDs with `uses`; return whether one of them was not held before."""
        resource = self._resource(resource_name)
        count = len(resource.holds)
        for device_id in ids:
            holders = resource.holds.get(device_id, FREE).remembered.holders
            resource.put(device_id, _Hold(Remembered(holders, use=uses.get(device_id)), allocated_at=now))
        return len(resource.holds) > count

    def forget(self, resource_name: str, ids: Iterable[str]) -> None:
        """Take `allocated` back for IDs that were free before: the kubelet gets no answer."""
        resource = self._resource(resource_name)
        for device_id in ids:
            if resource.holds.pop(device_id, None) is not None:
                resource.ids = None
                resource.revision += 1

    def use_of(self, resource_name: str, device_id: str) -> Use | None:
        """Return what a container has, or had until its release that is not taken, of a device."""
        resource = self._resource(resource_name)
        if (pending := resource.pending.get(device_id)) is not None:
            return pending[1].use
        return resource.holds.get(device_id, FREE).remembered.use

    def complete(self, resource_name: str, device_id: str, use: Use) -> None:
        """Record what a container has of a device, where an older version has recorded the ID alone."""
        resource = self._resource(resource_name)
        hold = resource.holds.get(device_id)
        if hold is not None and hold.remembered.use is None:
            resource.put(device_id, replace(hold, remembered=replace(hold.remembered, use=use)))

    def held(self) -> Iterator[tuple[str, str, Remembered, bool]]:
        """Yield resource name, ID, hold, and whether it is only to be cleaned: nothing can be opened then."""
        for name, resource in self._resources.items():
            for device_id, (_, remembered) in resource.pending.items():
                yield name, device_id, replace(remembered, use=after_release(remembered.use)), True
            for device_id, hold in resource.holds.items():
                yield name, device_id, hold.remembered, False

    @property
    def revisions(self) -> int:
        """A number that changes whenever `held` does."""
        return sum(resource.revision for resource in self._resources.values())

    def needs_checkpoint(self, pods: Sequence[PodResources], kubelet: SocketIdentity) -> bool:
        """Whether this answer leaves out IDs that only the checkpoint has."""
        unsure = [
            (name, device_id)
            for name, resource in self._resources.items()
            for device_id, hold in resource.holds.items()
            if hold.remembered.kubelet != kubelet
        ]
        if not (pods or self._rules.trusts_empty) and any(
            resource.holds for resource in self._resources.values()
        ):
            return True
        shown = _by_device(pods, self._resources)[0] if unsure else {}
        return any(device_id not in shown.get(name, ()) for name, device_id in unsure)

    def listed(
        self,
        pods: Sequence[PodResources],
        asked_at: float,
        kubelet: SocketIdentity,
        checkpoint: Sequence[PodResources] | None = None,
        *,
        is_v1: bool = True,
    ) -> tuple[Difference, ...]:
        """Take an answer that was asked for at `asked_at`; return what it changes, by resource name and ID.

        Answers come in the order in which they were asked for. `checkpoint` is what the kubelet's checkpoint
        says, read after the answer; None if it was not needed or cannot be read. Version v1alpha1 names no
        sidecars, so that an ID that it leaves out may be held.
        """
        shown, self.is_over = _by_device(pods, self._resources, self._room())
        named = None if checkpoint is None else _by_device(checkpoint, self._resources)[0]
        self.is_checkpoint_old = self.is_any_missing = False
        if kubelet != self._kubelet:
            self._kubelet = kubelet
            for resource in self._resources.values():
                resource.forget_absences()
        changes: list[Difference] = []
        for name in sorted(self._resources.keys() | shown.keys()):
            resource, shown_here = self._resource(name), shown.get(name, {})
            for device_id in sorted(resource.holds.keys() | shown_here.keys()):
                if (holders := shown_here.get(device_id)) is not None:
                    changes += self._shown(name, device_id, holders, asked_at)
                else:
                    is_named = None if named is None else device_id in named.get(name, ())
                    if is_named:
                        resource.put(device_id, replace(resource.holds[device_id], booked_by=kubelet))
                    hold = resource.holds[device_id].remembered
                    is_told = is_v1 and bool(pods or self._rules.trusts_empty) and hold.kubelet == kubelet
                    is_in_doubt = not self._has_books_of(name, device_id) and are_listed_without(
                        hold.holders, name, pods
                    )
                    is_evident = (is_told or is_named is False) and not is_in_doubt
                    changes += self._missing(
                        name, device_id, asked_at, is_evident=is_evident, is_named=is_named is True
                    )
        self.is_known = True
        return tuple(changes)

    def _room(self) -> int:
        """Return how many more IDs are kept that we did not allocate."""
        return KEPT_LIMIT - sum(len(resource.holds) for resource in self._resources.values())

    def _shown(
        self, name: str, device_id: str, holders: tuple[Holder, ...], asked_at: float
    ) -> Sequence[Difference]:
        resource = self._resources[name]
        before = resource.holds.get(device_id, FREE)
        allocated_at = before.allocated_at
        if allocated_at is not None and asked_at > allocated_at:
            allocated_at = None
        kubelet = self._kubelet if allocated_at is None else None
        hold = _Hold(Remembered(holders, kubelet, before.remembered.use), allocated_at)
        if hold == before:
            return ()
        resource.put(device_id, hold)
        changes: list[Difference] = [
            Released(name, device_id, holder, is_free=False)
            for holder in before.remembered.holders
            if holder not in holders
        ]
        # The first answer tells how things are, not what is new.
        if self.is_known:
            changes += [
                Allocated(name, device_id, holder)
                for holder in holders
                if holder not in before.remembered.holders
            ]
        return changes

    def _missing(
        self, name: str, device_id: str, asked_at: float, *, is_evident: bool, is_named: bool
    ) -> Iterator[Difference]:
        """Yield the changes from an answer without an ID; `is_named` says whether the checkpoint has it."""
        resource = self._resources[name]
        before = resource.holds[device_id]
        if before.allocated_at is not None and asked_at <= before.allocated_at:
            return
        missing_since: float | None = asked_at if before.missing_since is None else before.missing_since
        listed_at = -inf if before.allocated_at is None else before.allocated_at + self._rules.grace_seconds
        self.is_any_missing = True
        self.is_checkpoint_old |= is_named and not is_evident and asked_at >= listed_at
        if not is_evident:
            missing_since = None
        if missing_since is None or asked_at < max(missing_since + self._rules.absence_seconds, listed_at):
            resource.put(device_id, replace(before, missing_since=missing_since))
            return
        yield from self.released(name, device_id)

    def released(self, resource_name: str, device_id: str) -> tuple[Released, ...]:
        """Record that nobody holds an ID any more; return the changes, none if nobody did."""
        resource = self._resource(resource_name)
        if (hold := resource.holds.get(device_id)) is None:
            return ()
        *others, last = hold.remembered.holders or (None,)
        released = Released(resource_name, device_id, last)
        resource.release(device_id, released)
        return (*(Released(resource_name, device_id, other, is_free=False) for other in others), released)

    # ── what is known ──

    def held_ids(self, resource_name: str) -> frozenset[str]:
        """Return the IDs that are held or whose release was not taken."""
        resource = self._resources.get(resource_name)
        return frozenset() if resource is None else resource.held_ids()

    def may_be_held(self, resource_name: str, device_id: str) -> bool:
        """Whether a container may hold this ID; true for any ID before the first answer."""
        return not self.is_known or self._hold(resource_name, device_id) is not FREE

    def last_holders(self, resource_name: str, device_id: str) -> tuple[Sequence[Holder], bool]:
        """Return who was last listed for a held ID, and whether the present kubelet has it in its books."""
        holders = self._hold(resource_name, device_id).remembered.holders
        return holders, self._has_books_of(resource_name, device_id)

    def _has_books_of(self, resource_name: str, device_id: str) -> bool:
        """Whether the present kubelet, or its checkpoint, has named a held ID."""
        hold = self._hold(resource_name, device_id)
        return self._kubelet is not None and self._kubelet in {hold.remembered.kubelet, hold.booked_by}

    def is_held(self, resource_name: str, device_id: str) -> bool:
        """Whether a container may hold this ID, by all that is known."""
        return self._hold(resource_name, device_id) is not FREE

    def holders_of(self, resource_name: str, device_id: str) -> tuple[Holder, ...]:
        """Return the holders of an ID by the last kubelet, sorted; empty if it has not listed the ID."""
        remembered = self._hold(resource_name, device_id).remembered
        return () if remembered.kubelet != self._kubelet else remembered.holders

    def _hold(self, resource_name: str, device_id: str) -> _Hold:
        resource = self._resources.get(resource_name)
        return FREE if resource is None else resource.holds.get(device_id, FREE)

    def doubly_held(self) -> frozenset[Key]:
        """Return resource name and ID of devices that several pods hold, which is an error of the kubelet."""
        return frozenset(
            (name, device_id)
            for name, resource in self._resources.items()
            for device_id, hold in resource.holds.items()
            if _are_of_several_pods(hold.remembered.holders)
        )

    # ── releases, for who acts on them ──

    def keep_releases(self, resource_name: str) -> None:
        """Keep the releases of this resource until they are taken, from now on."""
        self._resource(resource_name).is_kept = True

    def pending_releases(self, resource_name: str) -> list[Released]:
        """Return the kept releases of devices that nobody holds, by ID, without taking them."""
        return [released for _, (released, _) in sorted(self._resource(resource_name).pending.items())]

    def take(self, all_released: Iterable[Released]) -> None:
        """Record that these releases were acted upon."""
        for released in all_released:
            self._resource(released.resource_name).take(released)

    def stop_keeping(self, resource_name: str) -> None:
        """Keep no more releases of this resource. Those not yet taken stay, and are remembered."""
        self._resource(resource_name).is_kept = False

    # ── over a restart ──

    def judge_left(self, resource_name: str, memory: Memory, now: float) -> None:
        """Judge what an ended process remembered, and keep the releases of what it had to clean."""
        self._resource(resource_name).is_left = True
        self.recall(resource_name, memory, now)

    def leave(self, resource_name: str) -> None:
        """Leave the holds of this resource to the process that serves it now."""
        resource = self._resource(resource_name)
        resource.is_left = False
        resource.holds.clear()
        resource.pending.clear()
        resource.ids = None
        resource.revision += 1

    def recall(self, resource_name: str, memory: Memory, now: float) -> None:
        """Take over the memory of another process or an earlier time, up to `KEPT_LIMIT`.

        What is known of an ID already is newer, but for an Allocate that no answer has shown.
        """
        resource, room = self._resource(resource_name), self._room()
        for device_id, held in memory.items():
            before = resource.holds.get(device_id)
            if before is None and held.use is None and (room <= 0 or not _can_be_listed(device_id)):
                self.is_over = True
                continue
            if before is None:
                room -= 1
                resource.put(device_id, _Hold(held, None if held.kubelet else now))
                continue
            use = before.remembered.use or held.use
            if held.kubelet is None and before.allocated_at is None:
                resource.put(device_id, _Hold(Remembered(before.remembered.holders, use=use), now))
            elif use != before.remembered.use:
                resource.put(device_id, replace(before, remembered=replace(before.remembered, use=use)))

    def memory(self, resource_name: str) -> Memory:
        """Return the memory for the next process; a release that was not taken counts as held in it."""
        return self.memory_later(resource_name)()

    def memory_later(self, resource_name: str) -> Callable[[], Memory]:
        """Return a function that makes the `memory` of this moment, at any later time and in any thread."""
        return self._resource(resource_name).memory_later()

    def revision(self, resource_name: str) -> int:
        """Return a number that grows whenever `memory` becomes another one."""
        return self._resource(resource_name).revision


def ids_of(pod: PodResources, resource_name: str) -> frozenset[str]:
    """Return the device IDs of a resource that the kubelet names for a pod."""
    return frozenset(
        device_id
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name == resource_name
        for device_id in devices.device_ids
    )


def are_listed_without(holders: Iterable[Holder], resource_name: str, pods: Iterable[PodResources]) -> bool:
    """Whether the pod of one of these holders is listed without any device of a resource.

    So lists a kubelet that has lost its checkpoint: the pod runs on with its device (reference of the
    kubelet, L7).
    """
    names = {(holder.namespace, holder.pod) for holder in holders}
    return any((pod.namespace, pod.name) in names and not ids_of(pod, resource_name) for pod in pods)


def _are_of_several_pods(holders: tuple[Holder, ...]) -> bool:
    return len(holders) > 1 and len({(one.namespace, one.pod) for one in holders}) > 1


def _can_be_listed(device_id: str) -> bool:
    """Whether a list of ours can have this ID, by whatever rules it was made."""
    try:
        return 0 < len(device_id.encode()) <= ID_LIMIT_BYTES
    except UnicodeEncodeError:
        return False


def _listings(pods: Iterable[PodResources]) -> Iterator[tuple[str, str, tuple[Holder, ...]]]:
    """Yield resource name, ID and holder as often as an ID is listed."""
    for pod in pods:
        for container in pod.containers:
            holders = (Holder(pod.namespace, pod.name, container.name),)
            for devices in container.devices:
                for device_id in devices.device_ids:
                    yield devices.resource_name, device_id, holders


def _by_device(
    pods: Sequence[PodResources], resources: Mapping[str, _Resource], room: int = 0
) -> tuple[dict[str, dict[str, tuple[Holder, ...]]], bool]:
    """Return the holders of listed IDs by resource name and ID, and whether there was no `room` for IDs."""
    listed: dict[str, dict[str, tuple[Holder, ...]]] = {}
    several: dict[
        Key, set[Holder]
    ] = {}  # of IDs that are listed several times, as those on several NUMA nodes
    is_over = False
    ours = (one for one in _listings(pods) if one[0] in resources)
    strangers = (one for one in _listings(pods) if one[0] not in resources)
    for name, device_id, holders in chain(ours, strangers):
        if (before := listed.get(name, {}).get(device_id)) is not None:
            if before is not holders:
                several.setdefault((name, device_id), set(before)).update(holders)
            continue
        is_known = name in resources and device_id in resources[name].holds
        if not _can_be_listed(device_id) or not (is_known or room > 0):
            is_over = True
            continue
        room -= not is_known
        listed.setdefault(name, {})[device_id] = holders
    for (name, device_id), all_holders in several.items():
        listed[name][device_id] = tuple(sorted(all_holders))
    return listed, is_over
