"""Every state that a small world of kubelets and streams can reach: no dead end, never two calls at once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from devplug.plugin.socket_registration import (
    CallHistory,
    Folder,
    RegistrationFacts,
    Step,
    StreamState,
    next_step,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.wire.values import SocketIdentity

FIRST, SECOND = (1, 1, 1), (1, 2, 2)
LONG_AGO, NOW = -1000.0, 0.0


@dataclass(frozen=True)
class World:
    """What is there, and what our calls have brought. Waits have just begun, or are long over."""

    history: CallHistory = field(default_factory=CallHistory)
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
        return next_step(self.situation())[0]

    def situation(self) -> RegistrationFacts:
        history = self.history
        return RegistrationFacts(
            now=NOW,
            folder=Folder.PRESENT,
            has_list=True,
            has_lock=True,
            is_bound=True,
            lock_not_before=0.0,
            bind_not_before=0.0,
            kubelet=self.kubelet,
            registered_with=history.registered_with,
            registered_at=history.registered_at,
            is_registering=history.is_registering,
            stream=history.stream,
            cut_at=history.stream_since,
            cut_wait_seconds=history.cut_wait_seconds,
            has_leftovers=history.has_leftovers(
                {number for number, _ in self.streams}, streams_opened=self.opened, options_told=0
            ),
            register_not_before=history.register_not_before,
            failed_with=history.failed_with,
        )


def numbers(world: World) -> set[int]:
    return {number for number, _ in world.streams}


def ours(world: World) -> Iterator[World]:
    """What we do."""
    match world.step():
        case Step.REGISTER:
            assert not world.history.is_registering
            assert not world.pending, "a stream of an earlier call may come at this name"
            yield replace(world, history=world.history.called(world.opened), called=world.kubelet)
        case Step.MOVE:
            history = world.history.streamed(NOW, set(), 0.0, ended_by_us=world.opened)
            history = history.moved(NOW, streams_opened=world.opened, options_told=0)
            yield replace(world, history=history, pending=(), streams=())


def time_passes(world: World) -> Iterator[World]:
    history = world.history
    yield replace(
        world,
        history=replace(history, registered_at=LONG_AGO, stream_since=LONG_AGO, register_not_before=LONG_AGO),
    )


def others(world: World) -> Iterator[World]:
    """What kubelets, and chance, do."""
    for kubelet in (FIRST, SECOND, None):
        if kubelet != world.kubelet:
            yield replace(world, kubelet=kubelet)
    if world.called is not None:
        after = world.history.accepted(NOW, world.called)
        if len(world.pending) < 2:
            yield replace(world, history=after, called=None, pending=(*world.pending, world.called))
            lost = world.history.failed(NOW, world.called, "Canceled", "", is_unsent=False, jitter=0.0)
            yield replace(world, history=lost, called=None, pending=(*world.pending, world.called))
        refused = world.history.failed(NOW, world.called, "Unknown", "", is_unsent=False, jitter=0.0)
        yield replace(world, history=refused, called=None)
    for index, kubelet in enumerate(world.pending):
        number = world.opened + 1
        streams = (*world.streams, (number, kubelet))
        history = world.history.streamed(NOW, {one for one, _ in streams}, 0.0)
        rest = (*world.pending[:index], *world.pending[index + 1 :])
        yield replace(world, history=history, pending=rest, streams=streams, opened=number)
        yield replace(world, pending=rest)  # its connection is cut before
    for index in range(len(world.streams)):
        rest_streams = (*world.streams[:index], *world.streams[index + 1 :])
        history = world.history.streamed(NOW, {one for one, _ in rest_streams}, 0.0)
        yield replace(world, history=history, streams=rest_streams)


def shape(world: World) -> object:
    """The world without how often things have happened: what makes two states the same to the rule."""
    history, base = world.history, world.history.opened_before
    return (
        replace(
            history,
            our_stream=history.our_stream - world.opened if history.our_stream else 1,
            opened_before=0,
            told_before=0,
            taken=min(3, history.taken - (world.opened - base)),
            failures=min(1, history.failures),
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


def reachable() -> list[World]:
    start = World()
    seen, queue = {shape(start): start}, deque([start])
    while queue:
        world = queue.popleft()
        for following in (*ours(world), *time_passes(world), *others(world)):
            if (key := shape(following)) not in seen and len(following.streams) < 3:
                seen[key] = following
                queue.append(following)
    return list(seen.values())


def settled(world: World) -> World | None:
    """The world after kubelets do only what they have to and time passes; None if we are never registered."""
    world = replace(world, kubelet=world.kubelet or FIRST)
    for _ in range(12):
        if world.called is not None:
            history = world.history.accepted(NOW, world.called)
            world = replace(world, history=history, called=None, pending=(*world.pending, world.called))
        elif world.pending:
            world = next(one for one in others(world) if one.opened > world.opened)
        elif following := next(ours(world), None):
            world = following
        elif world.history.is_registered and world.step() is Step.WAIT:
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
        assert end.history.registered_with == end.kubelet
        listening = [kubelet for number, kubelet in end.streams if number == end.history.our_stream]
        assert listening == [end.kubelet], world


def test_a_state_in_which_we_are_registered_has_the_stream_of_that_kubelet() -> None:
    for world in reachable():
        if world.history.is_registered and world.history.stream is StreamState.OPEN:
            assert (world.history.our_stream, world.history.registered_with) in world.streams, world
