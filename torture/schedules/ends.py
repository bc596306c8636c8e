"""The ends of a schedule: the real device manager, and plugins with the real lifecycle."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from devplug.errors import AllocationError, KubeletCrashError, KubeletError, RemoteError
from devplug.kubelet.changes import ChangeKind, Changes
from devplug.kubelet.devicemanager import DeviceManager
from devplug.kubelet.metrics import KubeletMetrics
from devplug.kubelet.pods import Container, Pod
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import NO_AFFINITY
from devplug.kubelet_dir import KUBELET_SOCKET
from devplug.plugin.contract import DevicePlugin
from devplug.plugin.environment import PluginEnvironment
from devplug.plugin.inventory import Inventory
from devplug.plugin.lifecycle import Lifecycle
from torture.schedules.face import MemoryFolder, MemorySockets, MemoryWatcher
from torture.schedules.network import Owner

if TYPE_CHECKING:
    from devplug.kubelet.topology import TopologyHint
    from torture.schedules.world import World

RESOURCE: Final = "example.com/a"
METRICS: Final = KubeletMetrics()
"""Of all kubelets together: nobody here reads them, and making them is slow."""


class Listed(DevicePlugin):
    """A plugin whose lists come from the world."""

    resource_name = RESOURCE


class Noted(Changes):
    """Changes of the kubelet that the world hears of, too."""

    def __init__(self, world: World) -> None:
        super().__init__(world.loop.time)
        self._world = world

    def announce(self, kind: ChangeKind, *, resource_name: str = "", pod_uid: str = "") -> None:
        super().announce(kind, resource_name=resource_name, pod_uid=pod_uid)
        if kind is ChangeKind.LISTED:
            self._world.listed()
        if kind is ChangeKind.REGISTERED:
            self._world.kubelet.taken_on[self._world.kubelet.count] += 1
        self._world.beat()


class PluginEnd:
    """One process with our plugin in it."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.owner = Owner(f"plugin {number}")
        self.inventory = Inventory(RESOURCE, wall_clock=world.loop.time)
        watcher = MemoryWatcher(world.network, is_blind=world.plan.is_blind)
        self.lifecycle = Lifecycle(
            Listed(),
            self.inventory,
            PluginEnvironment(
                world.path,
                sockets=MemorySockets(world.network, self.owner),
                watching=watcher.shared,
                name_socket=world.next_name,
            ),
            world.beat,
        )
        self.death: BaseException | None = None
        tasks: asyncio.TaskGroup = world.tasks
        self.task = tasks.create_task(self._run())

    async def _run(self) -> None:
        await self.inventory.replace(self.world.listing())
        try:
            await self.lifecycle.run()
        except BaseExceptionGroup as errors:
            self.death = errors.exceptions[0]
            self.world.broke(f"I4: {self.owner.name} ended: {self.death!r}")

    async def end(self, *, orderly: bool) -> None:
        """End it, and wait until it has ended."""
        if not orderly:
            self.world.network.kill(self.owner)
        self.task.cancel()
        await asyncio.wait((self.task,))


class KubeletEnd:
    """The kubelets of the node, one after the other; their checkpoint and the pods outlive each."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.settings = KubeletSettings(clock=world.loop.time, compat=world.plan.compat)
        self.folder = MemoryFolder(world.path, world.network)
        self.pods: dict[str, Pod] = {}
        self.owner = Owner("no kubelet")
        self.count = 0
        self.taken_on: Counter[int] = Counter()
        """How often each has taken on a plugin."""
        self.turn = asyncio.Lock()
        """Starts and ends, one at a time."""
        self.admission = asyncio.Lock()
        self.devices = self._next()

    def _next(self) -> DeviceManager:
        self.count += 1
        self.owner = Owner(f"kubelet {self.count}")
        self.folder.sockets = MemorySockets(self.world.network, self.owner, is_go=True)
        changes = Noted(self.world)
        return DeviceManager(self.folder, self._active, _affinity, changes, METRICS, self.settings)

    def _active(self) -> tuple[str, ...]:
        return tuple(self.pods)

    async def start(self) -> None:
        """Start the next one, whatever stands in the place of its socket."""
        world = self.world
        if KUBELET_SOCKET in world.network.nodes:
            world.network.nodes[KUBELET_SOCKET].is_socket = True
        while True:
            self.devices = self._next()
            try:
                await self.devices.start(world.tasks, [(uid, "c") for uid in self.pods])
            except KubeletError:  # a socket vanished between two looks; the unit is started again
                await asyncio.sleep(0.1)
            else:
                break
        self.devices.sources_ready = True

    async def end(self, *, orderly: bool) -> None:
        """End this one."""
        if not orderly:
            self.world.network.kill(self.owner)
        await self.devices.stop(orderly=orderly)

    async def restart(self, seconds: float, *, orderly: bool) -> None:
        """End this one and start the next after a while."""
        async with self.turn:
            await self.end(orderly=orderly)
            await asyncio.sleep(seconds)
            await self.start()

    @property
    def is_reachable(self) -> bool:
        """Whether its socket is there, and its own."""
        transport = self.world.network.listening_at(KUBELET_SOCKET)
        return transport is not None and transport.owner is self.owner

    async def admit(self, uid: str, count: int) -> None:
        """Admit a pod, which allocates; one that is refused is gone."""
        async with self.admission:
            self.pods[uid] = pod = Pod(uid, uid, containers=(Container("c", {RESOURCE: count}),))
            devices = self.devices
            try:
                await devices.allocate(pod, pod.containers[0])
            except (AllocationError, RemoteError):
                del self.pods[uid]
            except KubeletCrashError as error:
                del self.pods[uid]
                if not self.world.had_several_owners:
                    self.world.broke(f"I12: a kubelet crashed: {error}")
                if devices is self.devices:
                    await self.restart(0.1, orderly=False)


def _affinity(_pod_uid: str, _container_name: str) -> TopologyHint:
    return NO_AFFINITY
