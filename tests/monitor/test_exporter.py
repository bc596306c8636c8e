"""What the exporter makes of a node's status: which samples there are, and which would say too much."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from devplug import Device, DevicePlugin
from devplug.devices import HEALTHY, UNHEALTHY
from devplug.kubelet.kubelet import Kubelet
from devplug.metrics.families import Sample
from devplug.monitor.exporter import exporting, node_families
from devplug.monitor.node_view import UNKNOWN
from devplug.plugin.serving import served
from devplug.status import (
    DeviceClaim,
    DeviceStatus,
    DriverStatus,
    Holder,
    NodeStatus,
    PodResourcesStatus,
    ProcessStatus,
    ResourceStatus,
    Takeover,
)
from devplug.web.addresses import Address, TcpAddress, UnixAddress
from devplug.web.client import get
from devplug.web.messages import WebClientError
from tests.cli.programs import devplug
from tests.kubelet.fakes import pod

HOLDER = Holder("ml", "train-0", "main")


def told(
    *resources: ResourceStatus,
    limit: int = 100,
    others_only: bool = False,
    answered_at: float | None = None,
    processes: tuple[ProcessStatus, ...] = (),
) -> Mapping[str, list[tuple[tuple[str, ...], float]]]:
    """The samples of each metric."""
    status = NodeStatus(
        name="n1",
        at=100.0,
        resources=resources,
        processes=processes,
        pod_resources=PodResourcesStatus(answered_at=answered_at, errors={"absent": 3}),
    )
    families = node_families(status, started_at=7.0, limit=limit, others_only=others_only)
    return {
        family.metric.name.removeprefix("devplug_"): [
            (sample.labels, sample.value) for sample in family.samples if isinstance(sample, Sample)
        ]
        for family in families
    }


def foreign(*devices: DeviceStatus) -> ResourceStatus:
    return ResourceStatus(name="v/gpu", devices=devices)


def ours(*devices: DeviceStatus, is_registered: bool = True, fault: str = "") -> ResourceStatus:
    return ResourceStatus(name="x/fpga", devices=devices, is_registered=is_registered, fault=fault, process=1)


def test_a_node_is_told_by_resource_and_by_device() -> None:
    families = told(
        ours(
            DeviceStatus(
                id="a", health=HEALTHY, since=5.0, numa_nodes=(0, 1), is_held=True, holders=(HOLDER,)
            ),
            DeviceStatus(id="b", health=UNHEALTHY, reason="unplugged", since=6.0),
        ),
        answered_at=98.0,
    )
    assert families["devices"] == [(("x/fpga", "healthy"), 1), (("x/fpga", "unhealthy"), 1)]
    assert families["devices_held"] == [(("x/fpga",), 1)]
    assert families["device_healthy"] == [(("x/fpga", "a"), 1), (("x/fpga", "b"), 0)]
    assert families["device_info"] == [(("x/fpga", "a", "0,1"), 1), (("x/fpga", "b", ""), 1)]
    assert families["device_held"] == [(("x/fpga", "a", "ml", "train-0", "main"), 1)]
    assert families["device_health_change_timestamp_seconds"] == [(("x/fpga", "a"), 5), (("x/fpga", "b"), 6)]
    assert families["podresources_age_seconds"] == [((), 2)]
    assert families["podresources_errors_total"] == [(("absent",), 3)]
    assert families["start_time_seconds"] == [((), 7)]
    assert families["exporter_processes"] == [((), 0)]
    assert "ready" not in families


def test_claims_are_told_by_device_and_drivers_by_what_they_publish() -> None:
    share = DeviceClaim(namespace="ml", name="one", request="r", device="a-1")
    shares = share, replace(share, has_admin_access=True)
    claimed = replace(
        ours(
            DeviceStatus(id="a", health=UNHEALTHY, is_held=True, claims=shares, taint="NoSchedule"),
            DeviceStatus(id="b", health=HEALTHY),
        ),
        driver="d.x.com",
    )
    driver = DriverStatus(name="d.x.com", is_registered=True, slices=2, claims=1, stale_since=60.0)
    process = ProcessStatus(process=1, version="1", python="3", started_at=0, drivers=(driver,))
    families = told(claimed, foreign(), processes=(process,))
    assert families["device_claimed"] == [(("x/fpga", "a", "ml", "one", "r"), 1)]
    assert families["devices_tainted"] == [(("x/fpga",), 1)]
    assert families["claims"] == [(("d.x.com",), 1)]
    assert families["slices"] == [(("d.x.com",), 2)]
    assert families["slices_stale_seconds"] == [(("d.x.com",), 40)]
    assert "claims" not in told(claimed, processes=(process,), others_only=True)


def test_before_the_first_answer_there_is_no_age() -> None:
    assert told()["podresources_age_seconds"] == []


def test_a_held_device_that_the_kubelet_no_longer_gives_is_unhealthy() -> None:
    gone = DeviceStatus(id="g", health=UNKNOWN, reason="no longer among the devices", is_held=True)
    families = told(foreign(gone))
    assert families["device_healthy"] == [(("v/gpu", "g"), 0)]
    assert families["devices"] == [(("v/gpu", "healthy"), 0), (("v/gpu", "unhealthy"), 1)]


def test_of_a_device_whose_health_nobody_tells_none_is_told() -> None:
    families = told(foreign(DeviceStatus(id="g", health=UNKNOWN, is_held=True, holders=(HOLDER,))))
    assert families["device_healthy"] == []
    assert families["devices"] == []
    assert families["devices_held"] == [(("v/gpu",), 1)]
    assert families["device_held"] == [(("v/gpu", "g", "ml", "train-0", "main"), 1)]


def test_a_resource_without_devices_has_none_of_either_kind() -> None:
    assert told(ours())["devices"] == [(("x/fpga", "healthy"), 0), (("x/fpga", "unhealthy"), 0)]


def test_only_our_resources_are_registered_or_not() -> None:
    assert told(ours(), foreign())["registered"] == [(("x/fpga",), 1)]
    assert told(ours(is_registered=False, fault="no kubelet is connected"))["registered"] == [
        (("x/fpga",), 0)
    ]


def test_only_of_our_resources_it_is_told_whether_another_plugin_has_their_name() -> None:
    taken = replace(ours(), name="x/taken", takeover=Takeover(signs=("cut",), since=1.0, reason="another"))
    told_of = told(ours(), taken, foreign())["takeover_suspected"]
    assert told_of == [(("x/fpga",), 0), (("x/taken",), 1)]


def test_a_resource_that_waits_for_its_first_device_is_no_trouble() -> None:
    assert told(ours(is_registered=False))["registered"] == []


def test_with_others_only_our_resources_are_left_to_those_that_serve_them() -> None:
    device = DeviceStatus(id="a", health=HEALTHY)
    families = told(ours(device), foreign(device), others_only=True)
    assert families["device_healthy"] == [(("v/gpu", "a"), 1)]
    assert families["registered"] == []


def test_beyond_the_limit_only_counts_are_told() -> None:
    devices = [DeviceStatus(id=f"d{number}", health=HEALTHY) for number in range(9)]
    families = told(ours(*devices), foreign(devices[0]), limit=4)
    assert sum(len(families[name]) for name in ("device_healthy", "device_info")) == 8
    assert sum(value for _, value in families["device_series_omitted"]) == 6
    assert families["devices"][-2:] == [(("x/fpga", "healthy"), 9), (("x/fpga", "unhealthy"), 0)] or (
        (("x/fpga", "healthy"), 9) in families["devices"]
    )
    assert told(ours(*devices), limit=0)["device_info"] == []


LOOPBACK = TcpAddress("127.0.0.1", 0)


class Vendor(DevicePlugin):
    """Another vendor's plugin: it has no status socket."""

    resource_name = "example.com/a"

    def devices(self) -> list[Device]:
        return [Device("v0", numa_nodes=(1,)), Device("v1")]


