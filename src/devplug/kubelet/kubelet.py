"""The kubelet of one node: pods, their containers and the node's numbers, over the lives of its process.

Start here. `registration` has the calls with plugins; `allocation` and `topology` choose a container's
devices; `podresources` answers monitors.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from devplug.errors import AllocationError, KubeletCrashError, KubeletError, RemoteError
from devplug.kubelet.changes import Changes
from devplug.kubelet.pluginfolder import PluginFolder
from devplug.kubelet.pods import ContainerConfig, ContainerState, PodPhase, Rejection
from devplug.kubelet.podtable import PodTable
from devplug.kubelet.process import KubeletProcess
from devplug.kubelet.resources import NodeStatus
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet_dir import REGISTRY_NAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from devplug.devices import StrPath
    from devplug.kubelet.allocation import Allocation
    from devplug.kubelet.changes import Change
    from devplug.kubelet.devicemanager import DeviceManager
    from devplug.kubelet.dra.manager import DraManager
    from devplug.kubelet.metrics import KubeletMetrics
    from devplug.kubelet.pods import ContainerStatus, Event, Pod, PodStatus
    from devplug.kubelet.registration import Registration
    from devplug.wire.values import AdvertisedDevice

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Kubelet:
    """A kubelet that plugins, pods and monitors cannot tell from the real one.

    It listens inside `running`; pods, their states and the node's numbers outlive that, as they outlive a
    kubelet process on a node. Raises `KubeletError` for settings with which the real one does not start.
    """

    def __init__(self, plugin_dir: StrPath, settings: KubeletSettings | None = None) -> None:
        self.settings = settings or KubeletSettings()
        self._folder = PluginFolder(Path(os.fspath(plugin_dir)))
        self._changes = Changes(self.settings.clock)
        self._admission = asyncio.Lock()
        self._pods = PodTable(self._changes)
        self._node = NodeStatus()
        self._is_api_server_up = True
        self._tasks: asyncio.TaskGroup | None = None
        self._process = self._next_process()

    @classmethod
    def under(cls, root: StrPath, settings: KubeletSettings | None = None) -> Self:
        """Return a kubelet with all of its sockets and files below one folder, as in `/var/lib/kubelet`."""
        folder = Path(os.fspath(root))
        settings = replace(
            settings or KubeletSettings(),
            plugins_registry=folder / REGISTRY_NAME,
            pod_resources_socket=folder / "pod-resources" / "kubelet.sock",
        )
        return cls(folder / "device-plugins", settings)

    # ── life ──

    @asynccontextmanager
    async def running(
        self,
        *,
        running_containers: Collection[tuple[str, str]] = (),
        sources_ready: bool = True,
        orderly: bool = False,
    ) -> AsyncIterator[Self]:
        """Run: listening when entered, gone when left.

        On entering, the sockets in the plugin folder are wiped, the checkpoint is read, and the pods that
        this object knows are admitted again. `running_containers` are (pod UID, container name) that have
        been running since before this object; with `sources_ready` false, their pods may be admitted before
        `sources_ready` is set. On leaving, `kubelet.sock` stays and refuses connections, as the real one's
        does; with `orderly` it is removed. Raises `KubeletError` if it runs already or cannot use the folder.
        """
        if self._tasks is not None:
            raise KubeletError("the kubelet is running already")
        failure: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await self._start(running_containers)
                await self.readmit()
                self.sources_ready = sources_ready and self._is_api_server_up
                yield self
            except Exception as error:  # noqa: BLE001 -- raised below, outside of the group: it wraps errors
                failure = error
            finally:
                await self._process.stop(orderly=orderly)
                self._tasks = None
        if failure is not None:
            raise failure

    async def restart(self, *, reboot: bool = False, orderly: bool = False, with_pods: bool = True) -> None:
        """End this kubelet process and start the next one, inside `running`.

        Plugins lose their streams and sockets, and have to register again. Pods are admitted again in order:
        a running container keeps its devices without a check, any other is checked against plugins that are
        not back yet, and refused. With `reboot` no container runs any more. Without `with_pods` all of that
        waits for `readmit`, so that plugins may come first. `orderly` as in `running`.
        """
        await self._process.stop(orderly=orderly)
        if reboot:
            self._pods.stop_all()
        await self._start()
        if with_pods:
            await self.readmit()

    async def readmit(self) -> None:
        """Admit the active pods again, as after a start, and then call the sources of pods ready.

        One by one: PodResources lists a pod as soon as its admission begins. Without the API server those are
        the static pods, and the sources stay as they are.
        """
        self._running_registration()
        async with self._admission:
            admitted: list[Pod] = []
            for pod in self._pods.all():
                if pod.is_static or self._is_api_server_up:
                    await self._admit_again(pod, admitted)
        if self._is_api_server_up:
            self.sources_ready = True

    async def _admit_again(self, pod: Pod, admitted: list[Pod]) -> None:
        """Make a pod known and admit it beside those that were admitted, unless it has ended."""
        self._pods.hear(pod.uid)
        if pod in self._pods.active() and await self._admit(pod, admitted):
            admitted.append(pod)

    def lose_api_server(self) -> None:
        """Take the API server away, until `find_api_server`.

        This process keeps the pods that it knows. One that starts meanwhile knows static pods only: it lists
        no others, and frees nothing since its sources are not ready. Containers run on.
        """
        self._is_api_server_up = False

    async def find_api_server(self) -> None:
        """Bring the API server back: unknown pods are admitted as after any start; then sources are ready.

        Before `running` and after it, the next start is as usual.
        """
        was_away, self._is_api_server_up = not self._is_api_server_up, True
        if not (was_away and self.is_running):
            return
        async with self._admission:
            admitted = list(self._pods.active())
            for pod in self._pods.all():
                if not self._pods.is_known(pod.uid):
                    await self._admit_again(pod, admitted)
        self.sources_ready = True

    @property
    def is_api_server_up(self) -> bool:
        """Whether the kubelet gets pods that are not static."""
        return self._is_api_server_up

    @property
    def is_running(self) -> bool:
        """Whether the socket is served."""
        return self._process.is_running

    @property
    def sources_ready(self) -> bool:
        """Whether all pods are known; before that nothing is freed, and running containers not checked."""
        return self._process.devices.sources_ready

    @sources_ready.setter
    def sources_ready(self, is_ready: bool) -> None:
        self._process.devices.sources_ready = is_ready

    def drop_stream(self, resource_name: str) -> None:
        """Cut the connection to the plugin that serves this name, which is never opened again.

        Raises `KubeletError` if no plugin serves the name.
        """
        self._running_registration().disconnect(resource_name)

    # ── the node's numbers ──

    @property
    def plugin_dir(self) -> Path:
        """The folder with the sockets and the checkpoint."""
        return self._folder.path

    @property
    def socket_path(self) -> Path:
        """Where plugins register."""
        return self._folder.kubelet_socket

    @property
    def device_manager(self) -> DeviceManager:
        """The device manager of this process, or of the last one; the next start makes another."""
        return self._process.devices

    @property
    def dra(self) -> DraManager:
        """The DRA manager of this process, or of the last one."""
        return self._process.dra

    @property
    def metrics(self) -> KubeletMetrics:
        """The metrics of this process, or of the last one; the next start begins at 0."""
        return self._process.metrics

    def capacity(self) -> Mapping[str, int]:
        """Return the node's capacity per resource name; 0 after its plugin was gone for five minutes."""
        return dict(sorted(self._node_status().capacity.items()))

    def allocatable(self) -> Mapping[str, int]:
        """Return the node's allocatable per resource name: healthy devices, whoever holds them."""
        return dict(sorted(self._node_status().allocatable.items()))

    def patch_node(self, resource_name: str, count: int) -> None:
        """Set a resource that no plugin serves, as by a patch of the Node; the kubelet keeps it."""
        self._node = self._node.patched(resource_name, count)

    def replace_node(self, capacity: Mapping[str, int]) -> None:
        """Take over the extended resources that the Node object's capacity has, whoever has put them there.

        What it has no more is forgotten, but for what plugins serve.
        """
        self._node = self._node.replaced(capacity)

    def devices(self, resource_name: str) -> tuple[AdvertisedDevice, ...]:
        """Return the last list of a resource, by ID; each health is the listed one, also after a loss."""
        devices = self._process.devices.allocations.state(resource_name).devices
        return tuple(devices[device_id] for device_id in sorted(devices))

    def allocations(self) -> tuple[Allocation, ...]:
        """Return the allocations, by pod UID, container name and resource name."""
        return tuple(held.allocation for held in self._process.devices.allocations.assignments)

    def registrations(self, resource_name: str) -> int:
        """Return how often Register was called for this name in this process, refused calls included."""
        name = "kubelet_device_plugin_registration_total"
        return int(self.metrics.value(name, resource_name=resource_name))

    def update_node_status(self) -> None:
        """Do what the real kubelet does every ten seconds: forget resources whose grace period is over."""
        self._node = self._node_status()
        self._process.devices.drop_expired()

    def _node_status(self) -> NodeStatus:
        return self._node.updated(self._process.devices.capacity())

    # ── waiting and measuring ──

    async def wait(self, condition: Callable[[], Result]) -> Result:
        """Return what `condition` returns once that is true; it is asked now and after every change."""
        return await self._changes.wait(condition)

    def changes(self) -> AbstractContextManager[AsyncIterator[Change]]:
        """Return a block in which every change can be read, with its time by this kubelet's clock."""
        return self._changes.watching()

    # ── pods ──

    @property
    def events(self) -> Sequence[Event]:
        """The events of this node's pods as `kubectl get events` shows them, oldest first."""
        return self._pods.events

    def pod(self, pod_uid: str) -> PodStatus:
        """Return the status of a pod; raises `KubeletError` if it is not on this node, as all calls below."""
        bound = self._pods.get(pod_uid)
        process = self._process
        return bound.status.with_device_health(
            bound.pod, process.devices.health_of(pod_uid), process.dra.health_of(pod_uid)
        )

    async def admit(self, pod: Pod) -> PodStatus:
        """Admit a pod, which allocates its devices, and return its status: Pending, or Failed for good.

        One pod at a time, as in the real kubelet: a plugin that does not answer holds up all others. Raises
        `KubeletError` for a pod that is not static while the API server is away.
        """
        if not (pod.is_static or self._is_api_server_up):
            text = f"the kubelet cannot get pod {pod.name}, which is not a static pod: the API server is away"
            raise KubeletError(text)
        async with self._admission:
            self._running_registration()
            others = [other for other in self._pods.active() if other.uid != pod.uid]
            self._pods.add(pod)
            await self._admit(pod, others)
        return self.pod(pod.uid)

    async def run_pod(self, pod: Pod) -> PodStatus:
        """Admit a pod and start its containers in order; init containers that are no sidecars end at once.

        Claims that cannot be prepared keep all waiting, and a container that cannot start the rest: `dra` and
        `start_container` try again.
        """
        status = await self.admit(pod)
        if status.is_terminal or not await self._process.dra.try_prepare(pod):
            return self.pod(pod.uid)
        for container in pod.in_start_order():
            started = await self.start_container(pod.uid, container.name)
            if started.state is not ContainerState.RUNNING:
                break
            if pod.runs_to_its_end(container):
                self.end_container(pod.uid, container.name)
        return self.pod(pod.uid)

    async def start_container(self, pod_uid: str, container_name: str) -> ContainerStatus:
        """Start or restart a container and return its status with what it gets: the same at every start.

        Where that fails it waits with the reason CreateContainerConfigError, and may be started again (the
        real kubelet tries without end). Raises `KubeletError` for a pod that has ended, and for one that the
        kubelet has not heard of since it started, and for a container that it does not know.
        """
        self._running_registration()
        bound = self._pods.get(pod_uid)
        if not self._pods.is_known(pod_uid):
            why = "it has just started" if self._is_api_server_up else "the API server is away"
            raise KubeletError(f"the kubelet does not know pod {pod_uid}: {why}")
        if bound.status.is_terminal:
            raise KubeletError(f"pod {pod_uid} has ended; its containers are not started any more")
        before = bound.status.container(container_name)
        process = self._process
        try:
            options = await process.devices.container_options(bound.pod, bound.pod.container(container_name))
        except KubeletCrashError:
            await process.stop()
            raise
        except (AllocationError, RemoteError) as error:
            # A kubelet that ended meanwhile tells nobody; the next one starts the container again.
            if not process.is_running:
                return before
            # Of a bare status only the text is shown here, without its code (kuberuntime_container.go).
            text = error.text if isinstance(error, RemoteError) else str(error)
            return self._pods.hold_up(pod_uid, before, text)
        after = before.started(options)
        self._pods.update(pod_uid, after)
        return after

    def container_config(self, pod_uid: str, container_name: str) -> ContainerConfig:
        """Return what the runtime got at a container's last start."""
        pod = self._pods.get(pod_uid).pod
        status = self.pod(pod_uid).container(container_name)
        share = self.settings.machine.share(pod.namespace, pod.name, container_name)
        container = pod.container(container_name)
        names = (*share.cdi_devices, *self._process.dra.cdi_devices(pod, container))
        return ContainerConfig.of(container, status.options, status.restart_count, names)

    def end_container(self, pod_uid: str, container_name: str) -> None:
        """Record that a container has ended by itself. Its devices stay the pod's."""
        status = self.pod(pod_uid).container(container_name)
        self._pods.update(pod_uid, replace(status, state=ContainerState.TERMINATED))

    def end_pod(self, pod_uid: str, phase: PodPhase = PodPhase.SUCCEEDED) -> None:
        """Record that a pod has ended; its devices are freed when some other container allocates."""
        self._pods.end(pod_uid, phase)

    def remove_pod(self, pod_uid: str) -> None:
        """Forget a pod, whose containers are gone; its devices are freed as after `end_pod`."""
        self._process.forget(self._pods.get(pod_uid).pod)
        self._pods.remove(pod_uid)

    # ── inside ──

    def _next_process(self) -> KubeletProcess:
        return KubeletProcess(self._folder, self._pods, self._changes, self.settings)

    async def _start(self, running_containers: Collection[tuple[str, str]] = ()) -> None:
        if self._tasks is None:
            raise KubeletError("the kubelet is not running")
        self._node = self._node_status()
        self._process = self._next_process()
        self._pods.begin()
        await self._process.start(self._tasks, self._pods.running_containers().union(running_containers))

    async def _admit(self, pod: Pod, others: Iterable[Pod]) -> bool:
        """Admit a pod of the table, beside others; a refusal is its end. Return whether it may run."""
        process = self._process
        try:
            rejection = await process.admit(pod, others, self.allocatable())
        except KubeletCrashError:
            await process.stop()
            raise
        except Exception as error:
            logger.exception("a pod could not be admitted because of a bug", extra={"pod": pod.uid})
            rejection = Rejection.of_error(error)
        # A kubelet that ended meanwhile tells nobody; the next one admits the pod again.
        if rejection is not None and process.is_running:
            self._pods.reject(pod, rejection)
        return rejection is None

    def _running_registration(self) -> Registration:
        registration = self._process.devices.registration
        if registration is None:
            raise KubeletError("the kubelet is not running")
        return registration
