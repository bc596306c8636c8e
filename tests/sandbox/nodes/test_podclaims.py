"""Pods with claims on a node of the sandbox, with a driver on real sockets; the clock is the loop's.

The scheduler's and the controllers' part is done by hand: claims are written allocated and reserved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from devplug.errors import KubeletError
from devplug.sandbox.nodes.podclaims import NodeClaims
from devplug.sandbox.registry import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from devplug.wire.dra import ClaimName, DeviceHealthReport, HealthWord, PreparedClaim
from tests.kubelet.dra_driver import DRIVER
from tests.sandbox.nodes.beds import WORKER, FakeRuntime, container, manifest
from tests.sandbox.nodes.drabeds import OTHER, claim, cluster, lab, node_time, slice_of, using
from tests.sandbox.nodes.test_staticpods import write
from tests.virtualtime import now, on_virtual_time, passes

anyio_backend = on_virtual_time


def conditions(pod: Any) -> dict[str, str]:
    return {one["type"]: one["status"] for one in pod["status"]["conditions"]}


async def test_claims_are_prepared_once_before_the_first_container_of_a_pod(short_dir: Path) -> None:
    """D14, D31: restarts in a living sandbox call nobody, and the runtime gets the CDI names."""
    runtime = FakeRuntime(time=node_time)
    async with lab(short_dir, runtime=runtime) as it, it.driver.registered():
        app = container(image="mapped", resources={"claims": [{"name": "d"}]})
        uid = it.start("a", app)["metadata"]["uid"]
        pod = await it.running("a")
        assert pod["status"]["containerStatuses"][0]["resources"] == {"claims": [{"name": "d"}]}
        claim_uid = it.uid_of("a")
        assert it.driver.called("NodePrepareResources") == [(claim_uid,)]
        description: Any = it.agent.description()
        [described] = description["claims"]
        assert (described["name"], described["used_by"]) == ("a", ["default/a"])
        [driver] = described["drivers"]
        [device] = driver["devices"]
        assert (driver["name"], device["device"]) == (DRIVER, "gpu-0")
        assert device["cdi_devices"] == [f"example.com/claim={claim_uid}-gpu-0"]
        assert runtime.orders[0].config.cdi_devices == (f"example.com/claim={claim_uid}-gpu-0",)
        runtime.end(uid, "c", 1)
        await it.pod("a", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1)
        assert len(it.driver.called("NodePrepareResources")) == 1
        assert runtime.orders[1].config.cdi_devices == runtime.orders[0].config.cdi_devices


async def test_a_pod_whose_claims_cannot_be_prepared_waits_for_its_next_sync(short_dir: Path) -> None:
    """D18, D19: Pending, without a sandbox, with an event; the driver is asked again a minute later."""
    errors = ["device is on fire"]

    async def prepare(claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        error = errors.pop() if errors else ""
        devices = () if error else (it.driver.device(claims[0]),)
        return {claims[0].uid: PreparedClaim(devices, error)}

    async with lab(short_dir) as it, it.driver.registered():
        it.driver.on_prepare = prepare
        it.start("a")
        assert await it.held_back("a") == (
            "NodePrepareResources failed for ResourceClaim a: device is on fire"
        )
        begin = now()
        waits: Any = await it.pod("a", lambda pod: pod["status"].get("containerStatuses"))
        assert waits["status"]["phase"] == "Pending"
        assert waits["status"]["containerStatuses"][0]["state"] == {
            "waiting": {"reason": "ContainerCreating"}
        }
        assert conditions(waits)["PodReadyToStartContainers"] == "False"
        assert "podIP" not in waits["status"]
        running = await it.running("a")
        assert 60 <= now() - begin < 62
        assert conditions(running)["PodReadyToStartContainers"] == "True"
        assert [reason for _, reason, _ in it.events("a")].count("FailedPrepareDynamicResources") == 1


async def test_a_change_of_the_pod_has_its_claims_prepared_at_once(short_dir: Path) -> None:
    """D18: any other reason to sync the pod is faster than the periodic sync; D65: nobody allocates."""
    async with lab(short_dir) as it, it.driver.registered():
        it.registry.create(RESOURCE_CLAIMS, "default", claim("a"))
        uid = it.put(using("a"))["metadata"]["uid"]
        assert (await it.held_back("a")).startswith(f"pod a ({uid}) is not allowed to use ResourceClaim a (")
        it.reserve("a", "a")
        begin = now()
        await passes(5)
        assert it.get("a")["status"]["phase"] == "Pending"
        it.annotate("a", note="look")
        await it.running("a")
        assert now() - begin < 6


@pytest.mark.parametrize("comes_late", [False, True])
async def test_a_pod_whose_driver_is_away_waits_and_can_be_deleted(short_dir: Path, comes_late: bool) -> None:
    """D10, D18, D20: a driver that comes a second late costs the pod a minute; without a trace it may go."""
    async with lab(short_dir) as it:
        it.start("a")
        assert await it.held_back("a") == f"DRA driver {DRIVER} is not registered"
        if comes_late:
            async with it.driver.registered():
                await it.running("a")
                assert now() >= 60
                return
        it.registry.delete(PODS, "default", "a")
        await it.gone("a")
        assert now() < 5


async def test_a_claim_that_is_made_after_the_pod_came_is_prepared_all_the_same(short_dir: Path) -> None:
    """D60, D65: the controller names it in the pod's status, as the pod was bound by hand."""
    async with lab(short_dir) as it, it.driver.registered():
        template = {"name": "d", "resourceClaimTemplateName": "t"}
        it.put(manifest("a", container(resources={"claims": [{"name": "d"}]}), resourceClaims=[template]))
        assert await it.held_back("a") == 'pod "default/a": ResourceClaim not created yet'
        uid = it.get("a")["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid, "controller": True}
        made = claim("a-d-x")
        it.registry.create(
            RESOURCE_CLAIMS, "default", {**made, "metadata": {"name": "a-d-x", "ownerReferences": [owner]}}
        )
        it.reserve("a-d-x", "a")
        named = [{"name": "d", "resourceClaimName": "a-d-x"}]
        it.registry.set_status(
            PODS, "default", "a", {**it.get("a")["status"], "resourceClaimStatuses": named}
        )
        await it.running("a")
        (config,) = (it.kubelet.container_config(uid, "c"),)
        assert len(config.cdi_devices) == 1


async def test_the_health_of_a_claims_devices_stands_in_the_pods_status(short_dir: Path) -> None:
    """D33, D36, D37: the pod runs on."""
    async with lab(short_dir) as it:
        it.driver.has_health = True
        async with it.driver.registered():
            it.start("a")
            await it.running("a")
            await it.driver.wait(lambda: it.driver.open_streams)
            it.driver.report(
                [DeviceHealthReport("pool", "gpu-0", HealthWord.UNHEALTHY, message="fan stopped")]
            )
            pod = await it.pod("a", lambda pod: "fan stopped" in str(pod["status"]))
            (listed,) = pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
            assert listed == {
                "name": "claim:d",
                "resources": [
                    {
                        "resourceID": f"example.com/claim={it.uid_of('a')}-gpu-0",
                        "health": "Unhealthy",
                        "message": "fan stopped",
                    }
                ],
            }
            assert pod["status"]["phase"] == "Running"


async def test_the_slices_of_a_node_are_removed_when_its_kubelet_starts(short_dir: Path) -> None:
    """D12: of any driver, and those of other nodes stay."""
    registry = cluster()
    for name, driver, node_name in (("a", DRIVER, WORKER), ("b", OTHER, WORKER), ("c", DRIVER, "worker-1")):
        registry.create(RESOURCE_SLICES, "", slice_of(name, driver, node_name))
    async with lab(short_dir, registry) as it:
        await passes(0.1)
        assert it.slices() == ["c"]
        it.registry.create(RESOURCE_SLICES, "", slice_of("a"))
        await it.agent.restart_kubelet()
        await passes(0.1)
        assert it.slices() == ["c"]


async def test_the_slices_of_a_driver_are_removed_half_a_minute_after_it_went(short_dir: Path) -> None:
    """D11: those of other drivers stay."""
    async with lab(short_dir) as it:
        await passes(0.1)
        async with it.driver.registered():
            for name, driver in (("a", DRIVER), ("b", OTHER)):
                it.registry.create(RESOURCE_SLICES, "", slice_of(name, driver))
        begin = now()
        while it.slices() != ["b"]:
            await passes(0.5)
        assert 29 <= now() - begin <= 32


async def test_a_kubelet_without_an_api_server_reads_and_removes_nothing() -> None:
    """D12: it is tried again until the node is there."""
    registry = cluster()
    registry.create(RESOURCE_SLICES, "", slice_of("a"))
    away = NodeClaims(registry, WORKER, lambda: False)
    with pytest.raises(KubeletError, match="the API server is away"):
        await away.get_claim("default", "a")
    for ends in (away, NodeClaims(registry, WORKER, lambda: True)):
        with pytest.raises(KubeletError):
            await ends.remove_slices(None)
    registry.create(NODES, "", {"metadata": {"name": WORKER}})
    await NodeClaims(registry, WORKER, lambda: True).remove_slices(OTHER)
    assert len(registry.all(RESOURCE_SLICES)) == 1


async def test_a_restarted_kubelet_lets_a_pod_with_claims_run_on_and_end(short_dir: Path) -> None:
    """D24, D25: it reads its checkpoint; only a new sandbox has the driver prepare again."""
    async with lab(short_dir) as it, it.driver.registered():
        pod = it.start("a")
        await it.running("a")
        await it.agent.restart_kubelet()
        await it.driver.told(2)
        assert len(it.driver.called("NodePrepareResources")) == 1
        assert len(it.kubelet.container_config(pod["metadata"]["uid"], "c").cdi_devices) == 1
        await it.agent.reboot()
        await it.driver.told(3)
        await it.pod("a", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1)
        assert len(it.driver.called("NodePrepareResources")) == 2
        it.registry.delete(PODS, "default", "a")
        await it.gone("a")
        assert len(it.driver.called("NodeUnprepareResources")) == 1


async def test_a_restarted_kubelet_tries_a_waiting_pod_at_once(short_dir: Path) -> None:
    """D18, D19, D24: its start is a reason to sync every pod."""
    async with lab(short_dir) as it:
        it.put(using("a"))
        why = 'fetch ResourceClaim a: resourceclaims.resource.k8s.io "a" not found'
        assert await it.held_back("a") == why
        it.reserve("a", "a")
        await it.agent.restart_kubelet()
        await passes(0.1)
        assert it.events("a")[-1][2].endswith(f"DRA driver {DRIVER} is not registered")


async def test_a_static_pod_may_not_use_claims(short_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """D66."""
    (short_dir / "manifests").mkdir()
    async with lab(short_dir, manifests=short_dir / "manifests") as it:
        (short_dir / "manifests" / "a.yaml").write_text(json.dumps(using("a")))
        write(short_dir / "manifests", "b", container())
        await it.running("b-worker-0")
        assert it.registry.find(PODS, "default", "a-worker-0") is None
        (told,) = (one for one in caplog.records if one.name.endswith("staticpods"))
        assert "static pods may not reference resourceclaims" in str(told.__dict__["error"])
