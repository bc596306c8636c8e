"""What must hold at the end of a schedule, and how soon."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from devplug.devices import HEALTHY
from torture.schedules.plans import Kind
from torture.schedules.world import RESOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.exchange import AdvertisedDevice
    from torture.schedules.network import Node
    from torture.schedules.plans import Plan
    from torture.schedules.world import World

__all__ = ["judge_quiet", "judge_remains", "settled_seconds"]

TRUTH_SECONDS: Final = 2.0
DEAF_SECONDS: Final = 8.0
"""As long as a level check takes that finds what an event did not tell, and what follows it."""

CUT_SECONDS: Final = 17.0
"""As long as a plugin waits for a stream that was cut before it came: nothing else tells it."""

CUTTING: Final = frozenset(
    (
        Kind.STREAM_CUT,
        Kind.CONNECTION_LOST,
        Kind.RIVAL,
        Kind.PLUGIN_REPLACED,
        Kind.LOCK_REMOVED,
        Kind.STALLED,
    ),
)
"""What may cut a connection on which a stream is about to come; the last makes every moment long."""

LANDING_SECONDS: Final = 1.0
STALLED_LANDING_SECONDS: Final = 21.0
"""How long messages may be under way after the last fault, with slow ones and with stalled ones."""

BREATH_SECONDS: Final = 1.5
"""How long it has to be right before it counts as right, and not as on the way from one wrong to the next."""

QUIET_SECONDS: Final = 20.0
"""More than the deadline of a stream, and several level checks."""


async def settled_seconds(world: World, plan: Plan) -> float:
    """Wait until everything is as it should be, and note if that takes too long; return how long it took.

    What is true only because nobody knows better yet does not count: what is under way has to land first.
    """
    kinds = {fault.kind for fault in plan.faults}
    await asyncio.sleep(STALLED_LANDING_SECONDS if Kind.STALLED in kinds else LANDING_SECONDS)
    began = world.loop.time()
    is_cut = kinds & CUTTING or world.network.streams_cut_early
    allowed = CUT_SECONDS if is_cut else DEAF_SECONDS if Kind.DEAF in kinds else TRUTH_SECONDS
    # Who was refused for some time waits as long again, and jitter.
    allowed += 1.3 * sum(fault.seconds for fault in plan.faults if fault.kind is Kind.REFUSING)
    took = 0.0
    try:
        while _untrue(world):
            async with asyncio.timeout_at(began + allowed):
                while _untrue(world):
                    await world.changed()
            took = world.loop.time() - began
            await asyncio.sleep(BREATH_SECONDS)
    except TimeoutError:
        world.broke(f"I2: after {allowed:g} s of quiet {_untrue(world)}")
    return took


async def judge_quiet(world: World) -> None:
    """Let nothing happen for a while, and note what happens nevertheless."""
    before = world.registrations
    await asyncio.sleep(QUIET_SECONDS)
    if why := _untrue(world):
        world.broke(f"I2: it was right, and {QUIET_SECONDS:g} s of quiet later {why}")
    if world.registrations != before:
        world.broke(f"I7: {world.registrations - before} registrations without a reason")


async def judge_remains(world: World) -> None:
    """End all in order, and note what is left over."""
    for plugin in world.plugins:
        await plugin.end(orderly=True)
    await asyncio.sleep(LANDING_SECONDS)
    if left := [name for name, node in world.network.nodes.items() if _should_be_gone(world, name, node)]:
        world.broke(f"I5: {left} are left")
    await world.kubelet.end(orderly=True)
    await asyncio.sleep(LANDING_SECONDS)
    if world.network.connections:
        world.broke(f"I3: {len(world.network.connections)} connections are left")


def _untrue(world: World) -> str:
    """Return what of I2, I8, I9 or I12 does not hold at this moment; empty if all does."""
    registered = [plugin for plugin in world.plugins if plugin.lifecycle.is_registered]
    if len(registered) != 1:
        return f"{len(registered)} of {len(world.plugins)} plugins are registered"
    (plugin,) = registered
    streams = [one.lifecycle.streams for one in world.plugins]
    if sum(streams) != 1:
        return f"open streams: {streams}"
    snapshot = plugin.inventory.snapshot
    truth = {device.id: device for device in snapshot.advertised()}
    state = world.kubelet.devices.ledger.state(RESOURCE)
    if state.devices != truth:
        return f"I8: the kubelet has {_words(state.devices)}, the truth is {_words(truth)}"
    healthy = frozenset(id_ for id_, device in truth.items() if device.health == HEALTHY)
    if state.healthy != healthy:
        return f"the kubelet has {sorted(state.healthy or ())} as healthy, and {sorted(healthy)} are"
    endpoint = world.kubelet.devices.endpoints.get(RESOURCE)
    if endpoint is None or endpoint.stopped_at_seconds is not None:
        return "the kubelet has no endpoint to call"
    there = {id_ for id_, device in snapshot.devices.items() if device.health.reason != "gone"}
    if there != set(world.health):
        return f"I9: {sorted(there)} are listed, {sorted(world.health)} are there"
    return ""


def _words(devices: Mapping[str, AdvertisedDevice]) -> str:
    return ", ".join(f"{id_} {device.health}" for id_, device in devices.items()) or "nothing"


def _should_be_gone(world: World, name: str, node: Node) -> bool:
    """Whether a file is a socket of ours that somebody should have removed.

    Who is killed while it makes its socket leaves a hidden name until a kubelet starts, and nobody cleans up
    after who is killed when another has its lock already.
    """
    if node.transport is None or not name.startswith(("devplug-", ".")):
        return False
    return not node.transport.owner.is_dead or (not name.startswith(".") and not world.had_lost_lock)
