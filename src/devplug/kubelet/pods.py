"""Pods as the kubelet sees them: requests, statuses, and the configuration of containers. Pure.

Values only. `allocation` has the holders of devices; `kubelet` decides when something happens.
"""

from __future__ import annotations

import enum
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from devplug.errors import KubeletError, quoted
from devplug.k8s.pod_requests import ALWAYS, needed_at_once

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from devplug.devices import ContainerResponse, DeviceNode, Mount
    from devplug.kubelet.claim_references import ContainerClaim, ExtendedClaim, PodClaim, ResourceHealth

# ── what is asked for ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod's spec, with the limits that ask for devices."""

    name: str
    limits: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Resource name → count. Names that no plugin serves (cpu, memory) are ignored, as the kubelet does."""
    restart_policy: str | None = None
    """Only read for init containers: `Always` makes it a sidecar."""
    envs: tuple[tuple[str, str], ...] = ()
    """The environment that the spec gives it, in order."""
    claims: tuple[ContainerClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod bound to this node. The kubelet identifies it by its UID."""

    uid: str
    name: str
    namespace: str = "default"
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    extended_claim: ExtendedClaim | None = None
    resource_claims: tuple[PodClaim, ...] = ()
    is_static: bool = False
    """Whether it comes from the kubelet's own manifest folder, without an API server."""

    def in_start_order(self) -> Iterator[Container]:
        """Yield init containers and sidecars in spec order, then app containers (scope.go)."""
        yield from self.init_containers
        yield from self.containers

    def lasting_containers(self) -> tuple[Container, ...]:
        """Return the containers that live as long as the pod: sidecars, then app containers."""
        sidecars = (one for one in self.init_containers if one.restart_policy == ALWAYS)
        return (*sidecars, *self.containers)

    def limits(self) -> dict[str, int]:
        """Return what the pod needs at once of each resource (component-helpers/resource PodLimits)."""
        initial = ((one.limits, one.restart_policy == ALWAYS) for one in self.init_containers)
        return needed_at_once(initial, (one.limits for one in self.containers))

    @property
    def dra_limits(self) -> frozenset[tuple[str, str]]:
        """The (container name, resource name) that DRA serves, and no plugin."""
        mappings = self.extended_claim.mappings if self.extended_claim else ()
        return frozenset((one.container_name, one.resource_name) for one in mappings)

    def without_dra(self) -> Pod:
        """Return the pod without the limits that DRA serves."""
        served = self.dra_limits

        def rest(containers: tuple[Container, ...]) -> tuple[Container, ...]:
            return tuple(
                replace(one, limits={n: c for n, c in one.limits.items() if (one.name, n) not in served})
                for one in containers
            )

        if not served:
            return self
        return replace(
            self,
            init_containers=rest(self.init_containers),
            containers=rest(self.containers),
            extended_claim=None,
        )

    def container(self, name: str) -> Container:
        """Return the container of that name; raises `KubeletError`."""
        for container in self.in_start_order():
            if container.name == name:
                return container
        raise KubeletError(f"the kubelet knows no container {quoted(name)} of this pod")

    def runs_to_its_end(self, container: Container) -> bool:
        """Whether this is a regular init container, whose devices later containers of the pod may reuse."""
        return container.restart_policy != ALWAYS and any(
            container.name == initial.name for initial in self.init_containers
        )


