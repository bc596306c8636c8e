"""Device nodes that become something else before Allocate: other devices, files, links, folders, nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.daemon.context import DaemonContext
from devplug.daemon.resource import ConfiguredPlugin
from devplug.devices import Device
from devplug.errors import ForbiddenPathError, UnhealthyDeviceError
from torture.catalogue import case
from torture.footprint import nothing_kept
from torture.hardware import MAJOR, Hardware, UsbDevices, discovered, may_make_nodes, resource_of
from torture.path_swapper import swapped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from torture.catalogue import Round, Trial

DEVICES: Final = 6
OTHER_MINOR: Final = 200
"""Of a device that no resource covers."""

KINDS: Final = {
    "path": ('path: "/dev/ttyUSB*"', "ttyUSB{}"),
    "usb": ('usb: {vendor: "0403"}', "0403:6001:S{:02}"),
    "tty": ("sysfs: {subsystem: tty}", "0403:6001:S{:02}.ttyUSB0"),
}
"""How the devices are found, and what the one with a number is called then."""

WARM_UP: Final = 5

MANY: Final = 1_000

PATH_LOOKS: Final = 0.02
"""How often a path is looked at in between: twice a second at most, and not at once as other kinds are."""

FIRST_ON_BUS: Final = 1002
"""The minor of the first adapter's node on the bus."""

SECONDS: Final = 4.0
"""How long a device may be refused after it is back: what keeps changing is looked at twice a second."""


def _node(mode: int, major: int, minor: int) -> Callable[[Path, Path], None]:
    return lambda place, _: os.mknod(place, mode | 0o600, os.makedev(major, minor))


def _socket(place: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(place))


def _block(place: Path, other: Path) -> None:
    _node(stat.S_IFBLK, MAJOR, int(place.name[-1]))(place, other)


def _folder(place: Path, other: Path) -> None:
    place.mkdir()
    (place / "x").hardlink_to(other)


OTHER_DEVICES: Final[dict[str, Callable[[Path, Path], None]]] = {
    "another minor": _node(stat.S_IFCHR, MAJOR, OTHER_MINOR),
    "another major": _node(stat.S_IFCHR, MAJOR + 1, 0),
    "a block device of the same number": _block,
    "a link to another device": lambda place, other: place.symlink_to(other.name),
    "a hard link to another device": lambda place, other: place.hardlink_to(other),
}
"""What may take the place of a node, given a node of another device beside it."""

NO_DEVICES: Final[dict[str, Callable[[Path, Path], None]]] = {
    "nothing": lambda *_: None,
    "memory": _node(stat.S_IFCHR, 1, 1),
    "a file": lambda place, _: place.touch(),
    "a folder with a device": _folder,
    "a pipe": lambda place, _: os.mkfifo(place),
    "a socket": _socket,
    "a link to a file": lambda place, _: place.symlink_to("/etc/passwd"),
    "a link to itself": lambda place, _: place.symlink_to(place.name),
    "a magic link": lambda place, _: place.symlink_to("/proc/self/fd/0"),
    "a link out of the root": lambda place, _: place.symlink_to("../../../../../../../../dev/null"),
}
"""What is never given out, whenever it is seen."""

EVILS: Final = OTHER_DEVICES | NO_DEVICES


@dataclass(slots=True)
class _Stage:
    """Adapters of which a resource finds the nodes in one way."""

    kind: str
    hardware: Hardware
    plugin: ConfiguredPlugin
    counts: dict[str, int] = field(default_factory=dict)

    def id_of(self, number: int) -> str:
        return KINDS[self.kind][1].format(number)

    def place(self, number: int) -> Path:
        return self.hardware.at(f"/dev/ttyUSB{number}")

    @property
    def other(self) -> Path:
        """A node beside them that no resource covers."""
        return self.hardware.at("/dev/other")

    async def refusal(self, number: int) -> str:
        """Ask for a device; return why its own node is not given out, or "".

        An adapter whose serial port has no node is given out by its node on the bus, like one without driver.
        """
        try:
            response = await self.plugin.allocate([Device(self.id_of(number))])
        except (UnhealthyDeviceError, ForbiddenPathError) as error:
            return str(error)
        paths = [node.host_path for node in response.device_nodes]
        if any(path.startswith("/dev/bus/") and self._is_on_bus(path, number) for path in paths):
            return "on the bus"
        return "" if paths else "no node"

    def _is_on_bus(self, path: str, number: int) -> bool:
        return self.hardware.minor(path) == FIRST_ON_BUS + number

    async def until_granted(self, number: int) -> str:
        """Ask until the device is given out; return why it is not at last."""
        fault = ""
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while fault := await self.refusal(number):
                    await asyncio.sleep(0.01)
        return fault


@case(
    "nodes-swapped",
    fault="X23",
    promise="A node that became another device, a file, a link, a folder or nothing between discovery and "
    "Allocate is never given out as the earlier device, and is again once it is back",
    count=3_000,
    unit="swaps",
    invariants="I1 I3 I4 I6",
)
async def nodes_swapped(trial: Trial) -> None:
    """Swap nodes by hand between any two steps, and by an attacker during Allocates."""
    if not may_make_nodes(trial):
        return
    async with AsyncExitStack() as stack:
        stages: list[_Stage] = []
        for kind in KINDS:
            stage = _stage(trial, kind)
            await stack.enter_async_context(discovered(stage.plugin))
            stages.append(stage)
            for number in range(DEVICES):
                fault = await stage.refusal(number)
                trial.check(not fault, f"I6: {kind}: {fault}")
        async with nothing_kept(trial):
            for turn in trial.rounds():
                await _swap_and_ask(trial, stages[turn.number % len(stages)], turn)
    for name in ("refused at once", "refused after a look"):
        trial.figure(name, sum(stage.counts.get(name, 0) for stage in stages))


