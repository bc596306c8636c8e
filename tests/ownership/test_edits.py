"""Edits while pods come: one registration, one stream, and each pod runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from devplug.kubelet.changes import ChangeKind
from tests.daemon.hosts import needs_mknod
from tests.ownership.machine import Stick
from tests.ownership.node import Node, node, path, usb
from tests.virtualtime import on_virtual_time, passes

anyio_backend = on_virtual_time
pytestmark = needs_mknod

ANY, OTHER = "example.com/any", "example.com/other"
FIRST, STRANGER, NO_SERIAL = Stick("first", "S"), Stick("stranger", "T"), Stick("no serial")
COMMAND = ["/bin/true"]

EDITS: Mapping[str, list[dict[str, Any]]] = {
    "expose.env": [{"expose": {"env": {"A": "1"}}}, {"expose": {"env": {"A": "2"}}}],
    "expose.permissions": [{"expose": {"permissions": "r"}}, {"expose": {"permissions": "rw"}}],
    "expose.strategy": [{"expose": {"strategy": "cdi"}}, {}],
    "health": [{"health": [{"attribute": "devpath", "equals": "1"}]}, {}],
    "share": [{"share": {"maxPerContainer": 1}}, {}],
    "onRelease": [{"onRelease": {"exec": {"command": COMMAND}}}, {}],
    "onLost": [{"onLost": {"exec": {"command": COMMAND}}}, {}],
    "prefer": [{"prefer": "none"}, {"prefer": "packed"}, {}],
    "whenUnplugged": [{"whenUnplugged": {"keepUnhealthyFor": "0s"}}, {}],
    "overlap": [{"overlap": "shared"}, {}],
    "discover": [{"selector": {"product": "6001"}}, {}],
    "id": [{"id": "stick-{serial}"}, {}],
}


def cut_streams(here: Node) -> int:
    """Return how many streams of this plugin the kubelet has lost."""
    lost = [change for change in here.changes if change.kind is ChangeKind.DISCONNECTED]
    return sum(change.resource_name == ANY for change in lost)


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=[] if key == "expose.env" else pytest.mark.nightly) for key in EDITS]
)
async def test_no_pod_fails_while_edits_come(short_dir: Path, key: str) -> None:
    """Rule 9: 30 edits, one every 300 ms, and a pod every 50 ms."""
    async with node(short_dir) as here, here.watching():
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        edits = itertools.cycle(usb(ANY, **edit) for edit in EDITS[key])
        refused = []
        for number in range(180):
            if number % 6 == 0:
                here.write(next(edits))
            running = await here.run(f"p{number}", ANY)
            refused += [] if running else [number]
            if running:
                here.end(f"p{number}")
            await passes(0.05)
        await here.quiet()
        assert refused == []
        assert here.kubelet.registrations(ANY) == 1
        assert cut_streams(here) == 0


async def test_new_answer_is_there_soon_after_an_edit(short_dir: Path) -> None:
    """Rule 9: within a second and a half, although Allocates come all the time."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        here.write(usb(ANY, expose={"env": {"A": "new"}}))
        seen = []
        for number in range(150):
            running = await here.run(f"p{number}", ANY)
            if running:
                seen.append(running.env.get("A", ""))
                here.end(f"p{number}")
            await passes(0.01)
        assert seen[-1] == "new"
        assert len(seen) == 150


async def test_edit_of_one_resource_leaves_the_others_alone(short_dir: Path) -> None:
    """Rule 9: a resource that is added and removed."""
    async with node(short_dir) as here, here.watching():
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.edit(usb(OTHER, vendor="1a86"), usb(ANY))
        await here.edit(usb(ANY))
        assert here.kubelet.registrations(ANY) == 1
        assert cut_streams(here) == 0


