"""A kubelet whose books are wrong, empty, lost or slow: no device is given twice or cleaned in use."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from devplug.errors import RemoteError
from devplug.kubelet_dir import CHECKPOINT_NAME
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.podresources import LIST
from devplug.wire.sockets import connected
from tests.daemon.hosts import needs_mknod
from tests.ownership.machine import Stick
from tests.ownership.node import Node, node, usb
from tests.virtualtime import on_virtual_time, passes, still

anyio_backend = on_virtual_time
pytestmark = needs_mknod

ANY, OTHER = "example.com/any", "example.com/other"
FIRST, STRANGER, THIRD = Stick("first", "S"), Stick("stranger", "T"), Stick("third", "U")


async def allocate_again(here: Node, name: str) -> str:
    """Send the Allocate of a running pod again, as a kubelet does that has lost its books.

    Return the status and the text of the refusal; empty if the device is granted.
    """
    (held,) = (one for one in here.kubelet.allocations() if one.pod_uid == f"uid-{name}")
    return await allocate(here, *held.device_ids)


async def allocate(here: Node, *device_ids: str) -> str:
    """Send an Allocate to the only resource; return the status and the text of the refusal, or ""."""
    (socket,) = here.kubelet.plugin_dir.glob("devplug-*.sock")
    async with connected(socket) as peer:
        try:
            await peer.call(ALLOCATE, [device_ids])
        except RemoteError as error:
            return f"{error.status} {error.text}"
    return ""


async def ask(here: Node) -> None:
    """Ask the kubelet who holds what, as any monitor on the node does."""
    async with connected(here.folder / "pod-resources" / "kubelet.sock") as peer:
        await peer.call(LIST, None)


async def test_device_that_list_names_for_another_pod_is_refused(short_dir: Path) -> None:
    """Rule 6: the kubelet gave the device twice, and says so itself."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.quiet()
        refusal = await allocate_again(here, "p")
        assert refusal.startswith("FailedPrecondition")
        assert "default/p" in refusal
        assert here.cleaned() == []


async def test_device_that_was_given_a_moment_ago_is_refused(short_dir: Path) -> None:
    """Rule 6: no List has named the holder yet; the one that Allocate takes does."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        assert (await allocate_again(here, "p")).startswith("FailedPrecondition")


async def test_released_device_is_granted_at_once(short_dir: Path) -> None:
    """Rule 6: the pod has ended, and the next one does not wait until the daemon has noticed."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.quiet()
        here.end("p")
        await here.must_run("q", ANY)
        assert here.cleaned() == ["first"]


async def test_pods_that_follow_each_other_quickly_are_all_granted(short_dir: Path) -> None:
    """Rule 6: no pod is refused for a holder that has ended before it was ever listed."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        for number in range(10):
            await here.must_run(f"p{number}", ANY)
            here.end(f"p{number}")
        await here.quiet()
        assert here.cleaned() == ["first"] * 10


async def test_list_during_a_slow_allocate_gives_no_device_twice(short_dir: Path) -> None:
    """Rule 6: a List that sees another pod's end makes the kubelet forget the device (K 11, L5)."""
    go, begun = short_dir / "go", short_dir / "begun"
    async with node(short_dir) as here:
        *shell, script, port = here.cleaning()["onRelease"]["exec"]["command"]
        slow = f"touch {begun}; while ! test -e {go}; do sleep 0.01; done; {script}"
        cleaning: dict[str, Any] = {"onRelease": {"exec": {"command": [*shell, slow, port]}}}
        for stick, port in ((FIRST, "1"), (STRANGER, "2")):
            here.machine.plug(stick, port)
        await here.start(usb(ANY, **cleaning))
        await here.must_run("p", ANY)
        await here.must_run("x", ANY)
        await here.quiet()
        here.end("p")
        async with still(), asyncio.TaskGroup() as group:
            admitted = group.create_task(here.run("q", ANY))
            while not (begun.exists() or admitted.done()):  # noqa: ASYNC110 -- the clock stands
                await asyncio.sleep(0)
            here.end("x")
            await ask(here)
            go.touch()
        await here.fill()
        here.nothing_was_wrong()


