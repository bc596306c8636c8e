"""Names that no pod has: who refused to make it, and which name may be meant."""

from __future__ import annotations

from devplug.monitor.why.values import State, Who
from tests.monitor.why.pods import RESOURCE, event, judged, running
from tests.sandbox.jsons import printed

QUOTA = printed("41-quota-exceeded.txt").partition(": pods ")[2]


def test_a_recorded_refusal_of_a_quota_is_told_in_numbers() -> None:
    owner = {"kind": "ReplicaSet", "name": "mine"}
    told = event("FailedCreate", f"Error creating: pods {QUOTA}") | {"involvedObject": owner}
    verdict = judged(None, events=(told,))
    assert (verdict.state, verdict.who_said_no) == (State.NOT_FOUND, Who.QUOTA)
    assert verdict.because == "quota q lets ReplicaSet mine make no more pods"
    numbers = f"requests.{RESOURCE}=1"
    assert verdict.facts[0] == f"asked for {numbers}; in use {numbers}; allowed {numbers}"
    assert not verdict.is_unknown


def test_another_refusal_is_the_api_servers_and_another_owners_is_none() -> None:
    message = 'Error creating: Pod "x" is invalid: spec.containers[0].resources.limits: Invalid value: "500m"'
    told = event("FailedCreate", message) | {"involvedObject": {"kind": "Job", "name": "mine"}}
    verdict = judged(None, events=(told,))
    assert verdict.who_said_no is Who.API_SERVER
    assert "must" not in verdict.because
    assert "spec.containers[0].resources.limits" in verdict.because
    told["involvedObject"]["name"] = "theirs"
    assert judged(None, events=(told,)).is_unknown


def test_the_name_of_what_makes_pods_leads_to_its_pods() -> None:
    verdict = judged(None, others=(running("mine-abcde"), running("mine-fghij")))
    assert verdict.is_unknown
    assert verdict.because == "namespace default has no such pod; these begin so: mine-abcde and mine-fghij"
