"""The allocations of devices: their holders, the choice of devices, and the checkpoint. Pure.

Where the real kubelet ranges over Go maps, and so chooses at random, we take IDs in ascending order. The
lock of the real one is released during calls to a plugin; here the rule is a generator that stops at the
question and goes on with the answer, so lists may change the allocations in between, as they may there. How
a response becomes bytes for the checkpoint is given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from devplug.errors import AllocationError, KubeletCrashError
from devplug.kubelet.checkpoint import CheckpointEntry, Part, assembled
from devplug.kubelet.gotext import go_quoted
from devplug.kubelet.resources import UNKNOWN, ResourceState, split_by_affinity
from devplug.wire.values import PreferenceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping

    from devplug.devices import ContainerResponse
    from devplug.kubelet.checkpoint import Checkpoint
    from devplug.wire.values import AdvertisedDevice

NO_NUMA_NODE: Final = -1
"""The key of devices without topology (checkpoint.go nodeWithoutTopology)."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Which devices of one resource one container holds, and the plugin's response: one flat record."""

    pod_uid: str
    container_name: str
    resource_name: str
    device_ids: tuple[str, ...]
    container_response: ContainerResponse


@dataclass(frozen=True, slots=True)
class Need:
    """What one container asks of one resource: a limit of its spec."""

    pod_uid: str
    container_name: str
    resource_name: str
    required: int

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of its assignment: pod UID, container name, resource name."""
        return self.pod_uid, self.container_name, self.resource_name


@dataclass(frozen=True, slots=True)
class Assignment:
    """An allocation and the NUMA nodes its devices were on when it was made, as the checkpoint keeps them."""

    allocation: Allocation
    devices_per_numa: Mapping[int, tuple[str, ...]]
    """NUMA node → device IDs; a device on two nodes stands under both, one without topology under -1."""

    @classmethod
    def of(
        cls,
        need: Need,
        devices_per_numa: Mapping[int, Iterable[str]],
        container_response: ContainerResponse,
    ) -> Assignment:
        """Return the assignment; its device IDs are those of all nodes, each once, ascending."""
        grouped = {node: tuple(ids) for node, ids in devices_per_numa.items()}
        device_ids = tuple(sorted({device_id for ids in grouped.values() for device_id in ids}))
        return cls(Allocation(*need.key, device_ids, container_response), grouped)

    @property
    def key(self) -> tuple[str, str, str]:
        """Pod UID, container name, resource name."""
        held = self.allocation
        return held.pod_uid, held.container_name, held.resource_name


def numa_grouping(
    devices: Mapping[str, AdvertisedDevice],
    device_ids: Iterable[str],
    *,
    compat: bool,
) -> dict[int, tuple[str, ...]]:
    """Return NUMA node → IDs for devices that a plugin has just allocated.

    A device may have left the list while the plugin was answering. The real kubelet looks it up without a
    check and dies (manager.go allocateContainerResources); so with `compat` this raises `KubeletCrashError`.
    Without, such a device counts as one without topology.
    """
    grouped: dict[int, list[str]] = {}
    for device_id in device_ids:
        device = devices.get(device_id)
        if device is None and compat:
            raise KubeletCrashError(
                f"device {go_quoted(device_id)} left its plugin's list while it was being allocated",
                "allocateContainerResources",
            )
        for node in (device and device.numa_nodes) or (NO_NUMA_NODE,):
            grouped.setdefault(node, []).append(device_id)
    return {node: tuple(ids) for node, ids in grouped.items()}


class DeviceAllocations:
    """The owner of the device manager's state: resources and assignments. Lives as long as a kubelet.

    Nothing here waits or does I/O; each method is one step that the real kubelet takes under its lock.
    """

    def __init__(self) -> None:
        self._resources: dict[str, ResourceState] = {}
        self._assignments: dict[tuple[str, str, str], Assignment] = {}
        self._reusable_pod: str | None = None
        self._reusable: dict[str, frozenset[str]] = {}

    # ── reading ──

    @property
    def resources(self) -> Mapping[str, ResourceState]:
        """Every resource name that was ever seen."""
        return self._resources

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        """Every assignment, by pod UID, container name and resource name."""
        return tuple(self._assignments.values())

    @property
    def reusable(self) -> Mapping[str, Mapping[str, frozenset[str]]]:
        """Pod UID → resource name → devices of its init containers that its next container takes first."""
        return {} if self._reusable_pod is None else {self._reusable_pod: dict(self._reusable)}

    def state(self, resource_name: str) -> ResourceState:
        """Return the state of a resource name."""
        return self._resources.get(resource_name, UNKNOWN)

    def assignment(self, need: Need) -> Assignment | None:
        """Return the devices that the container already holds of the need's resource."""
        return self._assignments.get(need.key)

    def of_container(self, pod_uid: str, container_name: str) -> tuple[Assignment, ...]:
        """Return what a container holds, by resource name."""
        wanted = pod_uid, container_name
        return tuple(held for key, held in self._assignments.items() if key[:2] == wanted)

    def held_ids(
        self,
        resource_name: str,
        pod_uid: str,
        container_name: str | None = None,
    ) -> frozenset[str]:
        """Return the devices of a resource that a container holds, or all containers of a pod."""
        return frozenset(
            device_id
            for (uid, name, resource), held in self._assignments.items()
            if uid == pod_uid and resource == resource_name and container_name in (None, name)
            for device_id in held.allocation.device_ids
        )

    # ── what plugins say ──

    def update(self, resource_name: str, state: ResourceState) -> None:
        """Replace the state of a resource name."""
        self._resources[resource_name] = state

    def restore(self, assignments: Iterable[Assignment]) -> None:
        """Take over the assignments of a checkpoint; of two with the same key the last one counts."""
        self._keep({held.key: held for held in assignments})
        self._recount()

    # ── devices change hands ──

    def free_inactive(self, active_pods: Collection[str]) -> bool:
        """Forget the assignments of pods that are not active (manager.go UpdateAllocatedDevices).

        Only if there are any, everything that failed allocations left behind comes back too.
        """
        kept = {key: held for key, held in self._assignments.items() if key[0] in active_pods}
        if len(kept) == len(self._assignments):
            return False
        self._assignments = kept
        self._recount()
        return True

    def begin_container(self, pod_uid: str) -> None:
        """Make ready for a container of this pod; the reusable devices of any other pod are forgotten."""
        if self._reusable_pod != pod_uid:
            self._reusable_pod = pod_uid
            self._reusable = {}

    def end_container(
        self, pod_uid: str, container_name: str, *, runs_to_its_end: bool, compat: bool
    ) -> None:
        """Compute the devices that the pod's next containers may reuse (manager.go Allocate).

        The devices of an init container that runs to its end join the reusable ones; those of any other
        container leave them. If an Allocate for another pod has begun meanwhile, this pod's map is gone, and
        the real kubelet dies (pod_devices.go removeContainerAllocatedResources); so with `compat` this raises
        `KubeletCrashError`.
        """
        assignments = self.of_container(pod_uid, container_name)
        if assignments and self._reusable_pod != pod_uid:
            if compat:
                raise KubeletCrashError(
                    f"assignment to entry in nil map: while an Allocate for pod {pod_uid} ran, an Allocate "
                    f"for pod {self._reusable_pod} began; two can run at once if a container starts without "
                    "an allocation",
                    "removeContainerAllocatedResources",
                )
            return
        for held in assignments:
            name, ids = held.allocation.resource_name, frozenset(held.allocation.device_ids)
            reusable = self._reusable.get(name, frozenset())
            self._reusable[name] = reusable | ids if runs_to_its_end else reusable - ids

    def pick(
        self,
        need: Need,
        *,
        was_running: bool,
        numa_nodes: Collection[int] | None = None,
    ) -> Generator[PreferenceRequest, Collection[str], tuple[str, ...]]:
        """Choose devices for a need and mark them allocated (manager.go devicesToAllocate).

        Yields at most once: what the plugin is to be asked for its preference; send what it prefers, or
        nothing. Returns the IDs, ascending; none if the container needs no new ones. Raises
        `AllocationError`, and then leaves marked what it took before. `was_running` says that the container
        ran when this kubelet started and that not all sources of pods are ready: then nothing is checked.
        `numa_nodes` is where the topology manager wants the container.
        """
        name = need.resource_name
        self._check(need, was_running=was_running)
        if was_running or self._held_count(need) == need.required:
            return ()
        chosen: set[str] = set()

        def take(device_ids: Iterable[str]) -> bool:
            """Take what is still needed from the front; return whether that is all."""
            free = (device_id for device_id in device_ids if device_id not in chosen)
            wanted = [*islice(free, need.required - len(chosen))]
            chosen.update(wanted)
            state = self.state(name)
            if wanted or state.allocated is None:
                self.update(name, replace(state, allocated=(state.allocated or frozenset()).union(wanted)))
            return len(chosen) == need.required

        reusable = self._reusable.get(name, ()) if self._reusable_pod == need.pod_uid else ()
        if take(sorted(reusable)):
            return tuple(sorted(chosen))
        state = self.state(name)
        available = state.available
        remaining = need.required - len(chosen)
        if len(available) < remaining:
            raise AllocationError(
                f"requested number of devices unavailable for {name}. "
                f"Requested: {remaining}, Available: {len(available)}",
            )
        split = split_by_affinity(state, available, numa_nodes)
        if remaining < len(split.aligned):
            preferred = yield _question(split.aligned, chosen, need.required)
            groups = [sorted({*preferred}.intersection(split.aligned)), split.aligned]
        else:
            if take(split.aligned):
                return tuple(sorted(chosen))
            preferred = yield _question(
                (*split.aligned, *split.unaligned, *split.no_affinity), chosen, need.required
            )
            groups = [sorted(available.intersection(preferred)), split.unaligned, split.no_affinity]
        if not any(take(group) for group in groups):
            raise AllocationError(
                "unexpectedly allocated less resources than required. "
                f"Requested: {need.required}, Got: {len(chosen)}",
            )
        return tuple(sorted(chosen))

    def assign(
        self,
        need: Need,
        device_ids: Iterable[str],
        container_response: ContainerResponse,
        *,
        compat: bool,
    ) -> None:
        """Record what a plugin has allocated; raises `KubeletCrashError` as `numa_grouping` says."""
        grouped = numa_grouping(self.state(need.resource_name).devices, device_ids, compat=compat)
        self._keep({**self._assignments, need.key: Assignment.of(need, grouped, container_response)})

    def release_unassigned(self) -> None:
        """Free the devices that are marked allocated but not assigned, after a refused Allocate."""
        self._recount()

    def _check(self, need: Need, *, was_running: bool) -> None:
        """Refuse what devicesToAllocate refuses before it chooses devices; the order counts."""
        name, healthy, held = (
            need.resource_name,
            self.state(need.resource_name).healthy,
            self.assignment(need),
        )
        if held is not None and len(held.allocation.device_ids) != need.required:
            raise AllocationError(
                f"pod {go_quoted(need.pod_uid)} container {go_quoted(need.container_name)} "
                f"changed request for resource {go_quoted(name)} "
                f"from {len(held.allocation.device_ids)} to {need.required}",
            )
        if was_running:
            return
        if healthy is None:
            raise AllocationError(f"cannot allocate unregistered device {name}")
        if not healthy:
            raise AllocationError(f"no healthy devices present; cannot allocate unhealthy devices {name}")
        if held is not None and not healthy.issuperset(held.allocation.device_ids):
            raise AllocationError(
                "previously allocated devices are no longer healthy; "
                f"cannot allocate unhealthy devices {name}",
            )

    def _held_count(self, need: Need) -> int:
        held = self.assignment(need)
        return 0 if held is None else len(held.allocation.device_ids)

    def _keep(self, assignments: Mapping[tuple[str, str, str], Assignment]) -> None:
        """Make these the assignments, in their order."""
        self._assignments = {key: assignments[key] for key in sorted(assignments)}

    def _recount(self) -> None:
        """Make the allocated devices exactly those of the assignments (pod_devices.go devices)."""
        allocated: dict[str, set[str]] = {}
        for held in self._assignments.values():
            allocated.setdefault(held.allocation.resource_name, set()).update(held.allocation.device_ids)
        for name in dict.fromkeys((*self._resources, *allocated)):
            ids = frozenset(allocated[name]) if name in allocated else None
            self.update(name, replace(self.state(name), allocated=ids))