# ── what a container gets ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """What the runtime adds to a container: the responses for all of its resources, merged.

    The same at every start of the container. Nothing in it is checked: a missing host path or an odd
    permission is the runtime's to refuse.
    """

    envs: Mapping[str, str] = field(default_factory=dict, hash=False)
    mounts: tuple[Mount, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    cdi_devices: tuple[str, ...] = ()

    @classmethod
    def merged(cls, responses: Iterable[ContainerResponse]) -> ContainerOptions:
        """Merge the responses for the resources of one container (pod_devices.go deviceRunContainerOptions).

        The first one wins per key: the name of an environment variable or annotation, the path inside the
        container of a mount or device node, the name of a CDI device.
        """
        envs: dict[str, str] = {}
        annotations: dict[str, str] = {}
        mounts: dict[str, Mount] = {}
        nodes: dict[str, DeviceNode] = {}
        cdi_devices: dict[str, None] = {}
        for response in responses:
            envs = {**response.envs, **envs}
            annotations = {**response.annotations, **annotations}
            for mount in response.mounts:
                mounts.setdefault(mount.container_path, mount)
            for node in response.device_nodes:
                nodes.setdefault(node.container_path, node)
            cdi_devices.update(dict.fromkeys(response.cdi_devices))
        return cls(envs, tuple(mounts.values()), tuple(nodes.values()), annotations, tuple(cdi_devices))


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """The configuration of a container: its spec, the plugins' responses, the kubelet's additions."""

    envs: tuple[tuple[str, str], ...]
    """Of plugins first, then of the spec: of two with one name, runtimes take the later one."""
    annotations: Mapping[str, str] = field(hash=False)
    """Of the container, not of the pod; nothing that plugins say replaces the kubelet's own."""
    mounts: tuple[Mount, ...]
    device_nodes: tuple[DeviceNode, ...]
    cdi_devices: tuple[str, ...]
    """Of DRA first, then of plugins; a name that both give stands there twice."""

    @classmethod
    def of(
        cls,
        container: Container,
        options: ContainerOptions | None,
        restart_count: int,
        dra_cdi_devices: Iterable[str] = (),
    ) -> ContainerConfig:
        """Return the configuration for a container's start (kubelet_pods.go, kuberuntime/labels.go).

        The hash of the spec is our own: it only changes when the real one's does.
        """
        given = options or ContainerOptions()
        spec = repr((container.name, sorted(container.limits.items()), container.envs))
        own = {
            "io.kubernetes.container.hash": f"{zlib.crc32(spec.encode()):x}",
            "io.kubernetes.container.restartCount": str(restart_count),
            "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
            "io.kubernetes.container.terminationMessagePolicy": "File",
        }
        return cls(
            (*given.envs.items(), *container.envs),
            {**given.annotations, **own},
            given.mounts,
            given.device_nodes,
            (*dra_cdi_devices, *given.cdi_devices),
        )


# ── what people see ───────────────────────────────────────────────────────────────────────────────


class PodPhase(enum.StrEnum):
    """The API's pod phases."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class ContainerState(enum.StrEnum):
    """The API's container states."""

    WAITING = "waiting"
    RUNNING = "running"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """One container as `kubectl describe pod` shows it."""

    name: str
    state: ContainerState = ContainerState.WAITING
    reason: str = ""
    message: str = ""
    restart_count: int = 0
    options: ContainerOptions | None = None
    """What it got at its last start; None before the first one, and without devices."""
    allocated_resources: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    """Resource name → device ID → `Healthy` or `Unhealthy`, as in `allocatedResourcesStatus`; app containers
    only, since the kubelet writes it nowhere else."""
    claims_health: Mapping[str, Sequence[ResourceHealth]] = field(default_factory=dict, hash=False)
    """`claim:<name>` or `claim:<name>/<request>` → the devices of a claim, in the same list."""

    def started(self, options: ContainerOptions | None) -> ContainerStatus:
        """Return the status of a container that has just started; every start but the first is a restart."""
        is_restart = self.state is not ContainerState.WAITING or self.options is not None
        return ContainerStatus(
            self.name,
            ContainerState.RUNNING,
            restart_count=self.restart_count + is_restart,
            options=options,
        )

    def held_up(self, message: str) -> ContainerStatus:
        """Return the status of a container that could not be made (kuberuntime_container.go)."""
        return replace(
            self,
            state=ContainerState.WAITING,
            reason="CreateContainerConfigError",
            message=message,
        )


