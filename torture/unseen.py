"""Changes that no event tells of: another kubelet, a socket that was removed, devices that come and go."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Final

from devplug import Device, DevicePlugin, serve, watch_paths
from torture.actedkubelet import acted_kubelet
from torture.beds import within
from torture.catalogue import BrokenError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from devplug import Serving
    from torture.actedkubelet import ActedKubelet

__all__ = ["TRUTH_SECONDS", "Unseen", "unseen", "unseen_rounds"]

TRUTH_SECONDS: Final = 2.0
LANES: Final = 20
DEVICES: Final = 4
KINDS: Final = ("kubelet", "socket", "device")


class Found(DevicePlugin):
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
        self, kubelet: ActedKubelet, plugin: Found, serving: Serving, plugins: Path, devices: Path
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
    plugin = Found(f"example.com/unseen{number}", devices)
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
