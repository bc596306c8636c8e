"""What a program tells of itself at `listen`: alive, ready, counted; over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from devplug import ContainerResponse, Device, DevicePlugin, Health, PluginError, UnhealthyDeviceError, serve
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import PodPhase
from devplug.linux.inotify import until_present
from devplug.linux.notifier import Notifier
from devplug.metrics.families import Family
from devplug.metrics.probes import Probes
from devplug.plugin.serving import FORMER_LIMIT, probes_of
from devplug.web.addresses import UnixAddress
from devplug.web.client import get, lines
from devplug.web.messages import ListenError, Page, Request, Stream
from devplug.wire import deviceplugin
from devplug.wire.sockets import connected
from tests.kubelet.fakes import pod
from tests.plugin.fakes import RESOURCE, Fed, Listed, devices, plugin_sockets, refusal
from tests.virtualtime import in_no_time, passes, still
from tests.waiting import until


@asynccontextmanager
async def told(folder: Path, *plugins: DevicePlugin) -> AsyncIterator[tuple[Kubelet, UnixAddress]]:
    """A kubelet, and plugins that tell of themselves at a Unix socket."""
    address = UnixAddress(str(folder / "pages.sock"))
    kubelet = Kubelet.under(folder)
    async with kubelet.running():
        plugin_dir = folder / "device-plugins"
        async with serve(*plugins, plugin_dir=plugin_dir, listen=f"unix:{address.path}") as serving:
            await serving.wait_registered()
            yield kubelet, address


async def page(address: UnixAddress, path: str) -> tuple[int, str]:
    answer = await get(address, path)
    return answer.status, answer.body.decode()


async def value(address: UnixAddress, series: str) -> float:
    """The value of one series, whose labels are written as in the text."""
    _, text = await page(address, "/metrics")
    found = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{series} ")]
    assert len(found) == 1, f"{series} is there {len(found)} times"
    return float(found[0])


class Refusing(Fed):
    """A plugin that gives nothing out."""

    def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        raise UnhealthyDeviceError("link down", *devices)


@in_no_time
async def test_a_program_is_ready_once_a_kubelet_listens_to_every_list(short_dir: Path) -> None:
    plugin_dir, address = short_dir / "device-plugins", UnixAddress(str(short_dir / "pages.sock"))
    async with serve(Fed("a"), plugin_dir=plugin_dir, listen=f"unix:{address.path}") as serving:
        async with Kubelet.under(short_dir).running():
            await serving.wait_registered()
            assert await page(address, "/healthz") == (200, "ok\n")
            assert await page(address, "/readyz") == (200, "ready\n")
        async with lines(address, "/status?watch=1") as documents:
            async for document in documents:
                if not json.loads(document)["resources"][0]["is_registered"]:
                    break
        status, text = await page(address, "/readyz")
        assert status == 503
        assert text.startswith(f"not ready: {RESOURCE}: ")
        assert await page(address, "/healthz") == (200, "ok\n")


async def test_what_is_in_the_way_of_many_resources_is_said_once(short_dir: Path) -> None:
    listen, missing = short_dir / "pages.sock", short_dir / "nowhere"
    plugins = [Fed("a", resource_name=f"example.com/r{number}") for number in range(9)]
    async with serve(*plugins, plugin_dir=missing, listen=f"unix:{listen}"):
        names = ", ".join(f"example.com/r{number}" for number in range(5))
        wanted = f"{names} and 4 more: {missing} does not exist: no kubelet here"
        address = UnixAddress(str(listen))
        texts: list[str] = []
        while f"not ready: {wanted}\n" not in texts:
            texts.append((await page(address, "/readyz"))[1])
        assert json.loads((await page(address, "/status"))[1])["faults"] == [wanted]


async def test_without_a_kubelet_the_page_says_what_is_missing(short_dir: Path) -> None:
    missing = short_dir / "nowhere"
    listen = short_dir / "pages.sock"
    async with serve(Fed("a"), plugin_dir=missing, listen=f"unix:{listen}"):
        wanted = f"not ready: {RESOURCE}: {missing} does not exist: no kubelet here\n"
        address = UnixAddress(str(listen))
        texts: list[str] = []
        while wanted not in texts:
            texts.append((await page(address, "/readyz"))[1])


@in_no_time
async def test_what_devices_raises_makes_the_program_unready_until_it_gives_a_list_again(
    short_dir: Path,
) -> None:
    class FailingOnce(DevicePlugin):
        resource_name = RESOURCE
        has_failed = False

        async def devices(self) -> AsyncIterator[list[Device]]:
            yield devices("a")
            if not self.has_failed:
                self.has_failed = True
                raise OSError("bus error")
            await asyncio.Event().wait()

    faults = []
    async with told(short_dir, FailingOnce()) as (_, address), lines(address, "/status?watch=1") as documents:
        async for document in documents:
            faults.append(json.loads(document)["resources"][0]["fault"])
            if faults[-1] == "" and len(faults) > 1:
                break
    assert "devices() fails: OSError('bus error')" in faults


@in_no_time
async def test_code_that_holds_the_thread_of_allocate_makes_the_program_unready_until_it_comes_back(
    short_dir: Path,
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    class Hanging(Listed):
        def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
            begun.set()
            goes_on.wait()
            return ContainerResponse.of(devices)

    async with told(short_dir, Hanging()) as (_, address):
        (socket,) = plugin_sockets(short_dir / "device-plugins")
        async with connected(socket) as peer:
            assert await page(address, "/readyz") == (200, "ready\n")
            call: Awaitable[Sequence[ContainerResponse]] = peer.call(deviceplugin.ALLOCATE, [("a",)])
            async with asyncio.TaskGroup() as group:
                refused = group.create_task(refusal(call))
                async with still():
                    await asyncio.to_thread(begun.wait)
                assert "no answer in" in await refused
        status, text = await page(address, "/readyz")
        assert (status, "hangs in a call" in text) == (503, True)
        goes_on.set()
        while await page(address, "/readyz") != (200, "ready\n"):
            pass


async def test_calls_are_counted_by_what_came_of_them(short_dir: Path) -> None:
    async with told(short_dir, Fed("a"), Refusing("x", resource_name="example.com/r")) as (kubelet, address):
        await kubelet.wait(lambda: len(kubelet.allocatable()) == 2)
        await kubelet.admit(pod("good"))
        status = await kubelet.admit(pod("bad", resource_name="example.com/r"))
        assert status.phase is PodPhase.FAILED
        granted = f'devplug_allocations_total{{resource="{RESOURCE}",result="granted"}}'
        assert await value(address, granted) == 1
        assert await value(address, granted.replace("granted", "refused")) == 0
        refused = 'devplug_allocations_total{resource="example.com/r",result="refused"}'
        assert await value(address, refused) == 1
        assert await value(address, f'devplug_allocate_duration_seconds_count{{resource="{RESOURCE}"}}') == 1
        accepted = f'devplug_registrations_total{{resource="{RESOURCE}",result="accepted"}}'
        assert await value(address, accepted) == 1
        assert await value(address, f'devplug_streams{{resource="{RESOURCE}"}}') == 1
        unhealthy = 'devplug_devices{resource="example.com/r",state="unhealthy"}'
        assert await value(address, unhealthy) == 1
        became = 'devplug_health_transitions_total{resource="example.com/r",to="unhealthy"}'
        assert await value(address, became) == 1


async def test_the_status_names_devices_and_who_may_hold_them(short_dir: Path) -> None:
    async with told(short_dir, Fed("a", "b")) as (kubelet, address):
        await kubelet.wait(lambda: kubelet.allocatable().get(RESOURCE) == 2)
        await kubelet.admit(pod("p"))
        status = json.loads((await page(address, "/status"))[1])
        (resource,) = status["resources"]
        assert (resource["name"], resource["is_registered"]) == (RESOURCE, True)
        assert [(one["id"], one["health"], one["is_held"]) for one in resource["devices"]] == [
            ("a", "Healthy", True),
            ("b", "Healthy", False),
        ]
        assert resource["devices"][0]["device_nodes"] == ["/dev/a"]
        assert status["started_at"] <= resource["devices"][0]["since"] <= resource["registered_at"]


async def test_the_status_is_for_unix_sockets_only(short_dir: Path) -> None:
    plugin_dir = short_dir / "device-plugins"
    plugin_dir.mkdir()
    async with serve(Fed("a"), plugin_dir=plugin_dir, listen="127.0.0.1:0") as serving:
        probes = probes_of(serving)
        for path in ("/status", "/nothing"):
            answer = await probes.answer(Request(path))
            assert isinstance(answer, Page)
            assert answer.status == 404


async def test_a_followed_status_is_told_at_once_and_never_twice_the_same(short_dir: Path) -> None:
    plugin = Fed("a")
    async with told(short_dir, plugin) as (_, address), lines(address, "/status?watch=1") as documents:
        seen: list[bytes] = [await anext(documents)]
        for count in range(5):
            plugin.feed.put(*devices(f"d{count}"))
        async for document in documents:
            seen.append(document)
            if len(json.loads(document)["resources"][0]["devices"]) == 6:
                break
        assert all(one != other for one, other in pairwise(seen))


async def test_an_address_that_is_taken_is_told_before_anything_is_served(short_dir: Path) -> None:
    async with told(short_dir, Fed("a")) as (_, address):
        with pytest.raises(ListenError, match=r"pages\.sock"):
            async with serve(listen=f"unix:{address.path}", plugin_dir=short_dir):
                raise AssertionError


async def test_no_address_is_refused_with_what_to_write(short_dir: Path) -> None:
    with pytest.raises(PluginError, match=r"listen: .* write 127\.0\.0\.1:9410"):
        async with serve(Fed("a"), plugin_dir=short_dir, listen="9410"):
            raise AssertionError


def test_a_program_without_listen_loads_no_web(short_dir: Path) -> None:
    code = (
        "import sys, devplug.plugin.serving\n"
        "unwanted = 'h11', 'devplug.web', 'devplug.metrics.probes', 'prometheus_client'\n"
        "found = [one for one in unwanted if one in sys.modules]\n"
        "sys.exit(', '.join(found) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


async def test_who_follows_is_told_that_a_device_was_given_out(short_dir: Path) -> None:
    address, plugin_dir = UnixAddress(str(short_dir / "pages.sock")), short_dir / "device-plugins"
    async with (
        Kubelet.under(short_dir).running() as kubelet,
        serve(Fed("a"), plugin_dir=plugin_dir, listen=f"unix:{address.path}"),
    ):
        await kubelet.wait(lambda: kubelet.allocatable().get(RESOURCE) == 1)
        async with lines(address, "/status?watch=1") as documents, asyncio.TaskGroup() as group:

            async def told(*, is_held: bool) -> None:
                async for document in documents:
                    if json.loads(document)["resources"][0]["devices"][0]["is_held"] is is_held:
                        return

            await told(is_held=False)
            given = group.create_task(told(is_held=True))
            await kubelet.admit(pod("p"))
            await given


async def test_who_follows_is_told_of_a_plugin_that_has_no_list_yet(short_dir: Path) -> None:
    class Silent(DevicePlugin):
        resource_name = RESOURCE

        async def devices(self) -> list[Device]:
            await asyncio.Event().wait()
            raise AssertionError

    address = UnixAddress(str(short_dir / "pages.sock"))
    (short_dir / "device-plugins").mkdir()
    async with (
        serve(plugin_dir=short_dir / "device-plugins", listen=f"unix:{address.path}") as serving,
        lines(address, "/status?watch=1") as documents,
    ):
        assert json.loads(await anext(documents))["resources"] == []
        serving.add(Silent())
        assert json.loads(await anext(documents))["resources"][0]["fault"]


@in_no_time
async def test_a_status_that_many_follow_is_made_once_for_all_and_seldom(short_dir: Path) -> None:
    """Else sixteen who follow 10,000 devices would have the loop for themselves."""
    made = []

    def status() -> bytes:
        made.append(1)
        return str(len(made)).encode()

    notifier = Notifier()
    probes = Probes(status=status, faults=list, families=list, notifier=notifier)

    async def follow(seen: list[bytes]) -> None:
        answer = await probes.answer(Request("/status", {"watch": "1"}, is_local=True))
        assert isinstance(answer, Stream)
        async for chunk in answer.chunks:
            seen.append(chunk)  # noqa: PERF401 -- it never ends

    all_seen: list[list[bytes]] = [[] for _ in range(16)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(follow(seen)) for seen in all_seen]
        await until(lambda: all(all_seen))
        first = len(made)
        assert first <= 16
        for _ in range(1000):
            notifier.notify()
            await passes(0.001)
        assert len(made) - first <= 6
        await until(lambda: {seen[-1] for seen in all_seen} == {f"{len(made)}\n".encode()})
        for task in tasks:
            task.cancel()


@pytest.mark.parametrize("path", ["/metrics", "/status"])
async def test_requests_of_dear_pages_share_the_last_one(path: str) -> None:
    """A page of thousands of devices takes a tenth of a second, in which no Allocate is answered."""
    loop = asyncio.get_running_loop()
    made = []

    def dear() -> bytes:
        made.append(1)
        ends_at = loop.time() + 0.15
        while loop.time() < ends_at:
            pass
        return str(len(made)).encode()

    def families() -> list[Family]:
        dear()
        return []

    probes = Probes(status=dear, faults=list, families=families, notifier=Notifier())
    pages = [await probes.answer(Request(path, is_local=True)) for _ in range(1000)]
    assert len(made) <= 5
    assert pages[-1] == pages[-2]


@in_no_time
async def test_cheap_pages_are_made_for_each_request() -> None:
    made = []

    def status() -> bytes:
        made.append(1)
        return str(len(made)).encode()

    probes = Probes(status=status, faults=list, families=list, notifier=Notifier())
    for number in range(1, 1000):
        page = await probes.answer(Request("/status", is_local=True))
        assert isinstance(page, Page)
        assert page.body == f"{number}\n".encode()


def test_the_process_began_before_anybody_asked() -> None:
    code = (
        "import time\n"
        "began = time.time()\n"
        "from devplug.plugin.probes import status_of\n"
        "age = began - status_of((), '').started_at\n"
        "assert 0 <= age < 60, age"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_a_device_keeps_its_time_when_its_plugin_is_replaced(short_dir: Path) -> None:
    async with serve(plugin_dir=short_dir) as serving:

        async def since() -> dict[str, float | None]:
            while not serving.statuses() or not serving.statuses()[0].devices:
                await serving.notifier.next.wait()
            return {one.id: one.since for one in serving.statuses()[0].devices}

        serving.add(Fed("a", "b"))
        before = await since()
        sick = Fed()
        sick.feed.put(Device("a"), Device("b", health=Health.unhealthy("gone")), Device("c"))
        await serving.replace(sick)
        after = await since()
        assert after["a"] == before["a"]
        assert after["b"] != before["b"]
        assert after["c"] is not None
        samples = serving.counters_of(RESOURCE).health_transitions.samples()
        counts = {one.labels: one.value for one in samples}
        assert counts["unhealthy",] == 1


@in_no_time
async def test_the_counts_of_names_that_come_and_go_for_years_are_forgotten(short_dir: Path) -> None:
    async with serve(plugin_dir=short_dir / "nowhere") as serving:
        serving.add(Listed())
        for number in range(150):
            name = f"example.com/n{number}"
            serving.add(Fed("a", resource_name=name))
            await serving.remove(name)
        assert RESOURCE in serving.counters
        assert "example.com/n149" in serving.counters
        assert len(serving.counters) <= FORMER_LIMIT + 2


async def test_a_script_may_be_told_by_its_environment_where_to_listen(short_dir: Path) -> None:
    script = short_dir / "script.py"
    script.write_text(
        "from devplug import ContainerResponse, Device, DevicePlugin, run\n"
        "class One(DevicePlugin):\n"
        "    resource_name = 'example.com/one'\n"
        "    def devices(self): return [Device('a')]\n"
        "run(One())\n"
    )
    pages = short_dir / "pages.sock"
    variables = {"DEVPLUG_PLUGIN_DIR": str(short_dir / "device-plugins"), "DEVPLUG_LISTEN": f"unix:{pages}"}
    process = subprocess.Popen([sys.executable, script], env={**os.environ, **variables})

    try:
        async with Kubelet.under(short_dir).running():
            await until_present(pages)
            while (await page(UnixAddress(str(pages)), "/readyz"))[0] != 200:
                pass
    finally:
        process.terminate()
        assert process.wait(timeout=40) == 0
