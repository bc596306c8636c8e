"""The lab's inner side, the only program of the guest: a kubelet, the daemon as users start it, stories."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import stat
import sys
import time
import traceback
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod, PodPhase
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import NodeHardware, NumaNode
from lab.guest_hardware import GuestHardware, Talk
from lab.stories import config_text, stories_named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from devplug.kubelet.pods import ContainerOptions
    from lab.stories import Story

FOLDER = Path("/run/lab")
WAIT_SECONDS = 30.0
START_SECONDS = 150.0


class BrokenError(Exception):
    """A claim does not hold, and the rest of the story makes no sense without it."""


class Player:
    """Plays stories against a kubelet and reports them; lives as long as the guest."""

    def __init__(self, kubelet: Kubelet, hardware: GuestHardware, talk: Talk) -> None:
        self._kubelet = kubelet
        self._hardware = hardware
        self._talk = talk

    async def play(self, story: Story) -> None:
        """Play one story to its end, or to the first claim that does not hold, and report it."""
        times: dict[str, list[float]] = {device.id: [] for device in story.devices}
        numa_nodes: dict[str, int | None] = {}
        plugs = list(dict.fromkeys(device.plug for device in story.devices))
        try:
            await self._switch(story, plugs, times, is_there=True)
            numa_nodes = self._numa_nodes(story)
            pod = await self._give_out(story, "first")
            # The pod goes on holding them, so the list has to keep them.
            await self._switch(story, plugs, times, is_there=False)
            await self._switch(story, plugs[::-1], times, is_there=True)
            self._numa_nodes(story)
            self._kubelet.end_pod(pod.uid)
            await self._give_out(story, "second")
        except BrokenError as error:
            self._talk.fault(f"{story.title}: {error}")
        for device in story.devices:
            found, lost, again = (*times[device.id], None, None, None)[:3]
            self._talk.row(
                {
                    "title": story.title,
                    "id": device.id,
                    "numa_node": numa_nodes.get(device.id),
                    "found_ms": found,
                    "lost_ms": lost,
                    "again_ms": again,
                }
            )

    async def _switch(
        self, story: Story, plugs: Iterable[str], times: dict[str, list[float]], *, is_there: bool
    ) -> None:
        """Plug or unplug one after another, and time each until the kubelet knows."""
        for plug in plugs:
            ids = [device.id for device in story.devices if device.plug == plug]
            wanted = self._table(story) | dict.fromkeys(ids, "Healthy" if is_there else "Unhealthy")
            self._talk.tell(f"{story.title}: {'plug' if is_there else 'unplug'} {plug}")
            await self._hardware.quiet()
            asked_at = time.monotonic()
            async with asyncio.TaskGroup() as group:
                known = group.create_task(self._known_at(story, wanted))
                fault = await self._hardware.switch(plug, is_there=is_there)
                if fault:
                    known.cancel()
            if fault:
                raise BrokenError(f"{plug} cannot be {'plugged' if is_there else 'unplugged'}: {fault}")
            if (known_at := known.result()) is None:
                raise BrokenError(
                    f"{WAIT_SECONDS:.0f} s after {plug} was {'plugged' if is_there else 'unplugged'}, the "
                    f"kubelet has {self._table(story)} instead of {wanted}"
                )
            ms = (known_at - (self._hardware.first_event_at or asked_at)) * 1000
            for id_ in ids:
                times[id_].append(ms)

    async def _known_at(self, story: Story, wanted: dict[str, str]) -> float | None:
        """Return when the kubelet has exactly this table; None if that takes too long."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._kubelet.wait(lambda: self._table(story) == wanted)
        except TimeoutError:
            return None
        return time.monotonic()

    def _table(self, story: Story) -> dict[str, str]:
        return {device.id: device.health for device in self._kubelet.devices(story.resource_name)}

    def _numa_nodes(self, story: Story) -> dict[str, int | None]:
        """Return the NUMA node of each device as the kubelet has it; another than claimed is reported."""
        listed = {device.id: device.numa_nodes for device in self._kubelet.devices(story.resource_name)}
        wanted = None if story.numa_node is None else (story.numa_node,)
        if any(nodes != wanted for nodes in listed.values()):
            self._talk.fault(f"{story.title}: NUMA nodes are {listed} instead of {wanted}")
        return {id_: nodes[0] if nodes else None for id_, nodes in listed.items()}

    async def _give_out(self, story: Story, name: str) -> Pod:
        """Run a pod that asks for all devices, and look at what it gets."""
        limits = {story.resource_name: len(story.devices)}
        pod = Pod(f"{story.name}-{name}", f"{story.name}-{name}", containers=(Container("main", limits),))
        status = await self._kubelet.run_pod(pod)
        options = status.containers[0].options if status.containers else None
        if status.phase is not PodPhase.RUNNING or options is None:
            raise BrokenError(f"the {name} pod is {status.phase}: {status.message}")
        fault = paths_fault(story.nodes, [node.host_path for node in options.device_nodes])
        if fault or (fault := await asyncio.to_thread(_node_fault, options)):
            raise BrokenError(f"the {name} pod gets {fault}")
        if missing := dict(story.env).items() - options.envs.items():
            raise BrokenError(f"the {name} pod lacks {sorted(missing)}; it has {dict(options.envs)}")
        return pod


