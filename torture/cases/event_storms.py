"""Storms of events: files that come and go by the thousand, and a kernel that tells of every device."""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug import serve
from devplug.daemon.cdi.spec_files import CdiFolder
from devplug.daemon.context import DaemonContext
from devplug.daemon.resource import ConfiguredPlugin
from devplug.daemon.sources.debounce import BURST
from devplug.errors import RemoteError
from devplug.kubelet.kubelet import Kubelet
from devplug.plugin.discovery import LOOKS_AT_ONCE, LOOKS_PER_SECOND
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.sockets import connected
from torture.catalogue import case
from torture.event_storm import storm
from torture.footprint import nothing_kept
from torture.hardware import Hardware, UsbDevices, may_make_nodes, resource_of
from torture.testbed import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from devplug import Serving
    from devplug.wire.sockets import Peer
    from torture.catalogue import Round, Trial

ADAPTERS: Final = 4
PER_SECOND: Final = 10_000
STORM_SECONDS: Final = 1.0
WARM_UP_SECONDS: Final = 0.2

TRUTH_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 0.5
"""How long an Allocate may wait in a storm, on a busy machine."""

LISTS_PER_SECOND: Final = 20.0
"""At most, of one resource: what gets worse is told at once."""

LOOKS_BESIDES: Final = 4
"""Of the timer, one after the last event, and where a burst has just been forgotten."""

RESOURCES: Final = {
    "example.com/path": 'discover: {path: "/dev/ttyUSB*"}',
    "example.com/cdi": 'discover: {path: "/dev/ttyUSB*"}, expose: {strategy: cdi}',
    "example.com/tty": "discover: {sysfs: {subsystem: tty}}",
}

UEVENTS: Final = {
    "the kernel tells of strangers": "/sys/devices/virtual/mem/null/uevent",
    "the kernel tells of its terminals": "/sys/devices/virtual/tty/tty/uevent",
}


@dataclass(slots=True)
class _Stage:
    """Adapters that three resources find, each in its way, and a kubelet."""

    folder: Path
    usb_devices: UsbDevices
    kubelet: Kubelet
    serving: Serving
    peers: dict[str, Peer]
    looks: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RESOURCES, 0))

    def storms(self) -> dict[str, list[Path]]:
        """Return what a storm may consist of."""
        at = self.usb_devices.hardware.at
        folders = {
            "strangers in /dev": [at(f"/dev/loop{number}") for number in range(20)],
            "files in /dev that are named like devices": [
                at(f"/dev/ttyUSB{number}") for number in range(50, 70)
            ],
            "links by ID": [at(f"/dev/serial/by-id/{number}") for number in range(20)],
            "strangers in the plugin folder": [self.folder / f"p/strange-{number}" for number in range(20)],
            "sockets of nobody": [self.folder / f"p/devplug-{number}.sock" for number in range(20)],
            "CDI files of others": [self.folder / f"cdi/other-{number}.json" for number in range(20)],
        }
        kernels = {name: [Path(path)] for name, path in UEVENTS.items() if _may_tell(Path(path))}
        return {**folders, **kernels, "all of it": [path for paths in folders.values() for path in paths]}

    def allocatable(self) -> dict[str, int]:
        return {name: self.kubelet.allocatable().get(name, 0) for name in RESOURCES}

    async def until_true(self) -> float:
        """Wait until the kubelet believes in what is there, for each resource."""
        wanted = dict.fromkeys(RESOURCES, len(self.usb_devices.ports))
        return await within(
            TRUTH_SECONDS,
            self.kubelet.wait(lambda: self.allocatable() == wanted),
            lambda: f"I2: {self.allocatable()} {TRUTH_SECONDS:g} s after the storm, {wanted} are there",
        )


def _may_tell(path: Path) -> bool:
    try:
        path.write_text("change")
    except OSError:
        return False
    return True


@case(
    "event-storms",
    fault="X27",
    promise="In a storm of 10,000 events a second, strangers' or its own, the daemon looks 20 times a second "
    "at most, answers Allocate, and knows what is there when it is over",
    count=20,
    unit="storms",
    invariants="I2 I3 I6 I7",
)
async def event_storms(trial: Trial) -> None:
    """Have a storm of one kind after the other, in which an adapter is pulled out or plugged in."""
    if not may_make_nodes(trial):
        return
    truths: list[float] = []
    waits: list[float] = []
    shares: dict[str, float] = {}
    async with _stage(trial) as stage:
        storms = stage.storms()
        await _storm(trial, stage, "strangers in /dev", next(trial.rounds(1)), waits, WARM_UP_SECONDS)
        trial.done = 0
        waits.clear()
        async with nothing_kept(trial):
            for turn in trial.rounds():
                name = [*storms][turn.number % len(storms)]
                share, truth = await _storm(trial, stage, name, turn, waits)
                shares[name] = max(shares.get(name, 0.0), share)
                truths.append(truth)
    trial.times("a storm's end → truth", truths)
    trial.times("an Allocate in a storm", waits, p99_within=ANSWER_SECONDS)
    for name, share in shares.items():
        trial.figure(name, f"{100 * share:.0f} % of a core")