def _stage(trial: Trial, kind: str) -> _Stage:
    hardware = Hardware(trial.folder / kind)
    usb_devices = UsbDevices(hardware)
    usb_devices.prepare()
    for number in range(DEVICES):
        usb_devices.plug(f"S{number:02}", number + 1)
    hardware.node("/dev/other", OTHER_MINOR)
    resource = resource_of(f"discover: {{{KINDS[kind][0]}}}, whenUnplugged: {{keepUnhealthyFor: 0s}}")
    return _Stage(kind, hardware, ConfiguredPlugin(resource, DaemonContext(host=hardware.host)))


async def _swap_and_ask(trial: Trial, stage: _Stage, turn: Round) -> None:
    """Swap one node, ask for its device, put it back, and ask until it is given out again."""
    chance = turn.random
    number = chance.randrange(DEVICES)
    name = chance.choice([*EVILS])
    place, away = stage.place(number), stage.hardware.at("/dev/away")
    os.rename(place, away)
    EVILS[name](place, stage.other)
    # Of a plain path the next look may say that there is another device now; any other way to find devices
    # knows from sysfs that it is not this one.
    has_looks = chance.random() < (0.5 if stage.kind != "path" else PATH_LOOKS * (name in NO_DEVICES))
    if has_looks:
        await _let_look(stage, chance)
    fault = await stage.refusal(number)
    how = "after a look" if has_looks else "at once"
    stage.counts[f"refused {how}"] = stage.counts.get(f"refused {how}", 0) + bool(fault)
    trial.check(fault, f"I1: {stage.kind}: {name} was given out as {stage.id_of(number)} {how}", turn.number)
    _remove(place)
    os.rename(away, place)
    fault = await stage.until_granted(number)
    trial.check(not fault, f"I6: {stage.kind}: it is back after {name}, and is refused: {fault}", turn.number)


async def _let_look(stage: _Stage, chance: Random) -> None:
    """Have the plugin see what is there now, or be about to."""
    heard = stage.hardware.at("/dev/serial/by-id/.heard")
    heard.touch()
    heard.unlink()
    for _ in range(chance.choice((1, 3, 10, 30))):
        await asyncio.sleep(0)


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


@case(
    "nodes-swapped-by-an-attacker",
    fault="X23",
    promise="While nodes are swapped as fast as the kernel does, each Allocate is granted or refused, "
    "and what lies there at last decides",
    count=2_000,
    unit="Allocates",
    invariants="I1 I3 I4 I6",
    brief=True,
)
async def nodes_swapped_by_an_attacker(trial: Trial) -> None:
    """Ask for adapters whose nodes a process exchanges with others all the time."""
    if not may_make_nodes(trial):
        return
    stage = _stage(trial, "tty")
    # Once it is exchanged with the adapter's node, a link to itself leads to that.
    evils = [name for name in EVILS if name not in {"nothing", "a link to itself"}]
    granted = 0
    async with discovered(stage.plugin):
        for number in range(WARM_UP):
            await stage.refusal(number % DEVICES)
        async with nothing_kept(trial):
            for part, names in enumerate(evils[at : at + DEVICES] for at in range(0, len(evils), DEVICES)):
                pairs = []
                for number, name in enumerate(names):
                    evil = stage.hardware.at(f"/dev/evil-{number}")
                    EVILS[name](evil, stage.other)
                    pairs.append((stage.place(number), evil))
                is_last = (part + 1) * DEVICES >= len(evils)
                share = trial.count // 3 if not is_last else trial.count - trial.done
                with swapped(*pairs):
                    for turn in trial.rounds(share):
                        granted += not await stage.refusal(turn.random.randrange(len(names)))
                for number, (place, evil) in enumerate(pairs):
                    await _look_at_the_end(trial, stage, number, place, evil)
    trial.figure("granted", granted)
    # The attacker may not have had a turn within a few.
    happened = 0 < granted < trial.count or trial.count < MANY
    trial.check(happened, f"I6: {granted} were granted: the attack did not happen")


async def _look_at_the_end(trial: Trial, stage: _Stage, number: int, place: Path, evil: Path) -> None:
    """Leave the evil one there, then the good one; what is asked for must follow."""
    if _is_adapter(place, number):
        _exchanged(place, evil)
    trial.check(await stage.refusal(number), f"I1: what {place.name} became was given out")
    _exchanged(place, evil)
    fault = await stage.until_granted(number)
    trial.check(not fault, f"I6: {place.name} is back, and is refused: {fault}")
    _remove(evil)


def _is_adapter(place: Path, number: int) -> bool:
    status = place.lstat()
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(MAJOR, number)


def _exchanged(one: Path, other: Path) -> None:
    between = one.with_name("between")
    os.rename(one, between)
    os.rename(other, one)
    os.rename(between, other)
