"""The kubelet's last check of a pod: does the node have what it asks for? (lifecycle/predicate.go). Pure.

It comes after the devices were allocated, so a pod that is refused here has cost its plugins a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.kubelet.pods import Rejection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.kubelet.allocation import Ledger
    from devplug.kubelet.pods import Pod

__all__ = ["allocatable_for", "check_pod"]


def check_pod(pod: Pod, others: Iterable[Pod], allocatable: Mapping[str, int]) -> Rejection | None:
    """Return the refusal of a pod that does not fit beside the other active pods, or None.

    A resource that the node does not know is not looked at: a pod bound by hand that asks for it starts
    without. Neither is what DRA serves. One whose plugin is long gone is known, with 0. The first shortage
    by name is told.
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


def allocatable_for(pod: Pod, allocatable: Mapping[str, int], ledger: Ledger) -> dict[str, int]:
    """Return the node's allocatable as the check of this pod sees it (manager.go UpdatePluginResources).

    If the pod holds devices, no resource has less than what is in use: else a restart of the kubelet would
    refuse pods that run, while their plugins are not back.
    """
    raised = dict(allocatable)
    if any(held.key[0] == pod.uid for held in ledger.assignments):
        for name, state in ledger.resources.items():
            if state.allocated is not None:
                raised[name] = max(raised.get(name, 0), len(state.allocated))
    return raised
