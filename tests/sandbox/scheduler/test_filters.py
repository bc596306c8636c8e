"""What pods are told, in the scheduler's own words; and quotas in the API server's."""

from __future__ import annotations

import pytest

from devplug.sandbox.admission import Quota, QuotaExceededError, admit
from devplug.sandbox.scheduler.filters import Plugin
from devplug.sandbox.scheduler.snapshot import ClusterSnapshot, UnknownNodeError
from devplug.sandbox.scheduler.types import (
    CPU,
    NAME_FIELD,
    PODS,
    Node,
    Requirement,
    Shape,
    Taint,
    Term,
    Toleration,
)

WIDGET, RESOURCE = "kkloud.io/widget", "example.com/resource"


def node(number: int, **allocatable: int) -> Node:
    amounts = {CPU: 4000, PODS: 110, **{name.replace("__", "."): one for name, one in allocatable.items()}}
    return Node(f"worker-{number}", {"kubernetes.io/hostname": f"worker-{number}"}, allocatable=amounts)


def with_widgets(*counts: int) -> ClusterSnapshot:
    cluster = ClusterSnapshot()
    for number, count in enumerate(counts):
        one = node(number)
        cluster.put_node(Node(one.name, one.labels, allocatable={**one.allocatable, WIDGET: count}))
    return cluster


def test_a_pod_that_others_are_in_the_way_of_is_told_so_as_on_a_real_cluster() -> None:
    """Recorded on a real node: 09-events.txt and 10-describe-pending.txt of the kubectl recordings."""
    cluster = with_widgets(2)
    two = Shape.asking({WIDGET: 2}, node_selector={"kubernetes.io/hostname": "worker-0"})
    cluster.assume("first", two, "worker-0")
    assert cluster.choose(two) is None
    assert cluster.diagnose(two).message() == (
        "0/1 nodes are available: 1 Insufficient kkloud.io/widget. no new claims to deallocate, preemption: "
        "0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_a_pod_that_asks_for_what_nobody_has_is_told_so_as_on_a_real_cluster() -> None:
    """Recorded on a real node: 39-unknown-events.txt of the kubectl recordings (C99)."""
    assert with_widgets(2).diagnose(Shape.asking({"nobody.io/thing": 1})).message() == (
        "0/1 nodes are available: 1 Insufficient nobody.io/thing. no new claims to deallocate, preemption: "
        "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_reasons_are_counted_over_nodes_and_sorted_as_texts() -> None:
    cluster = with_widgets(*[1] * 10, *[4] * 2)
    cluster.put_node(Node("cordoned", unschedulable=True, allocatable={PODS: 1}))
    cluster.put_node(Node("tainted", taints=(Taint("dedicated", "gpu"),), allocatable={PODS: 1}))
    cluster.put_node(Node("full", allocatable={CPU: 100, WIDGET: 9, PODS: 0}))
    for one in (10, 11):
        cluster.assume(f"pod-{one}", Shape.asking({WIDGET: 3}), f"worker-{one}")
    assert cluster.diagnose(Shape.asking({WIDGET: 2, CPU: 1000})).message() == (
        "0/15 nodes are available: 1 Insufficient cpu, 1 Too many pods, 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable, 12 Insufficient kkloud.io/widget. no new claims to deallocate, "
        "preemption: 0/15 nodes are available: 13 Preemption is not helpful for scheduling, "
        "2 No preemption victims found for incoming pod."
    )


def test_only_the_first_plugin_that_refuses_a_node_gives_its_reasons() -> None:
    cluster = ClusterSnapshot()
    taints = (Taint("a"),)
    cluster.put_node(Node("one", {}, taints, unschedulable=True, allocatable={}))
    reasons = [
        (Shape.asking({CPU: 1}, node_selector={"a": "b"}), "node(s) were unschedulable"),
        (
            Shape.asking(
                {CPU: 1},
                node_selector={"a": "b"},
                tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),),
            ),
            "node(s) had untolerated taint(s)",
        ),
        (
            Shape.asking({CPU: 1}, node_selector={"a": "b"}, tolerations=(Toleration(operator="Exists"),)),
            "node(s) didn't match Pod's node affinity/selector",
        ),
        (
            Shape.asking({CPU: 1}, node_name="two", tolerations=(Toleration(operator="Exists"),)),
            "node(s) didn't match the requested node name",
        ),
    ]
    for shape, reason in reasons:
        refusal = cluster.refusal(shape, "one")
        assert refusal is not None
        assert refusal.reasons == (reason,)
    tolerant = cluster.refusal(Shape.asking({CPU: 1}, tolerations=(Toleration(operator="Exists"),)), "one")
    assert tolerant is not None
    assert tolerant.reasons == ("Too many pods", "Insufficient cpu")
    assert not tolerant.is_resolvable


