"""Held hardware that several kinds of sources find: network functions, cards, disks, ports and sticks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devplug.daemon.config.loader import load
from devplug.daemon.sources.host import Host
from devplug.daemon.sources.kinds import source_of
from tests.daemon.hosts import char_node, needs_mknod
from tests.ownership.claims import dra_node
from tests.ownership.machine import Stick
from tests.ownership.node import Described, node, path
from tests.ownership.pieces import MixedMachine
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time
pytestmark = needs_mknod

ANY, OTHER = "example.com/any", "example.com/other"


def found_by(kind: str, name: str = ANY, **more: Any) -> Described:
    """Return a resource: `pci 0300`, `net iavf`, `sysfs tty ttyS*`, `path /dev/ttyS*`."""
    kind, *rest = kind.split()
    match kind:
        case "pci":
            selector: Any = {"driver": rest[0]}
        case "net":
            selector = {"driver": rest[0]}
        case "sysfs":
            selector = {"subsystem": rest[0], "name": rest[1]}
            more.setdefault(
                "allow", ["rawDisks"] if rest[0] in {"block", "nvme-generic", "scsi_generic"} else []
            )
        case _:
            return {**path(name, rest[0]), "allow": ["rawDisks"], **more}
    return {"name": name, "discover": {kind: selector}, **more}


# ── one place, whatever finds it ──

WAYS = [pytest.param("edit", marks=pytest.mark.nightly), "restart"]

PLACES = {
    "virtual function": ("net iavf", "pci iavf"),
    "virtual function by pci": ("pci iavf", "net iavf"),
    "graphics card": ("pci amdgpu", "sysfs drm renderD*"),
    "graphics node": ("sysfs drm renderD*", "pci amdgpu"),
    "sound card": ("pci snd_hda", "sysfs sound card*"),
    "sound card by sysfs": ("sysfs sound card*", "pci snd_hda"),
    "sound card and its stream": ("sysfs sound card*", "path /dev/snd/pcm*"),
    "stream and its sound card": ("path /dev/snd/pcm*", "sysfs sound card*"),
    "disk": ("sysfs block nvme0n1", "pci nvme"),
    "disk and its generic node": ("sysfs block nvme0n1", "sysfs nvme-generic ng*"),
    "disk and its partition": ("sysfs block nvme0n1", "sysfs block nvme0n1p1"),
    "partition and its disk": ("path /dev/nvme0n1p1", "path /dev/nvme0n1"),
    "controller and its disk": ("path /dev/nvme0", "sysfs block nvme0n1"),
    "SATA disk and its generic node": ("path /dev/sda", "path /dev/sg0"),
    "SATA partition and its generic node": ("path /dev/sda1", "sysfs scsi_generic sg*"),
    "SATA disk and its bsg node": ("path /dev/sda", "path /dev/bsg/*"),
    "bsg node and generic node": ("path /dev/bsg/*", "path /dev/sg0"),
    "stick by its bus node": ("path /dev/bus/usb/*/*", "path /dev/ttyUSB*"),
    "stick by its port": ("path /dev/ttyUSB*", "path /dev/bus/usb/*/*"),
}


def made(root: Path, kinds: tuple[str, ...]) -> MixedMachine:
    """Make the hardware that these kinds of sources find."""
    machine, text = MixedMachine(root), " ".join(kinds)
    if "iavf" in text:
        machine.virtual_functions(1)
    if "amdgpu" in text:
        machine.piece("gpu", machine.graphics_card())
    if "snd" in text or "sound" in text:
        machine.piece("sound", machine.sound_card())
    if "nvme" in text:
        machine.piece("disk", machine.disk(1))
    if "sd" in text or "sg" in text:
        machine.piece("disk", machine.scsi_disk())
    if "USB" in text:
        machine.plug(Stick("stick", "S"), "1")
    return machine


async def test_other_node_of_a_held_sound_card_is_not_offered(short_dir: Path) -> None:
    """Rule 2: the pod got one node of the card, and an edit finds the other one."""
    kinds = "sysfs sound card*", "path /dev/snd/control*"
    async with node(short_dir, machine=made(short_dir / "machine", kinds)) as here:
        expose = {"deviceNodes": [{"subsystem": "sound", "file": "pcm*"}]}
        await here.start(found_by(kinds[0], expose=expose))
        await here.must_run("p", ANY)
        await here.edit(found_by(kinds[1], OTHER))
        assert here.health("p") == {"Healthy"}
        assert await here.run("q", OTHER) is None


async def test_other_node_of_a_held_board_device_is_not_offered(short_dir: Path) -> None:
    """Rule 2: the device tree names the device, which has two nodes."""
    machine = MixedMachine(short_dir / "machine")
    folder = machine.made.device("/sys/devices/platform/soc/fe00.dsp", "platform")
    machine.made.link("/sys/bus/platform/devices/fe00.dsp", folder)
    for number in range(2):
        machine.node(f"{folder}/misc/dsp{number}", "misc")
    machine.piece("dsp", folder)
    async with node(short_dir, machine=machine) as here:
        expose = {"deviceNodes": [{"subsystem": "misc", "file": "dsp0"}]}
        await here.start(found_by("sysfs platform *.dsp", expose=expose))
        await here.must_run("p", ANY)
        await here.edit(found_by("path /dev/dsp1", OTHER))
        assert here.health("p") == {"Healthy"}
        assert await here.run("q", OTHER) is None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kinds", PLACES.values(), ids=PLACES.keys())
async def test_held_hardware_stays_held_when_another_source_finds_it(
    short_dir: Path, kinds: tuple[str, str], way: str
) -> None:
    """Rules 1, 2 and 4; it is present, and its pod's device is Healthy."""
    before, after = kinds
    async with node(short_dir, machine=made(short_dir / "machine", kinds)) as here:
        await here.start(found_by(before))
        assert here.healthy() == {ANY: 1}
        await here.must_run("p", ANY)
        change = here.edit if way == "edit" else here.restart
        await change(found_by(after, OTHER))
        assert here.counted() == {ANY: 1}
        assert here.health("p") == {"Healthy"}
        assert await here.run("twice", OTHER) is None
        await change(found_by(after))
        assert here.health("p") == {"Healthy"}
        assert await here.run("twice", ANY) is None
        here.end("p")
        await here.quiet()
        assert here.healthy() == {ANY: 1}
        await here.must_run("q", ANY)
        here.nothing_was_wrong()


