"""The decisions for one pod: held back, refused, placed, bound; and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from devplug.dra.objects import FINALIZER, Claim
from devplug.dra.scheduling import (
    MOST_PODS,
    Attempt,
    Fit,
    binding_failure,
    bound,
    claim_names,
    held_back,
    is_ready,
    normalised,
    post_filter,
    scheduler_error,
    unschedulable,
)
from devplug.dra.search import AttemptError
from tests.dra.worlds import N1, N2, Json, Small, claim, cluster_of, names, one_of, request, slice_of, wanted

POD: Json = {"metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"}, "spec": {}}
ON_N1 = {"devices": {}, "nodeSelector": {"nodeSelectorTerms": [
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
]}}  # fmt: skip


def pod(*claims: Json, statuses: list[Json] | None = None) -> Json:
    return {
        **POD,
        "spec": {"resourceClaims": list(claims)},
        "status": {"resourceClaimStatuses": statuses or []},
    }


def attempt(small: Small, *claims: Claim, pending: tuple[str, ...] = ()) -> Attempt:
    return Attempt(POD, claims, small.cluster, pending)


def two_nodes() -> Small:
    return cluster_of(slice_of("s", ["a"]), slice_of("t", ["b"], pool="n2", nodeName="n2"))


# ── before the queue ──


@pytest.mark.parametrize(
    ("listed", "statuses", "expected"),
    [
        ({"name": "k", "resourceClaimName": "c0"}, [], {"k": "c0"}),
        ({"name": "k", "resourceClaimTemplateName": "t"}, [], {"k": None}),
        (
            {"name": "k", "resourceClaimTemplateName": "t"},
            [{"name": "k", "resourceClaimName": "p-k-x"}],
            {"k": "p-k-x"},
        ),
        ({"name": "k", "resourceClaimTemplateName": "t"}, [{"name": "k"}], {}),
    ],
)
def test_a_pods_claims_have_names_once_they_are_generated(
    listed: Json, statuses: list[Json], expected: dict[str, str | None]
) -> None:
    """D60."""
    assert claim_names(pod(listed, statuses=statuses)) == expected


def test_a_pod_is_held_back_until_all_its_claims_are_there_to_stay() -> None:
    """D62, D64."""
    listed = pod({"name": "k", "resourceClaimName": "c0"})
    assert held_back(listed, {})
    assert held_back(pod({"name": "k", "resourceClaimTemplateName": "t"}), {})
    assert not held_back(listed, {"c0": claim()})
    gone = replace(claim(), is_deleted=True)
    assert held_back(listed, {"c0": gone}) == 'resourceclaim "c0" is being deleted'


# ── refusals before any node ──


@pytest.mark.parametrize(
    ("asked", "pending", "text"),
    [
        (claim(request("r0", "nope")), (), "request r0: device class nope does not exist"),
        (
            claim(one_of("r0", wanted(), wanted("nope"))),
            (),
            "request r0/s1: device class nope does not exist",
        ),
        (claim(request()), ("uid-c0",), "resource claim ns/c0 is in the process of being allocated"),
        (
            replace(claim(), allocation=ON_N1, reserved_for=tuple(map(str, range(MOST_PODS)))),
            (),
            "resourceclaim in use",
        ),
    ],
)
def test_a_pod_may_be_refused_before_any_node_is_looked_at(
    asked: Claim, pending: tuple[str, ...], text: str
) -> None:
    """D76."""
    one = attempt(two_nodes(), asked, pending=pending)
    assert one.refusal == text
    assert post_filter(one, "uid-p") == ("no new claims to deallocate", None)


def test_a_claim_that_is_reserved_for_the_pod_already_is_not_in_use() -> None:
    reserved = ("uid-p", *map(str, range(MOST_PODS - 1)))
    assert not attempt(two_nodes(), replace(claim(), allocation=ON_N1, reserved_for=reserved)).refusal


# ── nodes ──


def test_a_node_fits_if_all_claims_can_be_allocated_there() -> None:
    """D73."""
    one = attempt(two_nodes(), claim(request()))
    for node, expected in ((N1, ["a"]), (N2, ["b"])):
        fit = one.filter(node)
        assert isinstance(fit, Fit)
        ((asked, allocation),) = fit.allocations
        assert (asked.name, names(allocation)) == ("c0", expected)


def test_a_node_does_not_fit_if_some_claim_cannot_be_allocated() -> None:
    """D76."""
    assert attempt(two_nodes(), claim(request(count=2))).filter(N1) == "cannot allocate all claims"


def test_a_pod_follows_the_claim_that_is_allocated() -> None:
    """D89."""
    one = attempt(two_nodes(), replace(claim(), allocation=ON_N1))
    assert one.filter(N1) == Fit()
    assert one.filter(N2) == "resourceclaim not available on the node"


def test_the_earlier_the_alternative_the_higher_the_score() -> None:
    """D84."""
    one = attempt(two_nodes(), claim(one_of("r0", wanted(count=2), wanted())))
    fit = one.filter(N1)
    assert isinstance(fit, Fit)
    assert fit.score == 7
    assert normalised({"n1": 7, "n2": 8}) == {"n1": 87, "n2": 100}
    assert normalised({"n1": 0}) == {"n1": 0}


# ── no node ──


@pytest.mark.parametrize(
    ("reserved", "is_cleared"),
    [((), True), (("uid-p",), True), (("uid-q",), False), (("uid-p", "uid-q"), False)],
)
def test_an_allocation_that_nobody_else_uses_is_cleared(
    reserved: tuple[str, ...], *, is_cleared: bool
) -> None:
    """D89."""
    held = replace(claim(), allocation=ON_N1, reserved_for=reserved)
    one = attempt(two_nodes(), held)
    one.filter(N2)
    expected = (
        ("deallocation of ResourceClaim completed", held) if is_cleared else ("still not schedulable", None)
    )
    assert post_filter(one, "uid-p") == expected


def test_an_allocation_that_kept_the_pod_from_no_node_stays() -> None:
    """D89."""
    one = attempt(two_nodes(), replace(claim(), allocation=ON_N1), claim(request(count=2), name="c1"))
    assert one.filter(N1) == "cannot allocate all claims"
    assert post_filter(one, "uid-p") == ("still not schedulable", None)


def test_the_condition_counts_the_reasons_of_the_nodes() -> None:
    """D76."""
    reasons = ["cannot allocate all claims", "other", "cannot allocate all claims"]
    assert unschedulable(3, reasons, "", "still not schedulable") == (
        "0/3 nodes are available: 1 other, 2 cannot allocate all claims. still not schedulable, "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )


def test_the_condition_says_why_no_node_was_looked_at() -> None:
    """D76."""
    assert unschedulable(1, (), "resourceclaim in use", "no new claims to deallocate") == (
        "0/1 nodes are available: resourceclaim in use. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_an_attempt_that_fails_is_an_error_of_the_scheduler() -> None:
    """D75."""
    assert scheduler_error(AttemptError("x")) == 'running "DynamicResources" filter plugin: x'


# ── binding ──


def test_binding_writes_finalizer_allocation_and_reservation() -> None:
    """D89."""
    before: dict[str, Any] = {"metadata": {"name": "c0", "finalizers": ["other"]}, "spec": {}}
    assert bound(before, POD, ON_N1) == {
        "metadata": {"name": "c0", "finalizers": ["other", FINALIZER]},
        "spec": {},
        "status": {"allocation": ON_N1, "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}]},
    }


def test_binding_to_an_allocated_claim_adds_a_reservation_once() -> None:
    """D89."""
    first = bound({"metadata": {"name": "c0"}, "spec": {}}, POD, ON_N1)
    other = {"metadata": {"name": "q", "uid": "uid-q"}}
    both = bound(first, other, None)
    assert [one["name"] for one in both["status"]["reservedFor"]] == ["p", "q"]
    assert bound(both, POD, None) == both


# ── binding conditions ──


def attached(**conditions: str) -> Claim:
    """Return a claim whose device has conditions to wait for, with those that the driver has set."""
    device = {"driver": "d", "pool": "p", "device": "a"}
    result = {**device, "bindingConditions": ["attached"], "bindingFailureConditions": ["failed"]}
    said = [
        {"type": name, "status": status, "reason": "Done", "message": "by it"}
        for name, status in conditions.items()
    ]
    allocation = {"devices": {"results": [result]}}
    return replace(claim(), allocation=allocation, devices=({**device, "conditions": said},))


def test_a_pod_is_bound_once_all_binding_conditions_are_true() -> None:
    """D90."""
    assert not is_ready(replace(attached(), devices=()))
    assert not is_ready(attached(attached="False"))
    assert is_ready(attached(attached="True"))
    assert is_ready(replace(claim(), allocation=ON_N1))


def test_a_device_may_say_that_it_cannot_be_bound() -> None:
    """D90."""
    assert not binding_failure(attached(failed="False"))
    failed = attached(failed="True")
    assert binding_failure(failed) == 'device binding failed: claim=c0, reason=Done, message="by it"'


@pytest.mark.parametrize(
    ("held", "expired", "is_cleared"),
    [
        (attached(failed="True"), (), True),
        (attached(), ("uid-c0",), True),
        (attached(), (), False),
        (attached(attached="True"), ("uid-c0",), False),
    ],
)
def test_an_allocation_that_cannot_be_bound_is_cleared(
    held: Claim, expired: tuple[str, ...], *, is_cleared: bool
) -> None:
    """D90."""
    one = Attempt(POD, [held], two_nodes().cluster, expired=expired)
    said = one.filter(N1)
    assert said == ("resourceclaim not available on the node" if is_cleared else Fit())
    assert (post_filter(one, "uid-p")[1] is held) is is_cleared
