"""Pods with claims: what is missing, which devices they cannot have and why, and what is enough."""

from __future__ import annotations

from typing import Any

import pytest

from devplug.monitor.why.evidence import Actor, ClaimObjects, Diagnosis, State
from tests.monitor.why.claims import CLASS, DRIVER, NO_DEVICES, asking, claim, gpus, holding, slice_on
from tests.monitor.why.pods import RESOURCE, event, judged, node, unschedulable

pytest.importorskip("cel_expr_python", reason="needs the extra [dra]: pip install 'devplug[dra]'")

ON_FIRE = "NodePrepareResources failed for ResourceClaim c-e1: device is on fire"


def asked(pod: dict[str, Any] | None = None, *claims: dict[str, Any], **more: Any) -> Diagnosis:
    nodes = more.pop("nodes", None)
    found: dict[str, Any] = {
        "templates": frozenset(),
        "classes": (CLASS,),
        "slices": (slice_on("worker-0", *gpus(1)),),
        **more,
    }
    return judged(pod or asking(), nodes=nodes, claims=ClaimObjects(claims=claims, **found))


def test_a_claim_that_another_one_keeps_from_its_devices_is_told_whom_to_free() -> None:
    """D76, D79: the scheduler only says that it cannot allocate all claims."""
    result = asked(None, claim(), holding("theirs", "gpu-0"))
    assert (result.state, result.rejected_by) == (State.PENDING, Actor.SCHEDULER)
    assert result.because == "worker-0, the only node that it may go to, lacks devices for its claims"
    assert result.advice == (
        "free claim other/theirs: delete the pods that use it (tried: then the devices are enough)",
    )
    assert result.claims is not None
    assert result.claims.rows() == [
        (
            "default/mine",
            f"gpu: 1 device of class {DRIVER}",
            "1",
            "held: other/theirs",
            f"{DRIVER}/worker-0/gpu-0",
        )
    ]


def test_a_scheduler_that_said_nothing_refused_nothing() -> None:
    pod = asking("")
    pod["status"] = {"phase": "Pending"}
    assert asked(pod, claim(), holding("theirs", "gpu-0")).rejected_by == Actor.NOBODY
    pod["spec"]["schedulerName"] = "other"
    result = asked(pod, claim(), holding("theirs", "gpu-0"))
    assert result.rejected_by == Actor.NOBODY
    assert result.because == "its scheduler (other) has left neither a condition nor an event on it yet"
    assert result.facts == ("worker-0, the only node that it may go to, lacks devices for its claims",)
    assert "has left neither" in asked(pod, claim()).because


def test_a_pod_that_no_node_is_open_to_is_not_advised_to_add_devices() -> None:
    pod = asking("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.")
    pod["spec"]["nodeSelector"] = {"a": "b"}
    result = asked(pod, claim())
    assert result.because == "1 node(s) didn't match Pod's node affinity/selector"
    assert result.facts[0] == "by the objects that were read: no node is open to it"
    assert any("it lacks the label a=b of the pod's nodeSelector" in fact for fact in result.facts)
    assert not any("add devices" in step for step in result.advice)


def test_what_the_scheduler_says_comes_before_what_the_devices_say() -> None:
    """It filters by cpu before it looks at claims, and then says nothing of them."""
    pod = asking("0/1 nodes are available: 1 Insufficient cpu.")
    result = asked(pod, claim(), holding("theirs", "gpu-0"))
    assert result.because == "1 Insufficient cpu"
    assert result.facts[0].startswith("by the objects that were read: worker-0, the only node")
    assert result.facts[0].endswith("lacks devices for its claims")
    assert result.advice[0] == "ask for less cpu, or delete pods that ask for it"


def test_programs_read_the_cause_of_each_device_and_each_change() -> None:
    found: Any = asked(None, claim(), holding("theirs", "gpu-0")).value()["claims"]
    (request,) = found["requests"]
    (group,) = request["devices"]
    assert group["excluded_by"] == [{"cause": "inUse", "text": "held", "names": ["other/theirs"]}]
    assert found["changes"] == ["free claim other/theirs: delete the pods that use it"]
    assert found["needs_all_changes"] is False


def test_a_thousand_devices_stay_one_row() -> None:
    """D80."""
    taint = {"key": "k", "effect": "NoSchedule"}
    result = asked(None, claim(), slices=(slice_on("worker-0", *gpus(1000, taints=[taint])),))
    assert result.claims is not None
    (row,) = result.claims.rows()
    assert row[2:4] == ("1000", "taint k:NoSchedule is not tolerated")