@pytest.mark.parametrize("kinds", PLACES.values(), ids=PLACES.keys())
async def test_free_hardware_is_offered_by_the_first_of_two_sources(
    short_dir: Path, kinds: tuple[str, str]
) -> None:
    """Rule 5: it counts once, and only one pod gets it."""
    first, second = kinds
    async with node(short_dir, machine=made(short_dir / "machine", kinds)) as here:
        await here.start(found_by(first), found_by(second, OTHER))
        assert here.healthy() == {ANY: 1}
        await here.must_run("p", ANY)
        await here.edit(found_by(second, OTHER), found_by(first))
        assert here.healthy() == {ANY: 1}
        here.end("p")
        await here.quiet()
        assert here.healthy() == {OTHER: 1}
        await here.must_run("q", OTHER)
        here.nothing_was_wrong()


async def test_graphics_card_with_other_device_numbers_stays_held(short_dir: Path) -> None:
    """Rule 2: its driver was loaded again, and another kind of source finds it."""
    machine = MixedMachine(short_dir / "machine")
    card = machine.graphics_card()
    machine.piece("gpu", card)
    async with node(short_dir, machine=machine) as here:
        await here.start(found_by("pci amdgpu"))
        await here.must_run("p", ANY)
        machine.lose_graphics_nodes(card, 0)
        machine.make_graphics_nodes(card, 1)
        await here.edit(found_by("sysfs drm renderD*"))
        assert await here.run("twice", ANY) is None
        here.nothing_was_wrong()


async def test_function_that_a_user_space_driver_takes_over_stays_held(short_dir: Path) -> None:
    """Rule 2: the interface of a network function is gone, and another resource finds its IOMMU group."""
    machine = MixedMachine(short_dir / "machine")
    (folder,) = machine.virtual_functions(1, has_interfaces=True)
    async with node(short_dir, machine=machine) as here:
        await here.start(found_by("net iavf"), found_by("pci vfio-pci", OTHER))
        await here.must_run("p", ANY)
        machine.made.remove("/sys/class/net/ens0")
        machine.made.remove(f"{folder}/net")
        machine.made.link(f"{folder}/iommu_group", "/sys/kernel/iommu_groups/7")
        machine.made.link("/sys/kernel/iommu_groups/7/devices/0000:3b:10.0", folder)
        char_node(machine.root / "dev/vfio/7", 77)
        machine.made.bind("0000:3b:10.0", "vfio-pci")
        await here.quiet()
        assert await here.run("twice", OTHER) is None
        here.end("p")
        await here.quiet()
        assert here.healthy() == {OTHER: 1}


