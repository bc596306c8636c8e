"""What is remembered of searches: for which claims, for how long, and where nothing is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from devplug.dra.allocator import Outcomes
from devplug.dra.objects import Claim, DeviceClass
from devplug.dra.pools import LIKE_1_36
from devplug.dra.scheduling import Attempt, Cluster, Fit
from devplug.k8s.node_selectors import Node
from tests.dra.worlds import (
    CLASSES,
    GPU,
    N1,
    N2,
    NIC,
    Json,
    claim,
    cluster_of,
    device,
    one_of,
    request,
    slice_of,
    wanted,
)

POD: Json = {"metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"}, "spec": {}}
NO_DEVICES = "cannot allocate all claims"
TAKEN = {"consumesCounters": [{"counterSet": "set", "counters": {"m": {"value": "5"}}}]}


def allocation(device: str, pool: str) -> Json:
    return {"devices": {"results": [{"driver": GPU, "pool": pool, "device": device}]}}


def two_nodes() -> Cluster:
    return cluster_of(slice_of("s", ["a"]), slice_of("t", ["b"], pool="n2", nodeName="n2")).cluster


def searched(cluster: Cluster, *claims: Claim, node: Node = N1) -> Fit | str:
    return Attempt(POD, claims, cluster).filter(node)


def recalled(cluster: Cluster, *claims: Claim, node: Node = N1) -> int | str | None:
    return Attempt(POD, claims, cluster).recall(node)


# ── for which claims ──


def test_a_claim_like_an_earlier_one_has_its_score_at_that_node() -> None:
    """D84."""
    cluster = two_nodes()
    listed = one_of("r0", wanted(count=2), wanted())
    searched(cluster, claim(listed, name="one"))
    assert recalled(cluster, claim(listed, name="other")) == 7
    assert recalled(cluster, claim(listed), node=N2) is None


def test_a_claim_like_one_that_got_nothing_gets_nothing() -> None:
    """D76."""
    cluster = two_nodes()
    searched(cluster, claim(request(count=2), name="one"))
    assert recalled(cluster, claim(request(count=2), name="other")) == NO_DEVICES


@pytest.mark.parametrize(
    "other",
    [
        claim(request("r1")),
        claim(request("r0", "any")),
        claim(request("r0", "gpu", "k=a")),
        claim(request(count=2)),
        claim(request(allocationMode="All")),
        claim(request(adminAccess=True)),
        claim(request(tolerations=[{"operator": "Exists"}])),
        claim(request(capacity={"requests": {"m": "1"}})),
        claim(one_of("r0", wanted())),
        claim(request(), request("r1")),
        claim(request(), constraints=[{"matchAttribute": f"{GPU}/k"}]),
    ],
)
def test_a_claim_that_differs_in_what_decides_is_searched_for(other: Claim) -> None:
    cluster = two_nodes()
    searched(cluster, claim(request()))
    assert recalled(cluster, other) is None
    assert recalled(cluster, claim(request()), other) is None
    assert recalled(cluster, claim(request())) == 0


def test_an_allocated_claim_keeps_its_pod_from_other_nodes_all_the_same() -> None:
    """D89."""
    cluster = two_nodes()
    searched(cluster, claim(request()))
    held = replace(claim(name="held"), allocation={"devices": {}, "nodeSelector": {"nodeSelectorTerms": []}})
    attempt = Attempt(POD, [held, claim(request())], cluster)
    assert attempt.recall(N1) == "resourceclaim not available on the node"
    assert attempt.unavailable == {"uid-held"}


def test_no_more_than_so_many_kinds_of_claims_are_remembered() -> None:
    outcomes = Outcomes()
    kinds = [[claim(request(f"r{number}"))] for number in range(130)]
    known = [outcomes.of(one, CLASSES, LIKE_1_36) for one in kinds]
    assert outcomes.of(kinds[-1], CLASSES, LIKE_1_36) is known[-1]
    assert outcomes.of(kinds[2], CLASSES, LIKE_1_36) is known[2]
    assert outcomes.of(kinds[0], CLASSES, LIKE_1_36) is not known[0]


# ── for how long ──


def _other_class(cluster: Cluster) -> None:
    cluster.classes = {**cluster.classes, "gpu": DeviceClass("gpu", (), ())}


@pytest.mark.parametrize(
    ("change", "is_forgotten"),
    [
        (lambda cluster: cluster.allocations.add(allocation("a", "n1")), True),
        (lambda cluster: cluster.allocations.remove(allocation("a", "n1")), True),
        (lambda cluster: cluster.allocations.add(allocation("b", "n2")), False),
        (lambda cluster: cluster.inventory.put(slice_of("s", ["a", "c"])), True),
        (lambda cluster: cluster.inventory.put(slice_of("u", ["c"], driver=NIC)), True),
        (lambda cluster: cluster.inventory.put(slice_of("u", ["c"], pool="net", allNodes=True)), True),
        (lambda cluster: cluster.inventory.put(slice_of("t", [], pool="n2", nodeName="n2")), False),
        (lambda cluster: cluster.inventory.remove("s"), True),
        (_other_class, True),
    ],
)
def test_an_outcome_holds_until_something_of_it_changes(
    change: Callable[[Cluster], None], *, is_forgotten: bool
) -> None:
    cluster = two_nodes()
    cluster.allocations.add(allocation("a", "n1"))
    searched(cluster, claim(request()))
    change(cluster)
    assert recalled(cluster, claim(request())) == (None if is_forgotten else NO_DEVICES)


def test_an_outcome_ends_with_the_labels_of_its_node() -> None:
    cluster = two_nodes()
    searched(cluster, claim(request()))
    assert recalled(cluster, claim(request()), node=Node("n1", {"zone": "a"})) == 0
    assert recalled(cluster, claim(request()), node=Node("n1", {"zone": "b"})) is None


# ── where nothing is remembered ──


@pytest.mark.parametrize(
    ("driver", "pool", "where", "is_remembered"),
    [
        (GPU, "n1", {"nodeName": "n1"}, True),
        (GPU, "n1", {"allNodes": True}, False),
        (NIC, "n1", {"nodeName": "n1"}, True),
        (NIC, "n1", {"nodeName": "n2"}, False),
        (NIC, "n2", {"nodeName": "n2"}, True),
    ],
)
def test_counters_that_another_node_may_have_changed_are_looked_at_each_time(
    driver: str, pool: str, where: Json, *, is_remembered: bool
) -> None:
    """D85: what is left of them is kept by the name of the pool, so the nodes before may have decided."""
    counters = [{"name": "set", "counters": {"m": {"value": "9"}}}]
    count = 3 if driver == GPU else 2
    cluster = cluster_of(
        slice_of("c", [], count=count, nodeName="n1", sharedCounters=counters),
        slice_of("d", [device("a", **TAKEN)], count=count),
        slice_of("other", ["b"], pool, driver, count=3 if driver == GPU else 1, **where),
    ).cluster
    searched(cluster, claim(request()))
    assert (recalled(cluster, claim(request())) is not None) == is_remembered
