"""Very many devices: from none to 100,000 and back, and more than fit into one list."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug import Device, Health, serve
from devplug.errors import PluginError
from devplug.plugin.inventory import Inventory
from devplug.wire.deviceplugin import ALLOCATE, LIST_AND_WATCH
from devplug.wire.sockets import connected
from devplug.wire.values import LIST_LIMIT_BYTES, list_size_bytes
from torture.catalogue import case
from torture.footprint import resident_bytes
from torture.kubelet_process import far_kubelet
from torture.testbed import RESOURCE, Fed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.wire.sockets import Peer
    from devplug.wire.values import AdvertisedDevice
    from torture.catalogue import Trial

MANY: Final = 100_000
LIST_BYTES: Final = 4 * 1024 * 1024
MEMORY_BYTES: Final = 512 * 1024 * 1024
"""What plugin, kubelet and this case take together, all in this one process."""

SECONDS: Final = 15.0
"""How long a list may take from the author to the kubelet's table, both on this loop, on a busy machine."""

BESIDE_SECONDS: Final = 0.05
"""How long an Allocate may wait for a change, usually: one in a few may meet a collection of all garbage."""

BREATH_SECONDS: Final = 0.002
"""Between two Allocates; a kubelet's come one after the other."""


@case(
    "many-devices",
    fault="X25",
    promise="From none to 100,000 devices and back, at once and in steps, each list is whole, fits, and "
    "comes in time; no Allocate that comes meanwhile waits for that",
    count=10,
    unit="changes",
    invariants="I2 I6 I8",
)
async def many_devices(trial: Trial) -> None:
    """List more and fewer devices; each time the kubelet must have all of them."""
    plugin = Fed("d")
    times: list[float] = []
    beside: list[_Waits] = []
    async with (
        far_kubelet(trial.folder, RESOURCE) as kubelet,
        serve(plugin, plugin_dir=trial.folder, registration="socket") as serving,
    ):
        async with asyncio.timeout(SECONDS):
            await serving.wait_registered()
        (path,) = trial.folder.glob("devplug-*.sock")
        async with connected(path) as peer:
            for turn in trial.rounds():
                count = MANY if turn.number % 2 == 0 else turn.random.choice((0, 1, 1_000, 10_000))
                health = Health.unhealthy("all at once") if turn.random.random() < 0.3 else Health.healthy()
                listed = [Device(f"device-{number:08}", health=health) for number in range(count)]
                listed.append(Device("d"))
                if turn.random.random() < 0.5:
                    turn.random.shuffle(listed)
                size = len(LIST_AND_WATCH.response.encode(await _advertised(listed)))
                trial.check(size <= LIST_BYTES, f"I8: a list of {size} bytes", turn.number)
                well = len(listed) if health == Health.healthy() else 1
                await asyncio.to_thread(plugin.feed.replace, listed)
                beside.append(waits := _Waits(count))
                started = time.perf_counter()
                async with asyncio.TaskGroup() as group:
                    asking = group.create_task(waits.ask(peer))
                    async with asyncio.timeout(SECONDS):
                        memory = await kubelet.until_listed(len(listed), well)
                    times.append(time.perf_counter() - started)
                    asking.cancel()
                memory += resident_bytes()
                trial.check(memory < MEMORY_BYTES, f"I3: {memory} bytes", turn.number)
    trial.times("new list → the kubelet's table", times)
    trial.times("an Allocate beside it", [seconds for waits in beside for seconds in waits.seconds])
    if longest := sorted(waits.longest_own for waits in beside if waits.devices == MANY):
        shown = ", ".join(f"{1000 * seconds:.0f} ms" for seconds in longest)
        trial.figure("the longest beside each change to so many", shown)
        usual = longest[len(longest) // 2]
        trial.check(usual <= BESIDE_SECONDS, f"I6: Allocates wait for a change, mostly {1000 * usual:.0f} ms")


@dataclass(slots=True)
class _Waits:
    """How long the Allocates beside one change waited."""

    devices: int
    seconds: list[float] = field(default_factory=list)
    longest_own: float = 0.0
    """The longest, without the time in which the machine had others at work than this thread."""

    async def ask(self, peer: Peer) -> None:
        """Ask for a device again and again, until cancelled."""
        while True:
            started, kept_waiting = time.perf_counter(), _kept_waiting_seconds()
            await peer.call(ALLOCATE, [("d",)], timeout_seconds=SECONDS)
            waited = time.perf_counter() - started
            self.seconds.append(waited)
            self.longest_own = max(self.longest_own, waited - (_kept_waiting_seconds() - kept_waiting))
            await asyncio.sleep(BREATH_SECONDS)


def _kept_waiting_seconds() -> float:
    """Return how long this thread has waited for a processor since it began."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1_000_000_000


async def _advertised(listed: list[Device]) -> Sequence[AdvertisedDevice]:
    inventory = Inventory(RESOURCE)
    await inventory.replace(listed)
    return tuple(inventory.snapshot.advertised())


@case(
    "too-many-devices",
    fault="X26",
    promise="A list that the kubelet could not take is refused with the number that fits, and never sent",
    count=10,
    unit="lists",
    invariants="I8",
)
async def too_many_devices(trial: Trial) -> None:
    """Give 100,000 devices with long IDs to an inventory that has a list; that one must stay."""
    inventory = Inventory(RESOURCE)
    await inventory.replace([Device("d")])
    for turn in trial.rounds():
        devices = [
            Device(str(uuid.UUID(int=turn.random.getrandbits(128))), numa_nodes=[number % 2])
            for number in range(MANY)
        ]
        fitting = MANY * LIST_LIMIT_BYTES // list_size_bytes(devices)
        try:
            await inventory.replace(devices)
        except PluginError as error:
            trial.check(f"about {fitting} such devices" in str(error), f"I8: {error}", turn.number)
        else:
            trial.broke("I8: a list that is too long was taken", turn.number)
        trial.check([*inventory.snapshot.devices] == ["d"], "I8: the list before did not stay", turn.number)
        # What is said to fit must fit.
        await inventory.replace(devices[: fitting - 1])
        await inventory.replace([Device("d")])
