"""The containers of one pod on its node: starting, stopping and ending them, with records and pod addresses.

When any of that is done is decided by `podworker`. A pod has its address for as long as it is there; nothing
listens on it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from devplug.errors import DevplugError, KubeletError
from devplug.k8s.objects import Object, entries, fields, text
from devplug.kubelet.pods import ContainerState
from devplug.sandbox.events import reference
from devplug.sandbox.nodes.containerrecords import ContainerRecord, record_of
from devplug.sandbox.nodes.containerruntime import StartOrder
from devplug.sandbox.nodes.podlifecycle import Role, plan_of
from devplug.sandbox.nodes.podstatus import container_id, is_in_name_only
from devplug.sandbox.nodes.probes import ContainerProbes, probes_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from devplug.errors import KubeletCrashError
    from devplug.kubelet.kubelet import Kubelet
    from devplug.sandbox.events import EventRecorder
    from devplug.sandbox.nodes.containerruntime import ContainerRuntime, Ended
    from devplug.sandbox.nodes.podlifecycle import PodPlan
    from devplug.sandbox.registry import Registry

_RESERVED = 2
"""The network's own address and the gateway's."""

_RETRY_SECONDS = 10.0
"""After how long a container is tried again that could not be made."""

_START_ERROR = 128
"""The exit code of a container whose program could not be started (containerd)."""


# ── Addresses ──


class AddressPool:
    """The addresses of one node, given out in turn; lives as long as the node."""

    def __init__(self, subnet: str) -> None:
        self._network = IPv4Network(subnet)
        self._taken: dict[str, int] = {}
        self._last = _RESERVED - 1

    def take(self, pod_uid: str) -> str:
        """Return a pod's address, a new one if it has none; empty if all are taken."""
        if pod_uid not in self._taken:
            used = set(self._taken.values())
            places = range(_RESERVED, self._network.num_addresses - 1)
            after = [*range(self._last + 1, places.stop), *places]
            place = next((one for one in after if one not in used), None)
            if place is None:
                return ""
            self._taken[pod_uid] = self._last = place
        return str(self._network[self._taken[pod_uid]])

    def release(self, pod_uid: str) -> None:
        """Take a pod's address back; one without is no error."""
        self._taken.pop(pod_uid, None)


