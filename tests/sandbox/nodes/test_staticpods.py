"""Static pods, which a node has without the API server, and what it does while that is away."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from devplug.kubelet.settings import KubeletSettings
from devplug.sandbox.registry import PODS
from tests.kubelet.fakes import healthy, register, registered
from tests.kubelet.monitors import held, listed, socket_below
from tests.sandbox.nodes.beds import RESOURCE, WORKER, Bed, container, manifest, node


def write(folder: Path, name: str, *containers: dict[str, object], **metadata: object) -> None:
    """Put a manifest into the node's folder, whole, as everybody should."""
    pod = {"metadata": {"name": name, **metadata}, "spec": {"containers": list(containers)}}
    (folder / f".{name}.new").write_text(json.dumps(pod))
    (folder / f".{name}.new").rename(folder / f"{name}.yaml")


def bed_in(folder: Path) -> AbstractAsyncContextManager[Bed]:
    (folder / "manifests").mkdir()
    settings = KubeletSettings(pod_resources_socket=socket_below(folder))
    return node(folder / "device-plugins", manifests=folder / "manifests", settings=settings)


def is_ready(pod: Any) -> bool:
    ready = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return ready.get("Ready") == "True"


async def test_a_manifest_in_the_folder_is_a_pod_with_a_mirror_in_the_api(short_dir: Path) -> None:
    async with bed_in(short_dir) as bed, registered(bed.kubelet, healthy("a"), RESOURCE):
        write(short_dir / "manifests", "web", container(count=1), labels={"app": "web"})
        mirror = await bed.pod("web-worker-0", is_ready)
        assert (mirror["metadata"]["labels"], mirror["spec"]["nodeName"]) == ({"app": "web"}, WORKER)
        assert [one["kind"] for one in mirror["metadata"]["ownerReferences"]] == ["Node"]
        assert [one.device_ids for one in bed.kubelet.allocations()] == [("a",)]

        bed.registry.delete(PODS, "default", "web-worker-0")
        again = await bed.pod("web-worker-0", lambda one: one["metadata"]["uid"] != mirror["metadata"]["uid"])
        assert again["metadata"]["annotations"] == mirror["metadata"]["annotations"]

        write(short_dir / "manifests", "web", container(image="other", count=1))
        new = await bed.pod("web-worker-0", lambda one: is_ready(one) and "labels" not in one["metadata"])
        assert new["spec"]["containers"][0]["image"] == "other"
        (short_dir / "manifests" / "web.yaml").unlink()
        await bed.gone("web-worker-0")


async def test_a_manifest_that_is_no_pod_is_told_of_once(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bed_in(short_dir) as bed:
        (short_dir / "manifests" / "bad.yaml").write_text("spec: {containers: []}")
        write(short_dir / "manifests", "web", container())
        await bed.pod("web-worker-0", is_ready)
        (told,) = (one for one in caplog.records if one.name.endswith("staticpods"))
        assert "correct its manifest" in told.getMessage()


async def test_without_the_api_server_a_restarted_node_lists_its_static_pods_only(short_dir: Path) -> None:
    """As a real node did: u runs on, its device stays in the checkpoint, and no monitor hears of it."""
    async with bed_in(short_dir) as bed, registered(bed.kubelet, healthy("a", "b"), RESOURCE) as plugin:
        bed.put(manifest("u"))
        before = await bed.running("u")
        bed.agent.disconnect()
        await bed.node_is(lambda one: not is_ready(one))
        await bed.agent.restart_kubelet()
        await plugin.die()
        await plugin.listen()
        await register(bed.kubelet, plugin, RESOURCE)
        write(short_dir / "manifests", "web", container(count=1))
        await bed.kubelet.wait(lambda: len(bed.kubelet.allocations()) == 2)
        assert held(await listed(bed.kubelet)) == {"web-worker-0": [("c", ["b"])]}
        bed.registry.delete(PODS, "default", "u")
        assert bed.registry.find(PODS, "default", "web-worker-0") is None
        assert (bed.get("u")["status"], bed.counts()) == (before["status"], ("2", "2"))

        await bed.agent.reconnect()
        await bed.pod("web-worker-0", is_ready)
        await bed.node_is(is_ready)
        await bed.gone("u")
        assert held(await listed(bed.kubelet)) == {"web-worker-0": [("c", ["b"])]}
        assert [one.device_ids for one in bed.kubelet.allocations()] == [("b",)]
