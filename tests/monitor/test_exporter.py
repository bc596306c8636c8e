"""`devplug exporter`: what it answers while kubelets and plugins come and go, and what it refuses."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from devplug import Device, DevicePlugin
from devplug.kubelet.manager import Kubelet
from devplug.monitor.exporter import exporting
from devplug.plugin.serving import served
from devplug.web.addresses import TcpAddress, UnixAddress
from devplug.web.client import get
from devplug.web.values import WebClientError
from tests.cli.programs import devplug
from tests.kubelet.fakes import pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path
    from typing import Any

    from devplug.web.addresses import Address

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