def paths_fault(patterns: Iterable[str], paths: Iterable[str]) -> str | None:
    """Return the paths, if they are not exactly one for each of the globs. Pure."""
    left = sorted(paths)
    found, wanted = ", ".join(left) or "no device node", tuple(patterns)
    for pattern in wanted:
        match = next((path for path in left if fnmatch.fnmatchcase(path, pattern)), None)
        if match is None:
            return f"{found}, but not {pattern}"
        left.remove(match)
    return f"{found}, which is more than {wanted}" if left else None


def _node_fault(options: ContainerOptions) -> str:
    """Return what keeps a container from using its device nodes, or nothing."""
    for node in options.device_nodes:
        try:
            mode = Path(node.host_path).stat().st_mode
            if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
                return f"{node.host_path}, which is no device node"
            os.close(os.open(node.host_path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
        except OSError as error:
            return f"{node.host_path}, which it cannot open: {error.strerror}"
    return ""


@asynccontextmanager
async def _daemon(config: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the daemon as on a node; what it logs goes to the console."""
    file = FOLDER / "devplug.yaml"
    file.write_text(config)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "devplug", "run", "--config", str(file), "--kubelet-root", str(FOLDER))
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _play_all(modules: Path, stories: Sequence[Story], talk: Talk) -> None:
    settings = KubeletSettings(
        machine=NodeHardware(numa_nodes=(NumaNode(0, (10, 20)), NumaNode(1, (20, 10))))
    )
    (FOLDER / "device-plugins").mkdir(parents=True)
    kubelet = Kubelet.under(FOLDER, settings)
    names = {story.resource_name for story in stories}
    async with (
        GuestHardware.ready(talk, modules) as hardware,
        kubelet.running(),
        _daemon(config_text(stories)) as daemon,
    ):
        talk.tell("devplug run starts")
        try:
            async with asyncio.timeout(START_SECONDS):
                await kubelet.wait(lambda: kubelet.capacity().keys() == names)
        except TimeoutError:
            missing = sorted(names - kubelet.capacity().keys())
            talk.fault(f"after {START_SECONDS:.0f} s the daemon has not registered {missing}")
            return
        if any(kubelet.capacity().values()):
            talk.fault(f"there are devices before anything is plugged: {kubelet.capacity()}")
        player = Player(kubelet, hardware, talk)
        for story in stories:
            await player.play(story)
        daemon.terminate()
        if await daemon.wait():
            talk.fault(f"the daemon ended with {daemon.returncode} when it was told to stop")


async def main(modules: Path, names: Sequence[str]) -> None:
    """Play the stories of these names, and report to the host."""
    async with Talk.opened() as talk:
        uptime = Path("/proc/uptime").read_text().split()[0]
        talk.tell(f"the guest runs, {uptime} s after its kernel")
        try:
            await _play_all(modules, stories_named(names), talk)
        except Exception:  # noqa: BLE001 -- a bug of the lab or of what it tests has to be told, too
            talk.fault(f"the guest's program broke off:\n{traceback.format_exc()}")
        talk.end()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
