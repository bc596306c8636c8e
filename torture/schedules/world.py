"""A node in memory: the real device manager, plugins with the real lifecycle, and what happens to them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug.devices import HEALTHY, Device, Health
from devplug.errors import KubeletError, RemoteError
from devplug.kubelet_dir import KUBELET_SOCKET
from devplug.plugin.resource_lock import ResourceLock, new_socket_name
from devplug.wire.deviceplugin import GET_OPTIONS, LIST_AND_WATCH, REGISTER
from devplug.wire.sockets import stream, unary
from devplug.wire.values import AdvertisedDevice, PluginOptions, RegisterRequest
from torture.schedules.ends import RESOURCE, KubeletEnd, PluginEnd
from torture.schedules.face import MemorySockets
from torture.schedules.network import Network, Owner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from devplug.wire.sockets import Listener
    from torture.schedules.plan import Chance, Fault, Plan

OUR_SOCKETS: Final = "-".join(new_socket_name(RESOURCE).split("-")[:2])
"""What the names of our sockets begin with."""

LIST_SECONDS: Final = 25.0
"""How long a rival waits until its list is known, before it gives up."""

CALLS_PER_MINUTE: Final = 25
"""To one kubelet: a few in the first seconds, then one every five seconds while it does not listen."""


DEVICES: Final = {
    name: (Device(name), Device(name, health=Health.unhealthy("ill"))) for name in ("a", "b", "c", "d")
}
"""Each device well, and ill."""


class World:
    """All of one schedule; `schedule` asks it what holds, and when."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
        chance: Chance,
        plan: Plan,
        path: Path,
    ) -> None:
        self.loop = loop
        self.tasks = tasks
        self.chance = chance
        self.plan = plan
        self.path = path
        self.network = Network(loop, tasks, chance)
        self.broken: list[str] = []
        self.health = dict.fromkeys(DEVICES, True)
        """The devices that are there, and whether they are well."""
        self.had_several_owners = False
        self.had_lost_lock = False
        self.had_overlap = False
        """Whether two processes have called at once, as only a lost lock allows: then the kubelet of 1.36 may
        close the older's connection for the newer's end, and nobody can know."""
        self.had_late_call = False
        """Whether a kubelet took up the Register of a killed process after the one of its successor. While it
        dials a socket that is gone, the one of 1.36 has that client in the table, and takes the end of any
        older stream for that one's (handler.go runClient): it marks all devices, and our stream stays open.
        Only who asks PodResources can know, as the daemon does."""
        self.succession = asyncio.Lock()
        """Held by whoever makes one plugin follow another."""
        self._names = 0
        self._changed = asyncio.Event()
        self.kubelet = KubeletEnd(self)
        self.plugins: list[PluginEnd] = []
        self._plugin_count = 0
        self.registrations = 0
        """How often a plugin of ours has called Register."""
        self.most_calls = 0
        """Of one plugin to one kubelet in a minute."""
        self._calls: dict[object, list[float]] = {}
        self._registering: dict[str, int] = {}
        self._last_caller: Owner | None = None
        self.network.on_call = self._called
        self.network.on_arrival = self._arrived
        self._pod_count = 0

    def broke(self, text: str) -> None:
        """Note what does not hold."""
        if (self.had_overlap or self.had_late_call) and text.startswith("I2"):
            return  # see there
        self.broken.append(f"{text} (at {self.loop.time():.3f} s)")

    def _called(self, owner: Owner, method: str, change: int) -> None:
        if method != REGISTER.name or not owner.name.startswith("plugin"):
            return
        self._registering[owner.name] = self._registering.get(owner.name, 0) + change
        if change < 0:
            return
        self.registrations += 1
        self._last_caller = owner
        self.had_overlap |= sum(self._registering.values()) > 1
        if max(self._registering.values()) > 1 or (self.had_overlap and not self.had_lost_lock):
            self.broke(f"I7: registrations are on their way at once: {self._registering}")
        socket = self.network.nodes.get(KUBELET_SOCKET)
        calls = self._calls.setdefault((owner.name, socket and socket.identity), [])
        calls.append(self.loop.time())
        while calls[0] < calls[-1] - 60:
            calls.pop(0)
        self.most_calls = max(self.most_calls, len(calls))
        if len(calls) > CALLS_PER_MINUTE:
            self.broke(f"I7: {len(calls)} calls within a minute of one plugin to one kubelet")

    def _arrived(self, owner: Owner, method: str) -> None:
        if method == REGISTER.name and owner.is_dead and owner.name.startswith("plugin"):
            self.had_late_call |= self._last_caller is not owner

    def listed(self) -> None:
        """Look at what the kubelet has just been told; a plugin knows only what it gave out itself."""
        ledger = self.kubelet.devices.allocations
        devices = ledger.state(RESOURCE).devices
        for held in ledger.assignments if not self.had_several_owners else ():
            if held.allocation.pod_uid in self.kubelet.pods and not devices.keys() >= {
                *held.allocation.device_ids
            }:
                self.broke(f"I12: {held.allocation.device_ids} are held, and listed are {[*devices]}")

    def beat(self) -> None:
        """Wake whoever waits for something to become true."""
        self._changed.set()

    async def changed(self) -> None:
        """Wait for the next change of either end."""
        self._changed.clear()
        await self._changed.wait()

    def next_name(self, _resource_name: str) -> str:
        """Return a name for a socket, as `new_socket_name` does."""
        self._names += 1
        return f"{OUR_SOCKETS}-1-{self._names:04x}.sock"

    def listing(self) -> list[Device]:
        """Return what a plugin finds at this moment."""
        return [DEVICES[name][0 if is_well else 1] for name, is_well in self.health.items()]

    def start_plugin(self) -> PluginEnd:
        """Start one more process with our plugin."""
        self._plugin_count += 1
        plugin = PluginEnd(self, self._plugin_count)
        self.plugins.append(plugin)
        return plugin

    async def repair(self) -> None:
        """See to it that there is a kubelet that can be reached, and a plugin."""
        if not self.kubelet.is_reachable:
            await self.kubelet.restart(0.0, orderly=False)
        if not self.plugins:
            self.start_plugin()

    # ── faults ──

    async def happen(self, fault: Fault) -> None:
        """Let a fault happen, to its end."""
        self.network.note("── %s", fault)
        await getattr(self, f"_{fault.kind.name.lower()}")(fault)

    async def _kubelet_killed(self, fault: Fault) -> None:
        await self.kubelet.restart(fault.seconds, orderly=False)

    async def _kubelet_restarted(self, fault: Fault) -> None:
        await self.kubelet.restart(fault.seconds, orderly=True)

    async def _stream_cut(self, _: Fault) -> None:
        registration = self.kubelet.devices.registration
        if registration is not None:
            with suppress(KubeletError):  # nobody serves the name
                registration.disconnect(RESOURCE)

    async def _connection_lost(self, fault: Fault) -> None:
        if self.network.connections:
            self.network.connections[fault.number % len(self.network.connections)].close()

    async def _socket_removed(self, _: Fault) -> None:
        for name in self._plugin_sockets():
            self.network.remove(name)

    async def _socket_replaced(self, fault: Fault) -> None:
        for name in self._plugin_sockets():
            self.network.remove(name)
            self.network.put(name, self.network.new_node(is_socket=fault.number % 2 == 0))

    def _plugin_sockets(self) -> list[str]:
        return [name for name in self.network.nodes if name.startswith("devplug-")]

    async def _kubelet_socket_lost(self, fault: Fault) -> None:
        async with self.kubelet.turn:
            self.network.remove(KUBELET_SOCKET)
            if fault.number % 3:
                self.network.put(KUBELET_SOCKET, self.network.new_node(is_socket=fault.number % 3 == 1))
            await asyncio.sleep(fault.seconds)
            await self.kubelet.end(orderly=False)
            await self.kubelet.start()

    async def _lock_removed(self, _: Fault) -> None:
        self.had_several_owners = self.had_lost_lock = True
        lock = ResourceLock(self.path, RESOURCE).path
        lock.unlink(missing_ok=True)
        self.network.tell(lock.name)

    async def _devices_changed(self, fault: Fault) -> None:
        for step in range(fault.number):
            if step:
                await asyncio.sleep(fault.seconds / fault.number)
            name = "abcd"[(fault.number * 5 + step * 3) % 4]
            match self.health.get(name):
                case None:
                    self.health = dict(sorted({**self.health, name: True}.items()))
                case True if step % 2:
                    del self.health[name]
                case is_well:
                    self.health[name] = not is_well
            for plugin in tuple(self.plugins):
                await plugin.inventory.replace(self.listing())

    async def _plugin_restarted(self, fault: Fault) -> None:
        await self._next_plugin(fault, orderly=True)

    async def _plugin_killed(self, fault: Fault) -> None:
        await self._next_plugin(fault, orderly=False)

    async def _next_plugin(self, fault: Fault, *, orderly: bool) -> None:
        async with self.succession:
            self.had_several_owners = True
            if self.plugins:
                await self.plugins.pop(0).end(orderly=orderly)
            await asyncio.sleep(fault.seconds)
            self.start_plugin()

    async def _plugin_replaced(self, fault: Fault) -> None:
        async with self.succession:
            self.had_several_owners = True
            old = self.plugins[:1]
            self.start_plugin()
        await asyncio.sleep(fault.seconds)
        for plugin in old:
            if plugin in self.plugins:
                self.plugins.remove(plugin)
                await plugin.end(orderly=fault.number % 2 == 0)

    async def _rival(self, fault: Fault) -> None:
        """As an older plugin without our lock, which ours takes over from: it is there first."""
        async with self.succession:
            owner, listener, is_accepted = await self._rival_registered(fault)
            self.start_plugin()
        await asyncio.sleep(fault.seconds if is_accepted else 0.0)
        if fault.number % 2:
            await listener.close()
        else:
            self.network.kill(owner)

    async def _rival_registered(self, fault: Fault) -> tuple[Owner, Listener, bool]:
        self.had_several_owners = True
        while self.plugins:
            await self.plugins.pop().end(orderly=fault.number % 3 == 0)
        owner = Owner("a rival")
        sockets = MemorySockets(self.network, owner)

        async def lists(_: None) -> AsyncIterator[Sequence[AdvertisedDevice]]:
            yield (AdvertisedDevice(name, HEALTHY),)
            await asyncio.Event().wait()

        async def options(_: None) -> PluginOptions:
            return PluginOptions()

        name = f"rival-{self.next_name('')}"
        listener = sockets.listener(
            self.path / name, (unary(GET_OPTIONS, options), stream(LIST_AND_WATCH, lists))
        )
        try:
            await listener.bind()
            async with sockets.connected(self.path / KUBELET_SOCKET) as peer:
                await peer.call(
                    REGISTER,
                    RegisterRequest("v1beta1", name, RESOURCE, PluginOptions()),
                    timeout_seconds=20,
                )
            # Whose list comes last is believed, and nobody else can know; so ours comes after it.
            async with asyncio.timeout(LIST_SECONDS):
                while name not in self.kubelet.devices.allocations.state(RESOURCE).devices:
                    await self.changed()
        except (KubeletError, RemoteError, TimeoutError):
            return owner, listener, False
        return owner, listener, True

    async def _pod(self, fault: Fault) -> None:
        self._pod_count += 1
        uid = f"pod{self._pod_count}"
        await self.kubelet.admit(uid, 1 + fault.number % 3)
        await asyncio.sleep(fault.seconds)
        if fault.number != 1:
            self.kubelet.pods.pop(uid, None)

    async def _refusing(self, fault: Fault) -> None:
        self.network.refused[REGISTER.name] = RemoteError("Unknown", "not now")
        await asyncio.sleep(fault.seconds)
        self.network.refused.clear()

    async def _stalled(self, fault: Fault) -> None:
        self.chance.stalled = 0.1 * fault.number
        await asyncio.sleep(fault.seconds)
        self.chance.stalled = 0.0

    async def _deaf(self, fault: Fault) -> None:
        self.chance.deaf = 0.15 * fault.number
        await asyncio.sleep(fault.seconds)
        self.chance.deaf = 0.0