# ── Containers ──


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The parts of one node that all its pod workers share."""

    node_name: str
    registry: Registry
    kubelet: Kubelet
    runtime: ContainerRuntime
    recorder: EventRecorder
    addresses: AddressPool
    host_ip: str
    is_up: asyncio.Event
    """Set while there is a kubelet that has admitted all pods which it knew at its start, and these pods are
    among those that it knows."""
    refresh_node: Callable[[], None]
    """Makes the kubelet know what the Node object has."""
    crashed: Callable[[KubeletCrashError], None]
    """Told when the kubelet has done what makes the real one crash."""
    is_static: bool = False
    """Whether these are the node's static pods; `registry` is the node's own then."""


class PodContainers:
    """The owner of all that a node remembers of one pod's containers; lives as long as the pod is here.

    `pod` is the pod as it was looked at last, and `changed` is called when a container has ended.
    """

    def __init__(self, pod: Object, context: NodeContext, changed: Callable[[], None]) -> None:
        self.pod = pod
        self.plan = plan_of(pod)
        self.pod_ip = ""
        self._context = context
        self._changed = changed
        self._uid = text(pod, "metadata", "uid")
        self._records = dict(_first_records(pod, self.plan, context.registry.now))
        self._exit_codes: dict[str, int] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._probing: dict[str, asyncio.Task[None]] = {}

    @property
    def records(self) -> Mapping[str, ContainerRecord]:
        """What is known of each container, by its name."""
        return self._records

    @property
    def running(self) -> tuple[str, ...]:
        """The containers that run, if only in name."""
        return tuple(name for name, record in self._records.items() if record.is_running)

    def event(self, type_: str, reason: str, message: str, container: str = "") -> None:
        """Write an event on the pod or on one of its containers."""
        path = ""
        if container:
            word = "containers" if self._role(container) is Role.APP else "initContainers"
            path = f"spec.{word}{{{container}}}"
        self._context.recorder.event(reference(self.pod, path), type_, reason, message)

    # ── starting ──

    async def start(self, name: str) -> None:
        """Start a container; one that cannot be made is tried again later. Raises `KubeletError`."""
        context, container = self._context, self._container(name)
        image = text(container, "image")
        in_name_only = not context.runtime.maps(image)
        if not self.pod_ip:
            self.pod_ip = context.addresses.take(self._uid)
        found = f'Container image "{image}" already present on machine and can be accessed by the pod'
        self.event("Normal", "Pulled", found, name)
        status = await context.kubelet.start_container(self._uid, name)
        if status.state is not ContainerState.RUNNING:
            self._hold_up(name, status.reason, status.message)
            return
        order = StartOrder(
            self.pod,
            context.node_name,
            context.kubelet.plugin_dir,
            container,
            self._records[name].starts,
            context.kubelet.container_config(self._uid, name),
            self._address,
        )
        probed = () if in_name_only else probes_of(container)
        id_ = container_id(self._uid, name, order.restart_count, in_name_only=in_name_only)
        self.event("Normal", "Created", "Container created", name)
        self._records[name] = self._records[name].running(self._now, id_, image, probed)
        if not in_name_only:
            try:
                await context.runtime.start(order)
            except (DevplugError, OSError) as error:
                self.event("Warning", "Failed", f"Error: {error}", name)
                self._note_end(name, _START_ERROR, self._now, "StartError", str(error))
                return
            if not self._records[name].is_running:
                # It has ended already, or the node was booted meanwhile: nothing may be left of it.
                await context.runtime.stop(self._uid, name, 0)
        self.event("Normal", "Started", "Container started", name)
        self._begin_probes(name)
        if in_name_only and self._role(name) is Role.INITIAL:
            self._note_end(name, 0, self._now)

    def _hold_up(self, name: str, reason: str, message: str) -> None:
        """Note that a container could not be made; a kubelet that went away meanwhile gives no reason."""
        if not reason:
            return
        self.event("Warning", "Failed", f"Error: {message}", name)
        until = self._now + timedelta(seconds=_RETRY_SECONDS)
        self._records[name] = self._records[name].waiting(reason, message, until)

    def back_off(self, name: str) -> None:
        """Say that a container waits before it is started again (kuberuntime_manager.go doBackOff)."""
        pod = f"{text(self.pod, 'metadata', 'name')}_{text(self.pod, 'metadata', 'namespace')}({self._uid})"
        message = f"Back-off restarting failed container {name} in pod {pod}"
        self.event("Warning", "BackOff", message, name)
        record = self._records[name]
        seconds = int(record.backoff_seconds)
        wait = f"{seconds // 60}m{seconds % 60}s" if seconds >= 60 else f"{seconds}s"
        message = f"back-off {wait} restarting failed container={name} pod={pod}"
        self._records[name] = record.waiting("CrashLoopBackOff", message)

    # ── probes ──

    @asynccontextmanager
    async def probing(self) -> AsyncIterator[None]:
        """Probe the containers that run, and those that are started, until the block is left."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for name in self.running:
                    self._begin_probes(name)
                yield
            finally:
                for name in list(self._probing):
                    self._end_probes(name)
                self._tasks = None

    def _begin_probes(self, name: str) -> None:
        record, container = self._records[name], self._container(name)
        probes = probes_of(container)
        if self._tasks is None or not (probes and record.is_running) or is_in_name_only(record.container_id):
            return
        execute = partial(self._context.runtime.execute, self._uid, name)
        observer = _Probed(self, name, self.plan.grace_seconds)
        watched = ContainerProbes(probes, self._address, execute, observer)
        self._probing[name] = self._tasks.create_task(watched.run())

    def _end_probes(self, name: str) -> None:
        if task := self._probing.pop(name, None):
            task.cancel()

    def note_probe(self, name: str, **facts: bool) -> None:
        """Note what the probes of a container that runs say now."""
        before = self._records[name]
        if before.is_running and (after := replace(before, **facts)) != before:  # type: ignore[arg-type]
            self._records[name] = after
            self._changed()

    async def end_failed(self, name: str, kind: str, grace_seconds: int) -> None:
        """End a container whose startup or liveness probe has failed; its policy says whether it restarts."""
        self.event(
            "Normal", "Killing", f"Container {name} failed {kind.lower()} probe, will be restarted", name
        )
        await self._context.runtime.stop(self._uid, name, grace_seconds)

    @property
    def _address(self) -> str:
        """The pod's address where it can be had on this machine: the same one in the network 127.0.0.0/8."""
        return f"127.{self.pod_ip.partition('.')[2]}" if self.pod_ip else ""

    # ── ending ──

    def process_ended(self, ended: Ended) -> None:
        """Note that a container's process has ended."""
        self._note_end(ended.container, ended.exit_code, ended.finished)

    async def end(self, name: str, exit_code: int) -> None:
        """Have a container end as if by itself; one that does not run is left alone."""
        if not self._records[name].is_running:
            return
        if not is_in_name_only(self._records[name].container_id):
            self._exit_codes[name] = exit_code
            await self._context.runtime.stop(self._uid, name, 0)
        self._note_end(name, exit_code, self._now)

    async def stop(self, names: Iterable[str], grace_seconds: float) -> None:
        """Stop containers, and return once they are gone."""
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                self.event("Normal", "Killing", f"Stopping container {name}", name)
                tasks.create_task(self._stop_one(name, grace_seconds))

    async def stop_outdated(self, name: str, grace_seconds: float) -> None:
        """Stop a container that is to be started anew with another image."""
        self.event("Normal", "Killing", f"Container {name} definition changed, will be restarted", name)
        await self._stop_one(name, grace_seconds)

    async def _stop_one(self, name: str, grace_seconds: float) -> None:
        if not is_in_name_only(self._records[name].container_id):
            await self._context.runtime.stop(self._uid, name, grace_seconds)
        self._note_end(name, 0, self._now)

    async def boot(self) -> None:
        """End all containers at once, as a boot of the node does."""
        now = self._now
        running = self.running
        for name in running:
            self._end_probes(name)
        self._records = {name: record.lost(now) for name, record in self._records.items()}
        self.release_address()
        for name in running:
            if not is_in_name_only(self._records[name].container_id):
                await self._context.runtime.stop(self._uid, name, 0)

    def kubelet_started(self) -> None:
        """Forget what a kubelet does not know after its start."""
        self._records = {name: record.patient() for name, record in self._records.items()}

    def release_address(self) -> None:
        """Give the pod's address back, as with its network."""
        self._context.addresses.release(self._uid)
        self.pod_ip = ""

    def _note_end(
        self, name: str, exit_code: int, finished: datetime, reason: str = "", message: str = ""
    ) -> None:
        """Note that a container has ended, unless that is known already."""
        exit_code = self._exit_codes.pop(name, exit_code)
        record = self._records[name]
        if record.is_running:
            self._end_probes(name)
            self._records[name] = record.terminated(exit_code, finished, reason=reason, message=message)
            with suppress(KubeletError):
                self._context.kubelet.end_container(self._uid, name)
            self._changed()

    @property
    def _now(self) -> datetime:
        return self._context.registry.now

    def _role(self, name: str) -> Role:
        return next((one.role for one in self.plan.containers if one.name == name), Role.APP)

    def _container(self, name: str) -> Object:
        every = [*entries(self.pod, "spec", "initContainers"), *entries(self.pod, "spec", "containers")]
        return next(fields(one) for one in every if text(one, "name") == name)