@pytest.mark.parametrize("is_killed", [False, True], ids=["same daemon", "new daemon"])
async def test_lost_checkpoint_steers_new_pods_to_free_devices(short_dir: Path, is_killed: bool) -> None:
    """Rule 6: the new kubelet lists the pod without its device (K 11, L7)."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.quiet()
        (here.kubelet.plugin_dir / CHECKPOINT_NAME).unlink()
        await here.restart_kubelet()
        if is_killed:
            await here.restart(is_killed=True)
        await here.quiet()
        await here.must_run("q", ANY)
        here.nothing_was_wrong()


async def test_lost_checkpoint_cleans_nothing_in_use(short_dir: Path) -> None:
    """Rules 7 and 8."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.quiet()
        (here.kubelet.plugin_dir / CHECKPOINT_NAME).unlink()
        await here.restart_kubelet()
        await here.quiet()
        await here.quiet()
        assert here.cleaned() == []


@pytest.mark.parametrize(
    "is_listed", [pytest.param(False, marks=pytest.mark.nightly), True], ids=["given", "listed"]
)
async def test_api_server_outage_is_no_release(short_dir: Path, is_listed: bool) -> None:
    """Rule 7: a kubelet without the API server lists nothing, but its checkpoint names the pod."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        if is_listed:
            await here.quiet()
        here.kubelet.lose_api_server()
        await here.restart_kubelet()
        for _ in range(10):
            await here.quiet()
        assert here.cleaned() == []
        await here.kubelet.find_api_server()
        await here.quiet()
        here.end("p")
        await here.quiet()
        assert here.cleaned() == ["first"]


async def test_empty_list_is_no_release(short_dir: Path) -> None:
    """Rule 7: the same kubelet answers an empty list; its checkpoint names the pod."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.quiet()
        here.pod_resources.is_empty = True
        await here.quiet()
        assert here.cleaned() == []
        here.pod_resources.is_empty = False
        await here.quiet()
        assert here.cleaned() == []
        await here.each_stick_has_one_pod()


async def test_kubelet_that_is_silent_does_not_release(short_dir: Path) -> None:
    """Rules 6 and 7: PodResources answers no more."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.quiet()
        here.pod_resources.is_refusing = True
        await here.quiet()
        await here.must_run("q", ANY)
        assert here.cleaned() == []
        here.nothing_was_wrong()
        assert await allocate_again(here, "p")


async def test_kubelet_without_pod_resources_gives_devices_again(short_dir: Path) -> None:
    """Rule 6: where PodResources never answered, the next Allocate of the ID is the release."""
    async with node(short_dir) as here:
        here.pod_resources.is_refusing = True
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        for number in range(3):
            await here.must_run(f"p{number}", ANY)
            await here.quiet()
            here.end(f"p{number}")
        assert here.cleaned() == ["first"] * 2


async def test_devices_of_init_containers_are_no_release(short_dir: Path) -> None:
    """Rules 7 and 8: List never names them; the checkpoint does as long as the pod lives."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY, **here.cleaning()))
        await here.run_init_pod("p", ANY)
        for _ in range(10):
            await here.quiet()
        assert here.cleaned() == []
        await here.fill()
        here.nothing_was_wrong()
        here.end("p")
        await here.quiet()
        await here.must_run("r", ANY)


async def test_device_of_an_init_container_stays_held_after_a_kill(short_dir: Path) -> None:
    """Rules 1 and 7: the Allocate is in no file yet, and List never names the device; the checkpoint does."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.run_init_pod("p", ANY)
        await here.kill()
        await here.begin()
        await here.edit(usb(OTHER))
        assert here.counted() == {ANY: 1}
        here.end("p")
        await here.quiet()
        assert here.healthy() == {OTHER: 1}


async def test_reboot_frees_what_runs_no_more(short_dir: Path) -> None:
    """Rules 2 and 7: pods that are deleted while the machine is off hold nothing."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.quiet()
        await here.stop()
        here.machine.renumber(FIRST, STRANGER)
        here.end("p")
        await here.restart_kubelet(reboot=True)
        await here.start()
        await here.each_stick_has_one_pod()


@pytest.mark.parametrize("is_refusing", [False, True], ids=["slow", "refusing"])
async def test_new_daemon_asks_for_the_holder_before_it_gives_its_device(
    short_dir: Path, *, is_refusing: bool
) -> None:
    """Rules 6 and 8: the kubelet answered the daemon before, and is late now."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.quiet()
        here.pod_resources.is_refusing, here.pod_resources.seconds = is_refusing, 4.0
        await here.kill()
        await here.begin()
        await passes(0.5)
        assert await allocate_again(here, "p")
        assert here.cleaned() == []


async def test_refused_allocate_of_a_new_name_says_who_holds_the_stick(short_dir: Path) -> None:
    """Rule 5: the new name is withheld while a pod has the old one."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.quiet()
        await here.edit(usb(ANY, id="k-{serial}"))
        refusal = await allocate(here, "k-S")
        assert f"is held as {ANY} 0403:6001:S by default/p" in refusal
