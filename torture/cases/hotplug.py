"""Hotplug: devices are pulled out and plugged in under other numbers, at every moment between two calls."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from devplug import serve
from devplug.daemon.context import DaemonContext
from devplug.daemon.resource import ConfiguredPlugin
from devplug.devices import HEALTHY
from devplug.errors import AllocationError, RemoteError
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, ContainerState, Pod, PodPhase
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.sockets import connected
from torture.catalogue import Round, case
from torture.footprint import nothing_kept
from torture.hardware import Hardware, UsbDevices, may_make_nodes, resource_of
from torture.testbed import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from devplug import Device
    from devplug.daemon.config.types import Resource
    from devplug.wire.sockets import Peer
    from torture.catalogue import Trial

ADAPTERS: Final = 16
PULLS: Final = 20
"""How often an adapter is pulled out in one round."""

WARM_UP_DIVISOR: Final = 10
"""What part of the rounds each kind of discovery plays before, until the C library has what it keeps."""

TRUTH_SECONDS: Final = 4.0
"""How long the kubelet may be wrong after the last change. Looks at what keeps changing come twice a second,
lists too, and one more look comes a second after the last event."""

KINDS: Final = {
    "usb": ('usb: {vendor: "0403"}', "0403:6001:{}"),
    "tty": ("sysfs: {subsystem: tty}", "0403:6001:{}.ttyUSB0"),
    "links": ('path: "/dev/serial/by-id/*"', "{}"),
}
"""How the adapters are found, and what one is called then."""


@case(
    "devices-unplugged",
    fault="X22",
    promise="A device that is pulled out at any moment is never given out as another one; a held one stays "
    "listed, and all is right again when it is back under any number",
    count=1_000,
    unit="unplugs",
    invariants="I1 I2 I3 I6 I12",
)
async def devices_unplugged(trial: Trial) -> None:
    """Pull adapters out and plug them in, while pods come and Allocate is called all the time."""
    if not may_make_nodes(trial):
        return
    stages: dict[str, Stage] = {}
    async with AsyncExitStack() as stack:
        for kind in KINDS:
            stages[kind] = await stack.enter_async_context(_stage(trial, kind))
            await stages[kind].warm_up(trial.count // WARM_UP_DIVISOR // PULLS)
        async with nothing_kept(trial):
            for turn in trial.rounds(max(1, trial.count // PULLS)):
                await stages[[*KINDS][turn.number % len(KINDS)]].round(turn)
                trial.done += PULLS - 1
                # Else it is chance how much garbage there is at once, which leaves holes in the memory.
                gc.collect()
    for name in ("granted", "refused", "pods that ran", "pods that were refused"):
        trial.figure(name, sum(stage.counts.get(name, 0) for stage in stages.values()))


class Adapters(ConfiguredPlugin):
    """The daemon's resource, between whose answers a case may act."""

    def __init__(self, resource: Resource, machine: DaemonContext) -> None:
        super().__init__(resource, machine)
        self.preferred: Callable[[Sequence[Device]], None] = lambda _: None
        self.allocated: Callable[[Sequence[Device]], None] = lambda _: None
        self.is_there: Callable[[str], bool] = lambda _: True

    async def prefer(
        self, available: Sequence[Device], must_include: Sequence[Device], size: int, /
    ) -> Sequence[Device]:
        """Prefer as ever; what happens before the Allocate happens now."""
        chosen = await super().prefer(available, must_include, size)
        self.preferred(chosen)
        return chosen

    async def pre_start(self, devices: Sequence[Device], /) -> None:
        """Do to a device what cannot be done without it; what happens before that happens now."""
        self.allocated(devices)
        for device in devices:
            if not self.is_there(device.id):
                # Not `UnhealthyDeviceError`: that marks it until the next list, and when it is back before
                # anybody looked, the daemon, which never refuses a start, has no other list to give.
                raise AllocationError(f"there is nothing to reset of {device.id}")


