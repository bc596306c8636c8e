"""The kubelet of one node: pods, their containers and the node's numbers, over the device manager's lives.

Start here. What a plugin sees is in `registration` and `endpoints`; what is decided is in `allocation`.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from devplug.errors import AllocationError, KubeletCrashError, KubeletError, RemoteError
from devplug.kubelet.admission import admit
from devplug.kubelet.changes import Changes
from devplug.kubelet.devicemanager import DeviceManager
from devplug.kubelet.folder import PluginFolder
from devplug.kubelet.pods import ContainerState, PodPhase
from devplug.kubelet.podtable import PodTable
from devplug.kubelet.settings import KubeletSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from devplug.devices import Allocation, StrPath
    from devplug.exchange import AdvertisedDevice
    from devplug.kubelet.changes import Change
    from devplug.kubelet.pods import ContainerStatus, Event, Pod, PodStatus
    from devplug.kubelet.registration import Registration

__all__ = ["Kubelet"]

Result = TypeVar("Result")


class Kubelet:
    """A kubelet that plugins cannot tell from the real one, as far as the device plugin socket goes.

    It listens inside `running`; pods, their states and the node's numbers outlive that, as they outlive a
    kubelet process on a node. The keyword arguments are those of `KubeletSettings`.
    """

    def __init__(
        self,
        plugin_dir: StrPath,
        *,
        clock: Callable[[], float] = time.monotonic,
        compat: bool = True,
        dial_timeout_seconds: float = 10.0,
        pre_start_timeout_seconds: float = 30.0,
    ) -> None:
        self._folder = PluginFolder(Path(os.fspath(plugin_dir)))
        self._settings = KubeletSettings(
            clock=clock,
            compat=compat,
            dial_timeout_seconds=dial_timeout_seconds,
            pre_start_timeout_seconds=pre_start_timeout_seconds,
        )
        self._changes = Changes(clock)
        self._admission = asyncio.Lock()
        self._pods = PodTable(self._changes)
        self._emptied: set[str] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._life = self._new_life()

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
        does; with `orderly` it is removed. Raises `KubeletError` if the folder cannot be used.
        """
        failure: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await self._start(running_containers)
                await self.readmit()
                self.sources_ready = sources_ready
                yield self
            except Exception as error:  # noqa: BLE001 -- raised below, outside of the group: it wraps errors
                failure = error
            finally:
                await self._life.stop(orderly=orderly)
                self._tasks = None
        if failure is not None:
            raise failure

    async def restart(self, *, reboot: bool = False, orderly: bool = False, with_pods: bool = True) -> None:
        """End this kubelet process and start the next one, inside `running`.

        Plugins lose their streams and sockets, and have to register again. Pods are admitted again in the
        order in which they came: a running container keeps its devices without a check, any other is checked
        against plugins that are not back yet, and refused (`no healthy devices present`). With `reboot` no
        container runs any more. Without `with_pods` all of that waits for `readmit`, so that plugins may come
        first. `orderly` as in `running`.
        """
        await self._life.stop(orderly=orderly)
        if reboot:
            self._pods.stop_all()
        await self._start()
        if with_pods:
            await self.readmit()

    async def readmit(self) -> None:
        """Admit the active pods again, as after a start, and then call the sources of pods ready."""
        async with self._admission:
            for pod in self._pods.active():
                await self._admit(pod)
        self.sources_ready = True

    @property
    def is_running(self) -> bool:
        """Whether the socket is served."""
        return self._life.registration is not None

    @property
    def sources_ready(self) -> bool:
        """Whether all pods are known; before that nothing is freed, and running containers not checked."""
        return self._life.sources_ready

    @sources_ready.setter
    def sources_ready(self, is_ready: bool) -> None:
        self._life.sources_ready = is_ready

    def drop_stream(self, resource_name: str) -> None:
        """Cut the connection to the plugin that serves this name, as a transport loss would.

        The plugin sees its ListAndWatch cancelled; the kubelet never opens it again. Raises `KubeletError` if
        nobody serves the name.
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
        """The device manager of this life, or of the last one; the next start makes another."""
        return self._life

    def capacity(self) -> Mapping[str, int]:
        """Return the node's capacity per resource name: healthy and unhealthy devices.

        A name stays with 0 after its plugin has been gone for more than five minutes (setters.go).
        """
        counts = self._life.capacity()
        return {**dict.fromkeys(sorted(self._emptied.union(counts.deleted)), 0), **counts.capacity}

    def allocatable(self) -> Mapping[str, int]:
        """Return the node's allocatable per resource name: healthy devices, whoever holds them."""
        return {**self.capacity(), **self._life.capacity().allocatable}

    def devices(self, resource_name: str) -> tuple[AdvertisedDevice, ...]:
        """Return the last list of a resource, by ID; each health is the listed one, also after a loss."""
        devices = self._life.ledger.state(resource_name).devices
        return tuple(devices[device_id] for device_id in sorted(devices))

    def allocations(self) -> tuple[Allocation, ...]:
        """Return who holds what, by pod UID, container name and resource name."""
        return tuple(held.allocation for held in self._life.ledger.assignments)

    def registrations(self, resource_name: str) -> int:
        """Return how often Register was called for this name in this life, refused calls included."""
        registration = self._life.registration
        return 0 if registration is None else registration.registrations.get(resource_name, 0)

    def update_node_status(self) -> None:
        """Do what the real kubelet does every ten seconds: forget resources whose grace period is over."""
        self._emptied.update(self._life.drop_expired())

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
        """What `kubectl get events` shows of the pods here, oldest first."""
        return self._pods.events

    def pod(self, pod_uid: str) -> PodStatus:
        """Return what people see of a pod; raises `KubeletError` if it is not here, as all calls below."""
        return self._pods.get(pod_uid).status

    async def admit(self, pod: Pod) -> PodStatus:
        """Admit a pod, which allocates its devices, and return its status: Pending, or Failed for good.

        One pod at a time, as in the real kubelet: a plugin that does not answer holds up all others.
        """
        async with self._admission:
            self._running_registration()
            self._pods.add(pod)
            await self._admit(pod)
        return self.pod(pod.uid)

    async def run_pod(self, pod: Pod) -> PodStatus:
        """Admit a pod and start its containers in order; init containers that are no sidecars end at once.

        A container that cannot start keeps the rest waiting; `start_container` tries it again.
        """
        status = await self.admit(pod)
        if status.is_terminal:
            return status
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
        real kubelet tries without end). Raises `KubeletError` for a pod that has ended, and `KeyError` for a
        container that the pod does not have.
        """
        self._running_registration()
        bound = self._pods.get(pod_uid)
        if bound.status.is_terminal:
            raise KubeletError(f"pod {pod_uid} has ended; its containers are not started any more")
        before = bound.status.container(container_name)
        try:
            options = await self._life.container_options(bound.pod, bound.pod.container(container_name))
        except KubeletCrashError:
            await self._life.stop()
            raise
        except AllocationError as error:
            return self._pods.hold_up(pod_uid, before, str(error))
        except RemoteError as error:
            # Only here the kubelet shows a status without its code (kuberuntime_container.go).
            return self._pods.hold_up(pod_uid, before, error.text)
        after = before.started(options)
        self._pods.update(pod_uid, after)
        return after

    def end_container(self, pod_uid: str, container_name: str) -> None:
        """Note that a container has ended by itself. Its devices stay the pod's. Raises `KeyError` too."""
        status = self.pod(pod_uid).container(container_name)
        self._pods.update(pod_uid, replace(status, state=ContainerState.TERMINATED))

    def end_pod(self, pod_uid: str, phase: PodPhase = PodPhase.SUCCEEDED) -> None:
        """Note that a pod has ended; its devices are freed when some other container allocates."""
        self._pods.end(pod_uid, phase)

    def remove_pod(self, pod_uid: str) -> None:
        """Forget a pod, whose containers are gone; its devices are freed as after `end_pod`."""
        self._pods.remove(pod_uid)

    # ── inside ──

    def _new_life(self) -> DeviceManager:
        return DeviceManager(self._folder, self._pods.active_uids, self._changes, self._settings)

    async def _start(self, running_containers: Collection[tuple[str, str]] = ()) -> None:
        if self._tasks is None:
            raise KubeletError("the kubelet is not running")
        self._life = self._new_life()
        await self._life.start(self._tasks, self._pods.running_containers().union(running_containers))

    async def _admit(self, pod: Pod) -> None:
        """Admit a pod that is in the table; a refusal is its end."""
        life = self._life
        try:
            rejection = await admit(pod, life.allocate)
        except KubeletCrashError:
            await life.stop()
            raise
        # A kubelet that ended meanwhile tells nobody; the next one admits the pod again.
        if rejection is not None and life.registration is not None:
            self._pods.reject(pod, rejection)

    def _running_registration(self) -> Registration:
        registration = self._life.registration
        if registration is None:
            raise KubeletError("the kubelet is not running")
        return registration
