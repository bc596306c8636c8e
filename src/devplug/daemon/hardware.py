"""Which resource has which hardware: no two have the same, unless both say that they share. No I/O."""

from __future__ import annotations

from bisect import bisect_right, insort
from itertools import chain
from typing import TYPE_CHECKING

from devplug.daemon.contests import FRONT, Contest, Stake, Todo, contest_of, keys_of, still_held

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from devplug.daemon.contests import Key, Keys, Place
    from devplug.daemon.sources.found import Found

__all__ = ["Overlaps"]


class Overlaps:
    """The hardware of all resources of one daemon; lives as long as that.

    Of two resources that find the same, that one has it whose device a container holds, and else the one
    that stands first in the file. What the file alone shows (equal paths) is refused before anything is
    served; this is for what only the machine shows: a link and its node, a gadget and its serial port.

    What is held stays with its resource until it is let go, also if it was pulled out, if another resource
    comes before this one in the file, and if the file has the resource no more. Where two resources hold the
    same already, because they shared it before an edit, the first of them in the file is its owner and the
    other comes next.
    """

    def __init__(self) -> None:
        self._stakes: dict[str, Stake] = {}
        # Nearly every key belongs to one resource alone, and a machine may have very many.
        self._alone: dict[Key, str] = {}
        self._contests: dict[Key, Contest] = {}

    def enter(self, resource_name: str, rank: int, *, is_shared: bool, on_change: Callable[[], None]) -> None:
        """Take part from now on, or as another one from now on; its stake stays as it is until the next.

        `on_change` is called when what others do changes which devices are refused to this one. It must not
        call back.
        """
        stake = self._stakes.get(resource_name)
        if stake is None:
            self._stakes[resource_name] = Stake((rank, resource_name), is_shared, on_change)
            return
        stake.on_change = on_change
        place, is_edited = (rank, resource_name), is_shared != stake.is_shared
        if place == stake.place and not is_edited:
            return
        stake.place, stake.is_shared = place, is_shared
        todo = Todo()
        for key in stake.keys & self._contests.keys():
            contest = self._contests[key]
            self._line_up(key, todo)
            if is_edited:
                contest.refusing += -1 if is_shared else 1
                contest.keepers = self._chosen(key, contest)
        self._settle(todo, stake)

    def reorder(self, ranks: Mapping[str, int]) -> None:
        """Take note that the resources stand in another order now. What is held stays where it is."""
        moved = [self._stakes[name] for name in ranks.keys() & self._stakes.keys()]
        moved = [stake for stake in moved if stake.place[0] != ranks[stake.resource_name]]
        for stake in moved:
            stake.place = (ranks[stake.resource_name], stake.resource_name)
        todo = Todo()
        for key in self._contests.keys() & {key for stake in moved for key in stake.keys}:
            self._line_up(key, todo)
        self._settle(todo)

    def stake(
        self, resource_name: str, found: Iterable[Found], held: Collection[str] = ()
    ) -> Mapping[str, str]:
        """Say what a resource has found; return what it cannot have, with the resource that has it.

        `held` are the names of those devices, and of devices that it found before, which a container may
        hold. Their keys stay claimed until a stake without the name, also if they are not found any more.
        Raises `KeyError` for a resource that has not entered.
        """
        stake = self._stakes[resource_name]
        fresh = {one.name: keys_of(one) for one in found}
        self._replace(stake, fresh, still_held(stake, fresh, held))
        return {name: min(self._excluding(stake, name))[1] for name in sorted(stake.refused)}

    def retire(self, resource_name: str, held: Collection[str]) -> None:
        """Keep of a resource only what containers hold; without any, it leaves. May be called again."""
        stake = self._stakes.get(resource_name)
        if stake is not None:
            self._replace(stake, {}, still_held(stake, {}, held))
            if not stake.held:
                del self._stakes[resource_name]

    def leave(self, resource_name: str) -> None:
        """Give up all hardware of a resource, held or not."""
        self.retire(resource_name, ())

    # ── who has which key ──

    def _replace(self, stake: Stake, found: Mapping[str, Keys], held: Mapping[str, Keys]) -> None:
        """Put this in the place of what a resource had, and settle what that concerns."""
        before = stake.found
        if found == before and held == stake.held:
            return
        todo = Todo()
        changed = {name for name in found.keys() | before.keys() if found.get(name) != before.get(name)}
        if self._contests:
            for name in (changed & before.keys()) - stake.refused:
                self._disown(stake, name, todo)
        stake.refused -= changed
        keys, held_keys = stake.keys, stake.held_keys
        stake.replace(found, held)
        self._drop(keys - stake.keys, stake, todo)
        self._add(stake.keys - keys, stake)
        if self._contests:
            for key in self._contests.keys() & (held_keys ^ stake.held_keys):
                self._pass_on(key, stake, todo)
            contested = {n for n in changed & found.keys() if not self._contests.keys().isdisjoint(found[n])}
            stake.refused |= contested
            todo.look_at(stake.place, contested)
        self._settle(todo, stake)

    def _add(self, keys: Iterable[Key], stake: Stake) -> None:
        for key in keys:
            contest = self._contests.get(key)
            if contest is None:
                name = self._alone.setdefault(key, stake.resource_name)
                if name == stake.resource_name:
                    continue
                contest = self._contests[key] = contest_of(key, self._stakes[self._alone.pop(key)])
            insort(contest.line, stake.place)
            contest.refusing += not stake.is_shared

    def _drop(self, keys: Iterable[Key], stake: Stake, todo: Todo) -> None:
        for key in keys:
            contest = self._contests.get(key)
            if contest is None:
                del self._alone[key]
                continue
            contest.line.remove(stake.place)
            contest.refusing -= not stake.is_shared
            if len(contest.line) == 1:
                del self._contests[key]
                ((_, self._alone[key]),) = contest.line
                self._look_at(self._alone[key], key, todo)

    def _line_up(self, key: Key, todo: Todo) -> None:
        """Put the resources that have a key into file order, and have all of them looked at."""
        line = self._contests[key].line
        line[:] = sorted(self._stakes[name].place for _, name in line)
        for _, name in line:
            self._look_at(name, key, todo)

    # ── for whom a key is held ──

    def _pass_on(self, key: Key, stake: Stake, todo: Todo) -> None:
        """Take note that a resource holds a key from now on, or no more."""
        contest = self._contests[key]
        before = contest.keepers
        mine = frozenset((stake.resource_name,))
        if key not in stake.held_keys:
            contest.keepers -= mine
            if before and not contest.keepers:
                contest.keepers = self._chosen(key, contest)
        elif not before or (stake.is_shared and self._share(before)):
            contest.keepers |= mine
        if contest.keepers == before or (stake.is_shared and not contest.refusing):
            return
        for name in {*before, *contest.keepers, *contest.owners}:
            self._look_at(name, key, todo)
        if not contest.keepers or self._share(contest.keepers):
            todo.look_behind(FRONT, key)

    def _share(self, keepers: Iterable[str]) -> bool:
        # Either all of them do, or there is only one.
        return self._stakes[next(iter(keepers))].is_shared

    def _chosen(self, key: Key, contest: Contest) -> frozenset[str]:
        """Return for whom a key is kept, of those that hold it: who had it before, then file order."""
        before = (name for _, name in contest.line if name in contest.keepers)
        others = (name for _, name in contest.line if name not in contest.keepers)
        line = (self._stakes[name] for name in chain(before, others))
        holders = (stake for stake in line if key in stake.held_keys)
        first = next(holders, None)
        if first is None:
            return frozenset()
        with_first = [stake for stake in holders if stake.is_shared] if first.is_shared else []
        return frozenset(stake.resource_name for stake in (first, *with_first))

    # ── who is refused what ──

    def _settle(self, todo: Todo, caller: Stake | None = None) -> None:
        """Decide on all devices that are to be looked at, and wake whom that changes, but the caller."""
        to_wake: dict[Stake, None] = {}
        for place, names, keys in todo:
            for name in sorted(names):
                stake = self._stakes[place[1]]
                is_refused = any(True for _ in self._excluding(stake, name))
                if is_refused == (name in stake.refused):
                    continue
                if is_refused:
                    stake.refused.add(name)
                    self._disown(stake, name, todo)
                else:
                    stake.refused.remove(name)
                    self._own(stake, name, todo)
                to_wake[stake] = None
            for key in keys:
                self._look_behind(place, key, todo)
        for stake in to_wake:
            if stake is not caller:
                stake.on_change()

    def _excluding(self, stake: Stake, name: str) -> Iterator[Place]:
        """Yield who keeps a resource from having a device: who holds of it, and who is before it."""
        for key in stake.found[name]:
            contest = self._contests.get(key)
            if contest is None or not contest.refusing or stake.resource_name in contest.keepers:
                continue
            for one in chain(contest.keepers, contest.owners):
                other = self._stakes[one]
                if (one in contest.keepers or other.place < stake.place) and not (
                    stake.is_shared and other.is_shared
                ):
                    yield other.place

    def _own(self, stake: Stake, name: str, todo: Todo) -> None:
        for key in stake.found[name]:
            if contest := self._contests.get(key):
                if contest.refusing and stake.resource_name not in contest.owners:
                    for other in contest.owners:
                        self._look_at(other, key, todo, behind=stake.place)
                contest.owners[stake.resource_name] = contest.owners.get(stake.resource_name, 0) + 1

    def _disown(self, stake: Stake, name: str, todo: Todo) -> None:
        for key in stake.found[name]:
            if contest := self._contests.get(key):
                contest.owners[stake.resource_name] -= 1
                if not contest.owners[stake.resource_name]:
                    del contest.owners[stake.resource_name]
                    if contest.refusing:
                        todo.look_behind(stake.place, key)

    def _look_at(self, resource_name: str, key: Key, todo: Todo, behind: Place = FRONT) -> None:
        stake = self._stakes[resource_name]
        if stake.place > behind:
            todo.look_at(stake.place, stake.names_with(key))

    def _look_behind(self, place: Place, key: Key, todo: Todo) -> None:
        """Have the next one in line for a key looked at, unless the key is taken for all that follow."""
        contest = self._contests.get(key)
        if contest is None:
            return
        taken = contest.keepers or (one for one in contest.owners if self._stakes[one].place <= place)
        if any(not self._stakes[one].is_shared for one in taken):
            return
        following = bisect_right(contest.line, place)
        if following < len(contest.line):
            behind = contest.line[following]
            self._look_at(behind[1], key, todo)
            todo.look_behind(behind, key)
