"""DRA drivers come and go, and with them the slices of the node: real sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.errors import KubeletError, RegistrationError
from devplug.kubelet.dra.drivers import SERVICES, chosen_service
from devplug.wire.dra import ClaimName, PreparedClaim
from devplug.wire.values import RegistrationStatus
from tests.kubelet.dra_driver import DRIVER, FakeCluster, FakeDriver, pod, running
from tests.virtualtime import now, passes

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
    async with running(short_dir, cluster), FakeDriver(short_dir, versions=versions).registered() as driver:
        status = await driver.told()
    assert status == RegistrationStatus(
        plugin_registered=False,
        error="RegisterPlugin error -- plugin validation failed with err: invalid supported gRPC versions of "
        f"DRA driver plugin {DRIVER} at endpoint {driver.endpoint}: {text}",
    )


async def test_a_driver_has_two_sockets_and_is_found_within_a_second(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D03, D08: the kubelet asks at one where the other is, and tells there how it went."""
    driver = FakeDriver(short_dir)
    async with running(short_dir, cluster) as kubelet:
        await driver.serve()
        await driver.register()
        began = now()
        assert await driver.told() == RegistrationStatus(plugin_registered=True)
        assert now() - began <= 1
        await kubelet.wait(lambda: kubelet.dra.has_driver(DRIVER))
        assert [call.method for call in driver.calls] == ["v1.GetInfo", "v1.NotifyRegistrationStatus"]
        await driver.stop()


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


async def test_a_registration_socket_that_goes_takes_its_own_endpoint_along(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D10: and no other one of the driver."""
    cluster.add("a", "u")
    old, new = (FakeDriver(short_dir, instance=instance) for instance in ("old", "new"))
    async with running(short_dir, cluster) as kubelet, old.registered(), new.registered():
        await new.stop(service=False)
        await passes(1.5)
        await kubelet.run_pod(pod("u", "a"))
        assert (old.called("NodePrepareResources"), new.called("NodePrepareResources")) == ([("uid-a",)], [])


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
            "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources: "
            "rpc error: code = Unavailable desc = "
            f'connection error: desc = "transport: Error while dialing: dial unix {driver.endpoint}: '
            'connect: no such file or directory"'
        )
        await driver.stop()
        await passes(1.1)
        with pytest.raises(KubeletError, match=f"DRA driver {DRIVER} is not registered"):
            await kubelet.dra.prepare(pod("u", "a"))


async def test_a_driver_that_is_deregistered_meanwhile_is_called_no_more(
    short_dir: Path, cluster: FakeCluster
) -> None:
    """D10: it was chosen before the first driver was called."""
    cluster.add("a", "u", drivers=("a.example", "b.example"))

    async def prepare(_: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        await second.stop(service=False)
        await passes(1.5)
        return {"uid-a": PreparedClaim()}

    first, second = FakeDriver(short_dir, "a.example", on_prepare=prepare), FakeDriver(short_dir, "b.example")
    async with running(short_dir, cluster) as kubelet, first.registered(), second.registered():
        text = "code = Canceled desc = grpc: the client connection is closing"
        with pytest.raises(KubeletError, match=text):
            await kubelet.dra.prepare(pod("u", "a"))


async def test_a_kubelet_with_drivers_ends_at_once(short_dir: Path, cluster: FakeCluster) -> None:
    """D11: its end is no loss of a driver."""
    async with FakeDriver(short_dir, has_health=True).serving() as driver:
        async with running(short_dir, cluster):
            await driver.register()
            await driver.wait(lambda: driver.open_streams)
        assert now() < 2


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
