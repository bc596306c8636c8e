"""The agent of one node: it keeps the pods of the node and its Node object as a kubelet does, over restarts.

It only follows and passes on: a pod is `podworker`'s, the Node object `noderegistration`'s, devices are the
kubelet's.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from devplug.errors import KubeletCrashError, KubeletError, one_line
from devplug.k8s.objects import Object, text
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.settings import FIRST_PODS_SECONDS
from devplug.linux.notifier import within
from devplug.linux.supervision import kept_running
from devplug.sandbox.api.fieldselectors import field_selector
from devplug.sandbox.api.watchlog import ChangeType, Selection
from devplug.sandbox.controllers.workqueue import key_of
from devplug.sandbox.nodes.description import describe_node
from devplug.sandbox.nodes.noderegistration import NodeRegistration
from devplug.sandbox.nodes.podcontainers import AddressPool, NodeContext
from devplug.sandbox.nodes.podlifecycle import Role
from devplug.sandbox.nodes.podworker import PodWorker
from devplug.sandbox.nodes.staticpods import StaticPods, is_mirror
from devplug.sandbox.registry import NODES, PODS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from devplug.kubelet.kubelet import Kubelet
    from devplug.sandbox.api.watchlog import WatchEvent
    from devplug.sandbox.nodes.containerruntime import ContainerRuntime, Ended
    from devplug.sandbox.nodes.nodestatus import NodeFacts
    from devplug.sandbox.registry import Registry

logger = logging.getLogger(__name__)

_OF_PODS = (ChangeKind.HEALTH, ChangeKind.POD)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Settings of one agent."""

    heartbeat_seconds: float = 10.0
    """How often the node says that it lives, and looks at everything again (nodeStatusUpdateFrequency)."""
    pod_subnet: str = "10.244.0.0/24"
    """Where its pods' addresses are from."""
    like_real_timing: bool = False
    """Whether the node's status follows changes at the next heartbeat, as a real kubelet's; else at once."""
    manifests: Path | None = None
    """The folder with the manifests of static pods; None for a node without any."""


