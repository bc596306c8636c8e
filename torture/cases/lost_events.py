"""Lost events: the kernel tells nothing of what happens to files, and each change is seen all the same.

There is no descriptor for events, no watch, or there are too many. The changes are another kubelet, a socket
that was removed, devices that come and go.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from devplug import Device, DevicePlugin, serve, watch_paths
from torture.blind_plugins import CANNOT
from torture.catalogue import BrokenError, case
from torture.footprint import nothing_kept
from torture.scripted_kubelet import acted_kubelet
from torture.testbed import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from devplug import Serving
    from torture.catalogue import Trial
    from torture.scripted_kubelet import ActedKubelet

TRUTH_SECONDS: Final = 2.0
LANES: Final = 20
DEVICES: Final = 4
KINDS: Final = ("kubelet", "socket", "device")

MEANS: Final = ("instances", "watches")
QUEUE: Final = Path("/proc/sys/fs/inotify/max_queued_events")
SHARE_OF_OVERFLOWS: Final = 5
"""One round of so many floods the queue; the others play in processes that get no events at all."""


# ── changes ──


class DiscoveringPlugin(DevicePlugin):
    """A plugin that lists the files of a folder."""

    def __init__(self, resource_name: str, folder: Path) -> None:
        self.resource_name = resource_name
        self._folder = folder

    async def devices(self) -> AsyncIterator[list[Device]]:
        """Yield the files, now and after each change."""
        async for paths in watch_paths(f"{self._folder}/n*"):
            yield [Device(path.name, device_nodes=[f"/dev/{path.name}"]) for path in paths]


class Unseen:
    """One plugin with its kubelets and its devices; a round leaves it registered, and its list right."""

    def __init__(
        self, kubelet: ActedKubelet, plugin: DiscoveringPlugin, serving: Serving, plugins: Path, devices: Path
    ) -> None:
        self._kubelet = kubelet
        self._name = plugin.resource_name
        self._serving = serving
        self._plugins = plugins
        self._devices = devices

    def happen(self, kind: str, chance: Random) -> None:
        """Have something happen, in one step."""
        if kind == "kubelet":
            # The real one removes what stands beside its socket when it starts.
            self._remove_sockets()
            self._kubelet.start()
        elif kind == "socket":
            self._remove_sockets()
        else:
            path = self._devices / f"n{chance.randrange(DEVICES)}"
            if path.exists():
                path.unlink()
            else:
                path.touch()

    async def until_seen(self, kind: str, seconds: float = TRUTH_SECONDS) -> float:
        """Wait until what has happened was acted upon; return how long it took. Raises `BrokenError`."""

        async def seen() -> None:
            while not self._is_right():
                await asyncio.sleep(0.005)

        return await within(seconds, seen(), lambda: f"I2: a changed {kind} was not seen in {seconds:g} s")

    def _is_right(self) -> bool:
        client = self._kubelet.listening(self._name)
        if client is None or not self._sockets():
            return False
        wanted = sorted(path.name for path in self._devices.iterdir())
        return client.healthy_ids == wanted and not self._serving.faults()

    def _sockets(self) -> list[Path]:
        return [path for path in self._plugins.glob("*.sock") if path.name != "kubelet.sock"]

    def _remove_sockets(self) -> None:
        for path in self._sockets():
            path.unlink()


@asynccontextmanager
async def unseen(folder: Path, number: int) -> AsyncIterator[Unseen]:
    """Serve one plugin to a kubelet, both of their own."""
    plugins, devices = folder / f"{number}/p", folder / f"{number}/d"
    plugins.mkdir(parents=True)
    devices.mkdir()
    for index in range(DEVICES):
        (devices / f"n{index}").touch()
    plugin = DiscoveringPlugin(f"example.com/unseen{number}", devices)
    async with acted_kubelet(plugins, folder / f"{number}/b") as kubelet:
        kubelet.start()
        async with serve(plugin, plugin_dir=plugins, registration="socket") as serving:
            lane = Unseen(kubelet, plugin, serving, plugins, devices)
            await lane.until_seen("start", 10)
            yield lane


async def unseen_rounds(folder: Path, seed: str, rounds: int) -> tuple[list[float], list[str]]:
    """Play so many rounds, side by side; return how long each took, and what was not seen."""
    times: list[float] = []
    broken: list[str] = []
    numbers = iter(range(rounds))

    async def play(lane: Unseen) -> None:
        for number in numbers:
            chance = Random(f"{seed}/{number}")
            kind = chance.choice(KINDS)
            await asyncio.sleep(chance.random() * 0.5)
            lane.happen(kind, chance)
            try:
                times.append(await lane.until_seen(kind))
            except BrokenError as error:
                broken.append(str(error))
                return

    async with AsyncExitStack() as stack:
        lanes = [
            await stack.enter_async_context(unseen(folder, number)) for number in range(min(LANES, rounds))
        ]
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(play(lane))
    return times, broken


# ── the case ──


@case(
    "kubelet-events-lost",
    fault="X18",
    promise="A plugin that gets no file events, because there is no descriptor, no watch, or too many of "
    "them, sees another kubelet, a removed socket and a changed device within 2 s all the same",
    count=200,
    unit="changes",
    invariants="I2 I3",
    limit_seconds=150,
)
async def kubelet_events_lost(trial: Trial) -> None:
    """Refuse descriptors and watches by the limits of a user namespace; flood the queue in this process."""
    floods = max(1, trial.count // SHARE_OF_OVERFLOWS)
    counts = [(trial.count - floods + 1) // 2, (trial.count - floods) // 2]
    async with asyncio.TaskGroup() as group:
        for means, count in zip(MEANS, counts, strict=True):
            group.create_task(_blind(trial, means, count))
    await _flooded(trial, floods)


async def _blind(trial: Trial, means: str, count: int) -> None:
    """Play rounds in a process that is refused one thing; its rounds have the numbers from 0 on."""
    if not count:
        return
    words = [sys.executable, "-m", "torture.blind_plugins", means]
    words += ["--seed", f"{trial.seed}/{trial.case.name}/{means}/{trial.first}", "--rounds", str(count)]
    child = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode == CANNOT:
        trial.figure(f"no {means}", f"not played: {errors.decode().strip()}")
        return
    if child.returncode:
        trial.broke(f"I4: without {means}: {errors.decode().strip()[-1000:]}")
        return
    result = json.loads(output)
    trial.done += len(result["times"]) + len(result["broken"])
    for text in result["broken"]:
        trial.broke(f"{text} without {means}")
    trial.times(f"no {means}: change → seen", result["times"], p99_within=2.0)


async def _flooded(trial: Trial, count: int) -> None:
    """Have things happen just after the queue of events has run over."""
    times = []
    async with unseen(trial.folder, 0) as lane:
        folders = [trial.folder / "0" / name for name in "pd"]
        lane.happen("kubelet", Random(0))
        await lane.until_seen("kubelet")
        async with nothing_kept(trial):
            for turn in trial.rounds(count):
                kind = turn.random.choice(KINDS)
                _flood(folders)
                lane.happen(kind, turn.random)
                times.append(await lane.until_seen(kind))
            # What came over a socket that was removed goes on until its kubelet ends.
            lane.happen("kubelet", Random(0))
            await lane.until_seen("kubelet")
    trial.times("queue run over: change → seen", times, p99_within=2.0)


def _flood(folders: Sequence[Path]) -> None:
    """Have more happen than the queue takes, while nobody reads it."""
    for number in range(int(QUEUE.read_text()) // 2 + 64):
        # No two events of one kind for one name in a row, which the kernel would tell as one.
        path = folders[number % len(folders)] / "flood"
        path.touch()
        path.unlink()