@asynccontextmanager
async def exporter(root: Path, **options: Any) -> AsyncIterator[Address]:
    async with exporting(
        root / "device-plugins",
        root / "pod-resources" / "kubelet.sock",
        **{"listen": LOOPBACK, "node_name": "n1", **options},
    ) as address:
        yield address


async def scraped(address: Address) -> list[str]:
    answer = await get(address, "/metrics")
    assert answer.status == 200
    return [line for line in answer.body.decode().splitlines() if not line.startswith("#")]


async def until(address: Address, condition: Callable[[list[str]], object]) -> list[str]:
    """Scrape until it is so."""
    while not condition(lines := await scraped(address)):
        pass
    return lines


async def test_another_vendors_devices_are_told_with_their_holders(short_dir: Path) -> None:
    kubelet = Kubelet.under(short_dir)
    async with (
        kubelet.running(),
        served(Vendor(), plugin_dir=kubelet.plugin_dir),
        exporter(short_dir) as address,
    ):
        await kubelet.wait(lambda: kubelet.allocatable().get("example.com/a"))
        status = await kubelet.run_pod(pod("p", 1))
        assert status.containers[0].options is not None
        lines = await until(address, lambda lines: any("devplug_device_held" in line for line in lines))
        (held,) = (line for line in lines if line.startswith("devplug_device_held"))
        assert 'namespace="default",pod="p"' in held
        assert 'devplug_devices{resource="example.com/a",state="healthy"} 2' in lines
        assert 'devplug_device_info{resource="example.com/a",device="v0",numa_node="1"} 1' in lines
        assert (await get(address, "/readyz")).status == 200