async def test_functions_held_as_interfaces_count_once(short_dir: Path) -> None:
    """Rule 4: capacity never counts one piece of hardware twice."""
    machine = MixedMachine(short_dir / "machine")
    machine.virtual_functions(2, has_interfaces=True)
    async with node(short_dir, machine=machine) as here:
        await here.start(found_by("net iavf"))
        await here.must_run("p", ANY)
        await here.must_run("q", ANY)
        await here.edit(found_by("pci iavf"))
        assert here.capacity() == {ANY: 2}
        assert await here.run("third", ANY) is None


async def test_ports_of_a_held_card_are_not_given_out(short_dir: Path) -> None:
    """Rule 2: the pod has the whole PCI card."""
    machine = MixedMachine(short_dir / "machine")
    for number, port in enumerate(machine.serial_card(2)):
        machine.piece(f"port {number}", port)
    async with node(short_dir, machine=machine) as here:
        await here.start({"name": ANY, "discover": {"pci": {"class": "0700"}}})
        await here.must_run("p", ANY)
        await here.edit(found_by("sysfs tty ttyS*", OTHER))
        await here.fill()
        here.nothing_was_wrong()
        assert here.health("p") == {"Healthy"}
        assert here.counted() == {ANY: 1}


def test_disk_is_listed_without_its_partitions(tmp_path: Path) -> None:
    """Rule 2: one resource never gives the disk to a pod and its partition to another pod."""
    machine = MixedMachine(tmp_path)
    machine.disk(2)
    for kind in ("sysfs block nvme*", "path /dev/nvme0n1*"):
        text = json.dumps({"version": 1, "resources": [found_by(kind)]})
        found = source_of(load(text, "devplug.yaml").resources[0], Host(machine.root)).look()
        assert [one.nodes[0].host_path for one in found] == ["/dev/nvme0n1"], kind


# ── equal parts of one device ──

EQUAL: dict[str, tuple[Callable[[MixedMachine], list[str]], tuple[str, ...]]] = {
    "ports of a card": (lambda machine: machine.serial_card(3), ("path /dev/ttyS*", "sysfs tty ttyS*")),
    "I2C adapters": (lambda machine: machine.i2c_adapters(3), ("path /dev/i2c-*", "sysfs i2c-dev i2c-*")),
    "keys": (MixedMachine.keyboard, ("path /dev/input/event*", "sysfs input event*")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("equal", EQUAL.values(), ids=EQUAL.keys())
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0)], ids=["path first", "sysfs first", "path"])
async def test_equal_parts_of_a_device_are_held_each_by_its_pod(
    short_dir: Path, equal: Any, order: tuple[int, int], way: str
) -> None:
    """Rules 2 and 4: the parts that no pod has stay offered."""
    make, kinds = equal
    machine = MixedMachine(short_dir / "machine")
    folders = make(machine)
    for folder in folders:
        machine.piece(folder.rpartition("/")[2], folder)
    async with node(short_dir, machine=machine) as here:
        await here.start(found_by(kinds[order[0]]))
        for number in range(len(folders) - 1):
            await here.must_run(f"p{number}", ANY)
        await here.quiet()
        assert here.healthy() == {ANY: len(folders)}
        await (here.edit if way == "edit" else here.restart)(found_by(kinds[order[1]]))
        assert here.healthy() == {ANY: len(folders)}
        await here.each_stick_has_one_pod()


@pytest.mark.parametrize("kind", ["path /dev/ttyS*", "sysfs tty ttyS*"])
@pytest.mark.parametrize("is_down", [False, True], ids=["before a restart", "while down"])
async def test_port_keeps_its_pod_when_the_port_before_it_is_gone(
    short_dir: Path, kind: str, *, is_down: bool
) -> None:
    """Rule 3: only the order of the kernel's numbers distinguishes the ports of the card."""
    machine = MixedMachine(short_dir / "machine")
    folders = machine.serial_card(2)
    ports = [machine.piece(f"port {number}", folder) for number, folder in enumerate(folders)]
    async with node(short_dir, machine=machine) as here:
        await here.start(found_by(kind))
        await here.must_run("p", ANY)
        await here.must_run("q", ANY)
        (low, high) = (here.owner(port) for port in ports)
        if is_down:
            await here.stop()
        machine.lose(folders[0], "tty")
        del machine.pieces[ports[0]]
        if is_down:
            await here.start()
        else:
            await here.quiet()
            await here.restart()
        assert (here.health(low), here.health(high)) == ({"Unhealthy"}, {"Healthy"})
        here.end(low)
        await here.quiet()
        machine.node(folders[0], "tty")
        machine.pieces[ports[0]] = folders[0]
        await here.quiet()
        assert here.healthy() == {ANY: 2}
        await here.each_stick_has_one_pod()


