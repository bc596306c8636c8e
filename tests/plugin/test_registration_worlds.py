"""Every state that a small world of kubelets and streams can reach: no dead end, never two calls at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cache

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.errors import RemoteError
from devplug.plugin.registration import (
    CALLS,
    STREAMS,
    CallState,
    Folder,
    RegistrationFacts,
    SocketRegistration,
    Step,
    StreamState,
)
from devplug.wire.values import SocketIdentity

FIRST, SECOND = (1, 1, 1), (1, 2, 2)
LONG_AGO, NOW = -1000.0, 0.0


class World(Struct, frozen=True):
    """What is there, and what our calls have brought. Waits have just begun, or are long over."""

    state: SocketRegistration = field(default_factory=SocketRegistration)
    kubelet: SocketIdentity | None = FIRST
    called: SocketIdentity | None = None
    """Whom the call that is on its way went to."""
    pending: tuple[SocketIdentity, ...] = ()
    """Kubelets that have accepted, and have not opened their stream yet."""
    streams: tuple[tuple[int, SocketIdentity], ...] = ()
    """The open ones, with whose they are."""
    opened: int = 0

    def step(self) -> Step:
        """What our rule says."""
        return self.state.next_step(self.facts())[0]

    def facts(self) -> RegistrationFacts:
        state = self.state
        return RegistrationFacts(
            now=NOW,
            folder=Folder.PRESENT,
            has_list=True,
            has_lock=True,
            is_bound=True,
            lock_not_before=0.0,
            bind_not_before=0.0,
            kubelet=self.kubelet,
            has_leftovers=state.has_leftovers(
                {number for number, _ in self.streams}, streams_opened=self.opened, options_answered=0
            ),
        )


def numbers(world: World) -> set[int]:
    return {number for number, _ in world.streams}


def ours(world: World) -> Iterator[World]:
    """What we do."""
    match world.step():
        case Step.REGISTER:
            assert world.state.call is not CallState.CALLING
            assert not world.pending, "a stream of an earlier call may come at this name"
            yield replace(world, state=world.state.called(world.opened), called=world.kubelet)
        case Step.MOVE:  # our streams are seen to end before, or never
            for state in (world.state.streamed(NOW, set(), 0.0, ended_by_us=world.opened), world.state):
                moved = state.moved(NOW, streams_opened=world.opened, options_answered=0)
                yield replace(world, state=moved, pending=(), streams=())


def time_passes(world: World) -> Iterator[World]:
    state = world.state
    yield replace(
        world,
        state=replace(state, registered_at=LONG_AGO, stream_since=LONG_AGO, register_not_before=LONG_AGO),
    )


def others(world: World) -> Iterator[World]:
    """What kubelets, and chance, do."""
    for kubelet in (FIRST, SECOND, None):
        if kubelet != world.kubelet:
            yield replace(world, kubelet=kubelet)
    if world.called is not None:
        after = world.state.accepted(NOW, world.called)
        if len(world.pending) < 2:
            yield replace(world, state=after, called=None, pending=(*world.pending, world.called))
            lost = world.state.failed(NOW, world.called, RemoteError("Canceled", ""), 0.0)
            yield replace(world, state=lost, called=None, pending=(*world.pending, world.called))
        refused = world.state.failed(NOW, world.called, RemoteError("Unknown", ""), 0.0)
        yield replace(world, state=refused, called=None)
        yield replace(world, state=world.state.withdrawn(), called=None)
    for index, kubelet in enumerate(world.pending):
        number = world.opened + 1
        streams = (*world.streams, (number, kubelet))
        state = world.state.streamed(NOW, {one for one, _ in streams}, 0.0)
        rest = (*world.pending[:index], *world.pending[index + 1 :])
        yield replace(world, state=state, pending=rest, streams=streams, opened=number)
        yield replace(world, pending=rest)  # its connection is cut before
    for index in range(len(world.streams)):
        rest_streams = (*world.streams[:index], *world.streams[index + 1 :])
        state = world.state.streamed(NOW, {one for one, _ in rest_streams}, 0.0)
        yield replace(world, state=state, streams=rest_streams)


def shape(world: World) -> object:
    """The world without how often things have happened: what makes two states the same to the rule."""
    state, base = world.state, world.state.opened_before
    return (
        replace(
            state,
            our_stream=state.our_stream - world.opened if state.our_stream else 1,
            opened_before=0,
            options_answered_before=0,
            taken=min(3, state.taken - (world.opened - base)),
            failures=min(1, state.failures),
            quick_cuts=0,
            cuts=(),
            lost_at=None,
        ),
        world.kubelet,
        world.called,
        world.pending,
        tuple((number - world.opened, kubelet) for number, kubelet in world.streams),
        world.opened > base,
    )


def next_worlds(world: World) -> Iterator[World]:
    yield from (*ours(world), *time_passes(world), *others(world))


@cache
def reachable() -> list[World]:
    start = World()
    seen, queue = {shape(start): start}, deque([start])
    while queue:
        world = queue.popleft()
        for following in next_worlds(world):
            if (key := shape(following)) not in seen and len(following.streams) < 3:
                seen[key] = following
                queue.append(following)
    return list(seen.values())


def settled(world: World) -> World | None:
    """The world after kubelets do only what they have to and time passes; None if we are never registered."""
    world = replace(world, kubelet=world.kubelet or FIRST)
    for _ in range(12):
        if world.called is not None:
            state = world.state.accepted(NOW, world.called)
            world = replace(world, state=state, called=None, pending=(*world.pending, world.called))
        elif world.pending:
            world = next(one for one in others(world) if one.opened > world.opened)
        elif following := next(ours(world), None):
            world = following
        elif world.state.is_registered and world.step() is Step.WAIT:
            return world
        else:
            (world,) = time_passes(world)
    return None


def test_every_state_leads_to_one_registration_with_the_kubelet_that_is_there() -> None:
    worlds = reachable()
    assert len(worlds) > 1000
    for world in worlds:
        end = settled(world)
        assert end is not None, world
        assert end.state.registered_with == end.kubelet
        listening = [kubelet for number, kubelet in end.streams if number == end.state.our_stream]
        assert listening == [end.kubelet], world


def test_a_state_in_which_we_are_registered_has_the_stream_of_that_kubelet() -> None:
    for world in reachable():
        if world.state.is_registered and world.state.stream is StreamState.OPEN:
            assert (world.state.our_stream, world.state.registered_with) in world.streams, world


def test_the_transitions_that_happen_are_those_of_the_tables() -> None:
    both = [(world.state, after.state) for world in reachable() for after in next_worlds(world)]
    assert changes((before.call, after.call) for before, after in both) == changes(
        (state, to) for state, row in CALLS.items() for to in row.values()
    )
    assert changes((before.stream, after.stream) for before, after in both) == changes(
        (state, to) for state, row in STREAMS.items() for to in row.values()
    )


def changes(pairs: Iterable[tuple[StrEnum, StrEnum]]) -> set[tuple[StrEnum, StrEnum]]:
    return {(before, after) for before, after in pairs if before is not after}