def _question(available: Iterable[str], chosen: Collection[str], size: int) -> PreferenceRequest:
    # Not as a set: what comes in long ascending runs is soon sorted.
    offered = sorted(dict.fromkeys((*available, *chosen)))
    return PreferenceRequest(tuple(offered), tuple(sorted(chosen)), size)


# ── the checkpoint of it ──────────────────────────────────────────────────────────────────────────


class CheckpointWriter:
    """Makes the checkpoint file of the allocations, again and again. Lives as long as that.

    It keeps the parts of the last file: an admission changes one entry among all those of a node, and no IDs.
    """

    def __init__(self, encode: Callable[[ContainerResponse], bytes]) -> None:
        self._encode = encode
        self._entries: dict[tuple[str, str, str], tuple[Assignment, Part]] = {}
        self._registered: dict[str, tuple[frozenset[str], Part]] = {}

    def content(self, allocations: DeviceAllocations) -> bytes:
        """Return the checkpoint that the real kubelet writes at this moment (manager.go writeCheckpoint).

        Without assignments the list is null. A resource is registered once it has a list, with its healthy
        IDs.
        """
        self._entries = {held.key: (held, self._entry(held)) for held in allocations.assignments}
        self._registered = {
            name: (state.healthy, self._ids(name, state.healthy))
            for name, state in sorted(allocations.resources.items())
            if state.healthy is not None
        }
        return assembled(
            [part for _, part in self._entries.values()] or None,
            [part for _, part in self._registered.values()],
        )

    def _entry(self, held: Assignment) -> Part:
        match self._entries.get(held.key):
            case before, part if before is held:
                return part
        response = self._encode(held.allocation.container_response)
        return Part.of_entry(CheckpointEntry(*held.key, held.devices_per_numa, response))

    def _ids(self, resource_name: str, healthy: frozenset[str]) -> Part:
        match self._registered.get(resource_name):
            case before, part if before is healthy:
                return part
        return Part.of_ids(resource_name, tuple(sorted(healthy)))


def assignments_of(
    checkpoint: Checkpoint,
    decode: Callable[[bytes], ContainerResponse | None],
) -> Iterator[Assignment]:
    """Yield the assignments in a checkpoint; one whose response cannot be decoded is left out."""
    for entry in checkpoint.entries or ():
        response = decode(entry.alloc_resp or b"")
        if response is not None:
            need = Need(entry.pod_uid, entry.container_name, entry.resource_name, 0)
            grouped = {node: ids or () for node, ids in (entry.device_ids or {}).items()}
            yield Assignment.of(need, grouped, response)