def test_a_pod_whose_affinity_names_nodes_is_told_of_the_others_apart() -> None:
    cluster = with_widgets(2, 0, 2)
    named = Term(fields=(Requirement(NAME_FIELD, "In", ("worker-1",)),))
    shape = Shape.asking({WIDGET: 1}, required=(named,))
    assert cluster.choose(shape) is None
    assert (
        cluster.diagnose(shape)
        .message()
        .startswith(
            "0/3 nodes are available: 1 Insufficient kkloud.io/widget, "
            "2 node(s) didn't satisfy plugin(s) [NodeAffinity]. no new claims"
        )
    )
    other = Requirement(NAME_FIELD, "In", ("worker-2",))
    conflict = Shape.asking({}, required=(Term(fields=(*named.fields, other)),))
    assert cluster.choose(conflict) is None
    diagnosis = cluster.diagnose(conflict)
    assert diagnosis.message().startswith("0/3 nodes are available: pod affinity terms conflict. ")
    assert diagnosis.plugins == {Plugin.NODE_AFFINITY}


def test_a_pod_that_never_preempts_is_told_that_it_may_not() -> None:
    assert with_widgets(1).diagnose(Shape.asking({WIDGET: 2})).message(may_preempt=False) == (
        "0/1 nodes are available: 1 Insufficient kkloud.io/widget. no new claims to deallocate, preemption: "
        "not eligible due to preemptionPolicy=Never."
    )


def test_without_nodes_there_is_nothing_to_count() -> None:
    assert ClusterSnapshot().diagnose(Shape()).message() == "no nodes available to schedule pods"
    with pytest.raises(UnknownNodeError, match='there is no node "gone" in the cluster'):
        ClusterSnapshot().refusal(Shape(), "gone")


def test_numbers_alone_place_a_pod_whatever_the_numa_nodes_say() -> None:
    """C102: the scheduler sees two devices and binds; that they are far apart is the kubelet's to refuse."""
    cluster = with_widgets(2)
    assert cluster.choose(Shape.asking({WIDGET: 2})) == "worker-0"


# ── quota ──


def test_a_quota_that_is_exceeded_says_what_was_requested_used_and_limited() -> None:
    """Recorded on a real cluster: 41-quota-exceeded.txt of the kubectl recordings (C101)."""
    quota = Quota("q", {f"requests.{RESOURCE}": 1})
    one = Shape.asking({RESOURCE: 1})
    admit("first", one, [quota], [])
    with pytest.raises(QuotaExceededError) as caught:
        admit("overquota", one, [quota], [one])
    assert str(caught.value) == (
        'pods "overquota" is forbidden: exceeded quota: q, requested: requests.example.com/resource=1, '
        "used: requests.example.com/resource=1, limited: requests.example.com/resource=1"
    )


@pytest.mark.parametrize("key", [RESOURCE, f"limits.{RESOURCE}", "requests.example.com/other", "cpu"])
def test_other_keys_of_a_quota_do_not_matter(key: str) -> None:
    """C101."""
    admit("pod", Shape.asking({RESOURCE: 2, CPU: 9}), [Quota("q", {key: 0})], [])


def test_the_first_quota_that_is_exceeded_is_told_of_with_all_of_it() -> None:
    hard = {f"requests.{WIDGET}": 1, f"requests.{RESOURCE}": 1}
    with pytest.raises(QuotaExceededError, match=r"quota: a, .*=2,requests\.kkloud\.io/widget=2, used: .*=0"):
        admit("pod", Shape.asking({WIDGET: 2, RESOURCE: 2}), [Quota("b", hard), Quota("a", hard)], [])
