"""One description serves pods with limits and pods with claims: a daemon, a sandbox in processes, kubectl."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from devplug.cdi.spec import UNPLUGGED_PATH
from devplug.daemon.config.loader import load
from devplug.daemon.resource import ConfiguredPlugin
from devplug.daemon.service import serve_config
from devplug.deploy.manifests import manifests, values_for
from devplug.deploy.names import Release
from devplug.deploy.security_context import needs_of
from devplug.devices import ContainerResponse, Device
from devplug.driver.claim_spec import read_file
from devplug.k8s.yaml import yaml_text
from devplug.monitor.collector import collected
from devplug.monitor.node_view import UNANSWERED
from devplug.plugin.contract import DevicePlugin
from devplug.plugin.serving import Serving, served
from devplug.status import STATUS_SOCKETS, DeviceStatus, Holder, process_of
from devplug.web.addresses import UnixAddress
from devplug.web.client import get, lines
from tests.daemon.hosts import char_node, link, needs_mknod
from tests.sandbox.kubectl.stage import Stage, why_kubectl_is_missing
from tests.waiting import until

pytest.importorskip("cel_expr_python", reason="there is no wheel for this machine")
pytestmark = pytest.mark.skipif(
    bool(why_kubectl_is_missing()), reason=why_kubectl_is_missing() or "kubectl is there"
)

DRIVER = "devices.example.com"
CONFIG = """
version: 1
driver: devices.example.com
resources:
  - name: example.com/zero
    {serve}
    discover: {{path: /dev/zero}}
    expose: {{containerPath: /dev/device, permissions: r}}
"""
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: zero.example.com}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: claiming}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: zero, resourceClaimName: one}]
  containers: [{name: c, image: busybox, resources: {claims: [{name: zero}]}}]
"""
LIMITED = """
apiVersion: v1
kind: Pod
metadata: {name: limited}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: busybox, resources: {limits: {example.com/zero: 1}}}]
"""


