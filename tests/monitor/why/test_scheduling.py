"""Pods without a node: what the scheduler counted, on which nodes, and what to do."""

from __future__ import annotations

import pytest

from devplug.monitor.why.diagnosis import explain
from devplug.monitor.why.evidence import Actor, Evidence, State
from tests.monitor.why.pods import RESOURCE, judged, node, pod, running, short, unschedulable
from tests.sandbox.jsons import printed


def test_a_pod_is_told_who_has_what_it_asks_for_and_who_is_about_to_leave() -> None:
    leaving = running("b", deletionTimestamp="2026-11-21T00:00:00Z")
    result = judged(unschedulable(short()), others=(running("a"), leaving))
    assert (result.state, result.rejected_by) == (State.PENDING, Actor.SCHEDULER)
    assert result.facts == (
        "on worker-0 they are asked for by default/a (1) and default/b (1)",
        "default/b is being deleted; what it has comes free when it is gone",
    )
    assert not result.is_fine


@pytest.mark.parametrize(
    ("capacity", "allocatable", "count", "because"),
    [
        (2, 2, 3, f"it asks for 3 of {RESOURCE}, and no node that it may go to has more than 2"),
        (0, 0, 1, f"worker-0 has none of {RESOURCE}: its capacity is 0"),
        (2, 0, 1, f"all 2 of {RESOURCE} on worker-0 are unhealthy, or their plugin has stopped"),
        (3, 1, 2, f"it asks for 2 of {RESOURCE}, and no node that it may go to has more than 1 healthy ones"),
    ],
)
def test_what_a_node_has_decides_what_is_said(
    capacity: int, allocatable: int, count: int, because: str
) -> None:
    result = judged(unschedulable(short(), count=count), nodes=(node("worker-0", capacity, allocatable),))
    assert result.because == because
    assert result.advice
    if allocatable < capacity:
        fact = f"{capacity - allocatable} of {capacity} {RESOURCE} on worker-0 are unhealthy"
        assert any(one.startswith(fact) for one in result.facts)


def test_a_node_that_would_fit_but_is_closed_is_told_apart_from_one_that_is_full() -> None:
    tainted = node("worker-1", taints=[{"key": "gpu", "value": "only", "effect": "NoSchedule"}])
    cordoned = node("worker-2", unschedulable=True)
    message = "0/3 nodes are available: 1 Insufficient " + RESOURCE + ", 1 node(s) were unschedulable."
    result = judged(
        unschedulable(message),
        nodes=(node(capacity=1, allocatable=1), tainted, cordoned),
        others=(running("a"),),
    )
    assert "worker-1 has room, but the pod does not tolerate its taint gpu=only:NoSchedule" in result.facts
    assert "worker-2 has room, but it is cordoned" in result.facts
    assert "on worker-0 they are asked for by default/a (1)" in result.facts
    assert "the scheduler also says: 1 node(s) were unschedulable" in result.facts
    assert any("kubectl uncordon" in step for step in result.advice)


def test_a_toleration_opens_a_tainted_node() -> None:
    tainted = node(taints=[{"key": "gpu", "value": "only", "effect": "NoSchedule"}])
    tolerant = unschedulable(short(), tolerations=[{"key": "gpu", "operator": "Exists"}])
    result = judged(tolerant, nodes=(tainted,))
    assert result.because == "there is room on worker-0 by now, and the scheduler tries again by itself"
    assert result.rejected_by is Actor.NOBODY
    assert not result.is_fine


def test_a_node_with_devices_but_no_cpu_says_that_it_is_not_the_devices() -> None:
    result = judged(unschedulable("0/1 nodes are available: 1 Insufficient cpu. preemption: not helpful."))
    assert result.because == "worker-0 has the devices, but something else keeps it off: 1 Insufficient cpu"
    assert result.advice == ("ask for less cpu, or delete pods that ask for it",)


def test_containers_that_ask_together_are_counted_out() -> None:
    made = unschedulable(short(), count=2)
    made["spec"]["initContainers"] = [
        {"name": "s", "restartPolicy": "Always", "resources": {"limits": {RESOURCE: "1"}}}
    ]
    result = judged(made)
    assert result.facts[0].startswith(f"its containers ask for {RESOURCE}: s 1 and c 2; at once that is 3")
    assert "asks for 3" in result.because


def test_two_resources_that_no_node_has_together_are_named_together() -> None:
    made = unschedulable("0/2 nodes are available: 1 Insufficient a.io/a, 1 Insufficient b.io/b.", count=0)
    made["spec"]["containers"][0]["resources"] = {"limits": {"a.io/a": "1", "b.io/b": "1"}}
    nodes = tuple(
        {"metadata": {"name": name}, "status": {"capacity": {name: "1"}, "allocatable": {name: "1"}}}
        for name in ("a.io/a", "b.io/b")
    )
    assert judged(made, nodes=nodes).because == "no node has 1 a.io/a and 1 b.io/b free at once"


def test_recorded_words_of_a_scheduler_are_read_where_nodes_may_not_be() -> None:
    message = printed("39-unknown-events.txt").splitlines()[1].split("   ")[-1].strip()
    result = judged(
        unschedulable(message, resource="nobody.io/thing"), unread=("the API server refuses (403)",)
    )
    assert result.because == "no node has the resource nobody.io/thing"
    blind = explain(
        Evidence(
            namespace="default",
            name="mine",
            pod=unschedulable(message, resource="nobody.io/thing"),
            nodes=None,
            pods=None,
            unread=("nodes: no right",),
        )
    )
    assert blind.because == "1 Insufficient nobody.io/thing"
    assert "  not read: nodes: no right" in blind.lines()


def test_a_pod_that_nobody_has_looked_at_names_its_scheduler() -> None:
    assert "(default-scheduler) has left neither a condition nor an event" in judged(pod()).because
    assert "see whether volcano runs" in judged(pod(schedulerName="volcano")).advice[0]
    gated = judged(pod(schedulingGates=[{"name": "example.com/wait"}]))
    assert "scheduling gate example.com/wait" in gated.because
