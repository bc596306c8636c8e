"""The device manager of one kubelet process, from its start to its end (cm/devicemanager/manager.go).

It owns the allocations, the endpoints, the checkpoint file and the registration server. Pods and their
containers belong to `kubelet`; `allocation` chooses devices.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from devplug.errors import AllocationError, RemoteError
from devplug.kubelet import checkpoint as checkpoints
from devplug.kubelet import hints, resources
from devplug.kubelet.allocation import CheckpointWriter, DeviceAllocations, Need, assignments_of
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.checkpoint import CheckpointError
from devplug.kubelet.gotext import go_quoted
from devplug.kubelet.pods import ContainerOptions
from devplug.kubelet.registration import Endpoint, Registration
from devplug.kubelet.topology import nodes_of
from devplug.kubelet_dir import CHECKPOINT_NAME
from devplug.wire.codecs import MalformedMessageError
from devplug.wire.deviceplugin import CONTAINER_RESPONSE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from devplug.devices import ContainerResponse
    from devplug.kubelet.changes import Changes
    from devplug.kubelet.metrics import KubeletMetrics
    from devplug.kubelet.pluginfolder import PluginFolder
    from devplug.kubelet.pods import Container, Pod
    from devplug.kubelet.resources import Capacity
    from devplug.kubelet.settings import KubeletSettings
    from devplug.kubelet.topology import Hints, TopologyHint
    from devplug.wire.sockets import Peer
    from devplug.wire.values import AdvertisedDevice, PluginOptions

logger = logging.getLogger(__name__)


class DeviceManager:
    """The device manager: plugins, devices and allocations. Lives from `start` to `stop`; can be read later.

    `active_pods` returns the UIDs whose devices must not be freed; `affinity` returns where the topology
    manager wants a container (pod UID, name). As long as `sources_ready` is false, nothing is freed, and
    containers that were running at the start are not checked.
    """

    def __init__(
        self,
        folder: PluginFolder,
        active_pods: Callable[[], Collection[str]],
        affinity: Callable[[str, str], TopologyHint],
        changes: Changes,
        metrics: KubeletMetrics,
        settings: KubeletSettings,
    ) -> None:
        self.sources_ready = False
        self.allocations = DeviceAllocations()
        self.checkpoint_error: CheckpointError | None = None
        self._folder = folder
        self._active_pods = active_pods
        self._affinity = affinity
        self._changes = changes
        self._metrics = metrics
        self._settings = settings
        self._checkpoint_writer = CheckpointWriter(CONTAINER_RESPONSE.encode)
        self._endpoints: dict[str, Endpoint] = {}
        self._were_running: frozenset[tuple[str, str]] = frozenset()
        self._registration: Registration | None = None

    # ── start and stop ──

    async def start(
        self,
        tasks: asyncio.TaskGroup,
        running_containers: Collection[tuple[str, str]] = (),
    ) -> None:
        """Read the checkpoint, clean the folder, and listen (manager.go Start).

        `running_containers` are the (pod UID, container name) that run at this moment. Raises `KubeletError`.
        """
        self._were_running = frozenset(running_containers)
        self._read_checkpoint()
        self._folder.prepare()
        self._registration = Registration(
            self._folder,
            self,
            tasks,
            self._changes,
            self._metrics,
            self._settings,
        )
        await self._registration.open()
        self._changes.announce(ChangeKind.STARTED)

    async def stop(self, *, orderly: bool = False) -> None:
        """End as `Registration.close` says. Writes nothing; safe to repeat."""
        registration, self._registration = self._registration, None
        if registration is not None:
            await registration.close(orderly=orderly)
            self._changes.announce(ChangeKind.STOPPED)

    # ── what plugins say (PluginHandler) ──

    def plugin_connected(self, resource_name: str, peer: Peer, options: PluginOptions) -> None:
        """Register a plugin: calls go to it now. The devices stay as they were until its first list."""
        self._endpoints[resource_name] = Endpoint(resource_name, peer, options)

    def plugin_listed(self, resource_name: str, devices: Sequence[AdvertisedDevice]) -> None:
        """Replace the devices of a resource, and write the checkpoint even if nothing changed."""
        before = self.allocations.state(resource_name)
        self.allocations.update(resource_name, resources.listed(before, devices))
        for pod_uid in self._pods_to_update(resources.changed_health(before, devices)):
            self._changes.announce(ChangeKind.HEALTH, resource_name=resource_name, pod_uid=pod_uid)
        self._changes.announce(ChangeKind.LISTED, resource_name=resource_name)
        logger.info("Processed device updates for resource", extra={"resource_name": resource_name})
        self._save_checkpoint()

    def plugin_disconnected(self, resource_name: str) -> None:
        """Mark all devices of a resource unhealthy and begin its grace period."""
        endpoint = self._endpoints.get(resource_name)
        if endpoint is None:
            return
        self.allocations.update(resource_name, resources.disconnected(self.allocations.state(resource_name)))
        endpoint.stopped_at_seconds = self._settings.clock()
        self._changes.announce(ChangeKind.DISCONNECTED, resource_name=resource_name)

    def _pods_to_update(self, device_ids: Collection[str]) -> list[str]:
        """Return the pods whose status is written again, since the health of a device of theirs has changed.

        As in manager.go genericDeviceUpdateCallback, the holder is looked for by the ID alone, in all
        resources, and the first one is taken: the wrong one where two resources have the same ID.
        """
        owners: dict[str, str] = {}
        for held in self.allocations.assignments if device_ids else ():
            for device_id in held.allocation.device_ids:
                owners.setdefault(device_id, held.allocation.pod_uid)
        return sorted({owners[device_id] for device_id in device_ids if device_id in owners})

    # ── reading ──

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        """Resource name → the plugin that serves it; a lost one stays until its grace period is over."""
        return self._endpoints

    @property
    def registration(self) -> Registration | None:
        """The registration server; None when stopped."""
        return self._registration

    def capacity(self) -> Capacity:
        """Return the counts of this moment. Nothing is forgotten; `drop_expired` does that."""
        now = self._settings.clock()
        gone = [
            name
            for name in self.allocations.resources
            if name not in self._endpoints or self._endpoints[name].is_expired(now)
        ]
        return resources.count(self.allocations.resources, gone)

    def health_of(self, pod_uid: str) -> Mapping[tuple[str, str], Mapping[str, str]]:
        """Return (container, resource name) → device ID → its health in words, for what a pod holds.

        A device that is not in the list, or whose plugin is gone, counts as healthy, unless it was listed
        otherwise last (manager.go UpdateAllocatedResourcesStatus).
        """
        return {
            (held.allocation.container_name, held.allocation.resource_name): {
                device_id: resources.health_in_status(
                    self.allocations.state(held.allocation.resource_name),
                    device_id,
                )
                for device_id in held.allocation.device_ids
            }
            for held in self.allocations.assignments
            if held.allocation.pod_uid == pod_uid
        }

    # ── what the node does now and then ──

    def drop_expired(self) -> tuple[str, ...]:
        """Forget the resources whose grace period is over and return their names (manager.go GetCapacity).

        The real kubelet does this each time it computes the node's status, every ten seconds.
        """
        expired = self.capacity().deleted
        for name in expired:
            self._endpoints.pop(name, None)
            self.allocations.update(name, resources.dropped(self.allocations.state(name)))
            self._changes.announce(ChangeKind.EXPIRED, resource_name=name)
        if expired:
            self._save_checkpoint()
        return expired

    def free_inactive(self) -> None:
        """Free the devices of pods that are not active any more; does nothing until sources are ready.

        The checkpoint is not written: that waits for the next reason (manager.go UpdateAllocatedDevices).
        """
        if self.sources_ready:
            self.allocations.free_inactive(self._active_pods())

    # ── hints ──

    def container_hints(self, pod: Pod, container: Container) -> Mapping[str, Hints]:
        """Return the hints for a container's requests. Raises `KubeletCrashError`."""
        self.free_inactive()
        return hints.container_hints(
            self.allocations,
            pod,
            container,
            self._machine_nodes,
            compat=self._settings.compat,
        )

    def pod_hints(self, pod: Pod) -> Mapping[str, Hints]:
        """Return the hints for a pod's requests together. Raises `KubeletCrashError`."""
        self.free_inactive()
        return hints.pod_hints(self.allocations, pod, self._machine_nodes, compat=self._settings.compat)

    @property
    def _machine_nodes(self) -> Sequence[int]:
        return [node.id for node in self._settings.machine.numa_nodes]

    # ── containers ──

    async def allocate(self, pod: Pod, container: Container) -> None:
        """Give a container the devices of its limits (manager.go Allocate).

        Raises `AllocationError`, `RemoteError` with the plugin's own refusal, or `KubeletCrashError`. What
        was given before the error stays given.
        """
        self.allocations.begin_container(pod.uid)
        await self._allocate_limits(pod, container)
        self.allocations.end_container(
            pod.uid,
            container.name,
            runs_to_its_end=pod.runs_to_its_end(container),
            compat=self._settings.compat,
        )

    async def container_options(self, pod: Pod, container: Container) -> ContainerOptions | None:
        """Return what a container gets at a start or restart; None if it holds nothing.

        Calls PreStartContainer where the plugin wants it, and allocates now if the pod was admitted without
        (manager.go GetDeviceRunContainerOptions). Raises as `allocate` does.
        """
        is_unallocated = False
        for need in self._needs(pod, container):
            if need.required:
                await self._pre_start(need)
                if pod.uid in self._active_pods() and self.allocations.assignment(need) is None:
                    is_unallocated = True
        if is_unallocated:
            await self.allocate(pod, container)
        held = self.allocations.of_container(pod.uid, container.name)
        return ContainerOptions.merged(one.allocation.container_response for one in held) if held else None

    def _needs(self, pod: Pod, container: Container) -> Iterator[Need]:
        """Yield the limits that are device plugin resources at that moment, by name."""
        for name, required in sorted(container.limits.items()):
            if self.allocations.state(name).is_device_plugin_resource:
                yield Need(pod.uid, container.name, name, required)

    async def _allocate_limits(self, pod: Pod, container: Container) -> None:
        is_first, is_changed = True, False
        for need in self._needs(pod, container):
            if (need.container_name, need.resource_name) in pod.dra_limits:
                continue
            if is_first:
                self.free_inactive()
                is_first = False
            is_changed |= await self._allocate_one(need)
        if is_changed:
            try:
                self._write_checkpoint()
            except OSError as error:
                raise AllocationError(
                    f"failed to write checkpoint file {go_quoted(CHECKPOINT_NAME)}: {error}",
                ) from error

    async def _allocate_one(self, need: Need) -> bool:
        """Give a container its devices of one resource; return whether it needed any."""
        device_ids = await self._pick(need)
        if not device_ids:
            return False
        endpoint = self._endpoints.get(need.resource_name)
        if endpoint is None:
            self.allocations.release_unassigned()
            raise AllocationError(f"unknown Device Plugin {need.resource_name}")
        try:
            with self._metrics.measure_allocate(need.resource_name):
                responses = await endpoint.allocate(device_ids)
        except (AllocationError, RemoteError):
            self.allocations.release_unassigned()
            raise
        if not responses:
            # The devices stay marked (manager.go allocateContainerResources): a leak until pods are freed.
            # Go prints the empty message as an empty text.
            raise AllocationError("no containers return in allocation response ")
        self.allocations.assign(need, device_ids, responses[0], compat=self._settings.compat)
        return True

    async def _pick(self, need: Need) -> tuple[str, ...]:
        """Choose devices, asking the plugin for its preference where the rule wants it."""
        was_running = not self.sources_ready and (need.pod_uid, need.container_name) in self._were_running
        mask = self._affinity(need.pod_uid, need.container_name).mask
        steps = self.allocations.pick(
            need,
            was_running=was_running,
            numa_nodes=None if mask is None else nodes_of(mask),
        )
        try:
            question = next(steps)
            while True:
                preferred = await self._registered(need.resource_name).prefer(question)
                question = steps.send(preferred)
        except StopIteration as chosen:
            return tuple(chosen.value)

    async def _pre_start(self, need: Need) -> None:
        """Call PreStartContainer, if the plugin asked for that."""
        endpoint = self._registered(need.resource_name)
        if not endpoint.wants_pre_start:
            return
        held = self.allocations.assignment(need)
        if held is None:
            raise AllocationError(
                f"no devices found allocated in local cache for pod {need.pod_uid}, "
                f"container {need.container_name}, resource {need.resource_name}",
            )
        await endpoint.pre_start(held.allocation.device_ids, self._settings.pre_start_timeout_seconds)

    def _registered(self, resource_name: str) -> Endpoint:
        endpoint = self._endpoints.get(resource_name)
        if endpoint is None:
            raise AllocationError(f"endpoint not found in cache for a registered resource: {resource_name}")
        return endpoint

    # ── checkpoint ──

    def _save_checkpoint(self) -> None:
        """Write the checkpoint; an error is only logged, as no caller handles it."""
        try:
            self._write_checkpoint()
        except OSError as error:
            logger.warning("cannot write the checkpoint", exc_info=error)

    def _write_checkpoint(self) -> None:
        self._folder.write_checkpoint(self._checkpoint_writer.content(self.allocations))

    def _read_checkpoint(self) -> None:
        """Restore the checkpoint. A file that cannot be used counts as none, and stays for now."""
        try:
            content = self._folder.read_checkpoint()
            if content is None:
                return
            checkpoint = checkpoints.decode(content)
        except (OSError, CheckpointError) as error:
            self.checkpoint_error = CheckpointError(str(error))
            logger.warning(
                "Continue after failing to read checkpoint file. Device allocation info may NOT be "
                "up-to-date",
                exc_info=error,
            )
            if isinstance(error, CheckpointError):
                self._keep_checkpoint_aside()
            return
        self.allocations.restore(assignments_of(checkpoint, _decoded_response))
        now = self._settings.clock()
        for name in checkpoint.registered or ():
            self.allocations.update(name, resources.restored(self.allocations.state(name)))
            self._endpoints[name] = Endpoint(name, None, None, now)

    def _keep_checkpoint_aside(self) -> None:
        try:
            self._folder.keep_checkpoint_aside()
        except OSError as error:
            logger.warning("cannot keep the damaged checkpoint", exc_info=error)


def _decoded_response(content: bytes) -> ContainerResponse | None:
    try:
        return CONTAINER_RESPONSE.decode(content)
    except MalformedMessageError as error:
        logger.warning(
            "cannot read an Allocate response in the checkpoint; its container gets none of it",
            exc_info=error,
        )
        return None
