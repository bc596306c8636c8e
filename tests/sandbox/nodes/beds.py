"""One node with an agent, a kubelet on real sockets, and no API server: pods are put into the registry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.settings import KubeletSettings
from devplug.sandbox.api.kinds import Resource
from devplug.sandbox.api.watchlog import ChangeType
from devplug.sandbox.nodes.agent import AgentSettings, NodeAgent
from devplug.sandbox.nodes.containerruntime import ContainerRuntime, Ended, StartOrder
from devplug.sandbox.nodes.noderegistration import facts_of_this_machine
from devplug.sandbox.registry import EVENTS, LEASES, NAMESPACES, NODES, PODS, Registry

RESOURCE = "example.com/resource"
WORKER = "worker-0"
START = datetime(2026, 11, 21, 0, 21, 59, tzinfo=UTC)


class NoPrograms:
    """A runtime without a single program: every container runs in name only."""

    def maps(self, image: str) -> bool:
        """Return False."""
        return False

    async def start(self, order: StartOrder) -> None:
        """Do nothing; nobody asks for it."""

    async def stop(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        """Do nothing; nobody asks for it."""

    async def execute(self, _pod_uid: str, _container: str, _command: Sequence[str]) -> tuple[int, str]:
        """Do nothing; nobody asks for it."""
        return 0, ""


class FakeTime:
    """The registry's time, which moves by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class FakeRuntime:
    """Starts nothing, but remembers what was asked, and tells of ends as a runtime does."""

    images: tuple[str, ...] = ("mapped",)
    error: Exception | None = None
    orders: list[StartOrder] = field(default_factory=list)
    stopped: list[tuple[str, float]] = field(default_factory=list)
    executed: list[tuple[str, ...]] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
    """The exit code of a command in a container, by its first word; 0 for others."""
    on_ended: Callable[[Ended], None] = lambda _: None
    time: Callable[[], datetime] = lambda: START

    def maps(self, image: str) -> bool:
        return image in self.images

    async def start(self, order: StartOrder) -> None:
        if self.error is not None:
            raise self.error
        self.orders.append(order)

    async def stop(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        self.stopped.append((container, grace_seconds))
        self.end(pod_uid, container, 143)

    async def execute(self, _pod_uid: str, _container: str, command: Sequence[str]) -> tuple[int, str]:
        self.executed.append(tuple(command))
        return self.answers.get(command[0], 0), f"{command[0]} said no"

    def end(self, pod_uid: str, container: str, exit_code: int) -> None:
        self.on_ended(Ended(pod_uid, container, exit_code, self.time()))


def container(name: str = "c", image: str = "busybox:1", count: int = 0, **more: object) -> dict[str, object]:
    limits = {"resources": {"limits": {RESOURCE: str(count)}}} if count else {}
    return {"name": name, "image": image, **limits, **more}


def manifest(name: str, *containers: dict[str, object], **spec: object) -> dict[str, object]:
    """A pod that is bound to the node by name."""
    given = list(containers) or [container(count=1)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": WORKER, "containers": given, **spec},
    }


@dataclass
class Bed:
    """What a test has to do with."""

    registry: Registry
    kubelet: Kubelet
    agent: NodeAgent

    def put(self, pod: dict[str, object]) -> Any:
        return self.registry.create(PODS, "default", pod)

    def get(self, name: str) -> Any:
        return self.registry.get(PODS, "default", name)

    @property
    def node(self) -> Any:
        return self.registry.get(NODES, "", WORKER)

    def counts(self, resource_name: str = RESOURCE) -> tuple[str | None, str | None]:
        """Capacity and allocatable of a resource, as they stand in the Node object."""
        status = self.node["status"]
        return status["capacity"].get(resource_name), status["allocatable"].get(resource_name)

    def patch_capacity(self, operation: str, resource_name: str, value: str | None = None) -> None:
        """What `kubectl patch node --subresource=status --type=json` does."""
        path = f"/status/capacity/{resource_name.replace('/', '~1')}"
        patch = {"op": operation, "path": path, **({"value": value} if value else {})}
        self.registry.patch(NODES, "", WORKER, "application/json-patch+json", [patch], part_name="status")

    def annotate(self, name: str, **annotations: str) -> None:
        """What `kubectl annotate` does; `exit_code` stands for `sandbox.devplug.dev/exit-code`."""
        named = {f"sandbox.devplug.dev/{key.replace('_', '-')}": one for key, one in annotations.items()}
        patch = {"metadata": {"annotations": named}}
        self.registry.patch(PODS, "default", name, "application/merge-patch+json", patch)

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """Type, reason and message of the events on an object, oldest first."""
        found: list[Any] = [
            one
            for one in self.registry.all(EVENTS)
            if one["involvedObject"]["name"] == name  # type: ignore[index]
        ]
        found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [(one["type"], one["reason"], one["message"]) for one in found]

    async def pod(self, name: str, condition: Callable[[Any], object]) -> Any:
        """Wait until a pod is so, and return it."""
        return await self._object(PODS, name, condition)

    async def running(self, name: str) -> Any:
        return await self.pod(name, lambda pod: pod["status"]["phase"] == "Running")

    async def ended(self, name: str) -> Any:
        return await self.pod(name, lambda pod: pod["status"]["phase"] in {"Succeeded", "Failed"})

    async def node_is(self, condition: Callable[[Any], object]) -> Any:
        return await self._object(NODES, WORKER, condition)

    async def counted(self, counts: tuple[str | None, str | None], resource_name: str = RESOURCE) -> None:
        """Wait until capacity and allocatable are these."""
        await self.node_is(lambda _: self.counts(resource_name) == counts)

    async def told(self, name: str, reason: str) -> str:
        """Wait for an event on an object, and return its message."""
        async with aclosing(self.registry.follow(EVENTS)) as events:
            async for event in events:
                one: Any = event.object
                if one["involvedObject"]["name"] == name and one["reason"] == reason:
                    return str(one["message"])
        raise AssertionError

    async def gone(self, name: str) -> None:
        async with aclosing(self.registry.follow(PODS)) as events:
            if self.registry.find(PODS, "default", name) is None:
                return
            async for event in events:
                if event.type is ChangeType.DELETED and event.object["metadata"]["name"] == name:  # type: ignore[index]
                    return

    async def leased(self, renewed: str) -> Any:
        """Wait until the node's lease was renewed at that time."""
        return await self._object(LEASES, WORKER, lambda one: one["spec"]["renewTime"] == renewed)

    async def _object(self, resource: Resource, name: str, condition: Callable[[Any], object]) -> Any:
        async with aclosing(self.registry.follow(resource)) as events:
            async for event in events:
                one: Any = event.object
                if one["metadata"]["name"] == name and condition(one):
                    return one
        raise AssertionError


@asynccontextmanager
async def node(
    folder: Path,
    *,
    runtime: ContainerRuntime | None = None,
    time: Callable[[], datetime] | None = None,
    heartbeat_seconds: float = 10.0,
    manifests: Path | None = None,
    like_real_timing: bool = False,
    registry: Registry | None = None,
    settings: KubeletSettings | None = None,
    patience_seconds: float = 30,
) -> AsyncIterator[Bed]:
    """A node that is up, for a while."""
    if registry is None:
        registry = Registry(now=time, seed=1) if time is not None else Registry(seed=1)
        for name in ("default", "kube-node-lease"):
            registry.create(NAMESPACES, "", {"metadata": {"name": name}})
    kubelet = Kubelet(folder, settings or KubeletSettings())
    facts = facts_of_this_machine(WORKER)
    agent_settings = AgentSettings(
        heartbeat_seconds=heartbeat_seconds, manifests=manifests, like_real_timing=like_real_timing
    )
    agent = NodeAgent(facts, kubelet, registry, runtime or NoPrograms(), agent_settings)
    if isinstance(runtime, FakeRuntime):
        runtime.on_ended = agent.container_ended
    async with asyncio.timeout(patience_seconds), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(agent.run())
        bed = Bed(registry, kubelet, agent)
        await bed.node_is(lambda one: "capacity" in one.get("status", {}))
        yield bed
        task.cancel()