async def _storm(
    trial: Trial,
    stage: _Stage,
    name: str,
    turn: Round,
    waits: list[float],
    storm_seconds: float = STORM_SECONDS,
) -> tuple[float, float]:
    """Have one storm; return what share of a core it took, and how soon after it all was right."""
    chance = turn.random
    before, sent = dict(stage.looks), _sent(stage)
    seconds, spent = time.monotonic(), time.process_time()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(_ask(stage, waits))
        least = int(PER_SECOND * storm_seconds / 10)
        async with storm(stage.storms()[name], per_second=PER_SECOND, least=least):
            for _ in range(2):
                await asyncio.sleep(storm_seconds / 2)
                _plug_or_pull(stage, chance.randrange(ADAPTERS))
        asking.cancel()
    spent, seconds = time.process_time() - spent, time.monotonic() - seconds
    looks = {one: stage.looks[one] - before[one] for one in RESOURCES}
    steadily = LOOKS_PER_SECOND * seconds + LOOKS_BESIDES
    most = {"example.com/tty": BURST + steadily}
    text = f"I2: {name}: {looks} looks in {seconds:.1f} s"
    is_paced = all(count <= most.get(one, LOOKS_AT_ONCE + steadily) for one, count in looks.items())
    trial.check(is_paced, text, turn.number)
    lists = LISTS_PER_SECOND * (seconds + 1)
    trial.check(
        _sent(stage) - sent <= lists * len(RESOURCES), f"I7: {name}: {_sent(stage) - sent} lists", turn.number
    )
    return spent / seconds, await stage.until_true()


def _sent(stage: _Stage) -> int:
    return sum(counters.lists_sent for counters in stage.serving.counters.values())


async def _ask(stage: _Stage, waits: list[float]) -> None:
    """Ask for one device after the other until cancelled; a refused one is answered, too."""
    while True:
        for name, peer in stage.peers.items():
            for device in stage.kubelet.devices(name):
                started = time.perf_counter()
                try:
                    await peer.call(ALLOCATE, [(device.id,)], timeout_seconds=5)
                except RemoteError as error:
                    if error.status not in {"FailedPrecondition", "NotFound"}:
                        raise
                waits.append(time.perf_counter() - started)
                await asyncio.sleep(0.01)


def _plug_or_pull(stage: _Stage, number: int) -> None:
    serial = f"S{number:02}"
    if serial in stage.usb_devices.ports:
        stage.usb_devices.unplug(serial)
    else:
        stage.usb_devices.plug(serial, number + 1)


@asynccontextmanager
async def _stage(trial: Trial) -> AsyncIterator[_Stage]:
    """Serve all resources for a block; entered once the kubelet has their devices."""
    usb_devices = UsbDevices(Hardware(trial.folder / "root"))
    usb_devices.prepare()
    for number in range(ADAPTERS):
        usb_devices.plug(f"S{number:02}", number + 1)
    for name in ("p", "cdi"):
        (trial.folder / name).mkdir()
    looks = dict.fromkeys(RESOURCES, 0)

    def looked(name: str, _: float) -> None:
        looks[name] += 1

    machine = DaemonContext(
        host=usb_devices.hardware.host, cdi=CdiFolder(trial.folder / "cdi"), on_look=looked
    )
    plugins = [
        ConfiguredPlugin(
            resource_of(f"{rest}, overlap: shared, whenUnplugged: {{keepUnhealthyFor: 0s}}", name), machine
        )
        for name, rest in RESOURCES.items()
    ]
    folder = trial.folder / "p"
    kubelet = Kubelet(folder)
    async with kubelet.running(), serve(*plugins, plugin_dir=folder, registration="socket") as serving:
        stage = _Stage(trial.folder, usb_devices, kubelet, serving, {}, looks)
        await stage.until_true()
        async with AsyncExitStack() as stack:
            for name in RESOURCES:
                (path,) = folder.glob(f"devplug-{hashlib.sha256(name.encode()).hexdigest()[:12]}-*.sock")
                stage.peers[name] = await stack.enter_async_context(connected(path))
            yield stage
