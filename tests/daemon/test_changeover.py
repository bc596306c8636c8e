"""A resource that moves between device plugin and claims: its free devices move before the held ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devplug.cdi.spec import CdiDevice, CdiSpec
from devplug.daemon.config.loader import load
from devplug.daemon.daemon import LEAVES_SLICES
from devplug.daemon.service import serve_config
from devplug.driver.claim_spec import file_name, file_text
from devplug.driver.claims import ClaimUse, DeviceUse
from devplug.driver.prepared_claims import STATE_NAME, state_text
from devplug.holds.hardware import Use
from devplug.holds.ledger_store import IN_CODE
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod, PodPhase
from devplug.linux.boot import boot_id
from devplug.plugin.serving import Serving
from devplug.status import STATUS_SOCKETS, process_of
from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from devplug.wire.dra import UNPREPARE, ClaimName
from devplug.wire.sockets import connected
from tests.daemon.hosts import UNUSED_MAJOR, char_node, needs_mknod
from tests.driver.apiserver import NODE, Cluster, cluster
from tests.virtualtime import on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time
NAME = "example.com/a"
DRIVER = "d.example.com"
PLUGIN = f"{{version: 1, resources: [{{name: {NAME}, discover: {{static: {{ids: [a0, a1]}}}}}}]}}"
NAMED = PLUGIN.replace("1,", f"1, driver: {DRIVER},")
CLAIMS = NAMED.replace("discover", "serve: dra, discover")
POD = Pod("uid-p", "p", containers=(Container("main", {NAME: 1}),))


@asynccontextmanager
async def daemon(
    kubelet: Kubelet,
    root: Path,
    text: str,
    file: Path | None = None,
    look_again: asyncio.Event | None = None,
) -> AsyncIterator[Serving]:
    """A daemon as a new pod of the DaemonSet: it knows of the one before what is on the machine."""
    monitoring = root / "pod-resources" / "kubelet.sock"
    config = load(text, "c.yaml")
    async with serve_config(
        config,
        plugin_dir=kubelet.plugin_dir,
        pod_resources=monitoring,
        cdi_folder=root / "cdi",
        file=file,
        look_again=look_again,
    ) as serving:
        yield serving


@pytest.fixture(autouse=True)
def _account(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", NODE)
    monkeypatch.setenv("KUBECONFIG", str(short_dir / "kubeconfig"))


def driver_sockets(root: Path) -> list[str]:
    """The sockets by which a kubelet finds a DRA driver, which begins with its first resource."""
    return [path.name for path in (root / "plugins_registry").glob(f"{DRIVER}*.sock")]


def health(kubelet: Kubelet) -> dict[str, str]:
    return {one.id: one.health for one in kubelet.devices(NAME)}


def ids(server: Cluster) -> list[str]:
    """Return the IDs of the published devices."""
    devices = (one for piece in server.slices() for one in piece["spec"]["devices"])
    return sorted(one["attributes"]["id"]["string"] for one in devices)


async def test_claims_get_free_devices_while_a_pod_of_the_device_plugin_holds_one(short_dir: Path) -> None:
    kubelet = Kubelet.under(short_dir)
    (short_dir / "plugins_registry").mkdir(exist_ok=True)
    async with cluster(short_dir) as server, kubelet.running():
        async with daemon(kubelet, short_dir, PLUGIN):
            await kubelet.wait(lambda: kubelet.allocatable().get(NAME) == 2)
            status = await kubelet.run_pod(POD)
            assert status.phase is PodPhase.RUNNING
            (held,) = (id_ for one in kubelet.allocations() for id_ in one.device_ids)
        free = sorted({"a0", "a1"} - {held})
        for _ in range(2):  # as in a second rollout
            async with daemon(kubelet, short_dir, CLAIMS):
                await kubelet.wait(lambda: health(kubelet) == {held: "Healthy"})
                await until(lambda: ids(server) == free)
        async with daemon(kubelet, short_dir, CLAIMS) as serving:
            await kubelet.wait(lambda: health(kubelet) == {held: "Healthy"})
            assert ids(server) == free
            kubelet.end_pod(POD.uid)
            await until(lambda: ids(server) == ["a0", "a1"])
            await until(lambda: [one.driver for one in serving.statuses()] == [DRIVER])
            assert kubelet.allocatable().get(NAME) == 0


async def test_free_devices_move_at_an_edit_and_return_at_the_next(short_dir: Path) -> None:
    kubelet, file, look_again = Kubelet.under(short_dir), short_dir / "c.yaml", asyncio.Event()
    (short_dir / "plugins_registry").mkdir(exist_ok=True)
    file.write_text(NAMED)
    async with (
        cluster(short_dir) as server,
        kubelet.running(),
        daemon(kubelet, short_dir, NAMED, file, look_again) as serving,
    ):
        await kubelet.wait(lambda: kubelet.allocatable().get(NAME) == 2)
        await kubelet.run_pod(POD)
        (held,) = (id_ for one in kubelet.allocations() for id_ in one.device_ids)
        free = sorted({"a0", "a1"} - {held})
        for _ in range(2):
            file.write_text(CLAIMS)
            look_again.set()
            await until(lambda: ids(server) == free)
            await kubelet.wait(lambda: health(kubelet) == {held: "Healthy"})
            file.write_text(NAMED)
            look_again.set()
            await kubelet.wait(
                lambda: set(health(kubelet).values()) == {"Healthy"} and len(health(kubelet)) == 2
            )
            assert ids(server) == []
        await until(lambda: [one.driver for one in serving.statuses()] == [""])


async def test_status_of_a_resource_that_moves_has_its_devices_once(short_dir: Path) -> None:
    kubelet, file, look_again = Kubelet.under(short_dir), short_dir / "c.yaml", asyncio.Event()
    (short_dir / "plugins_registry").mkdir(exist_ok=True)
    file.write_text(NAMED)
    async with (
        cluster(short_dir) as server,
        kubelet.running(),
        daemon(kubelet, short_dir, NAMED, file, look_again),
    ):
        await kubelet.wait(lambda: kubelet.allocatable().get(NAME) == 2)
        await kubelet.run_pod(POD)
        file.write_text(CLAIMS)
        look_again.set()
        await until(lambda: len(ids(server)) == 1)
        (socket,) = kubelet.plugin_dir.glob(STATUS_SOCKETS)
        (status,) = process_of((await get(UnixAddress(str(socket)), "/status")).body).resources
        assert [one.id for one in status.devices] == ["a0", "a1"]
        assert sorted(one.is_held for one in status.devices) == [False, True]
        assert (status.driver, status.is_retired) == (DRIVER, False)


async def test_a_daemon_that_begins_with_claims_that_no_pod_precedes_is_a_driver_at_once(
    short_dir: Path,
) -> None:
    kubelet = Kubelet.under(short_dir)
    (short_dir / "plugins_registry").mkdir(exist_ok=True)
    async with kubelet.running():
        async with daemon(kubelet, short_dir, PLUGIN):
            await kubelet.wait(lambda: kubelet.allocatable().get(NAME) == 2)
        async with daemon(kubelet, short_dir, CLAIMS):
            await until(lambda: driver_sockets(short_dir))
            assert kubelet.allocatable().get(NAME) == 0


async def test_pods_get_free_devices_while_a_claim_of_the_driver_before_holds_one(short_dir: Path) -> None:
    kubelet, cdi = Kubelet.under(short_dir), short_dir / "cdi"
    (short_dir / "plugins_registry").mkdir(exist_ok=True)
    cdi.mkdir()
    uid = "11111111-2222-3333-4444-555555555555"
    name = f"k8s.{DRIVER}/claim={uid}-a0"
    used = DeviceUse("r", "a0", NAME, "a0", None, has_admin_access=False, cdi_names=(name,))
    use = ClaimUse("default", "c", uid, (used,), 1, boot_id())
    spec = CdiSpec(f"k8s.{DRIVER}/claim", (CdiDevice(f"{uid}-a0", envs={"A": "0"}),))
    (cdi / file_name(DRIVER, uid)).write_text(file_text(spec, use))
    async with (
        cluster(short_dir) as server,
        kubelet.running(),
        daemon(kubelet, short_dir, NAMED) as serving,
    ):
        socket = short_dir / "plugins" / DRIVER / "dra.sock"
        await until(socket.exists)
        await kubelet.wait(lambda: health(kubelet) == {"a1": "Healthy"})
        listed = {one.driver: [device.health for device in one.devices] for one in serving.statuses()}
        assert listed == {"": ["Healthy"], DRIVER: ["Unhealthy"]}
        async with connected(socket) as peer:
            await peer.call(UNPREPARE["v1.DRAPlugin"], (ClaimName(namespace="default", name="c", uid=uid),))
        await kubelet.wait(lambda: kubelet.allocatable().get(NAME) == 2)
        assert list(cdi.iterdir()) == []
        await until(lambda: server.slices() == [])


async def test_a_resource_that_leaves_claims_is_no_device_plugins_before_the_slices_are_rewritten(
    short_dir: Path,
) -> None:
    """The API server is away meanwhile: its scheduler would allocate by the slices that there are."""
    kubelet, file, look_again = Kubelet.under(short_dir), short_dir / "c.yaml", asyncio.Event()
    (short_dir / "plugins_registry").mkdir(exist_ok=True)
    file.write_text(CLAIMS)
    async with (
        cluster(short_dir) as server,
        kubelet.running(),
        daemon(kubelet, short_dir, CLAIMS, file, look_again) as serving,
    ):
        await until(lambda: len(server.devices()) == 2)
        await server.stop()
        file.write_text(NAMED)
        look_again.set()
        await until(lambda: not serving.statuses()[0].devices)
        await passes(300)
        assert NAME not in kubelet.allocatable()
        (socket,) = kubelet.plugin_dir.glob(STATUS_SOCKETS)
        status = process_of((await get(UnixAddress(str(socket)), "/status")).body)
        assert status.config is not None
        assert status.config.problems == (f"{NAME}: {LEAVES_SLICES}",)
        server.start()
        await kubelet.wait(lambda: kubelet.allocatable().get(NAME) == 2)
        assert server.slices() == []


OLD, OLD_NAME = "old.example.com", "example.com/gone"
UID = "11111111-2222-3333-4444-555555555555"


def leave_claim(root: Path, driver: str, resource_name: str, use: Use | None = None, owner: str = "") -> None:
    """Leave on the machine what a daemon that has ended knows of a claim in use."""
    used = DeviceUse("r", "a0", resource_name, "a0", use=use)
    state = root / "plugins" / driver / STATE_NAME
    state.parent.mkdir(parents=True)
    state.write_text(state_text({UID: ClaimUse("default", "c", UID, (used,), 1, boot_id(), owner=owner)}))


async def unprepare(root: Path, driver: str) -> None:
    """Call what the kubelet calls when the pod of the claim has ended; raises the refusal."""
    async with connected(root / "plugins" / driver / "dra.sock") as peer:
        answers = await peer.call(
            UNPREPARE["v1.DRAPlugin"], (ClaimName(namespace="default", name="c", uid=UID),)
        )
    assert answers == {UID: ""}


def listed(serving: Serving) -> dict[str, dict[str, bool]]:
    """Return by driver the listed devices, and whether a container holds them."""
    return {one.driver: {device.id: device.is_held for device in one.devices} for one in serving.statuses()}


@pytest.mark.parametrize("text", [CLAIMS, PLUGIN], ids=["another driver", "a device plugin"])
async def test_claims_of_a_driver_that_is_configured_no_more_are_unprepared(
    short_dir: Path, text: str
) -> None:
    kubelet = Kubelet.under(short_dir)
    (short_dir / "plugins_registry").mkdir(exist_ok=True)
    leave_claim(short_dir, OLD, NAME)
    async with cluster(short_dir) as server, kubelet.running(), daemon(kubelet, short_dir, text) as serving:
        await until((short_dir / "plugins" / OLD / "dra.sock").exists)
        assert list((short_dir / "plugins_registry").glob(f"{OLD}*.sock"))
        new = DRIVER if text == CLAIMS else ""
        await until(lambda: listed(serving) == {OLD: {"a0": True}, new: {"a1": False}})
        await unprepare(short_dir, OLD)
        if text == CLAIMS:
            await until(
                lambda: (
                    {one["spec"]["driver"]: len(one["spec"]["devices"]) for one in server.slices()}
                    == {DRIVER: 2}
                )
            )
        else:
            await kubelet.wait(lambda: kubelet.allocatable().get(NAME) == 2)


def offered(server: Cluster) -> list[str]:
    """Return the resources of the published devices."""
    return [
        one["attributes"]["resource"]["string"]
        for piece in server.slices()
        for one in piece["spec"]["devices"]
    ]


@needs_mknod
async def test_device_of_a_claim_is_cleaned_by_the_resource_that_finds_it_now(short_dir: Path) -> None:
    node, log, kubelet = char_node(short_dir / "dev0", 5), short_dir / "log", Kubelet.under(short_dir)
    (short_dir / "plugins_registry").mkdir(exist_ok=True)
    use = Use("a0", numbers=(f"char {UNUSED_MAJOR}:5",), paths=(str(node),), boot=boot_id(), is_dirty=True)
    leave_claim(short_dir, DRIVER, OLD_NAME, use)
    text = (
        f"{{version: 1, driver: {DRIVER}, resources: [{{name: {NAME}, serve: dra, "
        f'discover: {{path: "{node}"}}, '
        f'onRelease: {{exec: {{command: [/bin/sh, -c, "echo $0 >> {log}", "{{hostPath}}"]}}}}}}]}}'
    )
    async with cluster(short_dir) as server, kubelet.running(), daemon(kubelet, short_dir, text):
        await until((short_dir / "plugins" / DRIVER / "dra.sock").exists)
        await until(lambda: offered(server) == [OLD_NAME])
        await unprepare(short_dir, DRIVER)
        assert log.read_text() == f"{node}\n"
        await until(lambda: offered(server) == [NAME])


async def test_claims_of_a_driver_in_code_are_left_to_its_program(short_dir: Path) -> None:
    kubelet = Kubelet.under(short_dir)
    (short_dir / "plugins_registry").mkdir(exist_ok=True)
    leave_claim(short_dir, OLD, NAME, owner=IN_CODE)
    async with cluster(short_dir) as server, kubelet.running(), daemon(kubelet, short_dir, CLAIMS):
        await until(lambda: ids(server) == ["a1"])
        assert not (short_dir / "plugins" / OLD / "dra.sock").exists()


async def test_device_is_released_beside_a_resource_of_claims_that_has_none(short_dir: Path) -> None:
    """The kubelet writes its checkpoint when a device plugin sends a list, and not because of slices."""
    kubelet = Kubelet.under(short_dir)
    (short_dir / "plugins_registry").mkdir(exist_ok=True)
    text = NAMED[:-2] + f", {{name: example.com/b, serve: dra, discover: {{path: {short_dir}/none}}}}]}}"
    async with cluster(short_dir), kubelet.running(), daemon(kubelet, short_dir, text) as serving:
        await until(lambda: len(driver_sockets(short_dir)) == 1)
        await kubelet.wait(lambda: kubelet.allocatable().get(NAME) == 2)
        await kubelet.run_pod(POD)
        await until(lambda: any(one.is_held for one in serving.statuses()[0].devices))
        kubelet.end_pod(POD.uid)
        await until(lambda: not any(one.is_held for one in serving.statuses()[0].devices))