async def test_port_that_its_resource_does_not_match_any_more_stays_healthy(short_dir: Path) -> None:
    """The port before it is gone: which port its path leads to is known by its rank."""
    machine = MixedMachine(short_dir / "machine")
    folders = machine.serial_card(2)
    ports = [machine.piece(f"port {number}", folder) for number, folder in enumerate(folders)]
    async with node(short_dir, machine=machine) as here:
        await here.start(found_by("path /dev/ttyS*"))
        await here.must_run("p", ANY)
        await here.must_run("q", ANY)
        high = here.owner(ports[1])
        machine.lose(folders[0], "tty")
        del machine.pieces[ports[0]]
        await here.quiet()
        await here.edit(found_by("path /dev/ttyX*"))
        assert here.health(high) == {"Healthy"}


# ── paths with equal file names ──


def two_folders(*names: str) -> Described:
    return {"name": ANY, "discover": {"path": [f"/dev/{name}/*" for name in names]}}


@pytest.mark.parametrize("how", ["both present", "unplugged", "other order"])
async def test_path_keeps_its_id_when_another_one_has_its_last_name(short_dir: Path, how: str) -> None:
    """Rule 3: sysfs knows nothing of the hardware, and the ID of the held path is remembered."""
    machine = MixedMachine(short_dir / "machine")
    char_node(machine.root / "dev/b/x", 2)
    async with node(short_dir, machine=machine) as here:
        await here.start(two_folders("a", "b"))
        held = await here.must_run("p", ANY)
        assert held.host_paths == ("/dev/b/x",)
        char_node(machine.root / "dev/a/x", 1)
        await here.quiet()
        if how == "unplugged":
            (machine.root / "dev/b/x").unlink()
        await here.restart(two_folders("b", "a") if how == "other order" else two_folders("a", "b"))
        assert here.health("p") == {"Unhealthy" if how == "unplugged" else "Healthy"}
        other = await here.must_run("q", ANY)
        assert other.host_paths == ("/dev/a/x",)


# ── claims ──

CLAIMED = {
    "virtual function": ("net iavf", "pci iavf"),
    "graphics card": ("pci amdgpu", "sysfs drm renderD*"),
    "disk and its partition": ("sysfs block nvme0n1", "sysfs block nvme0n1p1"),
}


@pytest.mark.parametrize("kinds", CLAIMED.values(), ids=CLAIMED.keys())
async def test_claim_keeps_hardware_that_another_source_finds(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, str]
) -> None:
    """Rules 1 and 2: it is published again once the claim is unprepared."""
    before, after = kinds
    machine = made(short_dir / "machine", kinds)
    async with dra_node(short_dir, monkeypatch, machine) as here:
        await here.start(found_by(before, serve="dra"))
        (name,) = here.published()
        claim = here.allocate("first", name)
        assert await here.prepare(claim) == ""
        await here.edit(found_by(after, OTHER, serve="dra"))
        assert here.published() == []
        assert await here.unprepare(claim) == ""
        await here.quiet()
        assert len(here.published()) == 1


async def test_claim_of_a_port_leaves_the_other_ports(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = MixedMachine(short_dir / "machine")
    machine.serial_card(3)
    async with dra_node(short_dir, monkeypatch, machine) as here:
        await here.start(found_by("path /dev/ttyS*", serve="dra"))
        first, second, _ = here.published()
        assert await here.prepare(here.allocate("first", first)) == ""
        await here.quiet()
        assert await here.prepare(here.allocate("second", second)) == ""


async def test_claim_keeps_its_port_when_the_port_before_it_is_gone(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = MixedMachine(short_dir / "machine")
    low, _ = machine.serial_card(2)
    async with dra_node(short_dir, monkeypatch, machine) as here:
        await here.start(found_by("sysfs tty ttyS*", serve="dra"))
        free, held = here.published()
        assert await here.prepare(here.allocate("first", held)) == ""
        await here.stop()
        machine.lose(low, "tty")
        await here.start()
        assert here.published() == [held]
        machine.node(low, "tty")
        await here.quiet()
        assert here.published() == [free, held]
        assert await here.prepare(here.allocate("second", free)) == ""
