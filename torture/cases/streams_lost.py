"""Lost streams: they end while the kubelet lives on, or outlive the kubelet that opened them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Final

from devplug import Device, Health, serve
from torture.catalogue import Round, case
from torture.footprint import nothing_kept
from torture.relays import Relay
from torture.scripted_kubelet import acted_kubelet
from torture.testbed import Fed, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from devplug import Serving
    from devplug.wire.values import RegisterRequest
    from torture.catalogue import Trial
    from torture.scripted_kubelet import ActedKubelet

IDS: Final = [f"d{number}" for number in range(4)]
LANES: Final = 32
WARM_UP: Final = 6
"""Rounds of each lane until the C library has the memory that it keeps for so many at once."""

HEALED_SECONDS: Final = 2.0
START_SECONDS: Final = 10.0
TRUTH_SECONDS: Final = 2.0
KINDS: Final = ("stream", "connection", "lingers", "closes the new one")


@case(
    "streams-lost",
    fault="X11 X12",
    promise="A stream or a connection that is lost brings one registration within a second, also where the "
    "end of an old one takes the new one along; a stream that outlives its kubelet disturbs nothing",
    count=2_000,
    unit="streams",
    invariants="I2 I3 I7 I8",
    limit_seconds=150,
)
async def streams_lost(trial: Trial) -> None:
    """Lose streams of several plugins side by side, each with a kubelet of its own."""
    times: list[float] = []
    async with AsyncExitStack() as stack:
        lanes = [
            await stack.enter_async_context(_lane(trial, trial.folder / f"{number}", times))
            for number in range(min(LANES, trial.count))
        ]
        async with asyncio.TaskGroup() as group:
            for number, lane in enumerate(lanes):
                chance = Random(number)
                warm_up = [Round(-1, chance) for _ in range(max(1, min(WARM_UP, trial.count // LANES)))]
                group.create_task(lane.play(iter(warm_up)))
        times.clear()
        async with nothing_kept(trial):
            rounds = trial.rounds()
            async with asyncio.TaskGroup() as group:
                for lane in lanes:
                    group.create_task(lane.play(rounds))
    trial.times("loss → whole list", times, p99_within=1.0)


class Lane:
    """One plugin and its kubelets; a round leaves it registered, as the next one finds it."""

    def __init__(
        self,
        trial: Trial,
        kubelet: ActedKubelet,
        relay: Relay,
        plugin: Fed,
        serving: Serving,
        times: list[float],
    ) -> None:
        self._trial = trial
        self._kubelet = kubelet
        self._relay = relay
        self._plugin = plugin
        self._serving = serving
        self._times = times
        self._attempts = 0
        self._healthy = list(IDS)
        self._story = "at the start"

    async def play(self, rounds: Iterator[Round]) -> None:
        """Take rounds until there are none."""
        for turn in rounds:
            self._story = kind = turn.random.choice(KINDS)
            made = len(self._kubelet.attempts)
            self._check(made == self._attempts, f"I7: {made - self._attempts} attempts after", turn)
            self._attempts = made
            if kind == "lingers":
                await self._linger(turn)
            else:
                await self._lose(turn, with_connection=kind == "connection")
            if kind == "closes the new one":
                await asyncio.sleep(turn.random.uniform(0, 0.02))
                await self._lose(turn, with_connection=False)
            await self._change(turn)

    async def until_healed(self, seconds: float = HEALED_SECONDS) -> None:
        """Wait until the newest kubelet has the whole list, and the plugin knows that it listens."""
        name = self._plugin.resource_name

        async def healed() -> None:
            await self._kubelet.until(lambda: self._kubelet.listening(name))
            await self._serving.wait_registered()

        took = await within(seconds, healed(), lambda: f"I2: {self._story}: not registered again")
        self._times.append(took)
        self._attempts += 1

    async def _lose(self, turn: Round, *, with_connection: bool) -> None:
        """End the stream at the kubelet's end, or the connection under it, and wait for the next one."""
        client = self._kubelet.listening(self._plugin.resource_name)
        assert client is not None
        if with_connection:
            self._relay.cut()
        else:
            client.streams[0].end()
        # Both ends see it at once: before that, the lost one would be taken for the next.
        await self._kubelet.until(lambda: not client.streams[0].is_open)
        await self.until_healed()
        self._check_list(turn)

    async def _linger(self, turn: Round) -> None:
        """Have another kubelet come while the stream of the old one is open, and end that much later."""
        old = self._kubelet.listening(self._plugin.resource_name)
        assert old is not None
        self._kubelet.start(keeps_clients=True)
        self._attempts = 0
        await self.until_healed()
        await self._change(turn)
        # The plugin may end it, as nobody needs it any more; but what is kept is told the truth.
        await within(
            TRUTH_SECONDS,
            self._kubelet.until(lambda: not old.is_listening or old.healthy_ids == self._healthy),
            lambda: f"I8: the old stream has {old.healthy_ids}, not {self._healthy}",
        )
        await asyncio.sleep(turn.random.uniform(0, 0.02))
        old.end()
        await self._kubelet.until(lambda: not old.is_listening)
        # As long as the first wait after a lost stream, so that a wrong registration is seen.
        await asyncio.sleep(0.3)
        self._check(self._kubelet.listening(self._plugin.resource_name), "I2: the new stream went too", turn)

    async def _change(self, turn: Round) -> None:
        """Change the list, and see that it comes."""
        id_ = turn.random.choice(IDS)
        is_sick = id_ in self._healthy
        health = Health.unhealthy("broken") if is_sick else Health.healthy()
        self._healthy = sorted({*self._healthy} ^ {id_})
        self._plugin.feed.put(Device(id_, device_nodes=[f"/dev/{id_}"], health=health))
        name = self._plugin.resource_name

        def is_told() -> bool:
            client = self._kubelet.listening(name)
            return client is not None and client.healthy_ids == self._healthy

        text = f"I8: {self._story}: {self._healthy} were not told"
        await within(TRUTH_SECONDS, self._kubelet.until(is_told), lambda: text)

    def _check_list(self, turn: Round) -> None:
        client = self._kubelet.listening(self._plugin.resource_name)
        ids = None if client is None else client.healthy_ids
        self._check(ids == self._healthy, f"I8: {ids} is not {self._healthy}", turn)

    def _check(self, holds: object, text: str, turn: Round) -> None:
        self._trial.check(holds, f"{text} ({self._story})", turn.number)


@asynccontextmanager
async def _lane(trial: Trial, folder: Path, times: list[float]) -> AsyncIterator[Lane]:
    """Serve one plugin to a kubelet that dials it through a relay."""
    plugins = folder / "p"
    plugins.mkdir(parents=True)
    plugin = Fed(*IDS, resource_name=f"example.com/lane{folder.name}")
    async with acted_kubelet(plugins, folder / "b") as kubelet, asyncio.TaskGroup() as group:
        relay = Relay(folder / "r", plugins, group)
        relay.open()

        def dialled(request: RegisterRequest) -> Path:
            relay.target = plugins / request.endpoint
            return folder / "r"

        kubelet.dialled = dialled
        kubelet.start()
        async with serve(plugin, plugin_dir=plugins, registration="socket") as serving:
            lane = Lane(trial, kubelet, relay, plugin, serving, times)
            await lane.until_healed(START_SECONDS)
            try:
                yield lane
            finally:
                relay.close()