class NodeAgent:
    """One node of the sandbox. It lives in `run`; the other methods are for while that runs."""

    def __init__(
        self,
        facts: NodeFacts,
        kubelet: Kubelet,
        registry: Registry,
        runtime: ContainerRuntime,
        settings: AgentSettings | None = None,
    ) -> None:
        self.name = facts.name
        self.kubelet = kubelet
        self._settings = settings or AgentSettings()
        self._registry = registry
        self._report = NodeRegistration(facts, kubelet, registry)
        self._context = NodeContext(
            facts.name,
            registry,
            kubelet,
            runtime,
            self._report.recorder,
            AddressPool(self._settings.pod_subnet),
            facts.internal_ip,
            asyncio.Event(),
            self._report.refresh_kubelet,
            self._crashed,
        )
        self._static: StaticPods | None = None
        if (folder := self._settings.manifests) is not None:
            self._static = StaticPods(facts.name, folder, registry)
        self._around_static = replace(
            self._context,
            registry=registry if self._static is None else self._static.registry,
            is_up=asyncio.Event(),
            is_static=True,
        )
        self._workers: dict[str, PodWorker] = {}
        self._dirty = asyncio.Event()
        self._next_beat_seconds = 0.0
        self._starting = asyncio.Lock()
        self._selection = Selection(fields=field_selector(f"spec.nodeName={facts.name}", PODS))

    async def run(self) -> None:
        """Be the node until cancelled: containers that run as processes are left to their runtime then.

        Pods that are on the node already are admitted in the order in which they were made, as at a start of
        the machine. Raises `KubeletError` if the kubelet cannot start.
        """
        # The kubelet removes the node's ResourceSlices as soon as it runs and there is a node.
        self._report.register()
        async with self.kubelet.running(sources_ready=False), asyncio.TaskGroup() as tasks:
            with self.kubelet.changes() as changes:
                self._report.beat(is_up=True)
                self._begin_beats()
                known = sorted(
                    self._registry.all(PODS, self._selection),
                    key=lambda pod: text(pod, "metadata", "creationTimestamp"),
                )
                for pod in known:
                    if not is_mirror(pod):
                        self._take_on(pod, tasks, self._context)
                self._open()
                tasks.create_task(self._settle(tuple(self._workers.values())))
                parts: list[Callable[[], Awaitable[None]]] = [
                    partial(self._follow_pods, tasks),
                    self._follow_node,
                    self._beat,
                ]
                if self._static is not None:
                    parts += [self._static.run, partial(self._follow_static, self._static, tasks)]
                for part in parts:
                    tasks.create_task(kept_running(part, self._part_failed))
                async for change in changes:
                    if change.kind not in _OF_PODS:
                        self._note_change()
                    elif worker := self._workers.get(change.pod_uid):
                        worker.wake()

    # ── what people and others do to the node ──

    def container_ended(self, ended: Ended) -> None:
        """Note that a container's process has ended; for who runs them."""
        if worker := self._workers.get(ended.pod_uid):
            worker.containers.process_ended(ended)

    async def end_container(self, namespace: str, name: str, container: str | None, exit_code: int) -> None:
        """End one container of a pod, or all of its app containers, as if by themselves.

        Raises `KubeletError` if there is no such pod on the node, no such container, or none that runs.
        """
        worker = self._worker(namespace, name)
        containers = worker.containers
        if container is not None and container not in containers.records:
            names = ", ".join(containers.records)
            raise KubeletError(f"pod {namespace}/{name} has no container {container}; it has {names}")
        apps = [one.name for one in containers.plan.of_role(Role.APP)]
        ending = [one for one in (apps if container is None else [container]) if one in containers.running]
        if not ending:
            raise KubeletError(f"no container of pod {namespace}/{name} is running, so none can be ended")
        for one in ending:
            await containers.end(one, exit_code)

    def disconnect(self) -> None:
        """Take the API server away: what the node tells it, and hears from it, waits; containers run on.

        A kubelet that restarts meanwhile knows static pods only.
        """
        self.kubelet.lose_api_server()
        self._report.recorder.is_cut_off = True
        self._context.is_up.clear()
        self._dirty.set()

    async def reconnect(self) -> None:
        """Bring the API server back. Raises `KubeletCrashError` if a pod crashes the kubelet."""
        async with self._starting:
            try:
                await self.kubelet.find_api_server()
            except KubeletCrashError as error:
                self._crashed(error)
                raise
            self._open()

    async def restart_kubelet(self) -> None:
        """Restart the kubelet; containers run on. Raises `KubeletError`, also if pods crash it again.

        Registered plugins have `FIRST_PODS_SECONDS` to come back before the pods are admitted again. After
        that, a pod fails if its completed init container has a device that is not listed (kubelet.md 4.12).
        """
        await self._restart(reboot=False)

    async def reboot(self) -> None:
        """Boot the node: every container ends, and is started again if its pod is admitted once more.

        A pod whose devices are not there yet, because their plugin is not, is refused for good, as on a
        real node (kubelet.md 4.12). Raises as `restart_kubelet` does.
        """
        await self._restart(reboot=True)

    def description(self) -> Object:
        """Return all that is known of the node, its devices and its pods, in values that JSON has."""
        pods = [(one.containers.pod, one.containers.records) for one in self._workers.values()]
        return describe_node(self._report.node or {}, self.kubelet, pods)

    # ── inside ──

    def _worker(self, namespace: str, name: str) -> PodWorker:
        pod = None
        if self._static is not None:
            pod = self._static.registry.find(PODS, namespace, name)
        pod = pod or self._registry.find(PODS, namespace, name)
        worker = self._workers.get(text(pod, "metadata", "uid"))
        if worker is None:
            raise KubeletError(f"there is no pod {namespace}/{name} on node {self.name}")
        return worker

    def _take_on(self, pod: Object, tasks: asyncio.TaskGroup, context: NodeContext) -> None:
        try:
            worker = PodWorker(pod, context)
        except Exception:
            logger.exception("a pod cannot be run because of a bug", extra={"pod": key_of(pod)})
            return
        self._workers[worker.uid] = worker
        tasks.create_task(self._work(worker))

    async def _work(self, worker: PodWorker) -> None:
        """Run one pod until it is gone; an error that nobody expected ends no other pod, and not this one."""
        try:
            await kept_running(worker.run, partial(self._pod_failed, worker))
        finally:
            del self._workers[worker.uid]

    def _pod_failed(self, worker: PodWorker, error: Exception) -> None:
        pod = worker.containers.pod
        logger.error(
            "the work on a pod failed because of a bug; tried again",
            extra={"node": self.name, "pod": key_of(pod)},
            exc_info=error,
        )
        worker.containers.event("Warning", "InternalError", f"{type(error).__name__}: {one_line(str(error))}")

    def _part_failed(self, error: Exception) -> None:
        logger.error(
            "a part of a node failed because of a bug; it is started again",
            extra={"node": self.name},
            exc_info=error,
        )

    async def _settle(self, first: tuple[PodWorker, ...]) -> None:
        """Have the kubelet free devices once the pods of its start are decided about."""
        for worker in first:
            await worker.is_admitted.wait()
        self.kubelet.sources_ready = True

    async def _follow_pods(self, tasks: asyncio.TaskGroup) -> None:
        async for event in self._registry.follow(PODS, self._selection):
            if is_mirror(event.object):
                self._mirror()
            else:
                self._note(event, tasks, self._context)

    async def _follow_static(self, static: StaticPods, tasks: asyncio.TaskGroup) -> None:
        self._mirror()  # of an earlier life of the sandbox there may be some that are too many
        async for event in static.registry.follow(PODS):
            self._note(event, tasks, self._around_static)
            if event.type is ChangeType.DELETED:
                static.look_again()
            self._mirror()

    def _note(self, event: WatchEvent, tasks: asyncio.TaskGroup, context: NodeContext) -> None:
        if worker := self._workers.get(text(event.object, "metadata", "uid")):
            worker.wake()
        elif event.type is not ChangeType.DELETED:
            self._take_on(event.object, tasks, context)

    def _mirror(self) -> None:
        if self._static is not None and self.kubelet.is_api_server_up:
            self._static.mirror(self._selection)

    async def _follow_node(self) -> None:
        mine = Selection(fields=field_selector(f"metadata.name={self.name}", NODES))
        async for _ in self._registry.follow(NODES, mine):
            self._note_change()

    async def _beat(self) -> None:
        """Write the node's status at every change and every beat; look at everything again at a beat."""
        while True:
            now_seconds = asyncio.get_running_loop().time()
            await within(self._next_beat_seconds - now_seconds, self._dirty.wait())
            is_dirty = self._dirty.is_set()
            self._dirty.clear()
            if asyncio.get_running_loop().time() >= self._next_beat_seconds:
                self._begin_beats()
                self._report.beat(is_up=self._is_up)
                for worker in self._workers.values():
                    worker.beat()
            elif is_dirty:
                self._report.write(is_up=self._is_up)

    def _begin_beats(self) -> None:
        """Have the next beat when a whole period is over, as after a start of the kubelet."""
        loop = asyncio.get_running_loop()
        self._next_beat_seconds = loop.time() + self._settings.heartbeat_seconds

    def _note_change(self) -> None:
        """Have the node's status follow a change that the real kubelet reports with the next heartbeat."""
        if not self._settings.like_real_timing:
            self._dirty.set()

    @property
    def _is_up(self) -> bool:
        """Whether there is a kubelet that the API server hears of, or another one in a moment."""
        return self.kubelet.is_api_server_up and (self._context.is_up.is_set() or self._starting.locked())

    async def _restart(self, *, reboot: bool) -> None:
        async with self._starting:
            self._close()
            names = [name for name in self.kubelet.allocatable() if self.kubelet.devices(name)]
            if reboot:
                for worker in tuple(self._workers.values()):
                    try:
                        await worker.boot()
                    except Exception as error:  # noqa: BLE001 -- reported
                        self._pod_failed(worker, error)
            try:
                await self.kubelet.restart(reboot=reboot, with_pods=False)
                # The first status of a kubelet is of before any plugin has registered (kubelet.go Run).
                self._report.write(is_up=self._is_up)
                self._begin_beats()
                if not reboot:
                    # Plugins that run have this time; after a boot none runs.
                    are_back = self.kubelet.wait(lambda: all(map(self.kubelet.devices, names)))
                    await within(FIRST_PODS_SECONDS, are_back)
                await self.kubelet.readmit()
            except KubeletCrashError as error:
                self._crashed(error)
                raise
            self._report.started(booted=reboot)
            for worker in self._workers.values():
                worker.kubelet_started()
            self._open()

    def _open(self) -> None:
        """Have the workers go on whose pods the kubelet knows, if there is one."""
        is_up = self.kubelet.is_running
        if is_up:
            self._around_static.is_up.set()
        if is_up and self.kubelet.is_api_server_up:
            self._report.recorder.is_cut_off = False
            self._context.is_up.set()
        for worker in self._workers.values():
            worker.wake()
        self._mirror()
        self._note_change()

    def _close(self) -> None:
        """Have all workers wait for the kubelet."""
        self._context.is_up.clear()
        self._around_static.is_up.clear()

    def _crashed(self, error: KubeletCrashError) -> None:
        """Note that the kubelet is gone; nothing is done on the node until somebody starts it again."""
        self._close()
        logger.error("the kubelet of a node has crashed", extra={"node": self.name}, exc_info=error)
        self._report.event(
            "Warning", "KubeletCrashed", f"{error}; start it with: devplug sandbox restart-kubelet"
        )
        self._dirty.set()
