"""Connections that nobody wants, of every kind: both servers go on, and nothing of them is left."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Final

from devplug.exchange import PodName, RegisterRequest
from devplug.wire.methods import ALLOCATE, REGISTER
from devplug.wire.podresources import GET
from devplug.wire.sockets import connected
from torture.catalogue import case
from torture.fuzzing.bothends import HEALTHY_IDS, SERVED_SECONDS, both_ends
from torture.fuzzing.strangers import KINDS, Outcome, Target, hold
from torture.held import nothing_kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torture.catalogue import Body, Trial
    from torture.fuzzing.bothends import BothEnds

AT_ONCE: Final = 25
"""Connections side by side."""

AT_ONCE_OF: Final = {"rapid-resets": 5}
"""Of kinds that make many calls each. Where over a thousand calls wait to be taken, gRPC ends some by chance,
good ones too, and neither end of ours hears of it."""

WARM_UP_DIVISOR: Final = 20
"""A twentieth as many before: until the C library has the memory that it keeps."""

BESIDE_SECONDS: Final = 0.5
"""X30 says 50 ms: with room for a machine that is busy with other cases, and for those who hold them here."""

BESIDE_PERIOD_SECONDS: Final = 0.02
PAUSE_SECONDS: Final = 0.005


def _targets(ends: BothEnds) -> list[Target]:
    register = RegisterRequest("v0", "x.sock", "example.com/a")  # an unknown version is not dialled
    return [
        Target(ends.sockets["plugin"], ALLOCATE.path, ALLOCATE.request.encode([HEALTHY_IDS[:1]])),
        Target(ends.sockets["kubelet"], REGISTER.path, REGISTER.request.encode(register)),
        Target(ends.sockets["podresources"], GET.path, GET.request.encode(PodName("p", "default"))),
    ]


def _body(kind: str) -> Body:
    async def hostile_connections(trial: Trial) -> None:
        at_once = AT_ONCE_OF.get(kind, AT_ONCE)
        async with both_ends(trial.folder) as ends:
            outcome = Outcome()
            times: list[float] = []
            targets = _targets(ends)
            for number, target in enumerate(targets):
                warm_up = [
                    Random(f"warm-up {number} {each}") for each in range(trial.count // WARM_UP_DIVISOR)
                ]
                await _hold(kind, target, warm_up, Outcome())
            async with nothing_kept(trial), asyncio.TaskGroup() as group:
                beside = group.create_task(_call_beside(ends, times))
                turns = trial.rounds()
                number = 0
                while batch := list(islice(turns, at_once)):
                    chances = [turn.random for turn in batch]
                    await _hold(kind, targets[number % len(targets)], chances, outcome)
                    number += 1
                while not times:  # so few that they are over already
                    await asyncio.sleep(BESIDE_PERIOD_SECONDS)
                beside.cancel()
                await ends.check_served()
        trial.figure("ended by the server", outcome.ended_by_server)
        trial.check(not outcome.refused, f"I4: {outcome.refused} connections were refused")
        trial.times("a good call beside them", times, p99_within=BESIDE_SECONDS)

    return hostile_connections


async def _hold(kind: str, target: Target, chances: Sequence[Random], outcome: Outcome) -> None:
    """Hold one conversation for each of the chances, in a thread: neither end of the bed waits for it."""
    at_once = AT_ONCE_OF.get(kind, AT_ONCE)

    def held() -> None:
        for start in range(0, len(chances), at_once):
            batch = chances[start : start + at_once]
            hold(target, [KINDS[kind](chance, target) for chance in batch], outcome)
            # Who hangs up at once could outrun any server; what a flood of calls costs is X34's.
            time.sleep(PAUSE_SECONDS)

    with ThreadPoolExecutor(1) as thread:
        await asyncio.get_running_loop().run_in_executor(thread, held)


async def _call_beside(ends: BothEnds, times: list[float]) -> None:
    """Call the plugin now and then, over a connection of its own, and note how long it takes."""
    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(
            connected(ends.sockets["plugin"], ready_within_seconds=SERVED_SECONDS)
        )
        while True:
            started = time.monotonic()
            await peer.call(ALLOCATE, [HEALTHY_IDS[:1]], timeout_seconds=SERVED_SECONDS)
            times.append(time.monotonic() - started)
            await asyncio.sleep(BESIDE_PERIOD_SECONDS)


for _kind in KINDS:
    case(
        f"hostile-connections-{_kind}",
        fault="X30",
        promise=f"Strangers of the kind {_kind} cost nobody a call, and leave nothing behind",
        count=10_000,
        unit="connections",
        invariants="I3 I4 I6",
        brief=_kind == next(iter(KINDS)),
    )(_body(_kind))
