"""Hangs of the kubelet: it accepts and reads nothing, answers late, or leaves its stream of lists unread."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from devplug import Device, Health, serve
from devplug.wire import deviceplugin
from devplug.wire.sockets import connected
from torture.catalogue import case
from torture.footprint import nothing_kept, resident_bytes
from torture.relays import Leaps, Relay
from torture.scripted_kubelet import acted_kubelet
from torture.testbed import RESOURCE, Fed, within

if TYPE_CHECKING:
    from pathlib import Path

    from devplug import Serving
    from devplug.wire.values import RegisterRequest
    from torture.catalogue import Round, Trial
    from torture.scripted_kubelet import ActedKubelet

IDS: Final = [f"d{number:04}" for number in range(1_000)]
FLAPPING: Final = IDS[:-1]
STATES: Final = {
    id_: (
        Device(id_, device_nodes=[f"/dev/{id_}"]),
        Device(id_, device_nodes=[f"/dev/{id_}"], health=Health.unhealthy("broken")),
    )
    for id_ in IDS
}
EDGES: Final = 10_000
CHUNK: Final = 50
UNREAD_LISTS: Final = 50
"""More than two sockets' buffers and both ends' windows hold; a round without a bound would send 200."""

BURST_BYTES: Final = 8 * 1024 * 1024
PACE_SECONDS: Final = 0.6
"""After so long the next list may go."""

TURNS: Final = 30
MANY_STALLS: Final = 10
HEALED_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 2.0
WARM_UP: Final = 6
KINDS: Final = ("deaf", "late", "unread")
WEIGHTS: Final = (4, 4, 1)


@case(
    "kubelet-slow-and-hung",
    fault="X10",
    promise="While a kubelet reads nothing, answers late, or leaves 10,000 health updates unread, other "
    "calls are answered and memory stays bounded; then it gets the latest list, and few before it",
    count=100,
    unit="kubelets",
    invariants="I2 I3 I6 I7 I8",
    limit_seconds=120,
)
async def kubelet_slow_and_hung(trial: Trial) -> None:
    """Have kubelets that are slow or hang follow each other. Between lists, the clock leaps."""
    folder = trial.folder / "p"
    folder.mkdir()
    plugin = Fed(*IDS)
    async with acted_kubelet(folder, trial.folder / "b") as kubelet, asyncio.TaskGroup() as group:
        relay = Relay(trial.folder / "r", folder, group)
        relay.open()

        def dialled(request: RegisterRequest) -> Path:
            relay.target = folder / request.endpoint
            return trial.folder / "r"

        kubelet.dialled = dialled
        kubelet.start()
        async with serve(plugin, plugin_dir=folder, registration="socket") as serving:
            slow = Slow(trial, kubelet, relay, plugin, serving)
            await slow.heal(10)
            for number in range(min(WARM_UP, trial.count)):
                kubelet.start()
                await slow.heal()
                if not number:
                    await slow.unread_for(EDGES // 10)
            async with nothing_kept(trial):
                for turn in trial.rounds():
                    await slow.play(turn)
        relay.close()
    trial.figure("lists sent while unread, at most", slow.most_lists)


class Slow:
    """One plugin, and kubelets that follow each other; a round leaves it registered and listened to."""

    def __init__(
        self, trial: Trial, kubelet: ActedKubelet, relay: Relay, plugin: Fed, serving: Serving
    ) -> None:
        self.most_lists = 0
        self._trial = trial
        self._kubelet = kubelet
        self._relay = relay
        self._plugin = plugin
        self._serving = serving
        self._leaps = Leaps()
        self._is_sick = dict.fromkeys(IDS, False)
        self._accepted = 0
        self._story = "at the start"
        self._number = -1

    async def play(self, turn: Round) -> None:
        """Be slow in one way."""
        self._number = turn.number
        self._story = turn.random.choices(KINDS, WEIGHTS)[0]
        if self._story == "unread":
            await self.unread_for(EDGES)
            return
        if self._story == "deaf":
            await self._be_deaf(turn)
        else:
            self._kubelet.start()
            self._kubelet.behave = partial(
                self._kubelet.take_on, answer_after_seconds=turn.random.uniform(0.1, 0.3)
            )
        await self.heal()
        made = len(self._kubelet.attempts)
        self._check(made == 1, f"I7: {made} attempts")

    async def heal(self, seconds: float = HEALED_SECONDS) -> None:
        """Wait until the whole truth has come, and the plugin has its answer."""

        async def healed() -> None:
            await self._kubelet.until(self._is_told)
            await self._kubelet.until(lambda: not any(one.is_open for one in self._kubelet.attempts))
            await self._serving.wait_registered()

        await within(seconds, healed(), lambda: f"I2: {self._story}: the truth has not come")

    async def unread_for(self, edges: int) -> None:
        """Read nothing of the plugin's lists while devices flap, and then everything."""
        client = self._kubelet.listening(RESOURCE)
        assert client is not None
        stream = client.streams[0]
        self._relay.passes_back.clear()
        before, counters = resident_bytes(), self._serving.counters_of(RESOURCE)
        sent, got, stalls = counters.lists_sent, stream.lists, 0
        for number in range(edges):
            self._edge(FLAPPING[7 * number % len(FLAPPING)])
            if not number % CHUNK:
                self._leaps.forward(PACE_SECONDS)
                before_it = counters.lists_sent
                # As long as lists go out, each leap has its own; later, it is enough to look.
                for _ in range(TURNS if stalls < MANY_STALLS else 1):
                    await asyncio.sleep(0.001)
                    if counters.lists_sent > before_it:
                        break
                else:
                    stalls += 1
        await self._allocate()
        unread = counters.lists_sent - sent
        self.most_lists = max(self.most_lists, unread)
        self._check(unread <= UNREAD_LISTS, f"I3: {unread} lists were sent unread")
        grown = resident_bytes() - before
        self._check(grown <= BURST_BYTES, f"I3: memory grew by {grown} bytes while nothing was read")
        self._relay.passes_back.set()
        await self._until_told()
        more = stream.lists - got
        self._check(more <= unread + 2, f"I8: {more} lists came, {unread} were sent unread")
        self._check(client.is_listening, "I8: the stream was given up")

    async def _be_deaf(self, turn: Round) -> None:
        """Accept and read nothing; the plugin goes on answering, and the next kubelet gets it."""
        self._kubelet.front.is_deaf = True
        try:
            accepted = self._kubelet.front.accepted
            self._kubelet.start()
            story = "I7: deaf: nobody has called"
            await within(HEALED_SECONDS, self._until_accepted(accepted + 1), lambda: story)
            self._edge(turn.random.choice(FLAPPING))
            await self._allocate()
            made = self._kubelet.front.accepted - accepted
            self._check(made == 1, f"I7: {made} attempts beside each other")
        finally:
            self._kubelet.front.is_deaf = False
        self._kubelet.start()

    async def _allocate(self) -> None:
        """Ask for the device that is always well, over another connection."""
        id_ = IDS[-1]
        # It may have another name than the last one registered: the plugin is about to say so.
        (path,) = self._relay.target.parent.glob("devplug-*.sock")
        async with connected(path) as peer:
            answer = await peer.call(deviceplugin.ALLOCATE, [(id_,)], timeout_seconds=ANSWER_SECONDS)
        given = [node.host_path for node in answer[0].device_nodes]
        self._check(given == [f"/dev/{id_}"], f"I6: Allocate of {id_} gave {given}")

    async def _until_accepted(self, count: int) -> None:
        while self._kubelet.front.accepted < count:
            await asyncio.sleep(0.001)

    async def _until_told(self) -> None:
        text = f"I8: {self._story}: the latest list has not come"
        await within(HEALED_SECONDS, self._kubelet.until(self._is_told), lambda: text)

    def _edge(self, id_: str) -> None:
        self._is_sick[id_] = not self._is_sick[id_]
        self._plugin.feed.put(STATES[id_][self._is_sick[id_]])

    def _is_told(self) -> bool:
        client = self._kubelet.listening(RESOURCE)
        if client is None:
            return False
        healthy = [id_ for id_, is_sick in self._is_sick.items() if not is_sick]
        return client.healthy_ids == healthy

    def _check(self, holds: object, text: str) -> None:
        self._trial.check(holds, f"{text} ({self._story})", self._number)
