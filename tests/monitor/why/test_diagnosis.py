"""Pods that are not there, and pods that have a node: what keeps them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from devplug.monitor.why.evidence import Actor, ClaimObjects, State, asks_for_claims
from tests.monitor.why.pods import RESOURCE, event, judged, node, pod, running
from tests.sandbox.jsons import printed, recorded

QUOTA = printed("41-quota-exceeded.txt").partition(": pods ")[2]


def test_a_recorded_refusal_of_a_quota_is_told_in_numbers() -> None:
    owner = {"kind": "ReplicaSet", "name": "mine"}
    told = event("FailedCreate", f"Error creating: pods {QUOTA}") | {"involvedObject": owner}
    result = judged(None, events=(told,))
    assert (result.state, result.rejected_by) == (State.NOT_FOUND, Actor.QUOTA)
    assert result.because == "quota q lets ReplicaSet mine create no more pods"
    numbers = f"requests.{RESOURCE}=1"
    assert result.facts[0] == f"asked for {numbers}; in use {numbers}; allowed {numbers}"
    assert not result.is_unknown


def test_another_refusal_is_the_api_servers_and_another_owners_is_none() -> None:
    message = 'Error creating: Pod "x" is invalid: spec.containers[0].resources.limits: Invalid value: "500m"'
    told = event("FailedCreate", message) | {"involvedObject": {"kind": "Job", "name": "mine"}}
    result = judged(None, events=(told,))
    assert result.rejected_by is Actor.API_SERVER
    assert "must" not in result.because
    assert "spec.containers[0].resources.limits" in result.because
    told["involvedObject"]["name"] = "theirs"
    assert judged(None, events=(told,)).is_unknown


def test_the_name_of_what_makes_pods_leads_to_its_pods() -> None:
    result = judged(None, others=(running("mine-abcde"), running("mine-fghij")))
    assert result.is_unknown
    assert (
        result.because
        == "namespace default has no such pod; pods with that beginning: mine-abcde and mine-fghij"
    )


RECORDED: dict[str, Any] = recorded("65-pod.json")


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    made = pod(nodeName="worker-0")
    status = {
        "name": "c",
        "image": "busybox",
        "state": {"waiting": {"reason": reason, "message": message}},
        **more,
    }
    made["status"]["containerStatuses"] = [status]
    return made


PRE_START = "device plugin PreStartContainer rpc failed with err: rpc error: code = "


@pytest.mark.parametrize(
    ("reason", "message", "rejected_by", "because"),
    [
        (
            "CreateContainerConfigError",
            PRE_START + "Unknown desc = pre-start: not yet",
            Actor.PLUGIN,
            "the plugin's pre_start refused container c: not yet",
        ),
        (
            "CreateContainerConfigError",
            PRE_START + "DeadlineExceeded desc = context deadline exceeded",
            Actor.PLUGIN,
            "the plugin's pre_start of container c took longer than 30 s",
        ),
        (
            "CreateContainerConfigError",
            PRE_START + "DeadlineExceeded desc = pre-start: no answer in 20s",
            Actor.PLUGIN,
            "the plugin's pre_start refused container c: no answer in 20s",
        ),
        (
            "CreateContainerConfigError",
            'secret "x" not found',
            Actor.KUBELET,
            "container c cannot be made (CreateContainerConfigError)",
        ),
        (
            "CreateContainerError",
            "CDI device injection failed: unresolvable CDI devices example.com/gpu=gpu0",
            Actor.RUNTIME,
            "the container runtime of worker-0 finds no CDI file with example.com/gpu=gpu0",
        ),
        (
            "RunContainerError",
            "no such file",
            Actor.RUNTIME,
            "container c cannot be made (RunContainerError)",
        ),
        ("ImagePullBackOff", "Back-off", Actor.IMAGE, "the image busybox of container c is not available"),
    ],
)
def test_what_holds_a_container_up_says_who_and_that_it_is_tried_again(
    reason: str, message: str, rejected_by: Actor, because: str
) -> None:
    result = judged(waiting(reason, message))
    assert (result.state, result.rejected_by) == (State.WAITING, rejected_by)
    assert result.because.startswith(because)
    assert "create it again" not in " ".join(result.advice)


def test_a_program_that_crashes_again_and_again_says_how_it_ended() -> None:
    last = {"terminated": {"exitCode": 1, "reason": "Error"}}
    made = waiting("CrashLoopBackOff", "back-off 5m0s", lastState=last, restartCount=7)
    made["status"]["phase"] = "Running"
    result = judged(made)
    assert (result.state, result.rejected_by) == (State.WAITING, Actor.PROGRAM)
    assert result.because == "container c ended 7 times, last with code 1 (Error)"


def test_a_pod_whose_kubelet_has_not_taken_it_up_may_be_behind_a_busy_plugin() -> None:
    result = judged(pod(nodeName="worker-0"))
    assert (result.state, result.rejected_by) == (State.STARTING, Actor.NOBODY)
    assert any("Allocate has no time limit" in fact for fact in result.facts)
    assert not result.is_fine


def test_a_pod_on_a_node_that_does_not_answer_or_is_not_there_says_so() -> None:
    silent = node()
    told = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}
    silent["status"]["conditions"] = [told]
    result = judged(pod(nodeName="worker-0"), nodes=(silent,))
    assert result.because == "worker-0 is not ready: Kubelet stopped posting node status."
    assert judged(pod(nodeName="worker-9")).because == "there is no node worker-9, to which it is bound"


def test_the_newest_trouble_with_a_volume_is_told() -> None:
    events = (
        event("FailedMount", "old", at="2026-11-21T00:00:00Z"),
        event(
            "FailedMount", 'hostPath type check failed: /dev/x is not a "device"', at="2026-11-21T00:01:00Z"
        ),
    )
    result = judged(waiting("ContainerCreating"), events=events)
    assert (result.rejected_by, result.state) == (Actor.KUBELET, State.WAITING)
    assert result.message.startswith("hostPath type check")


def test_a_pod_whose_containers_are_made_is_starting() -> None:
    result = judged(waiting("ContainerCreating"))
    assert (result.state, result.rejected_by) == (State.STARTING, Actor.NOBODY)


def test_a_recorded_pod_that_runs_is_fine_and_says_what_it_holds() -> None:
    result = judged(RECORDED)
    assert result.is_fine
    assert result.facts == (f"container c holds Dev-1 of {RESOURCE}",)


def test_a_device_that_is_not_healthy_any_more_is_told_of_a_pod_that_runs() -> None:
    sick = copy.deepcopy(RECORDED)
    told = sick["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"][0]
    told |= {"health": "Unhealthy", "message": "too hot"}
    result = judged(sick)
    assert (result.state, result.rejected_by) == (State.RUNNING, Actor.PLUGIN)
    assert f"Dev-1 of {RESOURCE} in container c (too hot) is reported as unhealthy" in result.because
    assert not result.is_fine
    told["health"] = "Unknown"
    assert judged(sick).is_fine


def test_a_cluster_that_tells_no_devices_is_said_to_do_so() -> None:
    (fact,) = judged(running("mine", 2)).facts
    assert fact.startswith(f"it asks for 2 {RESOURCE}; its status does not name the devices")
    assert "is off" not in fact


BARE: dict[str, Any] = {"metadata": {"name": "worker-0"}, "status": {"capacity": {"cpu": "4"}}}


def test_a_node_that_lists_no_such_resource_may_have_had_it_at_the_start() -> None:
    result = judged(running("mine"), nodes=(BARE,))
    assert (
        f"worker-0 lists no {RESOURCE} now, and no claim of the pod serves it; if that was so when the pod "
        "started, it runs without it" in result.facts
    )


def by_claim() -> dict[str, Any]:
    """Return a running pod whose limits a DeviceClass serves, as Kubernetes 1.36 reports it."""
    made = running("mine")
    mapping = {"containerName": "c", "resourceName": RESOURCE, "requestName": "container-0-request-0"}
    made["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "mine-extended-resources-x7k2p",
        "requestMappings": [mapping],
    }
    return made


def test_a_pod_whose_limits_a_class_serves_has_its_device_by_the_claim() -> None:
    device = {
        "request": "container-0-request-0",
        "driver": "gpu.example.com",
        "pool": "worker-0",
        "device": "a",
    }
    claim = {
        "metadata": {"namespace": "default", "name": "mine-extended-resources-x7k2p"},
        "status": {"allocation": {"devices": {"results": [device]}}},
    }
    result = judged(by_claim(), nodes=(BARE,), claims=ClaimObjects(claims=(claim,)))
    assert result.facts == (
        f"container c holds gpu.example.com/worker-0/a of {RESOURCE}, by claim mine-extended-resources-x7k2p",
    )
    assert result.is_fine


def test_a_claim_that_may_not_be_read_is_no_missing_device() -> None:
    result = judged(by_claim(), nodes=(BARE,), claims=ClaimObjects())
    assert result.facts == (
        f"container c has {RESOURCE} by claim mine-extended-resources-x7k2p, whose devices were not read",
    )


def test_the_claim_of_limits_is_read_for_a_pod_that_runs() -> None:
    assert asks_for_claims(by_claim())
    assert not asks_for_claims(running("mine"))


def test_a_pod_that_ends_and_one_that_has_ended_are_said_to() -> None:
    leaving = running("mine", deletionTimestamp="2026-11-21T00:00:00Z")
    assert judged(leaving).state is State.TERMINATING
    ended = pod(nodeName="worker-0")
    ended["status"] = {"phase": "Succeeded"}
    assert judged(ended).is_fine
