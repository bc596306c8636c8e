"""The claims of pods are prepared and unprepared: real sockets, and a clock that costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from devplug.errors import RemoteError
from devplug.kubelet.claim_references import ContainerClaim, ExtendedClaim, PodClaim, RequestMapping
from devplug.kubelet.dra import claim_cache
from devplug.kubelet.dra.claim_objects import ClaimError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, ContainerState, Pod, PodPhase
from devplug.wire.dra import ClaimName, PreparedClaim, PreparedDevice
from devplug.wire.podresources import GET, LIST
from devplug.wire.sockets import connected
from devplug.wire.values import PodName
from tests.kubelet.dra_driver import DRIVER, NAMESPACE, FakeCluster, FakeDriver, pod, running, state_of
from tests.virtualtime import now


def warnings(kubelet: Kubelet) -> list[str]:
    assert all(event.reason == "FailedPrepareDynamicResources" for event in kubelet.events)
    prefix = "Failed to prepare dynamic resources: prepare dynamic resources: "
    return [event.message.removeprefix(prefix) for event in kubelet.events]


# ── prepare and unprepare ─────────────────────────────────────────────────────────────────────────


async def test_claims_are_prepared_before_any_container_starts(short_dir: Path, cluster: FakeCluster) -> None:
    """D14, D15, D29: both writes of the file, before the call and after it."""
    cluster.add("a", "u")
    seen: list[object] = []

    async def prepare(claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        seen.append((kubelet.pod("u").containers[0].state, state_of(short_dir)[0]["DriverState"]))
        return {claim.uid: PreparedClaim((driver.device(claim),)) for claim in claims}

    driver = FakeDriver(short_dir, on_prepare=prepare)
    async with running(short_dir, cluster) as kubelet, driver.registered():
        status = await kubelet.run_pod(pod("u", "a"))
        assert seen == [(ContainerState.WAITING, {DRIVER: {"Devices": None}})]
        assert status.phase is PodPhase.RUNNING
        assert state_of(short_dir)[0]["PodUIDs"] == {"u": {}}
        assert (
            claim_cache.decode((short_dir / "dra_manager_state").read_bytes()).claims[NAMESPACE, "a"].devices
        )
        config = kubelet.container_config("u", "c")
        assert config.cdi_devices == ("example.com/claim=uid-a-gpu-0",)
        await kubelet.start_container("u", "c")
        assert driver.called("NodePrepareResources") == [("uid-a",)]


async def test_a_container_gets_the_devices_of_its_requests_and_dra_s_come_first(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D22, D31: by the exact text of the request, and some twice."""
    cluster.add("a", "u")

    async def prepare(claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        devices = tuple(driver.device(claims[0], name, name) for name in ("x", "y"))
        return {claims[0].uid: PreparedClaim(devices)}

    driver = FakeDriver(short_dir, on_prepare=prepare)
    async with running(short_dir, cluster) as kubelet, driver.registered():
        await kubelet.run_pod(pod("u", "a", requests=("y", "")))
        names = kubelet.container_config("u", "c").cdi_devices
        assert [name[-1] for name in names] == ["y", "x", "y"]


async def test_two_pods_share_a_claim_that_is_prepared_once_and_unprepared_with_the_last(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D23."""
    cluster.add("a", "u", "v")
    async with running(short_dir, cluster) as kubelet, FakeDriver(short_dir).registered() as driver:
        for uid in ("u", "v"):
            await kubelet.run_pod(pod(uid, "a"))
        assert driver.called("NodePrepareResources") == [("uid-a",)]
        await kubelet.dra.unprepare(pod("u", "a"))
        assert driver.called("NodeUnprepareResources") == []
        await kubelet.dra.unprepare(pod("v", "a"))
        assert driver.called("NodeUnprepareResources") == [("uid-a",)]
        assert state_of(short_dir) == []
        await kubelet.dra.unprepare(pod("v", "a"))
        assert len(driver.called("NodeUnprepareResources")) == 1


@pytest.mark.parametrize(
    ("add", "text"),
    [
        (None, 'fetch ResourceClaim a: resourceclaims.resource.k8s.io "a" not found'),
        ("other", "pod u (u) is not allowed to use ResourceClaim a (uid-a)"),
        ("u", f"DRA driver {DRIVER} is not registered"),
    ],
)
async def test_a_pod_that_fails_before_any_call_leaves_no_trace(
    short_dir: Path, cluster: FakeCluster, add: str | None, text: str
) -> None:
    """D15, D18, D19, D20."""
    if add is not None:
        cluster.add("a", add)
    async with running(short_dir, cluster) as kubelet:
        status = await kubelet.run_pod(pod("u", "a"))
        assert status.phase is PodPhase.PENDING
        assert status.containers[0].state is ContainerState.WAITING
        assert (warnings(kubelet), kubelet.dra.claims.claims) == ([text], {})
        await kubelet.dra.unprepare(pod("u", "a"))
        kubelet.remove_pod("u")


async def test_a_claim_that_was_allocated_anew_is_prepared_by_the_drivers_that_it_had(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D20: the cache decides who is called; a driver that is away meanwhile is told."""
    cluster.add("a", "u")
    async with running(short_dir, cluster) as kubelet, FakeDriver(short_dir).registered():
        await kubelet.run_pod(pod("u", "a"))
    cluster.add("a", "u", drivers=())
    async with running(short_dir, cluster) as kubelet:
        with pytest.raises(ClaimError, match=f"DRA driver {DRIVER} is not registered"):
            await kubelet.dra.prepare(pod("u", "a"))


async def test_a_failure_is_over_with_the_next_attempt(short_dir: Path, cluster: FakeCluster) -> None:
    """D18, D24: the driver is asked again for all that was not prepared."""
    cluster.add("a", "u")
    answers: list[PreparedClaim | Exception] = [
        RemoteError("Internal", "driver says no"),
        PreparedClaim(error="on fire"),
        PreparedClaim((PreparedDevice("p", "d"),)),
    ]

    async def prepare(claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {claims[0].uid: answer}

    async with running(short_dir, cluster) as kubelet, FakeDriver(short_dir, on_prepare=prepare).registered():
        await kubelet.run_pod(pod("u", "a"))
        assert not await kubelet.dra.try_prepare(pod("u", "a"))
        assert await kubelet.dra.try_prepare(pod("u", "a"))
        assert warnings(kubelet) == [
            "NodePrepareResources: rpc error: code = Internal desc = driver says no",
            "NodePrepareResources failed for ResourceClaim a: on fire",
        ]


async def test_a_driver_that_does_not_answer_is_given_up_after_45_seconds(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D17: of the kubelet's clock, so the test costs nothing."""
    cluster.add("a", "u")

    async def prepare(_: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        await asyncio.Event().wait()
        raise AssertionError

    async with running(short_dir, cluster) as kubelet, FakeDriver(short_dir, on_prepare=prepare).registered():
        began = now()
        await kubelet.run_pod(pod("u", "a"))
        assert now() - began == pytest.approx(45, abs=0.1)
        text = "NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
        assert warnings(kubelet) == [text]


async def test_an_unprepare_that_fails_is_no_event_and_keeps_the_claim(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D27."""
    cluster.add("a", "u")
    texts = ["cannot let go", ""]

    async def unprepare(claims: Sequence[ClaimName]) -> Mapping[str, str]:
        return {claims[0].uid: texts.pop(0)}

    async with (
        running(short_dir, cluster) as kubelet,
        FakeDriver(short_dir, on_unprepare=unprepare).registered(),
    ):
        await kubelet.run_pod(pod("u", "a"))
        with pytest.raises(ClaimError) as caught:
            await kubelet.dra.unprepare(pod("u", "a"))
        assert str(caught.value) == (
            "unprepare dynamic resources: NodeUnprepareResources failed for ResourceClaim a: cannot let go"
        )
        assert len(state_of(short_dir)) == 1
        await kubelet.dra.unprepare(pod("u", "a"))
        assert not state_of(short_dir)
        assert not kubelet.events


async def test_the_claim_for_extended_resources_is_prepared_last_and_shown_to_its_containers(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D15, D40."""
    for name in ("a", "u-extended-resources-x"):
        cluster.add(name, "u")
    extended = ExtendedClaim("u-extended-resources-x", (RequestMapping("d", "example.com/gpu", "gpu"),))
    both = Pod(
        "u",
        "u",
        NAMESPACE,
        containers=(Container("c", claims=(ContainerClaim("a"),)), Container("d", {"example.com/gpu": 1})),
        extended_claim=extended,
        resource_claims=(PodClaim("a", "a"),),
    )
    async with running(short_dir, cluster) as kubelet, FakeDriver(short_dir).registered() as driver:
        await kubelet.run_pod(both)
        assert driver.called("NodePrepareResources") == [("uid-a", "uid-u-extended-resources-x")]
        async with connected(short_dir / "pod-resources" / "kubelet.sock") as monitor:
            shown = await monitor.call(GET, PodName("u", NAMESPACE))
        assert [[one.claim_name for one in each.dynamic_resources] for each in shown.containers] == [
            ["a"],
            ["u-extended-resources-x"],
        ]
        assert kubelet.container_config("u", "d").cdi_devices == (
            "example.com/claim=uid-u-extended-resources-x-gpu-0",
        )


@pytest.mark.parametrize(("compat", "counts"), [(True, [1, 2]), (False, [1, 1])])
async def test_monitors_see_all_devices_of_a_claim_with_names_piled_up_as_in_1_36(
    short_dir: Path, cluster: FakeCluster, compat: bool, counts: list[int]
) -> None:
    """D38, D39."""
    cluster.add("a", "u")

    async def prepare(claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        return {claims[0].uid: PreparedClaim(tuple(driver.device(claims[0], name, name) for name in "xy"))}

    driver = FakeDriver(short_dir, on_prepare=prepare)
    async with running(short_dir, cluster, compat=compat) as kubelet, driver.registered():
        await kubelet.run_pod(pod("u", "a", requests=("x",)))
        async with connected(short_dir / "pod-resources" / "kubelet.sock") as monitor:
            (shown,) = await monitor.call(LIST, None)
        (claim,) = shown.containers[0].dynamic_resources
        assert [len(one.cdi_devices) for one in claim.claim_resources] == counts
        assert [one.device_name for one in claim.claim_resources] == ["x", "y"]
        other = pod("u", "a", "unknown")
        assert kubelet.dra.dynamic_resources(other, other.containers[0]) == ()


async def test_drivers_are_called_by_name_and_the_first_error_ends_the_attempt(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D15, D25: what an earlier driver has prepared is asked of it again, and kept twice as in 1.36."""
    cluster.add("a", "u", drivers=("b.example", "a.example"))
    errors = ["no", ""]

    async def prepare(claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        return {claims[0].uid: PreparedClaim(error=errors.pop(0))}

    first, second = FakeDriver(short_dir, "a.example"), FakeDriver(short_dir, "b.example", on_prepare=prepare)
    async with running(short_dir, cluster) as kubelet, first.registered(), second.registered():
        await kubelet.run_pod(pod("u", "a"))
        assert warnings(kubelet) == ["NodePrepareResources failed for ResourceClaim a: no"]
        assert await kubelet.dra.try_prepare(pod("u", "a"))
        assert len(first.called("NodePrepareResources")) == len(second.called("NodePrepareResources")) == 2
        devices = kubelet.dra.claims.claims[NAMESPACE, "a"].devices
        assert {name: len(found) for name, found in devices.items()} == {"a.example": 2, "b.example": 0}


# ── metrics ───────────────────────────────────────────────────────────────────────────────────────


async def test_operations_calls_and_claims_are_counted(short_dir: Path, cluster: FakeCluster) -> None:
    """D30."""
    cluster.add("a", "u")
    async with running(short_dir, cluster) as kubelet, FakeDriver(short_dir).registered():
        await kubelet.run_pod(pod("u", "a"))
        metrics = kubelet.metrics
        call = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
        labels = {"driver_name": DRIVER, "method_name": call, "grpc_status_code": "OK"}
        assert metrics.value("dra_grpc_operations_duration_seconds_count", **labels) == 1
        operation = {"operation_name": "PrepareResources", "is_error": "false"}
        assert metrics.value("dra_operations_duration_seconds_count", **operation) == 1
        assert metrics.value("dra_resource_claims_in_use", driver_name="<any>") == 1
        await kubelet.run_pod(pod("v", "a"))
        operation["is_error"] = "true"
        assert metrics.value("dra_operations_duration_seconds_count", **operation) == 1