def test_a_node_with_devices_that_is_closed_to_the_pod_is_named() -> None:
    cordoned = node("worker-1", unschedulable=True)
    slices = (slice_on("worker-1", *gpus(1)),)
    result = asked(None, claim(), slices=slices, nodes=(node(), cordoned))
    assert "worker-1 has devices for all its claims, but it is cordoned" in result.facts
    (advice,) = result.advice
    assert advice == (
        "nothing that can be changed in its claims is enough: add devices, or see what their driver "
        "publishes (kubectl get resourceslices)"
    )


def test_what_was_not_tried_is_not_called_impossible() -> None:
    """D92: ten requests, nine devices, and more ways to choose them than are tried."""
    many = claim()
    many["spec"]["devices"]["requests"] = [
        {"name": f"r{at}", "exactly": {"deviceClassName": DRIVER}} for at in range(10)
    ]
    result = asked(None, many, slices=(slice_on("worker-0", *gpus(9)),))
    (advice,) = result.advice
    assert advice.endswith(
        "stopped looking after 20000 devices, and found no change in its claims that is enough: "
        "add devices, or see what their driver publishes (kubectl get resourceslices)"
    )
    found: Any = result.value()["claims"]
    assert found["stopped_looking"] in advice


def test_a_driver_that_lists_no_devices_is_named() -> None:
    fact = f"driver {DRIVER} has published no ResourceSlice"
    assert fact in asked(None, claim(), slices=()).facts


def test_a_class_that_is_missing_is_named_and_so_are_those_that_are_there() -> None:
    other = {**CLASS, "metadata": {"name": "other.example.com"}}
    result = asked(None, claim(), classes=(other,))
    assert f"there is no DeviceClass {DRIVER}, which gpu names" in result.facts
    assert result.advice == (f"create the DeviceClass {DRIVER}, or name another one: other.example.com",)


def limited(count: int) -> dict[str, Any]:
    """A pod with limits of a resource that a DeviceClass serves, and what the scheduler says of it (D91)."""
    pod = unschedulable(NO_DEVICES, resource="example.com/gpu", count=count)
    resources = pod["spec"]["containers"][0]["resources"]
    resources["requests"] = resources["limits"]  # as the API server fills them in
    return pod


SERVING = {**CLASS, "spec": {**CLASS["spec"], "extendedResourceName": "example.com/gpu"}}


def test_limits_that_a_class_serves_are_looked_at_as_the_claim_that_the_scheduler_would_make() -> None:
    result = asked(
        limited(3), holding("theirs", "gpu-0"), classes=(SERVING,), slices=(slice_on("worker-0", *gpus(3)),)
    )
    assert result.because == "worker-0, the only node that it may go to, lacks devices for its claims"
    assert result.advice[0].startswith("free claim other/theirs")
    assert result.claims is not None
    assert {row[0] for row in result.claims.rows()} == {"default/<extended-resources>"}


def test_limits_that_a_class_serves_and_that_could_be_met_by_now_are_said_to_be_tried_again() -> None:
    result = asked(limited(1), classes=(SERVING,))
    assert result.because.startswith("there are devices for its claims on worker-0 by now")


def test_limits_that_a_device_plugin_serves_somewhere_are_counted() -> None:
    result = asked(
        unschedulable(NO_DEVICES, resource=RESOURCE, count=3),
        classes=({**CLASS, "spec": {**CLASS["spec"], "extendedResourceName": RESOURCE}},),
    )
    assert f"asks for 3 of {RESOURCE}, and no node that it may go to has more than 2" in result.because


