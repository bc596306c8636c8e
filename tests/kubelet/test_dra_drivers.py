"""DRA drivers come and go, with the slices of the node, and tell of their devices' health: real sockets."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.errors import KubeletError, RegistrationError
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.dra import health as healths
from devplug.kubelet.dra.drivers import SERVICES, chosen_service
from devplug.kubelet.dra.health import HealthCache
from devplug.wire.dra import DeviceHealthReport, HealthWord, PreparedClaim, PreparedDevice
from devplug.wire.values import RegistrationStatus
from tests.kubelet.dra_driver import DRIVER, FakeCluster, FakeDriver, pod, running
from tests.virtualtime import BACKEND, now, passes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from devplug.kubelet.kubelet import Kubelet
    from devplug.wire.dra import ClaimName


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return BACKEND


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


# ── registration ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("versions", "service"),
    [
        (["v1.DRAPlugin", "v1beta1.DRAPlugin"], "v1.DRAPlugin"),
        (["v1beta1.DRAPlugin", "v1.DRAPlugin"], "v1beta1.DRAPlugin"),
        (["v2.DRAPlugin", "v1.DRAPlugin", "v1alpha1.DRAResourceHealth"], "v1.DRAPlugin"),
    ],
)
def test_the_first_service_that_the_kubelet_knows_is_used(versions: list[str], service: str) -> None:
    """D04."""
    assert chosen_service("d", "/d.sock", versions) == service


@given(st.lists(st.sampled_from([*SERVICES, "v2.DRAPlugin", "1.0.0"])))
def test_a_service_is_chosen_where_there_is_one_and_only_then(versions: list[str]) -> None:
    """D04, D06."""
    try:
        assert chosen_service("d", "/d.sock", versions) == next(one for one in versions if one in SERVICES)
    except RegistrationError:
        assert not set(versions) & set(SERVICES)


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        ((), "empty list of supported gRPC services (aka supported versions)"),
        (
            ("1.0.0", "x"),
            (
                'none of services supported by the plugin (["1.0.0" "x"]) are supported by the kubelet '
                '(["v1.DRAPlugin" "v1beta1.DRAPlugin"])'
            ),
        ),
    ],
)
async def test_a_driver_without_a_known_service_is_refused(
    short_dir: Path, cluster: FakeCluster, versions: tuple[str, ...], text: str
) -> None:
    """D06."""
    async with (
        running(short_dir, cluster),
        FakeDriver(short_dir, versions=versions).registered() as driver,
    ):
        status = await driver.told()
    assert status == RegistrationStatus(
        plugin_registered=False,
        error="RegisterPlugin error -- plugin validation failed with err: invalid supported gRPC versions of "
        f"DRA driver plugin {DRIVER} at endpoint {driver.endpoint}: {text}",
    )


async def test_an_endpoint_is_registered_once(short_dir: Path, cluster: FakeCluster) -> None:
    """D06, D09."""

    class Twin(FakeDriver):
        @property
        def endpoint(self) -> Path:
            return first.endpoint

    async with running(short_dir, cluster), FakeDriver(short_dir).registered() as first:
        twin = Twin(short_dir, instance="two")
        await twin.register()
        status = await twin.told()
        await twin.stop()
    assert status.error == (
        "RegisterPlugin error -- plugin registration failed with err: endpoint "
        f"{first.endpoint} already registered for DRA driver plugin {DRIVER}"
    )


@pytest.mark.parametrize("name", ["Bad_Name", DRIVER])
async def test_neither_the_name_nor_the_service_s_socket_is_looked_at(
    short_dir: Path, cluster: FakeCluster, name: str
) -> None:
    """D07."""
    driver = FakeDriver(short_dir, name)
    async with running(short_dir, cluster):
        await driver.register()
        assert (await driver.told()).plugin_registered
        await driver.stop()


async def test_a_driver_of_v1beta1_is_called_in_that_version(short_dir: Path, cluster: FakeCluster) -> None:
    """D04, D05."""
    cluster.add("a", "u")
    async with (
        running(short_dir, cluster) as kubelet,
        FakeDriver(short_dir, versions=("v1beta1.DRAPlugin",)).registered() as driver,
    ):
        await kubelet.run_pod(pod("u", "a"))
        assert driver.calls[-1].method == "v1beta1.NodePrepareResources"


# ── several endpoints ─────────────────────────────────────────────────────────────────────────────


async def test_calls_go_to_the_newest_endpoint_that_is_connected(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D09: as in a rolling update."""
    for name in "abc":
        cluster.add(name, "u")
    old, new = (FakeDriver(short_dir, instance=instance) for instance in ("old", "new"))
    async with running(short_dir, cluster) as kubelet, old.registered():
        await new.serve()
        await new.register()
        await new.told()
        await passes(0.5)
        await kubelet.run_pod(pod("u", "a"))
        await new.stop(registration=False)
        await passes(0.5)
        await kubelet.dra.prepare(pod("u", "b"))
        await old.stop(registration=False)
        await passes(0.5)
        with pytest.raises(KubeletError, match=f"dial unix {new.endpoint}: connect: no such file"):
            await kubelet.dra.prepare(pod("u", "c"))
        assert new.called("NodePrepareResources") == [("uid-a",)]
        assert old.called("NodePrepareResources") == [("uid-b",)]
        await new.stop()


