"""What is in use, and when it is free: decided on what the kubelet lists and on what we gave out. Pure.

An ID is held from our Allocate, or from the first answer that shows it, until answers show that it is not.
Wherever an absence proves nothing it stays held: a device that is reset in use is worse than one that waits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from devplug.exchange import PodName
from devplug.holders.values import Allocated, Holder, Memory, Released, Remembered, Rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.exchange import PodResources
    from devplug.holders.values import Difference, Identity, Key

__all__ = ["Ledger"]


@dataclass(frozen=True, slots=True)
class _Hold:
    """One held ID."""

    holders: tuple[Holder, ...] = ()
    """Of the last answer that showed it."""
    allocated_at: float | None = None
    """Our last Allocate of it, if no answer has shown it since."""
    suspects: frozenset[PodName] | None = None
    missing_since: float | None = None
    """The first of the answers in a row that do not show it, if its absence means anything."""


_FREE: Final = _Hold()


class Ledger:
    """Who holds which ID of which resource. Lives as long as its owner; `Memory` takes it over a restart.

    Times are seconds of one clock that never goes back; `now` is also when it was made.
    """

    def __init__(self, now: float, rules: Rules | None = None, memory: Memory | None = None) -> None:
        self._rules = rules or Rules()
        memory = memory or Memory()
        self._holds = {
            key: _Hold(held.holders, None if held.is_listed else now, held.suspects)
            for key, held in memory.held.items()
        }
        self._proven = memory.kubelet
        self._kubelet: Identity | None = None
        self._kubelet_since = now
        self._pods: dict[PodName, float] = {}
        self._kept: set[str] = set()
        self._untaken: dict[Key, Released] = {}
        self.is_known = False
        """Whether there was an answer since the start; before, any ID may be held."""

    # ── what happens ──

    def allocated(self, resource_name: str, ids: Iterable[str], now: float) -> None:
        """Note that we give out these IDs now. Call it before the kubelet has the answer."""
        for device_id in ids:
            key = resource_name, device_id
            holders = self._holds.get(key, _FREE).holders
            self._holds[key] = _Hold(holders, allocated_at=now)
            self._untaken.pop(key, None)

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
        for key in sorted(self._holds.keys() | shown.keys()):
            before = self._holds.get(key, _FREE)
            if key in shown:
                changes += self._shown(key, before, shown[key], asked_at)
            elif is_believed:
                changes += self._missing(key, before, asked_at)
        self.is_known = True
        return tuple(changes)

    def _is_believed(self, kubelet: Identity, asked_at: float, *, shows_holders: bool) -> bool:
        """Whether what this kubelet does not list is gone; see `PATIENCE_SECONDS`."""
        if kubelet != self._kubelet:
            self._kubelet = kubelet
            self._kubelet_since = asked_at
            self._holds = {key: replace(hold, missing_since=None) for key, hold in self._holds.items()}
        if shows_holders:
            self._proven = kubelet
        return self._proven == kubelet or asked_at >= self._kubelet_since + self._rules.patience_seconds

    def _note_pods(self, names: set[PodName], asked_at: float, *, is_believed: bool) -> None:
        """Keep since when each pod is listed without a break."""
        if is_believed:
            self._pods = {name: since for name, since in self._pods.items() if name in names}
        for name in names:
            self._pods.setdefault(name, asked_at)

    def _shown(
        self, key: Key, before: _Hold, holders: tuple[Holder, ...], asked_at: float
    ) -> list[Difference]:
        allocated_at = before.allocated_at
        if allocated_at is not None and asked_at > allocated_at:
            allocated_at = None
        self._holds[key] = _Hold(holders, allocated_at)
        self._untaken.pop(key, None)
        changes: list[Difference] = [
            Released(*key, holder, is_free=False) for holder in before.holders if holder not in holders
        ]
        # The first answer tells how things are, not what is new.
        if self.is_known:
            changes += [Allocated(*key, holder) for holder in holders if holder not in before.holders]
        return changes

    def _missing(self, key: Key, before: _Hold, asked_at: float) -> list[Difference]:
        suspects = before.suspects
        may_be_unlisted = False
        if before.allocated_at is not None:
            if asked_at <= before.allocated_at:
                return []
            # Plain init containers hold devices and are never listed, but their pods are (kubelet.md 7.2).
            suspects = self._suspects(suspects, before.allocated_at)
            may_be_unlisted = bool(suspects) or asked_at < before.allocated_at + self._rules.grace_seconds
        missing_since = asked_at if before.missing_since is None else before.missing_since
        hold = replace(before, suspects=suspects, missing_since=missing_since)
        is_confirmed = asked_at >= missing_since + self._rules.period_seconds
        if may_be_unlisted or not is_confirmed:
            self._holds[key] = hold
            return []
        del self._holds[key]
        *others, last = hold.holders or (None,)
        released = Released(*key, last)
        if key[0] in self._kept:
            self._untaken[key] = released
        return [*(Released(*key, other, is_free=False) for other in others), released]

    def _suspects(self, before: frozenset[PodName] | None, allocated_at: float) -> frozenset[PodName]:
        """Return the listed pods that may hold what we gave out then: those that were new at the time."""
        if before is not None:
            return before & self._pods.keys()
        new_since = allocated_at - self._rules.grace_seconds
        return frozenset(name for name, since in self._pods.items() if since >= new_since)

    # ── what is known ──

    def held_ids(self, resource_name: str) -> frozenset[str]:
        """Return the IDs that a container may hold."""
        return frozenset(device_id for name, device_id in self._holds if name == resource_name)

    def may_be_held(self, resource_name: str, device_id: str) -> bool:
        """Whether a container may hold this ID; true for any ID before the first answer."""
        return not self.is_known or (resource_name, device_id) in self._holds

    def holders_of(self, resource_name: str, device_id: str) -> tuple[Holder, ...]:
        """Return the holders that the last answer with this ID named, sorted; empty if none was named."""
        return self._holds.get((resource_name, device_id), _FREE).holders

    def doubly_held(self) -> frozenset[tuple[str, str]]:
        """Return resource name and ID of what containers of several pods hold, which should never be."""
        return frozenset(
            key
            for key, hold in self._holds.items()
            if len({(holder.namespace, holder.pod) for holder in hold.holders}) > 1
        )

    # ── releases, for who acts on them ──

    def keep_releases(self, resource_name: str) -> None:
        """Keep the releases of this resource until they are taken, from now on."""
        self._kept.add(resource_name)

    def untaken(self, resource_name: str) -> Released | None:
        """Return the oldest kept release of a device that nobody holds, without taking it."""
        return next((one for one in self._untaken.values() if one.resource_name == resource_name), None)

    def take(self, released: Released) -> None:
        """Note that a release was acted upon."""
        key = released.resource_name, released.device_id
        if self._untaken.get(key) is released:
            del self._untaken[key]

    def stop_keeping(self, resource_name: str) -> None:
        """Keep no more releases of this resource. Those not yet taken stay, and are remembered."""
        self._kept.discard(resource_name)

    def memory(self) -> Memory:
        """Return what has to outlive the process. A release that was not taken counts as held in it."""
        held = {
            key: Remembered(() if released.holder is None else (released.holder,))
            for key, released in self._untaken.items()
        }
        for key, hold in self._holds.items():
            held[key] = Remembered(hold.holders, hold.allocated_at is None, hold.suspects)
        return Memory(self._proven, held)


def _by_device(pods: Iterable[PodResources]) -> dict[Key, tuple[Holder, ...]]:
    """Return the holders of each listed ID, sorted; one on several NUMA nodes is listed several times."""
    found: dict[Key, set[Holder]] = {}
    for pod in pods:
        for container in pod.containers:
            holder = Holder(pod.namespace, pod.name, container.name)
            for devices in container.devices:
                for device_id in devices.device_ids:
                    found.setdefault((devices.resource_name, device_id), set()).add(holder)
    return {key: tuple(sorted(holders)) for key, holders in found.items()}