@dataclass(slots=True)
class Stage:
    """One kind of discovery: its adapters, the daemon's resource, a kubelet, and a connection of our own."""

    trial: Trial
    usb_devices: UsbDevices
    plugin: Adapters
    kubelet: Kubelet
    peer: Peer
    id_form: str
    counts: dict[str, int] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    """What pods hold, by ID."""
    number: int = 0
    _free_ports: list[tuple[str, int]] = field(default_factory=list)
    """What was pulled out: serial number and port."""

    async def warm_up(self, rounds: int) -> None:
        """Make each call once, which loads what is needed for it, and play some rounds."""
        await self.kubelet.run_pod(_pod("u"))
        self.kubelet.remove_pod("u")
        await self._allocate(self._id_of("S00"))
        for number in range(rounds):
            await self.round(Round(-1 - number, Random(f"warm-up {number}")))
        self.counts.clear()

    # ── one round ──

    async def round(self, turn: Round) -> None:
        """Let a storm pass over adapters of which some are held, then wait until all is right again."""
        self.number = turn.number
        chance = turn.random
        uids = [f"u{turn.number}-{number}" for number in range(6)]
        for uid in uids[:3]:
            status = await self.kubelet.run_pod(_pod(uid))
            self.trial.check(status.phase is PodPhase.RUNNING, f"I6: {status.message}", turn.number)
        self._note_held()
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(self._ask(chance))
            looking = group.create_task(self._look_at_lists())
            admitting = group.create_task(self._admit(uids[3:], chance))
            for _ in range(PULLS):
                self._pull(chance)
                await _moment(chance)
            await admitting
            asking.cancel()
            self._plug_all(chance)
            await within(TRUTH_SECONDS, self.kubelet.wait(lambda: not self._wrong()), self._story)
            looking.cancel()
        # A list may look right by chance before the last change was seen.
        deadline = asyncio.get_running_loop().time() + TRUTH_SECONDS
        for id_ in map(self._id_of, self.usb_devices.ports):
            while fault := await self._allocate(id_):
                if asyncio.get_running_loop().time() > deadline:
                    self.trial.broke(f"I2: {id_} is there and is refused: {fault}", turn.number)
                    break
                await asyncio.sleep(0.05)
        for uid in uids:
            self.kubelet.remove_pod(uid)
        self._note_held()
        self.usb_devices.forget_gone()

    def _wrong(self) -> list[str]:
        listed = {device.id: device.health for device in self.kubelet.devices(self.plugin.resource_name)}
        return [id_ for id_ in map(self._id_of, self.usb_devices.ports) if listed.get(id_) != HEALTHY]

    def _story(self) -> str:
        return f"I2: {TRUTH_SECONDS} s after the last change the kubelet is wrong about {self._wrong()}"

    def _id_of(self, serial: str) -> str:
        return self.id_form.format(serial)

    # ── the storm ──

    def _pull(self, chance: Random) -> None:
        """Pull one adapter out; it, or one that was pulled out before, may be back before anybody looks."""
        if self.usb_devices.ports:
            serial = chance.choice([*self.usb_devices.ports])
            self._free_ports.append((serial, self.usb_devices.unplug(serial)))
        if len(self._free_ports) > ADAPTERS // 2 or chance.random() < 0.7:
            self._plug(chance)

    def _plug(self, chance: Random) -> None:
        """Plug one in, half of the time into the port that another one had."""
        serial, port = self._free_ports.pop(chance.randrange(len(self._free_ports)))
        if self._free_ports and chance.random() < 0.5:
            other, its_port = self._free_ports.pop()
            self._free_ports.append((other, port))
            port = its_port
        self.usb_devices.plug(serial, port)

    def _plug_all(self, chance: Random) -> None:
        while self._free_ports:
            self._plug(chance)

    async def _ask(self, chance: Random) -> None:
        """Ask for one device after the other, as a kubelet might whose list is older than the machine."""
        while True:
            serial = chance.choice([*self.usb_devices.ports, *(serial for serial, _ in self._free_ports)])
            await self._allocate(self._id_of(serial))
            await _moment(chance)

    async def _allocate(self, device_id: str) -> str:
        """Ask for one device, and look whose node the answer leads to; return why it is refused, or ""."""
        step = self.usb_devices.steps
        try:
            (response,) = await self.peer.call(ALLOCATE, [(device_id,)], timeout_seconds=5)
        except RemoteError as error:
            self._count("refused")
            # What nobody holds leaves the list at once, and is not known any more.
            statuses = {"FailedPrecondition"} | ({"NotFound"} if device_id not in self.held else set())
            self.trial.check(error.status in statuses, f"I11: {device_id}: {error}", self.number)
            return str(error)
        self._count("granted")
        self._look_at_nodes(device_id, [node.host_path for node in response.device_nodes], step)
        return ""

    def _look_at_nodes(self, device_id: str, paths: Sequence[str], step: int) -> None:
        """Hold an answer against whose the nodes were between the call and the answer."""
        serial = _serial_of(device_id)
        self.trial.check(paths, f"I1: nothing was given out for {device_id}", self.number)
        for path in paths:
            owners = self.usb_devices.owners_since(path, step)
            text = f"I1: {path} was given out as {device_id}, and is {sorted(owners)}"
            self.trial.check(serial in owners, text, self.number)

    # ── pods ──

    async def _admit(self, uids: Sequence[str], chance: Random) -> None:
        """Admit pods between whose calls something is pulled out."""
        for uid in uids:
            before_allocate, before_start = chance.random() < 0.5, chance.random() < 0.5
            if before_allocate:
                self.plugin.preferred = lambda chosen: self._swap(chosen, chance)
            if before_start:
                self.plugin.allocated = lambda given: self._swap(given, chance)
            step = self.usb_devices.steps
            status = await self.kubelet.run_pod(_pod(uid))
            self.plugin.preferred = self.plugin.allocated = lambda _: None
            if status.phase is PodPhase.FAILED:
                self._count("pods that were refused")
                text = f"I11: {status.reason}: {status.message}"
                is_told = "UnexpectedAdmissionError" in status.reason or "OutOf" in status.reason
                self.trial.check(is_told, text, self.number)
            else:
                await self._start(uid, chance, step)
            self._note_held()
            await _moment(chance)

    async def _start(self, uid: str, chance: Random, step: int) -> None:
        """Have a container that waits for its device start when that is back; look at what it got."""
        for _ in range(3):
            (container,) = self.kubelet.pod(uid).containers
            if container.state is ContainerState.RUNNING:
                break
            self._plug_all(chance)
            await self.kubelet.start_container(uid, "c")
        (container,) = self.kubelet.pod(uid).containers
        self._count("pods that ran")
        is_running = container.state is ContainerState.RUNNING and container.options is not None
        self.trial.check(is_running, f"I6: {uid} does not start: {container.message}", self.number)
        if container.options is not None:
            (given,) = (held for held in self.kubelet.allocations() if held.pod_uid == uid)
            paths = [node.host_path for node in container.options.device_nodes]
            self._look_at_nodes(given.device_ids[0], paths, step)

    def _swap(self, devices: Sequence[Device], chance: Random) -> None:
        """Pull devices out, so that others get their numbers, and plug them in again, or not yet."""
        for device in devices:
            serial = _serial_of(device.id)
            if serial in self.usb_devices.ports:
                self._free_ports.append((serial, self.usb_devices.unplug(serial)))
        while self._free_ports and chance.random() < 0.8:
            self._plug(chance)

    def _note_held(self) -> None:
        self.held = frozenset(
            id_ for allocation in self.kubelet.allocations() for id_ in allocation.device_ids
        )
        counted = [id_ for allocation in self.kubelet.allocations() for id_ in allocation.device_ids]
        text = f"I1: some of {sorted(counted)} are held twice"
        self.trial.check(len(counted) == len(self.held), text, self.number)

    async def _look_at_lists(self) -> None:
        """Hold each list against what is held, until cancelled."""
        with self.kubelet.changes() as changes:
            async for change in changes:
                if change.kind is ChangeKind.LISTED:
                    listed = {device.id for device in self.kubelet.devices(self.plugin.resource_name)}
                    missing = sorted(self.held - listed)
                    self.trial.check(not missing, f"I12: {missing} left the list while held", self.number)

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