async def test_a_call_while_only_the_service_is_down_says_what_the_dial_said(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D10: and without the registration socket the driver is not registered, within a second."""
    cluster.add("a", "u")
    driver = FakeDriver(short_dir)
    async with running(short_dir, cluster) as kubelet, driver.registered():
        await driver.stop(registration=False)
        await passes(0.1)
        with pytest.raises(KubeletError) as caught:
            await kubelet.dra.prepare(pod("u", "a"))
        assert str(caught.value) == (
            "prepare dynamic resources: NodePrepareResources: rpc error: code = Unavailable desc = "
            f'connection error: desc = "transport: Error while dialing: dial unix {driver.endpoint}: '
            'connect: no such file or directory"'
        )
        await driver.stop()
        await passes(1.1)
        with pytest.raises(KubeletError, match=f"DRA driver {DRIVER} is not registered"):
            await kubelet.dra.prepare(pod("u", "a"))


async def test_a_driver_that_comes_back_at_its_endpoint_is_found_again(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D09: nothing is registered anew."""
    cluster.add("a", "u")
    driver = FakeDriver(short_dir)
    async with running(short_dir, cluster) as kubelet, driver.registered():
        await driver.stop(registration=False)
        await passes(20)
        await driver.serve()
        assert kubelet.dra.drivers is not None
        drivers = kubelet.dra.drivers
        await kubelet.wait(lambda: drivers.is_usable(DRIVER))
        await kubelet.run_pod(pod("u", "a"))
        assert len(driver.statuses) == 1


# ── slices ────────────────────────────────────────────────────────────────────────────────────────


async def test_all_slices_of_the_node_are_removed_when_the_kubelet_starts(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D12: as often as it takes, after 1 s, 2 s and so on."""
    cluster.failures = [KubeletError("node not found"), KubeletError("unauthorized")]
    async with running(short_dir, cluster) as kubelet:
        await passes(2.9)
        assert cluster.removed == []
        await passes(0.2)
        assert cluster.removed == [None]
        await kubelet.restart()
        await passes(0.1)
        assert cluster.removed == [None, None]


@pytest.mark.parametrize("is_registered", [True, False], ids=["connection lost", "deregistered"])
async def test_the_slices_of_a_driver_that_stays_away_are_removed_after_30_seconds(
    short_dir: Path, cluster: FakeCluster, is_registered: bool
) -> None:
    """D11."""
    driver = FakeDriver(short_dir)
    async with running(short_dir, cluster), driver.registered():
        await passes(100)
        assert cluster.removed == [None]
        await driver.stop(registration=not is_registered)
        await passes(29)
        assert cluster.removed == [None]
        await passes(2.5)
        assert cluster.removed == [None, DRIVER]
        await passes(100)
        assert cluster.removed == [None, DRIVER]


async def test_a_driver_that_is_back_in_time_keeps_its_slices(short_dir: Path, cluster: FakeCluster) -> None:
    """D11."""
    driver = FakeDriver(short_dir)
    async with running(short_dir, cluster), driver.registered():
        await driver.stop()
        await passes(25)
        await driver.serve()
        await driver.register()
        await driver.told(2)
        await passes(60)
        assert cluster.removed == [None]


# ── health ────────────────────────────────────────────────────────────────────────────────────────


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
