"""What a daemon tells of itself at its status socket: devices, holders, edits, readiness; audit lines."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devplug.daemon.config.loader import load
from devplug.daemon.context import DaemonContext
from devplug.daemon.resource import ConfiguredPlugin
from devplug.daemon.service import serve_config
from devplug.holds.holders import Holders
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod
from devplug.linux.notifier import Notifier
from devplug.logs import AUDIT
from devplug.status import STATUS_SOCKETS
from devplug.web.addresses import UnixAddress
from devplug.web.client import get, lines
from tests.daemon.hosts import char_node, link, needs_mknod, resource
from tests.virtualtime import on_virtual_time
from tests.waiting import until

anyio_backend = on_virtual_time
A = "- {name: example.com/a, discover: {static: {ids: [a0, a1]}}}"


def nodes(root: Path, rest: str = "whenNone: empty", name: str = "a", glob: str = "node*") -> str:
    """A resource of the nodes of these names."""
    return f'- {{name: example.com/{name}, discover: {{path: "{root}/{glob}"}}, {rest}}}'


def text(*resources: str) -> str:
    return "version: 1\nresources:\n" + "\n".join(resources) + "\n"


def pod(name: str) -> Pod:
    return Pod(f"uid-{name}", name, containers=(Container("main", {"example.com/a": 1}),))


async def status_socket(plugin_dir: Path) -> Path:
    await until(lambda: list(plugin_dir.glob(STATUS_SOCKETS)))
    return next(plugin_dir.glob(STATUS_SOCKETS))


@asynccontextmanager
async def served(root: Path, *resources: str) -> AsyncIterator[tuple[Kubelet, UnixAddress, Path]]:
    """A kubelet, a daemon that serves these resources from a file, and its status socket."""
    kubelet, plugin_dir, file = Kubelet.under(root), root / "device-plugins", root / "devplug.yaml"
    file.write_text(text(*resources))
    monitoring = root / "pod-resources" / "kubelet.sock"
    config = load(file.read_text(), str(file))
    async with (
        kubelet.running(),
        serve_config(config, plugin_dir=plugin_dir, pod_resources=monitoring, file=file),
    ):
        yield kubelet, UnixAddress(str(await status_socket(plugin_dir))), file


async def told(address: UnixAddress, claim: Callable[[Any], object]) -> Any:
    """The first status of which the claim is true."""
    async with lines(address, "/status?watch=1") as documents:
        async for document in documents:
            status = json.loads(document)
            if claim(status):
                return status
    raise AssertionError


def device(status: Any, device_id: str = "a0", resource: int = 0) -> Any:
    return next(one for one in status["resources"][resource]["devices"] if one["id"] == device_id)


def devices_of(status: Any) -> Any:
    return status["resources"][0]["devices"]


async def ready(address: UnixAddress) -> tuple[int, str]:
    answer = await get(address, "/readyz")
    return answer.status, answer.body.decode()


async def test_a_status_names_the_pod_that_holds_a_device_and_forgets_it_when_it_lets_go(
    short_dir: Path,
) -> None:
    async with served(short_dir, A) as (kubelet, address, _):
        await told(address, lambda one: one["resources"] and one["resources"][0]["is_registered"])
        await kubelet.wait(lambda: kubelet.allocatable().get("example.com/a") == 2)
        await kubelet.admit(pod("p"))
        status = await told(address, lambda one: device(one)["holders"])
        assert device(status)["holders"] == [{"namespace": "default", "pod": "p", "container": "main"}]
        assert device(status)["is_held"]
        assert not device(status, "a1")["is_held"]


def test_a_daemon_without_claims_loads_nothing_of_dra(short_dir: Path) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from devplug.daemon.config.loader import load
from devplug.daemon.service import serve_config
from devplug.status import STATUS_SOCKETS
from devplug.web.addresses import UnixAddress
from devplug.web.client import get

async def main(folder):
    config = load({text(A)!r}, "devplug.yaml")
    address = UnixAddress(str(folder / "pages.sock"))
    async with serve_config(
        config, plugin_dir=folder, pod_resources=folder / "none.sock", listen=f"unix:{{address.path}}"
    ):
        for page in ("/status", "/metrics", "/readyz"):
            await get(address, page)

asyncio.run(main(Path({str(short_dir)!r})))
parts = "devplug.driver", "devplug.dra", "devplug.wire.dra", "devplug.plugin.claimed_plugin"
print([name for name in sys.modules if name in parts or name.startswith(("devplug.driver.", "devplug.dra."))])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr


async def test_only_its_owner_may_read_the_status_socket(short_dir: Path) -> None:
    async with served(short_dir, A):
        path = await status_socket(short_dir / "device-plugins")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.exists()


async def test_a_lost_status_socket_is_made_again_and_a_dead_one_is_cleared_away(short_dir: Path) -> None:
    folder = short_dir / "device-plugins" / ".devplug"
    folder.mkdir(parents=True)
    dead = folder / ".status-1-dead.sock"
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(dead))
    async with served(short_dir, A):
        await until(lambda: not dead.exists() and list(folder.glob(".status-*.sock")))
        first = await status_socket(short_dir / "device-plugins")
        first.unlink()
        second = await status_socket(short_dir / "device-plugins")
        answer = await get(UnixAddress(str(second)), "/healthz")
        assert answer.body == b"ok\n"


async def test_a_bad_edit_is_a_note_and_no_reason_to_be_unready(short_dir: Path) -> None:
    async with served(short_dir, A) as (_, address, file):
        await told(address, lambda one: not one["faults"])
        before = (await told(address, lambda one: one["config"]))["config"]
        file.write_text(text(A, "- {name: no name}"))
        status = await told(address, lambda one: one["config"]["problems"])
        assert status["config"]["applied_at"] == before["applied_at"]
        code, page = await ready(address)
        assert code == 200
        assert page.startswith(f"note: {file}:4:")
        metrics = (await get(address, "/metrics")).body.decode().splitlines()
        assert "devplug_config_last_reload_successful 0" in metrics
        assert 'devplug_config_reloads_total{result="refused"} 1' in metrics
        file.write_text(text(A, "- {name: example.com/b, discover: {static: {ids: [b0]}}}"))
        status = await told(address, lambda one: not one["config"]["problems"])
        assert [one["name"] for one in status["resources"]] == ["example.com/a", "example.com/b"]


async def test_a_file_that_was_away_for_a_while_is_a_problem_for_as_long(short_dir: Path) -> None:
    async with served(short_dir, A) as (_, address, file):
        for _ in range(2):
            file.rename(short_dir / "away")
            status = await told(address, lambda one: one["config"]["problems"])
            assert "devplug.yaml" in status["config"]["problems"][0]
            (short_dir / "away").rename(file)
            await told(address, lambda one: not one["config"]["problems"])


@needs_mknod
async def test_a_resource_that_waits_for_its_first_device_is_no_reason_to_be_unready(short_dir: Path) -> None:
    node = short_dir / "node0"
    async with served(short_dir, nodes(short_dir, "whenNone: wait")) as (_, address, _):
        await told(address, lambda one: not one["faults"])
        assert await ready(address) == (200, "ready\n")
        char_node(node, 240, 7)
        status = await told(address, lambda one: one["resources"][0]["is_registered"])
        assert device(status, "node0")["device_nodes"] == [str(node)]


@needs_mknod
async def test_a_holder_of_a_device_that_is_another_one_now_is_marked_as_outdated(short_dir: Path) -> None:
    node = short_dir / "node0"
    char_node(node, 240, 7)
    async with served(short_dir, nodes(short_dir)) as (kubelet, address, _):
        await kubelet.wait(lambda: kubelet.allocatable().get("example.com/a") == 1)
        await kubelet.admit(pod("p"))
        status = await told(address, lambda one: device(one, "node0")["holders"])
        assert not device(status, "node0")["is_outdated"]
        node.unlink()
        status = await told(address, lambda one: device(one, "node0")["health"] == "Unhealthy")
        gone = device(status, "node0")
        assert (gone["reason"], gone["leaves_at"]) == ("unplugged", None)
        char_node(node, 240, 8)
        status = await told(address, lambda one: device(one, "node0")["health"] == "Healthy")
        assert device(status, "node0")["is_outdated"]


@needs_mknod
async def test_a_device_that_is_gone_tells_when_it_leaves_the_list(short_dir: Path) -> None:
    node = short_dir / "node0"
    char_node(node, 240, 7)
    async with served(short_dir, nodes(short_dir, "whenUnplugged: {keepUnhealthyFor: 5m}")) as (
        _,
        address,
        _,
    ):
        await told(address, lambda one: one["resources"][0]["devices"])
        node.unlink()
        status = await told(address, lambda one: device(one, "node0")["health"] == "Unhealthy")
        gone = device(status, "node0")
        assert 299 < gone["leaves_at"] - gone["since"] < 301
        assert gone["device_nodes"] == []


@needs_mknod
async def test_a_device_that_changes_in_one_step_is_told_although_the_kubelets_list_stays(
    short_dir: Path,
) -> None:
    """A rename puts another node in the place of the one that a pod holds; its ID and health stay."""
    node = short_dir / "node0"
    char_node(node, 240, 7)
    async with served(short_dir, nodes(short_dir)) as (kubelet, address, _):
        await kubelet.wait(lambda: kubelet.allocatable().get("example.com/a") == 1)
        await kubelet.admit(pod("p"))
        async with lines(address, "/status?watch=1") as documents:
            async for document in documents:
                if device(json.loads(document), "node0")["holders"]:
                    break
            char_node(short_dir / "other", 240, 8).rename(node)
            async for document in documents:
                if device(json.loads(document), "node0")["is_outdated"]:
                    assert device(json.loads(document), "node0")["health"] == "Healthy"
                    break


@needs_mknod
async def test_of_two_pods_that_share_a_device_only_the_one_from_before_is_outdated(short_dir: Path) -> None:
    node = short_dir / "node0"
    char_node(node, 240, 7)
    async with served(short_dir, nodes(short_dir, "share: {replicas: 2}")) as (kubelet, address, _):
        await kubelet.wait(lambda: kubelet.allocatable().get("example.com/a") == 2)
        await kubelet.admit(pod("p"))
        char_node(short_dir / "other", 240, 8).rename(node)
        await told(address, lambda one: any(each["is_outdated"] for each in devices_of(one)))
        await kubelet.admit(pod("q"))
        status = await told(address, lambda one: all(each["holders"] for each in devices_of(one)))
        outdated = {each["holders"][0]["pod"]: each["is_outdated"] for each in devices_of(status)}
        assert outdated == {"p": True, "q": False}


async def test_an_edit_of_a_resource_leaves_its_devices_their_age(short_dir: Path) -> None:
    async with served(short_dir, A) as (_, address, file):
        before = await told(address, lambda one: one["resources"] and not one["faults"])
        file.write_text(text(A.replace("a1]", "a1, a2]")))
        after = await told(
            address,
            lambda one: one["resources"] and len(one["resources"][0]["devices"]) == 3 and not one["faults"],
        )
        for device_id in ("a0", "a1"):
            assert device(after, device_id)["since"] == device(before, device_id)["since"]
        assert device(after, "a2")["since"] > device(before, "a0")["since"]
        assert after["resources"][0]["registered_at"] == before["resources"][0]["registered_at"]


@needs_mknod
async def test_a_resource_whose_only_device_belongs_to_another_one_waits_and_is_no_fault(
    short_dir: Path,
) -> None:
    link(short_dir / "by-id" / "x", char_node(short_dir / "node0", 240, 7))
    second = nodes(short_dir, "whenNone: wait", "b", "by-id/*")
    async with served(short_dir, nodes(short_dir), second) as (_, address, _):
        status = await told(address, lambda one: not one["faults"])
        assert [one["name"] for one in status["resources"]] == ["example.com/a", "example.com/b"]
        assert [len(one["devices"]) for one in status["resources"]] == [1, 0]
        assert await ready(address) == (200, "ready\n")


@needs_mknod
async def test_a_resource_that_has_lost_its_devices_waits_for_none_but_needs_a_kubelet(
    short_dir: Path,
) -> None:
    node, plugin_dir, listen = short_dir / "node0", short_dir / "device-plugins", short_dir / "pages.sock"
    char_node(node, 240, 7)
    file = text(nodes(short_dir, "whenNone: wait, whenUnplugged: {keepUnhealthyFor: 0s}"))
    address = UnixAddress(str(listen))
    async with serve_config(load(file, "f.yaml"), plugin_dir=plugin_dir, listen=f"unix:{listen}") as serving:
        async with Kubelet(plugin_dir).running():
            await serving.wait_registered()
            node.unlink()
            await told(address, lambda one: not one["resources"][0]["devices"])
        status = await told(address, lambda one: not one["resources"][0]["is_registered"])
        assert status["faults"] == ["example.com/a: no kubelet is connected"]
        assert (await ready(address))[0] == 503


async def test_a_status_is_the_same_text_while_nothing_changes(short_dir: Path) -> None:
    async with served(short_dir, A) as (_, address, _):
        await told(address, lambda one: not one["faults"] and one["pod_resources"]["answered_at"])
        assert len({(await get(address, "/status")).body for _ in range(50)}) == 1


async def test_the_age_of_an_answer_is_told_only_while_somebody_needs_to_know(short_dir: Path) -> None:
    """The kubelet is not asked while nothing is held, and nobody shall be alarmed then."""
    async with served(short_dir, A) as (kubelet, address, _):

        async def tells_age(*, wanted: bool) -> None:
            is_told = not wanted
            while is_told is not wanted:
                text = (await get(address, "/metrics")).body
                is_told = b"\ndevplug_podresources_age_seconds " in text

        await kubelet.wait(lambda: kubelet.allocatable().get("example.com/a") == 2)
        await told(address, lambda one: one["pod_resources"]["answered_at"])
        await tells_age(wanted=False)
        await kubelet.admit(pod("p"))
        await told(address, lambda one: device(one)["holders"])
        await tells_age(wanted=True)


async def test_what_containers_were_told_is_forgotten_with_their_devices(short_dir: Path) -> None:
    """Devices with names of their own may come and go for years."""
    one = resource("discover: {static: {ids: [a0, a1, a2]}}")
    holders = Holders(short_dir / "none.sock")
    plugin = ConfiguredPlugin(one, DaemonContext(holders=holders))
    lists = plugin.devices()
    listed = await anext(lists)
    await plugin.allocate(listed[:2])
    assert set(plugin.answered) == {"a0", "a1"}
    # As when the kubelet has told that nobody holds them.
    plugin.context.holders = plugin.held._holders = Holders(short_dir / "none.sock")
    await plugin.allocate(listed[2:])
    assert set(plugin.answered) == {"a2"}
    await lists.aclose()


async def test_what_waits_for_its_first_device_says_so_when_it_has_looked(short_dir: Path) -> None:
    changed = Notifier()
    one = resource(f'discover: {{path: "{short_dir}/none*"}}, whenNone: wait')
    plugin = ConfiguredPlugin(one, DaemonContext(on_change=changed.notify))
    async with asyncio.TaskGroup() as group:
        listing = group.create_task(anext(plugin.devices()))
        while not plugin.is_waiting:
            await changed.next.wait()
        listing.cancel()


async def test_every_hold_and_release_gets_one_audit_line(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=AUDIT)
    async with served(short_dir, A) as (kubelet, address, _):
        await kubelet.wait(lambda: kubelet.allocatable().get("example.com/a") == 2)
        await kubelet.admit(pod("p"))
        await told(address, lambda one: device(one)["holders"])
    told_lines = [one for one in caplog.records if one.name == AUDIT]
    assert [one.message for one in told_lines] == ["registered with the kubelet", "allocated", "device held"]
    facts = vars(told_lines[-1])
    assert (facts["resource_name"], facts["device_id"]) == ("example.com/a", "a0")
    assert (facts["pod"], facts["container_name"]) == ("default/p", "main")
