"""The Events and the condition in a cluster: the sandbox's API server over a real socket, and kubectl."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devplug.daemon.config.loader import load
from devplug.daemon.events.writers import report_to_cluster
from devplug.daemon.service import serve_config
from devplug.k8s.client import Retries
from devplug.linux.notifier import Notifier
from devplug.plugin.probes import status_of
from devplug.sandbox.cluster import Sandbox
from devplug.sandbox.registry import EVENTS, NODES
from devplug.sandbox.settings import SandboxSettings
from devplug.status import ProcessStatus
from tests.daemon.apiserver import api_server, refusal
from tests.daemon.events.statuses import device, resource, status
from tests.daemon.hosts import char_node, needs_mknod
from tests.sandbox.kubectl.stage import why_kubectl_is_missing
from tests.waiting import until

GOOD = status(resource(device("a0"), device("a1")))
ILL = status(resource(device("a0", "link down", "p"), device("a1")))
START = 1_700_000_000.0
SELECTOR = "involvedObject.kind=Node,source=devplug"
CONDITION_STATUS = '.status.conditions[?(@.type=="DevicesReady")].status'
SOON = Retries(0.01, 0.01)


class Daemon:
    """What is told of a daemon; `says` is another status of it."""

    def __init__(self, first: ProcessStatus) -> None:
        self.notifier = Notifier()
        self.now = START
        self._status = first

    def status(self) -> ProcessStatus:
        return self._status

    def says(self, status: ProcessStatus, later_seconds: float = 0.0) -> None:
        self._status = status
        self.now += later_seconds
        self.notifier.notify()

    @asynccontextmanager
    async def telling(self, node: str, account: Path, retries: Retries = SOON) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                report_to_cluster(
                    self.status,
                    self.notifier,
                    node,
                    account=account,
                    retries=retries,
                    look_pause_seconds=0,
                    clock=lambda: self.now,
                )
            )
            try:
                yield
            finally:
                task.cancel()


@asynccontextmanager
async def cluster(folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(SandboxSettings(folder=folder / "s", **settings))
    monkeypatch.setenv("KUBECONFIG", str(sandbox.kubeconfig))
    async with sandbox.running():
        yield sandbox


def events(sandbox: Sandbox) -> list[Any]:
    """Ours, in the order of their making."""
    found: list[Any] = list(sandbox.registry.listing(EVENTS).items)
    return [one for one in found if one.get("reportingComponent") == "devplug"]


def condition(sandbox: Sandbox) -> Any:
    node: Any = sandbox.registry.find(NODES, "", sandbox.nodes()[0])
    found = [one for one in node["status"]["conditions"] if one["type"] == "DevicesReady"]
    return found[0] if found else {}


def kubectl(sandbox: Sandbox, *words: str) -> Callable[[], str]:
    def ran() -> str:
        environment = {**os.environ, "KUBECONFIG": str(sandbox.kubeconfig)}
        return subprocess.run(
            ["kubectl", *words], env=environment, capture_output=True, text=True, check=True, timeout=20
        ).stdout

    return ran


needs_kubectl = pytest.mark.skipif(bool(why_kubectl_is_missing()), reason=why_kubectl_is_missing() or "-")


@needs_kubectl
async def test_kubectl_shows_the_events_and_the_condition_of_a_node(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(GOOD)
    async with cluster(short_dir, monkeypatch) as sandbox, daemon.telling(sandbox.nodes()[0], short_dir):
        await until(lambda: condition(sandbox).get("status") == "True" and events(sandbox))
        daemon.says(ILL, 60)
        await until(lambda: condition(sandbox)["status"] == "False" and len(events(sandbox)) == 2)
        shown = await asyncio.to_thread(kubectl(sandbox, "get", "events", "--field-selector", SELECTOR))
        assert "Warning   DeviceUnhealthy   node/" in shown
        assert "example.com/a: 1 device Unhealthy: a0 (link down; held by default/p)" in shown
        columns = f"custom-columns=NODE:.metadata.name,DEVICES:{CONDITION_STATUS}"
        listed = await asyncio.to_thread(kubectl(sandbox, "get", "nodes", "-o", columns))
        assert listed.split() == ["NODE", "DEVICES", sandbox.nodes()[0], "False"]
        described = await asyncio.to_thread(kubectl(sandbox, "describe", "node", sandbox.nodes()[0]))
        (line,) = [one for one in described.splitlines() if one.strip().startswith("DevicesReady")]
        assert line.split()[1] == "False"
        assert "DevicesUnhealthy" in line
        assert "ResourceReady" in described
        assert "example.com/a: 1 device Unhealthy" in described.partition("Events:")[2]


async def test_what_repeats_itself_is_one_event_with_a_count(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(GOOD)
    async with cluster(short_dir, monkeypatch) as sandbox, daemon.telling(sandbox.nodes()[0], short_dir):
        await until(lambda: len(events(sandbox)) == 1)
        for number in (1, 2, 3):
            daemon.says(ILL, 10)
            await until(lambda: _count(sandbox, "DeviceUnhealthy") == number)  # noqa: B023 -- waited for
            daemon.says(GOOD, 10)
            await until(lambda: _count(sandbox, "DeviceHealthy") == number)  # noqa: B023 -- waited for
        assert len(events(sandbox)) == 3
        (one,) = [one for one in events(sandbox) if one["reason"] == "DeviceUnhealthy"]
        assert (one["firstTimestamp"], one["lastTimestamp"]) == (
            "2023-11-14T22:13:30Z",
            "2023-11-14T22:14:10Z",
        )
        # Somebody cleans up: what comes next is written as new.
        sandbox.registry.delete(EVENTS, "default", one["metadata"]["name"])
        daemon.says(ILL, 10)
        await until(lambda: _count(sandbox, "DeviceUnhealthy") == 4)


def _count(sandbox: Sandbox, reason: str) -> int:
    return sum(one["count"] for one in events(sandbox) if one["reason"] == reason)


async def test_a_condition_beats_and_keeps_the_time_of_its_last_change_also_over_a_restart(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(short_dir, monkeypatch) as sandbox:
        daemon = Daemon(GOOD)
        async with daemon.telling(sandbox.nodes()[0], short_dir):
            await until(lambda: condition(sandbox))
            daemon.says(GOOD, 301)
            await until(lambda: condition(sandbox)["lastHeartbeatTime"] == "2023-11-14T22:18:21Z")
            assert condition(sandbox)["lastTransitionTime"] == "2023-11-14T22:13:20Z"
        successor = Daemon(GOOD)
        successor.now = daemon.now + 1000
        async with successor.telling(sandbox.nodes()[0], short_dir):
            await until(lambda: condition(sandbox)["lastHeartbeatTime"] == "2023-11-14T22:35:01Z")
            assert condition(sandbox)["lastTransitionTime"] == "2023-11-14T22:13:20Z"
            successor.says(GOOD, 301)
            await until(lambda: condition(sandbox)["lastHeartbeatTime"] == "2023-11-14T22:40:02Z")
            assert condition(sandbox)["lastTransitionTime"] == "2023-11-14T22:13:20Z"
            successor.says(ILL, 20)
            await until(lambda: condition(sandbox)["status"] == "False")
            assert condition(sandbox)["lastTransitionTime"] == "2023-11-14T22:40:22Z"
        kubelets = {"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"}
        node: Any = sandbox.registry.find(NODES, "", sandbox.nodes()[0])
        assert {one["type"] for one in node["status"]["conditions"]} == kubelets | {"DevicesReady"}


async def test_an_api_server_that_was_away_is_told_when_it_is_back(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state = short_dir / "state"
    caplog.set_level(logging.INFO)
    daemon = Daemon(GOOD)
    async with cluster(short_dir, monkeypatch, state=state) as first:
        node = first.nodes()[0]
    async with daemon.telling(node, short_dir):
        await until(lambda: caplog.text.count("cannot write to the API server") == 2)
        daemon.says(ILL, 60)
        async with cluster(short_dir, monkeypatch, state=state) as sandbox:
            await until(lambda: condition(sandbox).get("status") == "False")
            await until(lambda: len(events(sandbox)) == 2)
            assert [one["reason"] for one in events(sandbox)] == ["ResourceReady", "DeviceUnhealthy"]
        await until(lambda: caplog.text.count("writing to the API server works again") == 2)
    assert caplog.text.count("cannot write to the API server") == 2


async def test_without_the_rights_one_line_says_which_and_the_daemon_goes_on(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(short_dir / "kubeconfig"))
    daemon = Daemon(GOOD)
    async with api_server(short_dir / "kubeconfig") as server:
        for kind in ("get", "watch", "list"):
            server.refusals[kind] = refusal(403, "no right")
        async with daemon.telling("m", short_dir):
            await server.wait(lambda: len(server.requests) > 8)
    told = [vars(one)["reason"] for one in caplog.records]
    assert sorted(told) == [
        "the API server refuses (403 no right); let the ServiceAccount create and patch events",
        "the API server refuses (403 no right); let the ServiceAccount get nodes and patch nodes/status",
    ]


async def test_without_an_account_it_is_told_once_what_is_missing(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    waits: list[int] = []

    class Counted(Retries, frozen=True):
        def wait_seconds(self, failures: int) -> float:
            waits.append(failures)
            return 0.0

    async with Daemon(GOOD).telling("m", short_dir, Counted()):
        await until(lambda: max(waits, default=0) > 5)
    assert len(caplog.records) == 2
    assert all("give the pod a ServiceAccount" in vars(one)["reason"] for one in caplog.records)


async def test_a_look_that_fails_ends_nothing(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Daemon):
        def status(self) -> ProcessStatus:
            if self.now == START:
                raise RuntimeError("a bug of ours")
            return super().status()

    daemon = Failing(GOOD)
    async with cluster(short_dir, monkeypatch) as sandbox, daemon.telling(sandbox.nodes()[0], short_dir):
        words = "cannot compute what to write to the API server; it is tried again at the next change"
        await until(lambda: words in caplog.text)
        daemon.says(GOOD, 1)
        await until(lambda: condition(sandbox))


@needs_mknod
async def test_a_real_device_that_is_unplugged_is_told_to_the_cluster(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = char_node(short_dir / "dev" / "x0")
    file = f'version: 1\nresources: [{{name: example.com/x, discover: {{path: "{short_dir}/dev/*"}}}}]'
    async with cluster(short_dir, monkeypatch) as sandbox:
        plugin_dir = sandbox.place.node(sandbox.nodes()[0]).plugin_dir
        async with (
            serve_config(load(file, "f"), plugin_dir=plugin_dir) as serving,
            asyncio.TaskGroup() as group,
        ):
            task = group.create_task(
                report_to_cluster(
                    lambda: status_of(serving.statuses(), ""),
                    serving.notifier,
                    sandbox.nodes()[0],
                    account=short_dir,
                    look_pause_seconds=0.01,
                )
            )
            await until(lambda: condition(sandbox).get("status") == "True")
            node.unlink()
            await until(lambda: len(events(sandbox)) == 2)
            ready, gone = events(sandbox)
            assert ready["message"] == ("example.com/x: registered with the kubelet, 1 of 1 devices Healthy")
            assert gone["message"] == "example.com/x: 1 device Unhealthy: x0 (unplugged)"
            assert gone["involvedObject"]["uid"] == sandbox.nodes()[0]
            task.cancel()
