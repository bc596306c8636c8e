"""A registry with nodes and pods, and controllers that run over it, for the tests of controllers."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from devplug.k8s.objects import fields, text
from devplug.k8s.times import stamp
from devplug.sandbox.api.watchlog import Selection
from devplug.sandbox.controllers.namespaces import make_first_namespaces
from devplug.sandbox.registry import EVENTS, NODES, PODS, Registry

RESOURCE, WIDGET = "example.com/resource", "kkloud.io/widget"

Found = TypeVar("Found")


class Controller(Protocol):
    async def run(self) -> None: ...


class Clock:
    """A time that can be told to jump, for both kinds of times that controllers ask.

    The time of day else stands nearly still: no two events happen in the same microsecond.
    """

    def __init__(self) -> None:
        self.passed = 0.0
        self._asked = itertools.count()

    def now(self) -> datetime:
        passed = timedelta(seconds=self.passed, microseconds=next(self._asked))
        return datetime(2026, 11, 21, tzinfo=UTC) + passed

    def seconds(self) -> float:
        return self.passed + time.monotonic()


def new_registry(clock: Clock | None = None) -> Registry:
    registry = Registry(now=(clock or Clock()).now, seed=1)
    make_first_namespaces(registry)
    return registry


def add_node(registry: Registry, name: str = "worker-0", **more: Any) -> Any:
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "110", **more.pop("amounts", {})}
    labels = {"kubernetes.io/hostname": name, **more.pop("labels", {})}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": more.pop("conditions", [])}
    one: Any = {"metadata": {"name": name, "labels": labels}, "spec": more, "status": status}
    return registry.create(NODES, "", one)


def set_allocatable(registry: Registry, name: str, **amounts: str) -> None:
    """Underscores stand for what no name has in Python: `example_com__resource`."""
    status = fields(registry.get(NODES, "", name), "status")
    told = {key.replace("__", "/").replace("_", "."): value for key, value in amounts.items()}
    status = {**status, "allocatable": {**fields(status, "allocatable"), **told}}
    registry.set_status(NODES, "", name, status)


def pod_of(name: str, limits: dict[str, str] | None = None, **spec: Any) -> Any:
    meta = {"name": name, **spec.pop("metadata", {})}
    containers = [{"name": "c", "image": "busybox:1", "resources": {"limits": limits or {}}}]
    return {"metadata": meta, "spec": {"containers": containers, **spec}}


def add_pod(registry: Registry, name: str, limits: dict[str, str] | None = None, **spec: Any) -> Any:
    return registry.create(PODS, spec.pop("namespace", "default"), pod_of(name, limits, **spec))


def set_pod_status(registry: Registry, name: str, **status: Any) -> None:
    held = fields(registry.get(PODS, "default", name), "status")
    registry.set_status(PODS, "default", name, {**held, **status})


def make_ready(registry: Registry, name: str) -> None:
    """What a kubelet does."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(registry.now)}
    set_pod_status(registry, name, phase="Running", conditions=[ready])


def end(registry: Registry, name: str) -> None:
    """What a kubelet does to a pod that is being deleted."""
    registry.delete(PODS, "default", name, grace_seconds=0)


def told(registry: Registry, about: str) -> list[str]:
    """Type, reason and message of all events about one object, the first first."""
    events = [one for one in registry.all(EVENTS) if text(one, "involvedObject", "name") == about]
    events.sort(key=lambda one: int(text(one, "metadata", "resourceVersion")))
    return [f"{text(one, 'type')} {text(one, 'reason')} {text(one, 'message')}" for one in events]


def pods_in(registry: Registry, namespace: str = "default") -> list[Any]:
    return list(registry.all(PODS, Selection(namespace)))


@asynccontextmanager
async def running(*controllers: Controller) -> AsyncIterator[None]:
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(one.run()) for one in controllers]
        try:
            yield
        finally:
            for task in started:
                task.cancel()


QUIET_TURNS = 100


async def settled(registry: Registry, quiet_seconds: float = 0.02) -> None:
    """Return when nothing was changed for a while, which is long beside a controller's turn."""
    loop = asyncio.get_running_loop()
    version, since, turns = registry.version, loop.time(), 0
    # On a busy machine the time may be over before any controller had a turn.
    while loop.time() - since < quiet_seconds or turns < QUIET_TURNS:
        await asyncio.sleep(0)
        turns += 1
        if registry.version != version:
            version, since, turns = registry.version, loop.time(), 0
