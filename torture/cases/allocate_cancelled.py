"""Cancelled Allocates: the kubelet gives up in the middle; nothing stays half done, the next is served."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from devplug import ContainerResponse
from devplug.cdi.spec import kind_of, parse, qualified_name
from devplug.daemon.cdi.spec_files import CdiFolder, file_name
from devplug.daemon.context import DaemonContext
from devplug.daemon.resource import ConfiguredPlugin
from devplug.errors import RemoteError
from devplug.plugin.discovery import discover
from devplug.plugin.inventory import Inventory
from devplug.plugin.service import PluginService
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.sockets import Listener, connected
from torture.catalogue import case
from torture.footprint import nothing_kept
from torture.hardware import Hardware, may_make_nodes, resource_of
from torture.testbed import RESOURCE, Fed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from devplug import Device, DevicePlugin
    from devplug.cdi.spec import CdiSpec
    from devplug.wire.sockets import Peer
    from torture.catalogue import Trial

CALLS: Final = 100
"""Calls of one round, most of them given up."""

IDS: Final = tuple(f"d{number:03}" for number in range(256))
LONGEST_SECONDS: Final = 0.01
"""When a call is given up at the latest: by then most have been answered."""

BLOCKS: Final = 8_000
"""Less than one for two of the calls; 5,000 are for what is done the first time only."""

SLOW_SECONDS: Final = 0.005
"""What some writes of a CDI file take longer than the disk here takes."""

KIND: Final = kind_of(RESOURCE)


@case(
    "allocates-cancelled",
    fault="X35",
    promise="A call that is given up at any moment leaves no half-made CDI file, no device in use and no "
    "turn taken; what was answered is true",
    count=20_000,
    unit="Allocates",
    invariants="I1 I3 I6",
)
async def allocates_cancelled(trial: Trial) -> None:
    """Call an author's blocking code, and a daemon's resource with CDI files, and give most calls up."""
    if not may_make_nodes(trial):
        return
    hardware = Hardware(trial.folder / "root")
    for number, id_ in enumerate(IDS):
        hardware.node(f"/dev/dp/{id_}", number)
    giving_up = GivingUp(trial, hardware)
    for warm in range(min(20, trial.count // 1_000 + 2)):
        await giving_up.round_of(Blocking(), Random(warm), warm)
        await giving_up.round_of(giving_up.with_cdi(), Random(warm), warm)
    objects = _allocated_blocks()
    async with nothing_kept(trial):
        for turn in trial.rounds(max(1, trial.count // CALLS)):
            plugin = Blocking() if turn.random.random() < 0.5 else giving_up.with_cdi()
            await giving_up.round_of(plugin, turn.random, turn.number)
            trial.done += CALLS - 1
    more = _allocated_blocks() - objects
    trial.check(more <= BLOCKS, f"I3: Python has {more} more blocks of memory in use")
    trial.figure("blocks of Python's memory", f"{more:+}")
    trial.figure("answered in spite of it", giving_up.answered)
    trial.figure("given up", giving_up.given_up)


class Blocking(Fed):
    """A plugin whose `allocate` blocks a thread for a moment, and minds if two of its calls overlap."""

    def __init__(self) -> None:
        super().__init__(*IDS)
        self.overlaps = 0
        self._turn = threading.Lock()

    def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        """Take a moment, as code does that asks its hardware."""
        if not self._turn.acquire(blocking=False):
            self.overlaps += 1
            return ContainerResponse()
        try:
            time.sleep(0.0003)
            return ContainerResponse.of(devices)
        finally:
            self._turn.release()


class SlowDisk(CdiFolder):
    """A CDI folder on a disk that is held up now and then."""

    def write(self, spec: CdiSpec) -> bool:
        """Write at once, and now and then a moment later."""
        if random.random() < 0.4:
            time.sleep(SLOW_SECONDS)
        return super().write(spec)


@dataclass(slots=True)
class GivingUp:
    """Who calls and gives up, and what came of it."""

    trial: Trial
    hardware: Hardware
    answered: int = 0
    given_up: int = 0
    _cdi: CdiFolder | None = None
    _names: set[str] = field(default_factory=set)
    """The CDI names in answers of this round."""

    def with_cdi(self) -> ConfiguredPlugin:
        """Return a daemon's resource whose devices are given out by name, with an empty CDI folder."""
        folder = self.trial.folder / "cdi"
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        self._cdi = SlowDisk(folder)
        resource = resource_of('discover: {path: "/dev/dp/*"}, expose: {strategy: cdi}')
        return ConfiguredPlugin(resource, DaemonContext(host=self.hardware.host, cdi=self._cdi))

    async def round_of(self, plugin: DevicePlugin, chance: Random, number: int) -> None:
        """Serve a plugin, make calls side by side and give most of them up; then look what is left."""
        self._names.clear()
        async with _served(self.trial.folder / "p.sock", plugin) as (peer, inventory):
            async with asyncio.TaskGroup() as group:
                for _ in range(CALLS):
                    group.create_task(self._call_and_give_up(peer, chance, number))
                    if chance.random() < 0.3:
                        await asyncio.sleep(chance.random() * LONGEST_SECONDS / 5)
            started = time.perf_counter()
            await self._call(peer, IDS[:1], number, 10)
            seconds = time.perf_counter() - started
            self.trial.check(
                seconds < plugin.allocate_timeout_seconds, f"I6: {seconds:.1f} s after it", number
            )
            asked_for = dict(inventory._asked_for)
            self.trial.check(not asked_for, f"I3: {asked_for} are still being given out", number)
        if isinstance(plugin, Blocking):
            self.trial.check(not plugin.overlaps, f"I1: {plugin.overlaps} calls overlapped", number)
        elif self._cdi is not None:
            files = sorted(path.name for path in self._cdi.folder.iterdir())
            self.trial.check(files == [file_name(KIND)], f"I3: the CDI folder has {files}", number)
            self._look_at_file(self._cdi.folder / file_name(KIND), self._names, number)
            self._cdi.close()

    async def _call_and_give_up(self, peer: Peer, chance: Random, number: int) -> None:
        """Call, and cancel the call in the middle, or have its deadline do that, or take the answer."""
        ids = tuple(chance.sample(IDS, chance.randint(1, 3)))
        seconds = chance.choice((0.0, *(chance.random() * LONGEST_SECONDS for _ in range(4))))
        deadline_seconds, patience_seconds = chance.choices(
            ((10, None), (seconds, None), (10, seconds)), (20, 70, 10)
        )[0]
        try:
            async with asyncio.timeout(patience_seconds):
                await self._call(peer, ids, number, deadline_seconds)
        except TimeoutError:
            self.given_up += 1
        except RemoteError as error:
            self.given_up += 1
            is_given_up = deadline_seconds < 10 and error.status == "DeadlineExceeded"
            self.trial.check(is_given_up, f"I6: {ids}: {error}", number)

    async def _call(self, peer: Peer, ids: tuple[str, ...], number: int, deadline_seconds: float) -> None:
        (response,) = await peer.call(ALLOCATE, [ids], timeout_seconds=deadline_seconds)
        self.answered += 1
        self._names.update(response.cdi_devices)
        if response.cdi_devices and self._cdi is not None:
            # The container may start at once.
            self._look_at_file(self._cdi.folder / file_name(KIND), set(response.cdi_devices), number)

    def _look_at_file(self, path: Path, names: set[str], number: int) -> None:
        """Hold the file against what was answered: a whole one, with every name in it."""
        spec = parse(path.read_bytes())
        if spec is None:
            self.trial.broke("I3: half a CDI file", number)
            return
        missing = sorted(names - {qualified_name(KIND, device.name) for device in spec.devices})
        self.trial.check(not missing, f"I1: {missing} were given out and are in no file", number)


def _allocated_blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


@asynccontextmanager
async def _served(path: Path, plugin: DevicePlugin) -> AsyncIterator[tuple[Peer, Inventory]]:
    """Serve a plugin's calls at a socket for a block, with a caller who plays the kubelet."""
    inventory = Inventory(RESOURCE)
    service = PluginService(plugin, inventory, lambda: None)
    listener = Listener(path, service.bindings())
    async with asyncio.TaskGroup() as group:
        finding = group.create_task(discover(plugin, inventory))
        await inventory.changed_since(0)
        await listener.bind()
        try:
            async with connected(path) as peer:
                yield peer, inventory
                await service.drain()
        finally:
            finding.cancel()
            await listener.close(0.5)
            service.close()