@dataclass(frozen=True, slots=True)
class PodStatus:
    """The status of a pod. `reason` and `message` say why it failed."""

    phase: PodPhase
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerStatus, ...] = ()
    """In start order: init containers, then app containers."""

    @classmethod
    def pending(cls, pod: Pod) -> PodStatus:
        """Return the status of a pod whose containers wait for their first start."""
        return cls(
            PodPhase.PENDING,
            containers=tuple(ContainerStatus(container.name) for container in pod.in_start_order()),
        )

    @property
    def is_terminal(self) -> bool:
        """Whether the pod has ended for good, so that its devices may be freed."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    def container(self, name: str) -> ContainerStatus:
        """Return the status of the container of that name; raises `KubeletError`."""
        for status in self.containers:
            if status.name == name:
                return status
        raise KubeletError(f"the kubelet knows no container {quoted(name)} of this pod")

    def with_container(self, pod: Pod, changed: ContainerStatus) -> PodStatus:
        """Return the status after a change of one container.

        A pod runs once an app container has started; one that has ended stays as it is.
        """
        containers = tuple(changed if one.name == changed.name else one for one in self.containers)
        apps = {container.name for container in pod.containers}
        has_started = any(one.name in apps and one.state is not ContainerState.WAITING for one in containers)
        phase = PodPhase.RUNNING if has_started and not self.is_terminal else self.phase
        return replace(self, phase=phase, containers=containers)

    def with_device_health(
        self,
        pod: Pod,
        health: Mapping[tuple[str, str], Mapping[str, str]],
        claims: Mapping[str, Mapping[str, Sequence[ResourceHealth]]] | None = None,
    ) -> PodStatus:
        """Return the status with what app containers hold.

        `health` is by container and resource name, `claims` by container.
        """
        apps = {container.name for container in pod.containers}
        return replace(
            self,
            containers=tuple(
                replace(
                    one,
                    allocated_resources={
                        resource_name: devices
                        for (name, resource_name), devices in health.items()
                        if name == one.name
                    },
                    claims_health=(claims or {}).get(one.name, {}),
                )
                if one.name in apps
                else one
                for one in self.containers
            ),
        )

    def stopped(self) -> PodStatus:
        """Return the status once no container runs any more, as after a boot of the node."""
        return replace(
            self,
            containers=tuple(
                replace(one, state=ContainerState.TERMINATED) if one.state is ContainerState.RUNNING else one
                for one in self.containers
            ),
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One event on a pod."""

    pod_uid: str
    type: str
    """`Normal` or `Warning`."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why the kubelet refuses a pod. It is final: the kubelet never tries a refused pod again."""

    reason: str
    message: str

    @classmethod
    def of_topology(cls) -> Rejection:
        """Return the topology manager's refusal (topology_manager.go TopologyAffinityError)."""
        return cls("TopologyAffinityError", "Resources cannot be allocated with Topology locality")

    @classmethod
    def of_shortage(cls, resource_name: str, requested: int, used: int, capacity: int) -> Rejection:
        """Return the refusal of a pod that asks for more than the node has left (lifecycle/predicate.go)."""
        return cls(
            f"OutOf{resource_name}",
            f"Node didn't have enough resource: {resource_name}, "
            f"requested: {requested}, used: {used}, capacity: {capacity}",
        )

    @classmethod
    def of_error(cls, error: Exception) -> Rejection:
        """Return the refusal for an error of allocation (cm/admission/errors.go)."""
        return cls("UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")

    def status(self) -> PodStatus:
        """Return what the pod's status shows (kubelet.go rejectPod): no container was ever made."""
        return PodStatus(PodPhase.FAILED, self.reason, f"Pod was rejected: {self.message}")

    def event(self, pod_uid: str) -> Event:
        """Return the event on the pod: the same message without the prefix."""
        return Event(pod_uid, "Warning", self.reason, self.message)
