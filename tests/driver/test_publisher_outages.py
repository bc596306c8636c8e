"""The publisher with an API server that is ill: slices become stale, nothing is lost, and it is not pestered.

The clock costs nothing, so each test goes on for as long as it takes.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path

import pytest

from devplug.devices import Device, Health
from devplug.driver.device_entries import device_name
from devplug.driver.publisher import Publisher
from devplug.k8s.client import NODES, Retries, connected
from tests.driver.apiserver import NODE, Cluster, cluster
from tests.driver.test_publisher import SERIAL, publishing
from tests.virtualtime import BACKEND, now, passes
from tests.waiting import until

A, B, C = Device("a"), Device("b"), Device("c")
MINUTES = 60.0


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return BACKEND


def names(*devices: Device) -> set[str]:
    return {device_name(SERIAL, one.id) for one in devices}


async def is_published(publisher: Publisher, server: Cluster, *devices: Device) -> None:
    """Wait until these devices are published, and no others."""
    await until(lambda: publisher.status.stale_since is None)
    assert {*server.devices()} == names(*devices)
    await until(lambda: not publisher.status.error)


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(vars(one).get("reason")) for one in caplog.records if one.levelno >= logging.WARNING]


RIGHTS = "get nodes, and get, list, watch, create, update and delete resourceslices"


@pytest.mark.parametrize(
    ("method", "code", "what_to_do"),
    [
        ("GET", 403, RIGHTS),
        ("GET", 429, "asks to come back later"),
        ("WATCH", 403, RIGHTS),
        ("WATCH", 500, "gave no usable answer"),
        ("POST", 403, RIGHTS),
        ("POST", 409, "has another object of that name"),
        ("POST", 422, "takes no such object"),
        ("POST", 500, "gave no usable answer"),
    ],
)
async def test_an_api_server_that_refuses_is_asked_seldom_and_said_why(
    short_dir: Path, caplog: pytest.LogCaptureFixture, method: str, code: int, what_to_do: str
) -> None:
    async with cluster(short_dir) as server, publishing(server, retries=Retries()) as publisher:
        server.refuse = lambda asked: (code, {}) if asked == method else None
        publisher.offer({SERIAL: [A, B]})
        await passes(5 * MINUTES)
        publisher.offer({SERIAL: [B, C]})
        await passes(5 * MINUTES)
        assert server.calls.count(method) < 60
        assert what_to_do in publisher.status.error
        assert len(complaints(caplog)) == 1
        server.refuse = lambda _: None
        healed_at = now()
        await is_published(publisher, server, B, C)
        assert now() - healed_at <= 2 * MINUTES


async def test_an_api_server_that_asks_to_wait_is_left_alone_for_so_long(short_dir: Path) -> None:
    async with cluster(short_dir) as server, publishing(server, retries=Retries()) as publisher:
        asked: list[float] = []

        def refuse(method: str) -> tuple[int, dict[str, str]] | None:
            if method == "POST" and len(asked) < 5:
                asked.append(now())
                return 429, {"Retry-After": "20"}
            return None

        server.refuse = refuse
        publisher.offer({SERIAL: [A]})
        await is_published(publisher, server, A)
        waits = [after - before for before, after in pairwise(asked)]
        assert len(waits) == 4
        assert min(waits) >= 20


async def test_a_wait_that_an_api_server_asks_for_is_bounded(short_dir: Path) -> None:
    async with cluster(short_dir) as server, publishing(server, retries=Retries()) as publisher:
        server.refuse = lambda method: (503, {"Retry-After": "86400"}) if method == "GET" else None
        publisher.offer({SERIAL: [A]})
        await until(lambda: publisher.status.error)
        server.refuse = lambda _: None
        await is_published(publisher, server, A)
        assert now() < 2 * MINUTES


@pytest.mark.parametrize("ends", [pytest.param("at once", marks=pytest.mark.nightly), "with 410"])
async def test_watches_that_end_at_once_are_not_begun_again_and_again(short_dir: Path, ends: str) -> None:
    """A proxy may cut each one, and an API server that compacts says so within a watch that was accepted."""
    gone = (
        b'{"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410, "message": "old"}}'
    )
    async with cluster(short_dir) as server, publishing(server, retries=Retries()) as publisher:
        server.watch_content = b"" if ends == "at once" else gone
        publisher.offer({SERIAL: [A]})
        await until(server.devices)
        await passes(5 * MINUTES)
        assert server.calls.count("WATCH") < 100
        server.wipe()
        await until(server.devices)
        server.watch_content = None
        await passes(6 * MINUTES)
        server.wipe()
        wiped_at = now()
        await until(server.devices)
        assert now() - wiped_at < 1
        await is_published(publisher, server, A)


async def test_each_of_several_short_outages_is_over_within_a_second(short_dir: Path) -> None:
    """Also where the API server has forgotten the changes meanwhile, or another writer was first."""
    async with cluster(short_dir) as server, publishing(server, retries=Retries()) as publisher:
        publisher.offer({SERIAL: [A]})
        await is_published(publisher, server, A)
        for devices in ([B], [A, C], [B, C], [A, B]):
            await server.stop()
            publisher.offer({SERIAL: devices})
            await passes(0.3)
            server.expired_watches = 1
            server.start()
            back_at = now()
            wanted = names(*devices)
            await until(lambda: {*server.devices()} == wanted)  # noqa: B023 -- it is waited for here
            assert now() - back_at <= 1
            await until(lambda: not server.expired_watches)
            await passes(1)


async def test_an_answer_over_another_connection_ends_the_wait_after_an_outage(short_dir: Path) -> None:
    """As when the same driver reads a claim."""
    async with cluster(short_dir) as server, publishing(server, retries=Retries()) as publisher:
        publisher.offer({SERIAL: [A]})
        await is_published(publisher, server, A)
        await server.stop()
        publisher.offer({SERIAL: [B]})
        await passes(30 * MINUTES)
        server.start()
        back_at = now()
        await passes(1)
        async with connected(server.account) as another:
            await another.get(NODES, NODE)
        await is_published(publisher, server, B)
        assert now() - back_at < 2.5


async def test_an_answer_over_another_connection_ends_no_wait_after_a_refusal(short_dir: Path) -> None:
    async with cluster(short_dir) as server, publishing(server, retries=Retries()) as publisher:
        server.refuse = lambda method: (403, {}) if method == "POST" else None
        publisher.offer({SERIAL: [A]})
        await passes(30 * MINUTES)
        before = server.calls.count("POST")
        async with connected(server.account) as another:
            for _ in range(30):
                await another.get(NODES, NODE)
                await passes(1)
        assert server.calls.count("POST") - before <= 2


@pytest.mark.parametrize("is_wiped", [False, True])
async def test_an_api_server_that_is_away_for_an_hour_costs_staleness_only(
    short_dir: Path, caplog: pytest.LogCaptureFixture, is_wiped: bool
) -> None:
    async with cluster(short_dir) as server, publishing(server, retries=Retries()) as publisher:
        publisher.offer({SERIAL: [A, B]})
        await is_published(publisher, server, A, B)
        await server.stop()
        for minute in range(60):
            reason = Health.unhealthy(f"error {minute}")
            publisher.offer({SERIAL: [A.with_health(reason), B]})
            await passes(MINUTES)
        assert {*server.devices()} == names(A, B)
        assert publisher.status.error.startswith("cannot ask the API server 127.0.0.1:")
        assert publisher.status.slices == 1
        if is_wiped:
            server.wipe()
        assert server.accounts < 150
        publisher.offer({SERIAL: [A.with_health(Health.unhealthy("error 60")), C]})
        server.start()
        back_at = now()
        await is_published(publisher, server, A, C)
        assert now() - back_at <= MINUTES
        assert "taints" in server.devices()[device_name(SERIAL, "a")]
        assert len(complaints(caplog)) <= 3