async def test_held_stick_stays_healthy_when_an_edit_renames_it(short_dir: Path) -> None:
    """Rule 4: the pod keeps its device, with its true health, and it is counted once."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.edit(usb(ANY, id="stick-{serial}"))
        assert here.health("p") == {"Healthy"}
        assert here.capacity() == {ANY: 1}
        await here.restart()
        assert here.health("p") == {"Healthy"}
        assert here.capacity() == {ANY: 1}
        here.end("p")
        await here.quiet()
        assert here.capacity() == here.healthy() == {ANY: 1}


async def test_held_stick_stays_healthy_when_its_resource_is_renamed(short_dir: Path) -> None:
    """Rule 4: the old name stays registered until its last hold ends, also over a restart."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.restart(usb(OTHER))
        assert here.health("p") == {"Healthy"}
        assert sum(here.capacity().values()) == 1
        here.end("p")
        await here.quiet()
        assert here.healthy() == {OTHER: 1}


async def test_bad_edit_changes_nothing(short_dir: Path) -> None:
    """Rule 9."""
    async with node(short_dir) as here, here.watching():
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        here.file.write_text("version: 1\nresources: nonsense\n")
        await here.quiet()
        assert here.healthy() == {ANY: 2}
        assert here.kubelet.registrations(ANY) == 1
        await here.each_stick_has_one_pod()


@pytest.mark.parametrize("is_restarted", [False, True], ids=["edit", "restart"])
@pytest.mark.parametrize(
    "stick", [FIRST, pytest.param(NO_SERIAL, marks=pytest.mark.nightly)], ids=["serial", "no serial"]
)
@pytest.mark.parametrize("is_found", [False, True], ids=["by none", "by another"])
async def test_held_stick_stays_healthy_when_its_resource_no_longer_selects_it(
    short_dir: Path, is_found: bool, stick: Stick, is_restarted: bool
) -> None:
    """Rule 4: it is not unplugged, and no other pod gets it before its pod ends."""
    resources = [usb(ANY, vendor="1a86"), usb(OTHER, vendor="0403" if is_found else "ffff")]
    async with node(short_dir) as here:
        here.machine.plug(stick, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await (here.restart if is_restarted else here.edit)(*resources)
        assert here.health("p") == {"Healthy"}
        assert here.capacity() == {ANY: 1}
        here.machine.unplug(stick)
        await here.quiet()
        assert here.health("p") == {"Unhealthy"}
        here.machine.plug(stick, "1")
        here.end("p")
        await here.quiet()
        assert here.healthy() == ({OTHER: 1} if is_found else {})


async def test_stick_that_is_no_longer_selected_is_refused_and_not_called_unplugged(short_dir: Path) -> None:
    """Rule 4: the pod has ended, and the next one comes before a List shows that."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.edit(usb(ANY, vendor="1a86"))
        here.end("p")
        assert await here.run("q", ANY) is None
        here.nothing_was_wrong()


async def test_another_stick_in_the_port_does_not_make_an_unplugged_one_healthy(short_dir: Path) -> None:
    """Rule 4: also of a resource that was removed."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.edit(usb(OTHER, vendor="1a86"))
        here.machine.unplug(FIRST)
        here.machine.plug(STRANGER, "1")
        await here.quiet()
        assert here.health("p") == {"Unhealthy"}


async def test_held_stick_without_a_serial_number_stays_healthy_as_a_path(short_dir: Path) -> None:
    """Rule 4: its resource is removed while the daemon is down, and another one has its node."""
    async with node(short_dir) as here:
        here.machine.plug(NO_SERIAL, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.restart(path(OTHER, "/dev/ttyUSB*"))
        assert here.health("p") == {"Healthy"}
        assert here.capacity() == {ANY: 1}


async def test_twin_does_not_make_an_unplugged_stick_healthy(short_dir: Path) -> None:
    """Rule 3: a resource has seen the twins' ports alone, and another one finds whole sticks."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(Stick("twin", FIRST.serial), "2")
        await here.start(path(OTHER, "/dev/ttyUSB*"))
        await here.must_run("p", OTHER, 2)
        here.machine.unplug(FIRST)
        await here.edit(usb(ANY))
        assert here.health("p") == {"Healthy", "Unhealthy"}