async def test_a_scrape_is_answered_while_there_is_no_kubelet(short_dir: Path) -> None:
    async with exporter(short_dir) as address:
        lines = await until(address, lambda lines: any("errors_total" in line for line in lines))
        assert 'devplug_podresources_errors_total{trouble="absent"} 1' in lines
        assert not any(line.startswith("devplug_podresources_age") for line in lines)
        ready = await get(address, "/readyz")
        assert ready.status == 503
        assert b"not ready: the kubelet" in ready.body
        assert (await get(address, "/healthz")).status == 200


async def test_what_was_told_last_stays_when_the_kubelet_goes(short_dir: Path) -> None:
    kubelet = Kubelet.under(short_dir)
    async with exporter(short_dir) as address:
        async with kubelet.running(), served(Vendor(), plugin_dir=kubelet.plugin_dir):
            await kubelet.wait(lambda: kubelet.allocatable().get("example.com/a"))
            await kubelet.run_pod(pod("p", 1))
            await until(address, lambda lines: any("devplug_device_held" in line for line in lines))
        # A socket at which nobody listens: it is asked at once, and not after the usual ten seconds.
        place = short_dir / "pod-resources" / "kubelet.sock"
        place.unlink()
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(place))
        while (await get(address, "/readyz")).status == 200:
            pass
        lines = await scraped(address)
        assert any(line.startswith("devplug_device_held{") for line in lines)
        assert any(line.startswith("devplug_podresources_age_seconds ") for line in lines)


async def test_the_whole_status_is_for_unix_sockets_only(short_dir: Path) -> None:
    async with exporter(short_dir) as address:
        assert (await get(address, "/status")).status == 404
    async with exporter(short_dir, listen=UnixAddress(f"{short_dir}/e.sock")) as address:
        assert b'"name":"n1"' in (await get(address, "/status")).body


async def test_its_end_closes_the_address(short_dir: Path) -> None:
    async with exporter(short_dir) as address:
        pass
    try:
        await get(address, "/metrics")
    except WebClientError:
        return
    raise AssertionError("somebody still listens")


# ── the command ───────────────────────────────────────────────────────────────────────────────────


def test_a_bad_address_is_refused_with_what_to_write() -> None:
    ran = devplug("exporter", "--listen", "here")
    assert ran.returncode == 2
    assert "--listen" in ran.stderr
    assert "unix:/path/of/a.sock" in ran.stderr


def test_a_taken_port_is_refused_by_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = devplug("exporter", "--listen", f"127.0.0.1:{port}")
    assert ran.returncode == 2
    assert "another program listens there" in ran.stderr