@pytest.fixture
def stage(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with Stage(short_dir) as stage:
        monkeypatch.setenv("KUBECONFIG", str(stage.place.kubeconfig))
        monkeypatch.setenv("NODE_NAME", "worker-0")
        text = CONFIG.format(serve="serve: dra")
        objects = manifests(values_for(needs_of(load(text, "c.yaml"))), Release("devplug", "devplug", "1"))
        stage.applied("---\n".join(yaml_text(one) for one in objects if one["kind"] == "DeviceClass"))
        yield stage


def shown(stage: Stage, *what: str) -> Any:
    return json.loads(stage.kubectl("get", *what, "-o", "json"))


async def shows(claim: Callable[[], object]) -> None:
    """Return once kubectl shows what is claimed; the daemon goes on meanwhile."""
    while not await asyncio.to_thread(claim):
        pass


async def runs(stage: Stage, pod: str) -> None:
    """Return once a pod runs."""
    waiting = "wait", "--for=jsonpath={.status.phase}=Running", f"pod/{pod}", "--timeout=50s"
    await asyncio.to_thread(stage.kubectl, *waiting)


async def gone(stage: Stage, pod: str) -> None:
    await asyncio.to_thread(stage.kubectl, "delete", "pod", pod, "--wait", "--timeout=50s")


def claim_files(cdi: Path) -> list[Path]:
    return sorted(cdi.glob("k8s.devices.example.com-claim-*.yaml"))


async def test_pods_with_a_claim_and_pods_with_limits_get_the_device_of_one_description(
    stage: Stage, short_dir: Path
) -> None:
    cdi = short_dir / "cdi"
    cdi.mkdir()
    config = load(CONFIG.format(serve="serve: dra"), "c.yaml")
    folder = stage.place.folder / "nodes" / "worker-0" / "device-plugins"
    async with serve_config(config, plugin_dir=folder, cdi_folder=cdi) as serving:
        await serving.wait_registered()
        assert serving.faults() == {}
        (published,) = shown(stage, "resourceslices")["items"]
        (device,) = published["spec"]["devices"]
        assert device["attributes"]["resource"] == {"string": "example.com/zero"}
        (driver,) = serving.drivers.statuses()
        assert (driver.is_registered, driver.slices, driver.devices, driver.stale_since) == (True, 1, 1, None)
        assert (driver.resource_api, driver.kubelet_api, driver.claims) == ("v1", "", 0)

        stage.applied(CLAIM)
        await runs(stage, "claiming")
        (status,) = serving.statuses()
        (claim,) = status.devices[0].claims
        assert (status.driver, status.held) == ("devices.example.com", 1)
        assert (claim.namespace, claim.name, claim.request) == ("default", "one", "r")
        assert (claim.device, claim.prepared_for) == (device["name"], ("claiming",))
        (driver,) = serving.drivers.statuses()
        assert (driver.kubelet_api, driver.claims) == ("v1.DRAPlugin", 1)
        (file,) = claim_files(cdi)
        written = json.loads(file.read_text().partition("\n")[2])
        (given,) = written["devices"]
        assert given["containerEdits"]["deviceNodes"] == [
            {"path": "/dev/device", "hostPath": "/dev/zero", "permissions": "r"}
        ]

        stage.applied(LIMITED)  # it waits, as there is one device
        await gone(stage, "claiming")
        await runs(stage, "limited")
        (other,) = claim_files(cdi)
        assert other != file
        await gone(stage, "limited")
        assert claim_files(cdi) == []
        assert [one.claims for one in serving.statuses()[0].devices] == [()]
    assert shown(stage, "resourceslices")["items"], "the next daemon goes on with the slices"


async def test_a_container_that_restarts_gets_the_node_that_its_device_has_then(
    stage: Stage, short_dir: Path
) -> None:
    cdi = short_dir / "cdi"
    cdi.mkdir()
    device = link(short_dir / "by-id" / "one", "/dev/zero")
    text = CONFIG.format(serve="serve: dra").replace("/dev/zero", f"{short_dir}/by-id/one")
    owned = text.replace("permissions: r", 'strategy: cdi, mode: "0640", owner: {uid: 7, gid: 8}')
    folder = stage.place.folder / "nodes" / "worker-0" / "device-plugins"
    held = {"path": "/dev/device", "permissions": "rw", "uid": 7, "gid": 8, "fileMode": 0o640}

    def given() -> object:
        (file,) = cdi.glob("[!.]*")  # the resource has none of its own
        (only,) = json.loads(file.read_text().partition("\n")[2])["devices"]
        return only["containerEdits"]["deviceNodes"]

    async with serve_config(load(owned, "c.yaml"), plugin_dir=folder, cdi_folder=cdi) as serving:
        await serving.wait_registered()
        stage.applied(CLAIM)
        await runs(stage, "claiming")
        assert given() == [held | {"hostPath": "/dev/zero"}], "CDI follows no link"
        device.unlink()
        await until(lambda: given() == [held | {"hostPath": UNPLUGGED_PATH}])
        device.symlink_to("/dev/full")
        await until(lambda: given() == [held | {"hostPath": "/dev/full"}])
        device.unlink()
        await until(lambda: given() == [held | {"hostPath": UNPLUGGED_PATH}])
    device.symlink_to("/dev/zero")
    async with serve_config(load(owned, "c.yaml"), plugin_dir=folder, cdi_folder=cdi):
        await until(lambda: given() == [held | {"hostPath": "/dev/zero"}])
        await gone(stage, "claiming")
        assert list(cdi.iterdir()) == []


SEVERAL = """
version: 1
driver: devices.example.com
resources:
  - name: example.com/zero
    serve: dra
    discover: {{path: {folder}/by-id/*}}
    expose: {{containerPath: "/dev/device{{index}}"}}
"""
MAPPED = """
apiVersion: v1
kind: Pod
metadata: {name: mapped}
spec:
  terminationGracePeriodSeconds: 1
  initContainers: [{name: first, image: busybox, resources: {limits: {example.com/zero: 2}}}]
  containers:
    - {name: one, image: busybox, resources: {limits: {example.com/zero: 1}}}
    - {name: two, image: busybox, resources: {limits: {example.com/zero: 1}}}
"""
TWICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: zero}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: zero.example.com}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: twice}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims:
    - {name: left, resourceClaimTemplateName: zero}
    - {name: right, resourceClaimTemplateName: zero}
  containers: [{name: c, image: busybox, resources: {claims: [{name: left}, {name: right}]}}]
