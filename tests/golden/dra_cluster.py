"""A cluster of one node in this process, by the loop's clock: its API, controllers, scheduler and kubelet."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from devplug.k8s.objects import text
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.settings import KubeletSettings
from devplug.sandbox.api.kinds import Resource
from devplug.sandbox.controllers.devicetainteviction import DeviceTaintEvictionController
from devplug.sandbox.controllers.garbagecollector import GarbageCollector
from devplug.sandbox.controllers.namespaces import NamespaceController, make_first_namespaces
from devplug.sandbox.controllers.resourceclaim import ResourceClaimController
from devplug.sandbox.controllers.scheduler import Scheduler
from devplug.sandbox.nodes.agent import NodeAgent
from devplug.sandbox.nodes.noderegistration import facts_of_this_machine
from devplug.sandbox.nodes.podclaims import NodeClaims
from devplug.sandbox.registry import EVENTS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Registry
from tests.sandbox.nodes.beds import WORKER, FakeRuntime
from tests.virtualtime import passes

Json = Any

START = datetime(2026, 11, 22, 16, 4, 31, tzinfo=UTC)


IMAGE = "busybox:1.35"
STOP_SECONDS = 2.6
"""How long the recorded containers took to stop, which leave SIGTERM alone."""


class StubbornRuntime(FakeRuntime):
    """A runtime whose containers have to be killed."""

    async def stop(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        await passes(STOP_SECONDS)
        self.stopped.append((container, grace_seconds))
        self.end(pod_uid, container, 137)

    async def execute(self, _pod_uid: str, _container: str, _command: Sequence[str]) -> tuple[int, str]:
        """Nothing is probed."""
        return 0, ""


@dataclass
class Cluster:
    """What a session has to do with; all of it lives as long as `running`."""

    folder: Path
    """The kubelet's root."""
    registry: Registry
    kubelet: Kubelet

    def claim(self, namespace: str, name: str) -> Json:
        return self.registry.find(RESOURCE_CLAIMS, namespace, name)

    def pod(self, namespace: str, name: str) -> Json:
        return self.registry.find(PODS, namespace, name)

    def events(self, about: str) -> Iterator[Json]:
        """Yield the events about one object, the first first."""
        found = [one for one in self.registry.all(EVENTS) if text(one, "involvedObject", "name") == about]
        yield from sorted(found, key=lambda one: int(text(one, "metadata", "resourceVersion")))

    def publish(self, name: str, driver: str, devices: Sequence[Json]) -> None:
        """Write the driver's slice of the node, as the driver does."""
        pool = {"name": WORKER, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": WORKER, "pool": pool, "devices": list(devices)}
        self.registry.create(RESOURCE_SLICES, "", {"metadata": {"name": name}, "spec": spec})

    def taint(self, slice_name: str, device: str, taint: Json) -> None:
        """Give one device of a slice a taint, as its driver does."""

        def tainted(old: Json) -> Json:
            devices = [
                {**one, "taints": [taint]} if one["name"] == device else one for one in old["spec"]["devices"]
            ]
            return {**old, "spec": {**old["spec"], "devices": devices}}

        self.registry.update(RESOURCE_SLICES, "", slice_name, tainted)


@asynccontextmanager
async def running(folder: Path, contents: Iterable[tuple[Resource, Json]] = ()) -> AsyncIterator[Cluster]:
    """Run a cluster of these objects and one node, with the kubelet's sockets and files below a folder."""
    seconds = asyncio.get_running_loop().time
    begin, asked = seconds(), itertools.count()

    def now() -> datetime:  # no two events happen in the same microsecond
        return START + timedelta(seconds=seconds() - begin, microseconds=next(asked))

    registry = Registry(contents, now=now, seed=1)
    make_first_namespaces(registry)
    claims = NodeClaims(registry, WORKER, lambda: kubelet.is_api_server_up)
    kubelet = Kubelet.under(folder, KubeletSettings(clock=seconds, claims=claims, slices=claims))
    runtime = StubbornRuntime(images=(IMAGE,), time=now)
    agent = NodeAgent(facts_of_this_machine(WORKER), kubelet, registry, runtime)
    runtime.on_ended = agent.container_ended
    parts = (
        NamespaceController(registry, seconds=seconds),
        GarbageCollector(registry, seconds=seconds),
        ResourceClaimController(registry, seconds=seconds),
        DeviceTaintEvictionController(registry, seconds=seconds),
        Scheduler(registry, seconds=seconds),
        agent,
    )
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(part.run()) for part in parts]
        try:
            await kubelet.wait(lambda: kubelet.is_running)
            yield Cluster(folder, registry, kubelet)
        finally:
            for task in started:
                task.cancel()
