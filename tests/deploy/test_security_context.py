"""The daemon under exactly what the DaemonSet grants does all of its work."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

import pytest

from devplug.daemon.sources.kinds import RESYNC_SECONDS
from devplug.kubelet.pods import Container as PodContainer
from devplug.kubelet.pods import Pod, PodPhase
from tests.deploy.security_context.grants import container_of, grants_of
from tests.deploy.security_context.manifest import daemon_set
from tests.deploy.security_context.stage import (
    CONFIG,
    RESOURCE,
    ROOT,
    Node,
    advertised,
    memory_cgroup,
    needs_namespaces,
    until_advertised,
)
from tests.kerneldevices import announce, needs_uevents
from tests.waiting import until

pytestmark = [pytest.mark.root, needs_namespaces]

HEADROOM: Final = 0.75
"""The most of its memory limit that the daemon may need for a small node; and of the time after which it
looks by itself, the most that may pass until an event has told it of a device."""


async def test_it_registers_advertises_and_answers_allocate(short_dir: Path) -> None:
    node = Node(short_dir, [daemon_set(CONFIG)])
    node.plug("ttyX0", "ttyX1")
    async with node.kubelet() as kubelet, node.container():
        await until_advertised(kubelet, "ttyX0", "ttyX1")
        status = await kubelet.run_pod(Pod("p", "p", containers=(PodContainer("c", {RESOURCE: 1}),)))
        assert status.phase is PodPhase.RUNNING, status
        options = status.containers[0].options
        assert options is not None
        assert [one.host_path for one in options.device_nodes] in (["/dev/ttyX0"], ["/dev/ttyX1"])


async def test_a_node_that_is_plugged_in_is_advertised_at_once(short_dir: Path) -> None:
    node = Node(short_dir, [daemon_set(CONFIG)])
    node.plug("ttyX0")
    async with node.kubelet() as kubelet, node.container():
        await until_advertised(kubelet, "ttyX0")
        async with asyncio.timeout(RESYNC_SECONDS * HEADROOM):
            node.plug("ttyX1")
            await until_advertised(kubelet, "ttyX0", "ttyX1")


async def test_it_is_back_after_a_kubelet_restart(short_dir: Path) -> None:
    node = Node(short_dir, [daemon_set(CONFIG)])
    node.plug("ttyX0")
    async with node.kubelet() as kubelet, node.container():
        await until_advertised(kubelet, "ttyX0")
        await kubelet.restart()
        await kubelet.wait(lambda: kubelet.registrations(RESOURCE) and advertised(kubelet) == {"ttyX0"})


@needs_uevents
async def test_it_hears_the_kernel_in_a_network_namespace_of_its_own(short_dir: Path) -> None:
    program = """
import asyncio, json
from devplug.linux.uevents import shared_uevents

async def main():
    heard = asyncio.Event()
    async with shared_uevents() as listener:
        with listener.subscribe(lambda event: event and event.subsystem == "mem" and heard.set()):
            print(json.dumps(listener.is_listening), flush=True)
            await heard.wait()

asyncio.run(main())
"""

    node = Node(short_dir, [daemon_set(CONFIG)])
    async with node.container("--program", program) as container:
        await until(lambda: container.output() or container.runner.returncode is not None)
        assert json.loads(container.output()) is True
        container.may_end = True
        announce("/sys/devices/virtual/mem/null")
        assert await container.runner.wait() == 0


async def test_the_probes_of_the_manifest_are_answered(short_dir: Path) -> None:
    manifest = daemon_set(CONFIG)
    described = container_of(manifest["spec"]["template"]["spec"])
    (port,) = (one["containerPort"] for one in described["ports"] if one["name"] == "http")
    paths = [described[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")]
    ask = "import sys, urllib.request as u; print(*(u.urlopen(one).status for one in sys.argv[1:]))"

    node = Node(short_dir, [manifest])
    node.plug("ttyX0")
    async with node.kubelet() as kubelet, node.container() as container:
        await until_advertised(kubelet, "ttyX0")
        urls = [f"http://127.0.0.1:{port}{path}" for path in paths]
        asked = await asyncio.create_subprocess_exec(
            *("nsenter", "--net", "--target", str(container.pid()), sys.executable, "-c", ask, *urls),
            stdout=asyncio.subprocess.PIPE,
        )
        assert (await asked.communicate())[0].split() == [b"200"] * 3, container.output()


async def test_it_ends_when_asked_and_leaves_nothing_of_its_own(short_dir: Path) -> None:
    node = Node(short_dir, [daemon_set(CONFIG)])
    node.plug("ttyX0")
    async with node.kubelet() as kubelet, node.container() as container:
        await until_advertised(kubelet, "ttyX0")
        before = {path.name for path in kubelet.plugin_dir.iterdir()}
        assert await container.end() == 0, container.output()
        left = {path.name for path in kubelet.plugin_dir.iterdir()}
        assert {name for name in before if name.startswith("devplug-")} & left == set()


async def test_it_needs_far_less_than_its_memory_limit(short_dir: Path) -> None:
    manifest = daemon_set(CONFIG)
    limit = grants_of(manifest["spec"]["template"]["spec"], "n").memory_bytes
    assert limit is not None

    node = Node(short_dir, [manifest])
    node.plug(*(f"ttyX{number}" for number in range(100)))
    with memory_cgroup(int(limit * HEADROOM)) as group:
        async with node.kubelet() as kubelet, node.container("--cgroup", str(group)):
            await until_advertised(kubelet, *(f"ttyX{number}" for number in range(100)))


@pytest.mark.nightly  # what a pod needs is in the tests above
async def test_it_passes_devplug_verify(short_dir: Path) -> None:
    """The quick set, with hot-plug: the judge and the container see the node's /dev, as on a node."""
    node = Node(short_dir, [daemon_set(CONFIG)])
    node.plug(*(f"ttyX{number}" for number in range(5)))
    unplug = ("--unplug", "rm /dev/ttyX0", "--replug", "mknod /dev/ttyX0 c 60 0")
    judge = (sys.executable, "-m", "devplug", "verify", "--quick", "--color", "never", *unplug)
    script = 'mount --rbind "$0" /dev && exec "$@"'
    words = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(node.dev), *judge)

    process = await asyncio.create_subprocess_exec(
        *(*words, "--", *node.command("{dir}", "{dir}/..")),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert " 0 failed" in output.decode()
