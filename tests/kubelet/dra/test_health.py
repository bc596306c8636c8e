"""What DRA drivers tell of their devices' health is shown in pods' status, for a while: real sockets."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.dra import health as healths
from devplug.kubelet.dra.health import HealthCache
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import PodPhase
from devplug.wire.dra import ClaimName, DeviceHealthReport, HealthWord, PreparedClaim, PreparedDevice
from tests.kubelet.dra_driver import DRIVER, FakeCluster, FakeDriver, pod, running
from tests.virtualtime import now, passes


def health(
    name: str, word: int = HealthWord.HEALTHY, timeout: int = 0, message: str = ""
) -> DeviceHealthReport:
    return DeviceHealthReport("pool", name, word, 1, timeout, message)


def shown(kubelet: Kubelet, uid: str = "u") -> list[tuple[str, str]]:
    """Health and message of each device in the status of the pod's first container."""
    found = kubelet.pod(uid).containers[0].claims_health
    return [(one.health, one.message) for devices in found.values() for one in devices]


async def test_the_health_of_devices_is_shown_until_it_is_too_old(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D33, D34, D36: what is too old is shown as unknown with the next sync, for which nothing asks."""
    cluster.add("a", "u")
    async with (
        running(short_dir, cluster) as kubelet,
        FakeDriver(short_dir, has_health=True).registered() as driver,
    ):
        await kubelet.run_pod(pod("u", "a"))
        assert shown(kubelet) == [("Unknown", "")]
        await driver.wait(lambda: driver.open_streams)
        with kubelet.changes() as changes:
            driver.report([health("gpu-0", HealthWord.UNHEALTHY, 5, "fan stopped"), health("else")])
            async for change in changes:
                if change.kind is ChangeKind.HEALTH:
                    break
        assert kubelet.pod("u").containers[0].claims_health.keys() == {"claim:a"}
        assert shown(kubelet) == [("Unhealthy", "fan stopped")]
        written = json.loads((short_dir / "dra_health_state").read_text())[DRIVER]["Devices"]
        assert written["pool/gpu-0"]["HealthCheckTimeout"] == 5_000_000_000
        await passes(10)
        assert shown(kubelet) == [("Unhealthy", "fan stopped")]
        kubelet.dra.sync(pod("u", "a"))
        assert shown(kubelet) == [("Unknown", "")]


async def test_nothing_is_shown_of_a_pod_that_is_gone(short_dir: Path, cluster: FakeCluster) -> None:
    """D36: not even what a prepare that was under way finds, or a new pod of the same UID would show."""
    cluster.add("a", "u")
    called, may_answer = asyncio.Event(), asyncio.Event()

    async def prepare(claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        called.set()
        await may_answer.wait()
        return {one.uid: PreparedClaim((driver.device(one),)) for one in claims}

    driver = FakeDriver(short_dir)
    async with running(short_dir, cluster) as kubelet, driver.registered():
        await kubelet.run_pod(pod("u", "a"))
        assert kubelet.dra.health_of("u")
        kubelet.remove_pod("u")
        assert kubelet.dra.health_of("u") == {}
        await kubelet.dra.unprepare(pod("u", "a"))
        await kubelet.admit(pod("u", "a"))
        assert shown(kubelet) == []
        driver.on_prepare = prepare
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kubelet.dra.prepare(pod("u", "a")))
            await called.wait()
            kubelet.remove_pod("u")
            may_answer.set()
        assert kubelet.dra.health_of("u") == {}


async def test_a_driver_without_health_is_asked_every_five_seconds(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D32, D35: also after the end of a stream, with which all is forgotten."""
    async with running(short_dir, cluster), FakeDriver(short_dir, has_health=True).registered() as driver:
        times: list[float] = []
        for _ in range(3):
            await driver.wait(lambda: len(driver.called("NodeWatchResources")) > len(times))
            times.append(now())
            driver.report([health("gpu-0")])
            driver.end_streams()
        assert [later - before for before, later in itertools.pairwise(times)] == pytest.approx(
            [5, 5], abs=0.2
        )
        await passes(1)
        assert (short_dir / "dra_health_state").read_text() == "{}"


async def test_one_message_after_the_other_changes_what_it_names_and_keeps_the_rest(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D33, D36: a device by its first CDI name or by its own, once; a long message is cut."""
    cluster.add("a", "u")

    async def prepare(claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        named = replace(driver.device(claims[0], "x"), cdi_device_ids=("e.com/x=1", "e.com/x=2"))
        return {claims[0].uid: PreparedClaim((named, named, PreparedDevice("pool", "y", ("other",))))}

    driver = FakeDriver(short_dir, has_health=True, on_prepare=prepare)
    async with running(short_dir, cluster) as kubelet, driver.registered():
        await kubelet.run_pod(pod("u", "a", requests=("", "gpu/sub")))
        await driver.wait(lambda: driver.open_streams)
        driver.report([health("x"), health("y", HealthWord.UNHEALTHY, message="m" * 1100)])
        await passes(0.5)
        driver.report([health("x", HealthWord.UNHEALTHY)])
        await passes(0.5)
        found = kubelet.pod("u").containers[0].claims_health
        assert {
            name: [(one.resource_id, one.health, len(one.message)) for one in devices]
            for name, devices in found.items()
        } == {
            "claim:a": [("e.com/x=1", "Unhealthy", 0), (f"{DRIVER}/pool/y", "Unhealthy", 1024)],
            "claim:a/gpu/sub": [("e.com/x=1", "Unhealthy", 0)],
        }
        assert found["claim:a"][1].message == "m" * 1021 + "..."


WORDS = st.sampled_from([HealthWord.UNKNOWN, HealthWord.HEALTHY, HealthWord.UNHEALTHY, 7])
REPORTS = st.builds(
    DeviceHealthReport,
    st.sampled_from(["p", "q"]),
    st.sampled_from(["a", "b"]),
    WORDS,
    st.integers(0, 9),
    st.integers(-5, 60),
    st.text(max_size=3),
)


@given(st.lists(st.tuples(st.sampled_from(["d", "e"]), st.lists(REPORTS), st.integers(0, 40)), max_size=8))
def test_the_health_that_counts_is_the_last_one_told_unless_it_is_too_old(
    steps: list[tuple[str, list[DeviceHealthReport], int]],
) -> None:
    """D33, D34: for every device, and the file says the same."""
    cache, now_ = HealthCache(), 0.0
    told: dict[tuple[str, str, str], tuple[DeviceHealthReport, float]] = {}
    for driver, reports, seconds in steps:
        now_ += seconds
        cache, changed = cache.reported(driver, reports, now_)
        for one in reports:
            told[driver, one.pool_name, one.device_name] = (one, now_)
        assert changed <= {(pool, name) for of, pool, name in told if of == driver}
        for (of, pool, name), (one, at) in told.items():
            timeout = one.timeout_seconds if one.timeout_seconds > 0 else 30
            words = {HealthWord.HEALTHY: "Healthy", HealthWord.UNHEALTHY: "Unhealthy"}
            want = "Unknown" if now_ - at > timeout else words.get(one.health, "Unknown")
            assert cache.device(of, (pool, name), now_).health == want
    assert healths.encode(healths.decode(healths.encode(cache, 1e9), 1e9), 1e9) == healths.encode(cache, 1e9)
    assert HealthCache().drivers == cache.without("d").without("e").drivers


async def test_health_stops_and_removes_nothing(short_dir: Path, cluster: FakeCluster) -> None:
    """D13, D37: a driver that wants more taints the device in its slice."""
    cluster.add("a", "u")
    async with (
        running(short_dir, cluster) as kubelet,
        FakeDriver(short_dir, has_health=True).registered() as driver,
    ):
        await kubelet.run_pod(pod("u", "a"))
        await driver.wait(lambda: driver.open_streams)
        before, removed = list(driver.calls), list(cluster.removed)
        driver.report([DeviceHealthReport("pool", "gpu-0", HealthWord.UNHEALTHY)])
        await passes(300)
        assert kubelet.pod("u").phase is PodPhase.RUNNING
        assert (driver.calls, cluster.removed) == (before, removed)
