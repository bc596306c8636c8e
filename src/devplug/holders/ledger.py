"""What is in use, and when it is free: decided on what the kubelet lists and on what we gave out. Pure.

An ID is held from our Allocate, or from the first answer that shows it, until answers show that it is not.
Wherever an absence proves nothing it stays held: a device that is reset in use is worse than one that waits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from devplug.exchange import PodName
from devplug.holders.book import FREE, Book, Hold
from devplug.holders.values import Allocated, Released, Remembered, Rules
from devplug.status.values import Holder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from devplug.exchange import PodResources
    from devplug.holders.values import Difference, Identity, Key, Memory

__all__ = ["Ledger"]


class Ledger:
    """Who holds which ID of which resource. Lives as long as its owner; `Memory` takes it over a restart.

    Times are seconds of one clock that never goes back; `now` is also when it was made.
    """

    def __init__(self, now: float, rules: Rules | None = None) -> None:
        self._rules = rules or Rules()
        self._books: dict[str, Book] = {}
        self._proven: Identity | None = None
        self._provings = 0
        self._kubelet: Identity | None = None
        self._kubelet_since = now
        self._pods: dict[PodName, float] = {}
        self.is_known = False
        """Whether there was an answer since the start; before, any ID may be held."""

    def _book(self, resource_name: str) -> Book:
        return self._books.setdefault(resource_name, Book())

    # ── what happens ──

    def allocated(self, resource_name: str, ids: Iterable[str], now: float) -> None:
        """Note that we give out these IDs now. Call it before the kubelet has the answer."""
        book = self._book(resource_name)
        for device_id in ids:
            holders = book.holds.get(device_id, FREE).remembered.holders
            book.put(device_id, Hold(Remembered(holders, is_listed=False), allocated_at=now))

    def listed(
        self, pods: Sequence[PodResources], asked_at: float, kubelet: Identity
    ) -> tuple[Difference, ...]:
        """Take an answer that was asked for at `asked_at`; return what it changes, by resource name and ID.

        Answers come in the order in which they were asked for.
        """
        shown = _by_device(pods)
        is_believed = self._is_believed(kubelet, asked_at, shows_holders=bool(shown))
        self._note_pods({PodName(pod.name, pod.namespace) for pod in pods}, asked_at, is_believed=is_believed)
        changes: list[Difference] = []
        for name in sorted(self._books.keys() | shown.keys()):
            book, shown_here = self._book(name), shown.get(name, {})
            for device_id in sorted(book.holds.keys() | shown_here.keys()):
                if (holders := shown_here.get(device_id)) is not None:
                    changes += self._shown(name, device_id, holders, asked_at)
                elif is_believed:
                    changes += self._missing(name, device_id, asked_at)
        self.is_known = True
        return tuple(changes)

    def _is_believed(self, kubelet: Identity, asked_at: float, *, shows_holders: bool) -> bool:
        """Whether what this kubelet does not list is gone; see `PATIENCE_SECONDS`."""
        if kubelet != self._kubelet:
            self._kubelet = kubelet
            self._kubelet_since = asked_at
            for book in self._books.values():
                book.forget_absences()
        if shows_holders and self._proven != kubelet:
            self._proven = kubelet
            self._provings += 1
        return self._proven == kubelet or asked_at >= self._kubelet_since + self._rules.patience_seconds

    def _note_pods(self, names: set[PodName], asked_at: float, *, is_believed: bool) -> None:
        """Keep since when each pod is listed without a break."""
        if is_believed:
            self._pods = {name: since for name, since in self._pods.items() if name in names}
        for name in names:
            self._pods.setdefault(name, asked_at)

    def _shown(
        self, name: str, device_id: str, holders: tuple[Holder, ...], asked_at: float
    ) -> Sequence[Difference]:
        book = self._books[name]
        before = book.holds.get(device_id, FREE)
        allocated_at = before.allocated_at
        if allocated_at is not None and asked_at > allocated_at:
            allocated_at = None
        hold = Hold(Remembered(holders, is_listed=allocated_at is None), allocated_at)
        if hold == before:
            return ()
        book.put(device_id, hold)
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

    def _missing(self, name: str, device_id: str, asked_at: float) -> Sequence[Difference]:
        book = self._books[name]
        before = book.holds[device_id]
        remembered = before.remembered
        may_be_unlisted = False
        if before.allocated_at is not None:
            if asked_at <= before.allocated_at:
                return ()
            # Plain init containers hold devices and are never listed, but their pods are (kubelet.md 7.2).
            suspects = self._suspects(remembered.suspects, before.allocated_at)
            remembered = replace(remembered, suspects=suspects)
            may_be_unlisted = bool(suspects) or asked_at < before.allocated_at + self._rules.grace_seconds
        missing_since = asked_at if before.missing_since is None else before.missing_since
        is_confirmed = asked_at >= missing_since + self._rules.period_seconds
        if may_be_unlisted or not is_confirmed:
            book.put(device_id, Hold(remembered, before.allocated_at, missing_since))
            return ()
        *others, last = remembered.holders or (None,)
        released = Released(name, device_id, last)
        book.release(device_id, released)
        return [*(Released(name, device_id, other, is_free=False) for other in others), released]

    def _suspects(self, before: frozenset[PodName] | None, allocated_at: float) -> frozenset[PodName]:
        """Return the listed pods that may hold what we gave out then: those that were new at the time."""
        if before is not None:
            return before & self._pods.keys()
        new_since = allocated_at - self._rules.grace_seconds
        return frozenset(name for name, since in self._pods.items() if since >= new_since)

    # ── what is known ──

    def held_ids(self, resource_name: str) -> frozenset[str]:
        """Return the IDs that a container may hold. Cheap while they stay the same."""
        book = self._books.get(resource_name)
        return frozenset() if book is None else book.held_ids()

    def may_be_held(self, resource_name: str, device_id: str) -> bool:
        """Whether a container may hold this ID; true for any ID before the first answer."""
        return not self.is_known or self._hold(resource_name, device_id) is not FREE

    def holders_of(self, resource_name: str, device_id: str) -> tuple[Holder, ...]:
        """Return the holders that the last answer with this ID named, sorted; empty if none was named."""
        return self._hold(resource_name, device_id).remembered.holders

    def _hold(self, resource_name: str, device_id: str) -> Hold:
        book = self._books.get(resource_name)
        return FREE if book is None else book.holds.get(device_id, FREE)

    def doubly_held(self) -> frozenset[Key]:
        """Return resource name and ID of what containers of several pods hold, which should never be."""
        return frozenset(
            (name, device_id)
            for name, book in self._books.items()
            for device_id, hold in book.holds.items()
            if _are_of_several_pods(hold.remembered.holders)
        )

    # ── releases, for who acts on them ──

    def keep_releases(self, resource_name: str) -> None:
        """Keep the releases of this resource until they are taken, from now on."""
        self._book(resource_name).is_kept = True

    def untaken(self, resource_name: str) -> list[Released]:
        """Return the kept releases of devices that nobody holds, by ID, without taking them."""
        return [released for _, released in sorted(self._book(resource_name).untaken.items())]

    def take(self, all_released: Iterable[Released]) -> None:
        """Note that these releases were acted upon."""
        for released in all_released:
            self._book(released.resource_name).take(released)

    def stop_keeping(self, resource_name: str) -> None:
        """Keep no more releases of this resource. Those not yet taken stay, and are remembered."""
        self._book(resource_name).is_kept = False

    # ── over a restart ──

    def recall(self, resource_name: str, memory: Memory, now: float) -> None:
        """Take over what another process, or we ourselves at another time, remembered of this resource.

        Whatever was held then counts as held. What is known of an ID already is newer, but for this: a
        memory may know of an Allocate that no answer has shown.
        """
        book = self._book(resource_name)
        for device_id, held in memory.held.items():
            before = book.holds.get(device_id)
            if before is None:
                book.put(device_id, Hold(held, None if held.is_listed else now))
            elif not held.is_listed and before.allocated_at is None:
                book.put(device_id, Hold(replace(held, holders=before.remembered.holders), now))
        if any(not held.is_listed and held.suspects is None for held in memory.held.values()):
            # Nobody knows since when these are held, so any pod that is there may be the holder.
            self._pods = dict.fromkeys(self._pods, now)
        kubelets = [one for one in (self._proven, memory.kubelet) if one is not None]
        newest = max(kubelets, key=_made_at, default=None)
        if newest != self._proven:
            self._proven = newest
            self._provings += 1

    def memory(self, resource_name: str) -> Memory:
        """Return what of this resource has to outlive the process.

        A release that was not taken counts as held in it.
        """
        return self.memory_later(resource_name)()

    def memory_later(self, resource_name: str) -> Callable[[], Memory]:
        """Return what makes the `memory` of this moment, at any time and in any thread; cheap itself."""
        return self._book(resource_name).memory_later(self._proven)

    def revision(self, resource_name: str) -> int:
        """Return a number that grows whenever `memory` becomes another one."""
        return self._book(resource_name).revision + self._provings


def _are_of_several_pods(holders: tuple[Holder, ...]) -> bool:
    return len(holders) > 1 and len({(one.namespace, one.pod) for one in holders}) > 1


def _made_at(kubelet: Identity) -> int:
    return kubelet[2]


def _by_device(pods: Iterable[PodResources]) -> dict[str, dict[str, tuple[Holder, ...]]]:
    """Return the holders of each listed ID, sorted, by resource name and ID.

    An ID on several NUMA nodes is listed several times.
    """
    found: dict[str, dict[str, tuple[Holder, ...]]] = {}
    for pod in pods:
        for container in pod.containers:
            holders = (Holder(pod.namespace, pod.name, container.name),)
            for devices in container.devices:
                of_resource = found.setdefault(devices.resource_name, {})
                for device_id in devices.device_ids:
                    before = of_resource.setdefault(device_id, holders)
                    if before is not holders:
                        of_resource[device_id] = tuple(sorted({*before, *holders}))
    return found