@asynccontextmanager
async def _stage(trial: Trial, kind: str) -> AsyncIterator[Stage]:
    """Serve all adapters as devices of one kind, for a block; entered once the kubelet has them."""
    folder = trial.folder / kind
    usb_devices = UsbDevices(Hardware(folder / "root"), has_links=kind == "links")
    usb_devices.prepare()
    for number in range(ADAPTERS):
        usb_devices.plug(f"S{number:02}", number + 1)
    plugin_dir = folder / "p"
    discover, id_form = KINDS[kind]
    rest = f"discover: {{{discover}}}, whenUnplugged: {{keepUnhealthyFor: 0s}}"
    resource = resource_of(rest, "example.com/tty")
    plugin = Adapters(resource, DaemonContext(host=usb_devices.hardware.host))
    kubelet = Kubelet(plugin_dir)
    async with kubelet.running(), serve(plugin, plugin_dir=plugin_dir, registration="socket"):
        async with asyncio.timeout(10):
            await kubelet.wait(lambda: kubelet.allocatable().get("example.com/tty") == ADAPTERS)
        (path,) = plugin_dir.glob("devplug-*.sock")
        async with connected(path) as peer:
            stage = Stage(trial, usb_devices, plugin, kubelet, peer, id_form)
            plugin.is_there = lambda device_id: _serial_of(device_id) in usb_devices.ports
            yield stage


def _serial_of(device_id: str) -> str:
    return device_id[device_id.index("S") :][:3]


def _pod(uid: str) -> Pod:
    return Pod(uid, uid, containers=(Container("c", {"example.com/tty": 1}),))


async def _moment(chance: Random) -> None:
    """Let some turns of the loop pass, or some milliseconds."""
    await asyncio.sleep(chance.choice((0, 0, 0.001, 0.01, 0.03, 0.1)))