"""


def claimed_nodes(cdi: Path) -> dict[str, dict[str, str]]:
    """Return the nodes of each request of each claim, by claim and request."""
    found: dict[str, dict[str, str]] = {}
    for file in claim_files(cdi):
        content = file.read_bytes()
        use = read_file(content)
        assert use is not None
        spec = json.loads(content.partition(b"\n")[2])
        edits = {f"{spec['kind']}={one['name']}": one["containerEdits"] for one in spec["devices"]}
        for device in use.devices:
            for name in device.cdi_names:
                nodes = {one["path"]: one["hostPath"] for one in edits[name]["deviceNodes"]}
                found.setdefault(f"{use.name}/{device.request}", {}).update(nodes)
    return found


async def test_a_container_gets_each_device_of_its_requests_and_claims(stage: Stage, short_dir: Path) -> None:
    """An init container has the requests of those after it (D91); a template may be named twice."""
    cdi = short_dir / "cdi"
    cdi.mkdir()
    for name in ("zero", "full"):
        link(short_dir / "by-id" / name, f"/dev/{name}")
    folder = stage.place.folder / "nodes" / "worker-0" / "device-plugins"
    config = load(SEVERAL.format(folder=short_dir), "c.yaml")
    both = [("/dev/device0", "/dev/full"), ("/dev/device1", "/dev/zero")]
    async with serve_config(config, plugin_dir=folder, cdi_folder=cdi) as serving:
        await serving.wait_registered()
        stage.applied(MAPPED)
        await runs(stage, "mapped")
        status = shown(stage, "pod", "mapped")["status"]["extendedResourceClaimStatus"]
        of_requests, claim = claimed_nodes(cdi), status["resourceClaimName"]
        given: dict[str, dict[str, str]] = {}
        for one in status["requestMappings"]:
            nodes = of_requests[f"{claim}/{one['requestName']}"]
            given.setdefault(one["containerName"], {}).update(nodes)
        assert sorted(given["first"].items()) == both
        assert sorted([*given["one"].items(), *given["two"].items()]) == both
        await gone(stage, "mapped")

        stage.applied(TWICE)
        await runs(stage, "twice")
        paths = [path for of_claim in claimed_nodes(cdi).values() for path in of_claim]
        assert sorted(paths) == ["/dev/device0", "/dev/device1"]
        await gone(stage, "twice")


async def device_told(socket: Path, claim: Callable[[DeviceStatus], object]) -> DeviceStatus:
    """The first status of the device, from the daemon, of which the claim is true."""
    async with lines(UnixAddress(str(socket)), "/status?watch=1") as documents:
        async for document in documents:
            for resource in process_of(document).resources:
                for device in resource.devices:
                    if claim(device):
                        return device
    raise AssertionError


async def test_the_daemon_tells_which_container_has_a_device_by_which_claim(
    stage: Stage, short_dir: Path
) -> None:
    cdi = short_dir / "cdi"
    cdi.mkdir()
    node = stage.place.node("worker-0")
    config = load(CONFIG.format(serve="serve: dra"), "c.yaml")
    async with serve_config(
        config, plugin_dir=node.plugin_dir, pod_resources=node.pod_resources_socket, cdi_folder=cdi
    ):
        await until(lambda: list(node.plugin_dir.glob(STATUS_SOCKETS)))
        (socket,) = node.plugin_dir.glob(STATUS_SOCKETS)
        stage.applied(CLAIM)
        told = await device_told(socket, lambda one: one.holders)
        assert [(one.name, one.request) for one in told.claims] == [("one", "r")]
        assert told.holders == (Holder("default", "claiming", "c"),)
        seen = await collected(node.plugin_dir, node.pod_resources_socket, node_name="worker-0")
        assert [one.devices for one in seen.resources] == [(told,)]
        metrics = (await get(UnixAddress(str(socket)), "/metrics")).body.decode().splitlines()
        assert 'devplug_claim_prepares_total{driver="devices.example.com",result="prepared"} 1' in metrics
        assert 'devplug_claims{driver="devices.example.com"} 1' in metrics
        claimed = 'resource="example.com/zero",device="zero",namespace="default",claim="one",request="r"'
        assert f"devplug_device_claimed{{{claimed}}} 1" in metrics

        with_nobody = short_dir / "empty"  # as if the daemon were away
        (with_nobody / "plugins").mkdir(parents=True)
        (with_nobody / "plugins" / DRIVER).symlink_to(node.plugin_dir.parent / "plugins" / DRIVER)
        (with_nobody / "device-plugins").mkdir()
        seen = await collected(
            with_nobody / "device-plugins", node.pod_resources_socket, node_name="worker-0"
        )
        assert [(one.name, one.fault) for one in seen.resources] == [(DRIVER, UNANSWERED)]

        await gone(stage, "claiming")
        told = await device_told(socket, lambda one: not one.claims)
        assert (told.holders, told.is_held) == ((), False)


async def test_a_device_moves_to_claims_and_back_only_when_no_container_holds_it(
    stage: Stage, short_dir: Path
) -> None:
    cdi, file = short_dir / "cdi", short_dir / "c.yaml"
    cdi.mkdir()
    file.write_text(CONFIG.format(serve=""))
    look_again = asyncio.Event()
    folder = stage.place.folder / "nodes" / "worker-0" / "device-plugins"

    def allocatable() -> str | None:
        status = shown(stage, "node", "worker-0")["status"]["allocatable"]
        return None if status.get("example.com/zero") is None else str(status["example.com/zero"])

    def published() -> list[str]:
        slices = shown(stage, "resourceslices")["items"]
        return [device["name"] for one in slices for device in one["spec"].get("devices", ())]

    async with serve_config(
        load(file.read_text(), "c.yaml"),
        plugin_dir=folder,
        file=file,
        look_again=look_again,
        cdi_folder=cdi,
    ) as serving:
        await shows(lambda: allocatable() == "1")
        assert published() == []
        file.write_text(CONFIG.format(serve="serve: dra"))
        look_again.set()
        await shows(published)

        stage.applied(CLAIM)
        await runs(stage, "claiming")
        file.write_text(CONFIG.format(serve=""))
        look_again.set()
        await until(lambda: len(serving.statuses()) == 2)
        await until(lambda: [one.health for one in serving.statuses()[1].devices] == ["Unhealthy"])
        assert claim_files(cdi)
        assert allocatable() == "0"
        await gone(stage, "claiming")
        await shows(lambda: allocatable() == "1")
        assert claim_files(cdi) == []
        await shows(lambda: not published())


async def test_an_edit_of_a_resource_that_is_served_by_claims_leaves_its_slices_alone(
    stage: Stage, short_dir: Path
) -> None:
    cdi, file = short_dir / "cdi", short_dir / "c.yaml"
    cdi.mkdir()
    text = CONFIG.format(serve="serve: dra")
    file.write_text(text)
    look_again = asyncio.Event()
    folder = stage.place.folder / "nodes" / "worker-0" / "device-plugins"
    async with serve_config(
        load(text, "c.yaml"), plugin_dir=folder, file=file, look_again=look_again, cdi_folder=cdi
    ) as serving:
        await serving.wait_registered()
        (before,) = shown(stage, "resourceslices")["items"]
        (old,) = serving.plugins
        file.write_text(text.replace("/dev/device", "/dev/other"))
        look_again.set()
        await until(lambda: serving.plugins and serving.plugins[0] is not old)
        stage.applied(CLAIM)
        await runs(stage, "claiming")
        (written,) = claim_files(cdi)
        assert '"/dev/other"' in written.read_text()
        assert shown(stage, "resourceslices")["items"] == [before]
        await gone(stage, "claiming")


class Fpga(DevicePlugin):
    resource_name = "example.com/zero"

    def __init__(self) -> None:
        self.released: list[str] = []

    async def devices(self) -> list[Device]:
        return [Device("a", attributes={"slots": 2}), Device("b", attributes={"slots": 4})]

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        return ContainerResponse(envs={"FPGAS": ",".join(device.id for device in devices)})

    async def release(self, devices: Sequence[Device], /) -> None:
        self.released += [device.id for device in devices]


async def test_a_request_of_a_claim_is_answered_by_the_code_that_answers_allocate(
    stage: Stage, short_dir: Path
) -> None:
    cdi = short_dir / "cdi"
    cdi.mkdir()
    plugin = Fpga()
    folder = stage.place.folder / "nodes" / "worker-0" / "device-plugins"
    async with served(plugin, plugin_dir=folder, dra="devices.example.com", cdi_folder=cdi) as serving:
        await serving.wait_registered()
        stage.applied(
            CLAIM.replace("deviceClassName: zero.example.com", "deviceClassName: zero.example.com, count: 2")
        )
        await runs(stage, "claiming")
        (file,) = claim_files(cdi)
        written = json.loads(file.read_text().partition("\n")[2])
        (given,) = written["devices"]
        assert given["containerEdits"] == {"env": ["FPGAS=a,b"]}
        assert plugin.released == []
        assert [one.is_held for one in serving.statuses()[0].devices] == [True, True]
        await gone(stage, "claiming")
        assert sorted(plugin.released) == ["a", "b"]
        assert [one.is_held for one in serving.statuses()[0].devices] == [False, False]


EVICTING = CONFIG.replace("{serve}", "serve: dra\n    whenUnhealthy: evict")
EDITS_AWAY = {
    "renamed": EVICTING.format().replace("example.com/zero", "example.com/other"),
    "a device plugin": CONFIG.format(serve=""),
}


@pytest.mark.parametrize("edited", EDITS_AWAY.values(), ids=EDITS_AWAY)
async def test_no_edit_evicts_the_pod_of_a_claim(stage: Stage, short_dir: Path, edited: str) -> None:
    """The device is for no new pods then; `whenUnhealthy: evict` is for devices that fail."""
    cdi, file = short_dir / "cdi", short_dir / "c.yaml"
    cdi.mkdir()
    file.write_text(EVICTING.format())
    look_again = asyncio.Event()
    folder = stage.place.folder / "nodes" / "worker-0" / "device-plugins"

    def effects() -> set[str]:
        slices = shown(stage, "resourceslices")["items"]
        devices = [device for one in slices for device in one["spec"].get("devices", ())]
        return {taint["effect"] for device in devices for taint in device.get("taints", ())}

    async with serve_config(
        load(file.read_text(), "c.yaml"), plugin_dir=folder, file=file, look_again=look_again, cdi_folder=cdi
    ) as serving:
        await serving.wait_registered()
        stage.applied(CLAIM)
        await runs(stage, "claiming")
        file.write_text(edited)
        look_again.set()
        await shows(effects)
        assert effects() == {"NoSchedule"}
        assert "deletionTimestamp" not in shown(stage, "pod", "claiming")["metadata"]


OWNED = """
version: 1
driver: devices.example.com
resources:
  - {{name: {first}, {serve} discover: {{path: "{link}"}}}}
  - {{name: {second}, serve: dra, discover: {{path: "{node}*"}}}}
