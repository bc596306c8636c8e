"""The admission of a pod: the topology manager's scopes, and the last check whether the node has enough.

`TopologyManager` places a pod's containers and has their devices allocated (topologymanager/scope*.go); it
lives as long as a kubelet process. Its rules are in `topology`; who allocates is the device manager. The
last check (lifecycle/predicate.go) comes after the devices were allocated, so a pod that is refused there
has cost its plugins a call.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from devplug.errors import AllocationError, RemoteError
from devplug.kubelet.pods import Rejection
from devplug.kubelet.topology import NO_AFFINITY, Policy, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.kubelet.allocation import DeviceAllocations
    from devplug.kubelet.metrics import KubeletMetrics
    from devplug.kubelet.pods import Container, Pod
    from devplug.kubelet.topology import Hints, TopologyHint, TopologyRules


class HintProvider(Protocol):
    """The provider of hints and allocations: the device manager (topology_manager.go HintProvider)."""

    def container_hints(self, pod: Pod, container: Container) -> Mapping[str, Hints]:
        """Return the hints for a container's requests, by resource name."""

    def pod_hints(self, pod: Pod) -> Mapping[str, Hints]:
        """Return the hints for a pod's requests together, by resource name."""

    async def allocate(self, pod: Pod, container: Container) -> None:
        """Allocate for a container; its NUMA nodes are in `TopologyManager.affinity`."""


class TopologyManager:
    """The owner of every container's affinity: on which NUMA nodes its devices should be."""

    def __init__(self, rules: TopologyRules, metrics: KubeletMetrics) -> None:
        self.rules = rules
        self._metrics = metrics
        self._affinities: dict[tuple[str, str], TopologyHint] = {}

    def affinity(self, pod_uid: str, container_name: str) -> TopologyHint:
        """Return the hint by which a container was placed; one without nodes if it was not."""
        return self._affinities.get((pod_uid, container_name), NO_AFFINITY)

    def forget(self, pod_uid: str, container_name: str) -> None:
        """Forget a container that is gone for good."""
        self._affinities.pop((pod_uid, container_name), None)

    async def admit(self, pod: Pod, provider: HintProvider) -> Rejection | None:
        """Place and allocate for each container of `pod` in start order; return the refusal, or None.

        The first error ends it. What earlier containers got stays theirs until the pod is inactive. Raises
        `KubeletCrashError`.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        self._metrics.count_admission()
        try:
            return await self._admit(pod, provider)
        finally:
            self._metrics.observe_admission(int((clock() - began) * 1000))

    async def _admit(self, pod: Pod, provider: HintProvider) -> Rejection | None:
        rules = self.rules
        is_placed = rules.policy is not Policy.NONE
        hint, is_admitted = NO_AFFINITY, True
        if rules.scope is Scope.POD:
            hint, is_admitted = rules.merge([provider.pod_hints(pod)])
        for container in pod.in_start_order():
            if is_placed and rules.scope is Scope.CONTAINER:
                hint, is_admitted = rules.merge([provider.container_hints(pod, container)])
            if not is_admitted:
                self._metrics.count_admission_error()
                self._count_alignment(rules.scope, is_aligned=False)
                return Rejection.of_topology()
            if is_placed:
                self._affinities[pod.uid, container.name] = hint
            try:
                await provider.allocate(pod, container)
            except (AllocationError, RemoteError) as error:
                if is_placed:
                    self._metrics.count_admission_error()
                return Rejection.of_error(error)
            self._count_alignment(Scope.CONTAINER)
        self._count_alignment(Scope.POD)
        return None

    def _count_alignment(self, scope: Scope, *, is_aligned: bool = True) -> None:
        """Count for this scope, under the one policy that promises alignment."""
        if self.rules.guarantees_alignment and scope is self.rules.scope:
            self._metrics.count_alignment(scope, is_aligned=is_aligned)


# ── the last check ────────────────────────────────────────────────────────────────────────────────


def check_pod(pod: Pod, others: Iterable[Pod], allocatable: Mapping[str, int]) -> Rejection | None:
    """Return the refusal of a pod that does not fit beside the other active pods, or None.

    A resource that the node does not know is not checked: a pod bound by hand that asks for it starts
    without. Neither is what DRA serves. One whose plugin is long gone is known, with 0. The first shortage
    by name is returned.
    """
    used: dict[str, int] = {}
    for other in others:
        for name, count in other.limits().items():
            used[name] = used.get(name, 0) + count
    for name, requested in sorted(pod.without_dra().limits().items()):
        capacity, taken = allocatable.get(name), used.get(name, 0)
        if capacity is not None and requested > capacity - taken and requested > 0:
            return Rejection.of_shortage(name, requested, taken, capacity)
    return None


def allocatable_for(
    pod: Pod, allocatable: Mapping[str, int], allocations: DeviceAllocations
) -> dict[str, int]:
    """Return the node's allocatable as the check of this pod sees it (manager.go UpdatePluginResources).

    If the pod holds devices, no resource has less than what is in use: else a restart of the kubelet would
    refuse pods that run, while their plugins are not back.
    """
    raised = dict(allocatable)
    if any(held.key[0] == pod.uid for held in allocations.assignments):
        for name, state in allocations.resources.items():
            if state.allocated is not None:
                raised[name] = max(raised.get(name, 0), len(state.allocated))
    return raised
