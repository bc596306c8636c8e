"""Probes of programs: what makes a pod ready, and what starts a container again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devplug.sandbox.api.fieldselectors import field_selector
from devplug.sandbox.api.watchlog import Selection
from devplug.sandbox.cluster import Sandbox
from devplug.sandbox.nodes.probes import Probe, probes_of
from devplug.sandbox.registry import DAEMON_SETS, EVENTS, PODS
from devplug.sandbox.settings import SandboxSettings
from tests.sandbox.nodes.beds import Bed, FakeRuntime, container, manifest, node

SERVES = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
folder = Path(sys.argv[1])

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if (folder / self.path[1:]).exists() else 503)
        self.end_headers()

    def log_message(self, *_):
        pass

host, _, port = os.environ["DEVPLUG_LISTEN"].rpartition(":")
print("listens at", host, port, flush=True)
HTTPServer((host, int(port)), Handler).serve_forever()
"""


def probe(word: str, **rest: object) -> dict[str, object]:
    return {"exec": {"command": [word]}, "periodSeconds": 1, "failureThreshold": 1, **rest}


def status(pod: Any) -> Any:
    return pod["status"].get("containerStatuses", [{}])[0]


def is_ready(pod: Any) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and status(pod)["ready"]


@asynccontextmanager
async def probed(folder: Path, runtime: FakeRuntime, **probes: Any) -> AsyncIterator[Bed]:
    async with node(folder, runtime=runtime) as bed:
        bed.put(manifest("p", container(image="mapped", **probes)))
        yield bed


async def test_a_pod_is_not_ready_before_its_readiness_probe_succeeds(short_dir: Path) -> None:
    runtime = FakeRuntime(answers={"ready": 1})
    async with probed(short_dir, runtime, readinessProbe=probe("ready")) as bed:
        assert await bed.told("p", "Unhealthy") == "Readiness probe failed: ready said no"
        pod = await bed.running("p")
        assert (is_ready(pod), status(pod)["started"]) == (False, True)
        runtime.answers = {}
        await bed.pod("p", is_ready)
        runtime.answers = {"ready": 1}
        await bed.pod("p", lambda pod: not is_ready(pod))
        assert status(bed.get("p"))["restartCount"] == 0


async def test_a_failing_liveness_probe_starts_the_container_again(short_dir: Path) -> None:
    runtime = FakeRuntime(answers={"alive": 1})
    async with probed(
        short_dir, runtime, livenessProbe=probe("alive", terminationGracePeriodSeconds=7)
    ) as bed:
        await bed.pod("p", lambda pod: status(pod).get("restartCount") == 1)
        assert ("c", 7) in runtime.stopped
        killed = "Container c failed liveness probe, will be restarted"
        assert ("Normal", "Killing", killed) in bed.events("p")


async def test_other_probes_wait_for_the_startup_probe(short_dir: Path) -> None:
    runtime = FakeRuntime(answers={"up": 1})
    slow = probe("up", failureThreshold=1000)
    both = {"livenessProbe": probe("alive"), "readinessProbe": probe("ready")}
    async with probed(short_dir, runtime, startupProbe=slow, **both) as bed:
        await bed.told("p", "Unhealthy")
        pod = await bed.running("p")
        assert (status(pod)["started"], is_ready(pod)) == (False, False)
        assert {command for (command, *_) in runtime.executed} == {"up"}
        runtime.answers = {}
        await bed.pod("p", is_ready)
        assert status(bed.get("p"))["started"]


async def test_a_startup_probe_that_fails_for_good_starts_the_container_again(short_dir: Path) -> None:
    runtime = FakeRuntime(answers={"up": 1})
    async with probed(short_dir, runtime, startupProbe=probe("up")) as bed:
        await bed.pod("p", lambda pod: status(pod).get("restartCount") == 1)


async def test_a_container_without_a_program_is_ready_at_once(short_dir: Path) -> None:
    async with node(short_dir) as bed:
        bed.put(manifest("p", container(readinessProbe=probe("never"))))
        await bed.pod("p", is_ready)


def test_probes_have_the_defaults_of_the_api() -> None:
    ports = [{"name": "http", "containerPort": 9410}]
    probes = {
        "startupProbe": {"tcpSocket": {"port": "http"}},
        "readinessProbe": {"httpGet": {"port": "http"}},
        "livenessProbe": {"exec": {"command": ["a", "b"]}, "periodSeconds": 3, "failureThreshold": 9},
    }
    assert probes_of({"name": "c", "ports": ports, **probes}) == {
        "Startup": Probe("Startup", port=9410),
        "Readiness": Probe("Readiness", http_path="/", port=9410),
        "Liveness": Probe("Liveness", ("a", "b"), period_seconds=3, failures=9),
    }
    assert probes_of({"name": "c"}) == {}


async def test_a_rollout_over_two_nodes_is_ready_when_each_program_says_so(short_dir: Path) -> None:
    """Both programs listen at one port of one machine, each at its own pod's address."""
    one = {
        "name": "plugin",
        "image": "plugin",
        "env": [{"name": "DEVPLUG_LISTEN", "value": ":19410"}],
        "ports": [{"name": "http", "containerPort": 19410}],
        "startupProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1},
    }
    labels = {"app": "plugin"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [one]}}
    daemons = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    folder = short_dir / "answers"
    folder.mkdir()
    images = {"plugin": (sys.executable, "-c", SERVES, str(folder))}
    settings = SandboxSettings(folder=short_dir / "s", nodes=2, images=images)
    async with asyncio.timeout(60), Sandbox(settings).running() as sandbox:
        registry = sandbox.registry
        registry.create(DAEMON_SETS, "default", daemons)
        failed = Selection(fields=field_selector("reason=Unhealthy", EVENTS))
        told: set[str] = set()
        async for event in registry.follow(EVENTS, failed):
            found: Any = event.object
            if "statuscode: 503" in found["message"]:
                told.add(found["involvedObject"]["name"])
            if len(told) == 2:
                break
        pods: Any = registry.all(PODS)
        assert [is_ready(pod) for pod in pods] == [False, False]
        (folder / "ready").touch()
        async for event in registry.follow(DAEMON_SETS):
            found = event.object
            if found.get("status", {}).get("numberReady") == 2:
                break


@pytest.mark.parametrize("kind", ["readinessProbe", "livenessProbe"])
async def test_a_probe_over_http_that_nobody_answers_fails(short_dir: Path, kind: str) -> None:
    http = {"httpGet": {"port": 1}, "periodSeconds": 1}
    async with probed(short_dir, FakeRuntime(), **{kind: http}) as bed:
        assert "probe failed: " in await bed.told("p", "Unhealthy")
