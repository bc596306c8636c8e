"""Pods that have failed for good: who refused them, and why they are to be made anew."""

from __future__ import annotations

from typing import Any

import pytest

from devplug.monitor.why.evidence import Actor, Diagnosis, State
from devplug.status import DeviceStatus, NodeStatus, ResourceStatus
from tests.monitor.why.pods import RESOURCE, event, judged, pod


def refused(reason: str, message: str, **more: Any) -> Diagnosis:
    made = pod(nodeName="worker-0")
    made["status"] = {"phase": "Failed", "reason": reason, "message": message}
    return judged(made, **more)


UNAVAILABLE = (
    f"Pod was rejected: Allocate failed due to requested number of devices unavailable for {RESOURCE}. "
    "Requested: 2, Available: 1, which is unexpected"
)
"""As recorded in 22-bound-status.txt."""


SICK = f"cannot allocate unhealthy devices {RESOURCE}"


@pytest.mark.parametrize(
    ("error", "rejected_by", "because"),
    [
        (
            f"no healthy devices present; {SICK}",
            Actor.KUBELET,
            f"worker-0 had no healthy {RESOURCE} when the pod came",
        ),
        (
            f"previously allocated devices are no longer healthy; {SICK}",
            Actor.KUBELET,
            f"the {RESOURCE} that it had on worker-0 are no longer healthy",
        ),
        (
            f"unknown Device Plugin {RESOURCE}",
            Actor.KUBELET,
            f"no plugin served {RESOURCE} on worker-0 when the pod came",
        ),
        (
            "rpc error: code = Unknown desc = boom, with a comma",
            Actor.PLUGIN,
            "Allocate was refused: boom, with a comma",
        ),
        (
            "rpc error: code = Unavailable desc = connection error",
            Actor.PLUGIN,
            "the plugin's call ended with Unavailable: connection error",
        ),
        (
            "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown desc = no",
            Actor.PLUGIN,
            "GetPreferredAllocation was refused: no",
        ),
        (
            "no containers return in allocation response &{}",
            Actor.PLUGIN,
            "the kubelet cannot use the plugin's answer: no containers return in allocation response &{}",
        ),
        (
            'failed to write checkpoint file "kubelet_internal_checkpoint": disk full',
            Actor.KUBELET,
            'failed to write checkpoint file "kubelet_internal_checkpoint": disk full',
        ),
    ],
)
def test_each_error_of_an_allocation_says_who_and_why(error: str, rejected_by: Actor, because: str) -> None:
    message = f"Allocate failed due to {error}, which is unexpected"
    result = refused("UnexpectedAdmissionError", f"Pod was rejected: {message}")
    assert (result.state, result.rejected_by, result.because) == (State.FAILED, rejected_by, because)
    assert f"message: {message}" in result.facts
    assert "delete the pod and create it again" in result.advice[-1]


@pytest.mark.parametrize(
    ("reason", "message", "rejected_by", "because"),
    [
        (
            "TopologyAffinityError",
            "Resources cannot be allocated with Topology locality",
            Actor.KUBELET,
            f"the topology manager of worker-0 could not have 1 {RESOURCE} on NUMA nodes as its policy wants",
        ),
        (
            f"OutOf{RESOURCE}",
            f"Node didn't have enough resource: {RESOURCE}, requested: 1, used: 0, capacity: 0",
            Actor.KUBELET,
            f"worker-0 has too little {RESOURCE}: 1 asked for, 0 of 0 in use",
        ),
        ("OutOfcpu", "...", Actor.KUBELET, "worker-0 has too little cpu"),
        (
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            Actor.KUBELET,
            "the pod was bound to a node that it does not fit (NodeAffinity)",
        ),
        (
            "Evicted",
            "The node was low on resource: memory.",
            Actor.NODE,
            "the kubelet evicted it",
        ),
        (
            "Preempting",
            "Preempted in order to admit critical pod",
            Actor.KUBELET,
            "it had to make room for a critical pod",
        ),
        ("Odd", "something new", Actor.KUBELET, "Odd"),
    ],
)
def test_each_other_refusal_says_who_and_why(
    reason: str, message: str, rejected_by: Actor, because: str
) -> None:
    result = refused(reason, f"Pod was rejected: {message}")
    assert (result.state, result.rejected_by, result.because) == (State.FAILED, rejected_by, because)
    assert f"message: {message}" in result.facts
    assert "delete the pod and create it again" in result.advice[-1]