class _Probed:
    """What the probes of one start of one container say, for the pod."""

    def __init__(self, containers: PodContainers, name: str, grace_seconds: int) -> None:
        self._containers = containers
        self._name = name
        self._grace_seconds = grace_seconds

    def started(self) -> None:
        """Note that the startup probe has succeeded."""
        self._containers.note_probe(self._name, has_started=True)

    def ready(self, is_ready: bool) -> None:  # noqa: FBT001 -- as in `Observer`
        """Note what the readiness probe says now."""
        self._containers.note_probe(self._name, passes=is_ready)

    def failed(self, kind: str, message: str) -> None:
        """Say that one probe failed."""
        self._containers.event("Warning", "Unhealthy", f"{kind} probe failed: {message}", self._name)

    async def end(self, kind: str, grace_seconds: int | None) -> None:
        """End the container, within the probe's grace period or the pod's."""
        grace = self._grace_seconds if grace_seconds is None else grace_seconds
        await self._containers.end_failed(self._name, kind, grace)


def _first_records(pod: Object, plan: PodPlan, now: datetime) -> Iterator[tuple[str, ContainerRecord]]:
    """Yield the records of containers that are new, or are known from an earlier life of the node."""
    statuses = {
        text(one, "name"): one
        for word in ("initContainerStatuses", "containerStatuses")
        for one in entries(pod, "status", word)
    }
    for one in plan.containers:
        found = statuses.get(one.name)
        yield one.name, ContainerRecord(one.name) if found is None else record_of(one.name, found, now)