"""


@needs_mknod
@pytest.mark.parametrize(
    ("serve", "is_restarted"),
    [
        pytest.param("", True, id="a device plugin, restart"),
        pytest.param("", False, id="a device plugin, edit", marks=pytest.mark.nightly),
        pytest.param("serve: dra,", False, id="claims, edit"),
        pytest.param("serve: dra,", True, id="claims, restart", marks=pytest.mark.nightly),
    ],
)
async def test_no_resource_offers_what_a_claim_uses(
    stage: Stage, short_dir: Path, serve: str, *, is_restarted: bool
) -> None:
    """Rules 1 and 2 of ownership: a resource that comes later, even first in the file, does not get it."""
    cdi, file, node = short_dir / "cdi", short_dir / "c.yaml", char_node(short_dir / "node0")
    cdi.mkdir()
    second, other = "example.com/zero", link(short_dir / "by-id" / "other", node)
    before = OWNED.format(first="example.com/none", second=second, serve="", node=node, link="/dev/nothing")
    after = OWNED.format(first="example.com/other", second=second, serve=serve, node=node, link=other)
    file.write_text(before)
    look_again = asyncio.Event()
    folder = stage.place.folder / "nodes" / "worker-0" / "device-plugins"

    def withheld(serving: Serving) -> str:
        (other,) = (one for one in serving.plugins if one.resource_name == "example.com/other")
        assert isinstance(other, ConfiguredPlugin)
        return "".join(other.withheld.values())

    async def applied(serving: Serving) -> None:
        await until(lambda: any(one.resource_name == "example.com/other" for one in serving.plugins))
        await until(lambda: withheld(serving))
        assert withheld(serving) == "held as example.com/zero node0 by ResourceClaim default/one"
        assert [status.devices for status in serving.statuses() if status.name == "example.com/other"] == [()]

    async with AsyncExitStack() as daemon:
        serving = await daemon.enter_async_context(
            serve_config(
                load(before, "c.yaml"), plugin_dir=folder, file=file, look_again=look_again, cdi_folder=cdi
            )
        )
        await serving.wait_registered()
        stage.applied(CLAIM)
        await runs(stage, "claiming")
        file.write_text(after)
        if is_restarted:
            await daemon.aclose()
            serving = await daemon.enter_async_context(
                serve_config(load(after, "c.yaml"), plugin_dir=folder, cdi_folder=cdi)
            )
        else:
            look_again.set()
        await applied(serving)
        await gone(stage, "claiming")
        await until(lambda: not withheld(serving))