def test_a_pod_with_claims_that_is_not_deleted_waits_for_its_driver_too() -> None:
    pod = asking()
    pod["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    pod["spec"]["nodeName"] = "worker-0"
    result = asked(pod, claim())
    assert result.state is State.TERMINATING
    assert "its claims are released" in result.because
    assert "DRA driver of its claims runs on worker-0" in result.advice[0]
    assert result.facts == ()


@pytest.mark.parametrize(
    ("named", "templates", "because"),
    [
        ({"resourceClaimName": "min"}, (), "there is no ResourceClaim min; did you mean mine?"),
        (
            {"resourceClaimTemplateName": "gone"},
            (),
            "there is no ResourceClaimTemplate gone",
        ),
        (
            {"resourceClaimTemplateName": "one"},
            ("one",),
            "its claim gpu has not been made from ResourceClaimTemplate one yet",
        ),
    ],
)
def test_what_is_missing_of_a_claim_is_named_where_the_scheduler_says_nothing(
    named: dict[str, str], templates: tuple[str, ...], because: str
) -> None:
    """D61, D62."""
    result = asked(asking("", **named), claim(), templates=frozenset(templates))
    assert (result.state, result.because) == (State.PENDING, because)


def test_a_claim_that_is_being_deleted_is_named() -> None:
    """D64."""
    leaving = claim()
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    assert asked(asking(""), leaving).because == "its claim mine is being deleted"


def test_a_claim_that_is_allocated_where_the_pod_may_not_go_is_named_with_the_node() -> None:
    """D89."""
    there = holding("mine", "gpu-0", on="worker-1", namespace="default")
    result = asked(None, there, nodes=(node(), node("worker-1", unschedulable=True)))
    assert result.because == "its claim mine is allocated where the pod may not go: worker-1 (it is cordoned)"


def test_devices_that_came_free_are_said_to_be_there_by_now() -> None:
    result = asked(None, claim())
    assert result.rejected_by is Actor.NOBODY
    assert result.because == (
        "there are devices for its claims on worker-0 by now, and the scheduler tries again by itself"
    )


def test_where_claims_may_not_be_read_the_words_of_the_scheduler_are_told() -> None:
    result = judged(asking(), claims=ClaimObjects(), unread=("resourceclaims: refused",))
    assert result.because == "1 cannot allocate all claims"
    assert result.unread == ("resourceclaims: refused",)


@pytest.mark.parametrize(
    ("said", "rejected_by", "because"),
    [
        (
            "DRA driver away.demo.example.com is not registered",
            Actor.KUBELET,
            "DRA driver away.demo.example.com is not registered with the kubelet of worker-0",
        ),
        (
            ON_FIRE,
            Actor.DRIVER,
            f"its claims cannot be prepared on worker-0: {ON_FIRE}",
        ),
    ],
)
def test_a_claim_that_cannot_be_prepared_is_told_with_the_words_of_the_driver(
    said: str, rejected_by: Actor, because: str
) -> None:
    pod = asking("")
    pod["spec"]["nodeName"] = "worker-0"
    message = f"Failed to prepare dynamic resources: prepare dynamic resources: {said}"
    ready = node() | {
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    result = judged(pod, nodes=(ready,), events=(event("FailedPrepareDynamicResources", message),))
    assert (result.state, result.rejected_by, result.because) == (
        State.WAITING,
        rejected_by,
        f"{because}; it is tried again",
    )


def rule(name: str, effect: str, **selector: str) -> dict[str, Any]:
    taint = {"key": "maintenance", "effect": effect}
    return {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}


def test_taints_of_rules_keep_devices_from_a_claim() -> None:
    """D80."""
    result = asked(None, claim(), rules=(rule("fans", "NoSchedule", device="gpu-0"), rule("info", "None")))
    assert result.facts == ("DeviceTaintRule fans puts the taint maintenance:NoSchedule on 1 device",)
    assert result.claims is not None
    assert [row[3] for row in result.claims.rows()] == ["taint maintenance:NoSchedule is not tolerated"]
    (advice,) = result.advice
    assert advice.startswith("tolerate the taint maintenance:NoSchedule in request gpu of claim default/mine")


def test_rules_for_other_devices_are_not_told() -> None:
    result = asked(
        None, claim(), holding("theirs", "gpu-0"), rules=(rule("fans", "NoSchedule", device="gpu-7"),)
    )
    assert result.facts == ()


def evicted() -> dict[str, Any]:
    pod = asking()
    pod["spec"]["nodeName"] = "worker-0"
    pod["metadata"]["deletionTimestamp"] = "2026-11-28T12:00:00Z"
    target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByDeviceTaintManager"}
    pod["status"] = {"phase": "Running", "conditions": [target]}
    return pod


def test_a_pod_that_a_taint_evicts_names_the_rule() -> None:
    mine = holding("mine", "gpu-0", namespace="default")
    result = asked(evicted(), mine, rules=(rule("fans", "NoExecute", pool="worker-0"),))
    assert result.state == State.TERMINATING
    assert result.because.startswith(
        "a device of its claims got a taint with the effect NoExecute: it is being"
    )
    device, taint = f"{DRIVER}/worker-0/gpu-0", "maintenance:NoExecute"
    assert f"its device {device} has the taint {taint} (DeviceTaintRule fans has it)" in result.facts


def test_a_pod_whose_rule_is_gone_names_no_taint() -> None:
    result = asked(evicted(), holding("mine", "gpu-0", namespace="default"))
    assert not [fact for fact in result.facts if "taint" in fact]


def test_a_pod_that_was_evicted_and_is_gone_is_known_by_its_event() -> None:
    marked = event("DeviceTaintManagerEviction", "Marking for deletion")
    marked["involvedObject"] = {"name": "mine", "kind": "Pod"}
    result = judged(None, events=(marked,))
    assert result.state == State.NOT_FOUND
    assert "the device taint manager marked a pod of that name for deletion" in result.because
