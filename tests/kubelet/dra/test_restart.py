"""What becomes of claims when the kubelet restarts, crashes, or does not know its pods: real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from devplug.errors import KubeletError
from devplug.kubelet.pods import ContainerState
from devplug.wire.dra import ClaimName, PreparedClaim
from tests.kubelet.dra_driver import DRIVER, NAMESPACE, FakeCluster, FakeDriver, pod, running, state_of
from tests.virtualtime import now, passes


async def test_after_a_restart_a_running_pod_is_left_alone_and_a_new_one_prepares_again(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D24, D25."""
    cluster.add("a", "u", "v")
    async with running(short_dir, cluster) as kubelet, FakeDriver(short_dir).registered() as driver:
        await kubelet.run_pod(pod("u", "a"))
        before = (short_dir / "dra_manager_state").read_bytes()
        await kubelet.restart()
        await driver.told(2)
        assert (short_dir / "dra_manager_state").read_bytes() == before
        assert len(driver.called("NodePrepareResources")) == 1
        await kubelet.run_pod(pod("v", "a"))
        assert len(driver.called("NodePrepareResources")) == 2
        assert len(kubelet.dra.claims.claims[NAMESPACE, "a"].devices[DRIVER]) == 2
        assert len(kubelet.container_config("v", "c").cdi_devices) == 2


async def test_after_a_reboot_claims_are_prepared_again_before_their_container_starts(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D14, D24, D25: a new sandbox has them prepared; a start alone calls nobody, and gives what was kept."""
    cluster.add("a", "u")
    async with running(short_dir, cluster) as kubelet, FakeDriver(short_dir).registered() as driver:
        await kubelet.run_pod(pod("u", "a"))
        (device,) = kubelet.container_config("u", "c").cdi_devices
        await kubelet.restart(reboot=True)
        await driver.told(2)
        assert kubelet.pod("u").container("c").state is ContainerState.TERMINATED
        again = await kubelet.start_container("u", "c")
        assert (again.state, again.restart_count) == (ContainerState.RUNNING, 1)
        assert kubelet.container_config("u", "c").cdi_devices == (device,)
        assert len(driver.called("NodePrepareResources")) == 1
        assert await kubelet.dra.try_prepare(pod("u", "a"))
        assert len(driver.called("NodePrepareResources")) == 2
        kubelet.end_container("u", "c")
        await kubelet.start_container("u", "c")
        assert kubelet.container_config("u", "c").cdi_devices == (device, device)


async def test_after_a_reboot_a_pod_without_its_driver_waits(short_dir: Path, cluster: FakeCluster) -> None:
    """D18, D20, D24: it is admitted all the same, as drivers are asked only then."""
    cluster.add("a", "u")
    async with running(short_dir, cluster) as kubelet:
        async with FakeDriver(short_dir).registered():
            await kubelet.run_pod(pod("u", "a"))
        await kubelet.restart(reboot=True)
        assert not kubelet.pod("u").is_terminal
        assert not await kubelet.dra.try_prepare(pod("u", "a"))
        assert kubelet.events[-1].message.endswith(f"DRA driver {DRIVER} is not registered")
        async with FakeDriver(short_dir).registered() as driver:
            await driver.told()
            assert await kubelet.dra.try_prepare(pod("u", "a"))
            assert (await kubelet.start_container("u", "c")).state is ContainerState.RUNNING


async def test_a_crash_between_the_two_writes_loses_no_claim(short_dir: Path, cluster: FakeCluster) -> None:
    """D15, D28, D29: the pod is gone, and the reconcile loop has the driver let go."""
    cluster.add("a", "u")
    is_asked = asyncio.Event()

    async def prepare(_: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with (
        running(short_dir, cluster) as kubelet,
        FakeDriver(short_dir, on_prepare=prepare).registered() as driver,
        asyncio.TaskGroup() as tasks,
    ):
        starting = tasks.create_task(kubelet.run_pod(pod("u", "a")))
        await is_asked.wait()
        starting.cancel()
        kubelet.remove_pod("u")
        await kubelet.restart()
        assert state_of(short_dir)[0]["DriverState"] == {DRIVER: {"Devices": None}}
        began = now()
        await driver.wait(lambda: driver.called("NodeUnprepareResources"))
        assert now() - began == pytest.approx(60, abs=1)
        await kubelet.wait(lambda: not kubelet.dra.claims.claims)


async def test_a_pod_that_vanished_is_unprepared_in_a_minute(short_dir: Path, cluster: FakeCluster) -> None:
    """D26, D28."""
    cluster.add("a", "u")
    async with running(short_dir, cluster) as kubelet, FakeDriver(short_dir).registered() as driver:
        await kubelet.run_pod(pod("u", "a"))
        kubelet.remove_pod("u")
        await driver.wait(lambda: driver.called("NodeUnprepareResources"))
        assert 0 < now() <= 61


async def test_nothing_is_unprepared_before_all_pods_are_known(short_dir: Path, cluster: FakeCluster) -> None:
    """D28: a kubelet that starts without the API server does not know who is gone."""
    cluster.add("a", "u")
    async with running(short_dir, cluster) as kubelet, FakeDriver(short_dir).registered() as driver:
        await kubelet.run_pod(pod("u", "a"))
        kubelet.lose_api_server()
        await kubelet.restart()
        await passes(200)
        assert driver.called("NodeUnprepareResources") == []
        await kubelet.find_api_server()
        await passes(200)
        assert driver.called("NodeUnprepareResources") == []
        assert kubelet.dra.claims.names_of("u") == ("a",)


async def test_a_damaged_state_file_ends_the_kubelet(short_dir: Path, cluster: FakeCluster) -> None:
    """D29; one that is missing is made."""
    async with running(short_dir / "new", cluster):
        assert '"ClaimInfoStateList\\":null' in (short_dir / "new" / "dra_manager_state").read_text()
    (short_dir / "dra_manager_state").write_text('{"Data":"{}","Checksum":1}')
    with pytest.raises(KubeletError, match="drain node and remove DRA state file, err: checkpoint is"):
        await running(short_dir, cluster).__aenter__()