def test_a_recorded_refusal_is_told_in_numbers() -> None:
    result = refused("UnexpectedAdmissionError", UNAVAILABLE)
    assert (
        result.because == f"of the 2 {RESOURCE} that it asks for, worker-0 had only 1 healthy and not in use"
    )
    assert result.rejected_by is Actor.KUBELET


def test_only_a_pod_that_nobody_scheduled_is_told_to_let_the_scheduler_count() -> None:
    scheduled = event("Scheduled", "Successfully assigned default/mine to worker-0", kind="Normal")
    assert any("bound by name" in one for one in refused("UnexpectedAdmissionError", UNAVAILABLE).facts)
    result = refused("UnexpectedAdmissionError", UNAVAILABLE, events=(scheduled,))
    assert not any("bound by name" in one for one in result.facts)


def test_the_node_itself_adds_what_is_free_on_which_numa_node() -> None:
    devices = (
        DeviceStatus(id="a", health="Healthy", numa_nodes=(0,)),
        DeviceStatus(id="b", health="Healthy", numa_nodes=(1,), is_held=True),
        DeviceStatus(id="c", health="Unhealthy", reason="too hot", numa_nodes=(1,)),
    )
    status = NodeStatus(name="worker-0", at=1.0, resources=(ResourceStatus(name=RESOURCE, devices=devices),))
    facts = refused("TopologyAffinityError", "Resources cannot be ...", node_status=status).facts
    assert f"of {RESOURCE} these are free now: NUMA node 0: a" in facts
    assert f"c of {RESOURCE} is unhealthy: too hot" in facts


def test_a_numa_node_that_the_machine_lacks_is_mended_in_the_configuration() -> None:
    nowhere = DeviceStatus(id="a", health="Healthy", numa_nodes=(1,))
    here = DeviceStatus(id="b", health="Healthy", numa_nodes=(0,))

    def result(*devices: DeviceStatus, numa_nodes: tuple[int, ...]) -> Diagnosis:
        resource = ResourceStatus(name=RESOURCE, devices=devices)
        status = NodeStatus(name="worker-0", at=1.0, resources=(resource,))
        return refused("TopologyAffinityError", "m", node_status=status, numa_nodes=numa_nodes)

    told = result(nowhere, numa_nodes=(0,))
    assert told.because == "devices say that they are on a NUMA node that worker-0 does not have"
    assert f"of {RESOURCE} on NUMA node 1: a" in told.facts
    assert "mend numaNodes" in told.advice[0]
    for other in (result(nowhere, here, numa_nodes=(0,)), result(nowhere, numa_nodes=())):
        assert "topology manager" in other.because


def test_a_pod_that_was_put_out_says_by_whom() -> None:
    made = pod(nodeName="worker-0")
    told = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}
    made["status"] = {"phase": "Failed", "conditions": [told]}
    assert judged(made).because == "it was evicted (PreemptionByScheduler)"


def test_a_program_that_failed_is_no_refusal() -> None:
    made = pod(nodeName="worker-0")
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    made["status"] = {"phase": "Failed", "containerStatuses": [{"name": "c", "state": ended}]}
    result = judged(made)
    assert (result.rejected_by, result.because) == (
        Actor.PROGRAM,
        "container c ended with code 137 (OOMKilled)",
    )
    assert "kubectl logs -n default mine -c c" in result.advice[0]
