"""The registry: the rules that who makes or changes an object passes, and what followers are told."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import Object, part, text
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import resource_of_kind
from devplug.sandbox.api.watchlog import ChangeType, WatchEvent
from devplug.sandbox.events import EventRecorder, EventSource, reference
from devplug.sandbox.registry import (
    DEVICE_CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    QUOTAS,
    RESOURCE_CLAIMS,
    Registry,
)

MOMENT = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
FPGA = "example.com/fpga"


class Clock:
    """A time that a test moves."""

    def __init__(self) -> None:
        self.now = MOMENT

    def __call__(self) -> datetime:
        return self.now


def registry(log_length: int = 1000, clock: Clock | None = None) -> Registry:
    made = Registry(log_length=log_length, now=clock or Clock(), seed=1)
    made.create(NAMESPACES, "", {"metadata": {"name": "default"}})
    return made


def pod(name: str = "a", count: int = 1) -> Object:
    limits = {"limits": {FPGA: str(count)}}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "busybox", "resources": limits}]},
    }


def refusal_of(error: pytest.ExceptionInfo[StatusError]) -> tuple[int, str]:
    return error.value.code, str(error.value)


# ── making ──


def test_an_object_without_a_name_gets_one_that_begins_as_it_asks() -> None:
    made = registry()
    new = {**pod(), "metadata": {"generateName": "serial-"}}
    names = {text(made.create(PODS, "default", new), "metadata", "name") for _ in range(200)}
    assert len(names) == 200
    assert all(re.fullmatch("serial-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


def test_nothing_can_be_made_in_a_namespace_that_is_not_there_or_is_ending() -> None:
    made = registry()
    with pytest.raises(StatusError) as caught:
        made.create(PODS, "lab", pod())
    assert refusal_of(caught) == (404, 'namespaces "lab" not found')
    made.create(NAMESPACES, "", {"metadata": {"name": "lab"}})
    made.delete(NAMESPACES, "", "lab")
    with pytest.raises(StatusError) as caught:
        made.create(PODS, "lab", pod())
    why = "unable to create new content in namespace lab because it is being terminated"
    assert refusal_of(caught) == (403, f'pods "a" is forbidden: {why}')


def test_a_deployment_is_refused_in_words_that_say_what_the_sandbox_is() -> None:
    deployments = resource_of_kind("apps/v1", "Deployment")
    assert deployments is not None
    with pytest.raises(
        StatusError, match=r'"web" is forbidden: the devplug sandbox runs pods and DaemonSets'
    ):
        registry().create(deployments, "default", {"metadata": {"name": "web"}})


def test_a_quota_counts_the_pods_that_have_not_ended() -> None:
    made = registry()
    hard = {"spec": {"hard": {f"requests.{FPGA}": "2"}}}
    made.create(QUOTAS, "default", {"metadata": {"name": "q"}, **hard})
    made.create(PODS, "default", pod("a", 2))
    with pytest.raises(StatusError) as caught:
        made.create(PODS, "default", pod("b"))
    name = f"requests.{FPGA}"
    why = f"exceeded quota: q, requested: {name}=1, used: {name}=2, limited: {name}=2"
    assert refusal_of(caught) == (403, f'pods "b" is forbidden: {why}')
    made.set_status(PODS, "default", "a", {"phase": "Succeeded"})
    made.create(PODS, "default", pod("b"))


GPUS = "gpu.deviceclass.resource.k8s.io/devices"


def claim(name: str, *requests: Any, **metadata: Any) -> Any:
    return {"metadata": {"name": name, **metadata}, "spec": {"devices": {"requests": list(requests)}}}


def exactly(count: int = 1, **more: Any) -> Any:
    return {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count, **more}}


def one_of(*counts: int) -> Any:
    alternatives = [
        {"name": f"a{index}", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
        for index, count in enumerate(counts)
    ]
    return {"name": "r", "firstAvailable": alternatives}


def with_quota(**hard: str) -> Registry:
    made = registry()
    made.create(QUOTAS, "default", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    spec = {"extendedResourceName": FPGA}
    made.create(DEVICE_CLASSES, "", {"metadata": {"name": "gpu"}, "spec": spec})
    return made


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        (exactly(), 1),
        (exactly(3), 3),
        (one_of(1, 3, 2), 3),
        ({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}, 32),
    ],
    ids=["one", "three", "most of alternatives", "all"],
)
def test_a_quota_counts_the_devices_of_a_class(request_: Any, count: int) -> None:
    """quota/v1/evaluator/core/resource_claims.go Usage."""
    made = with_quota(**{GPUS: str(count)})
    made.create(RESOURCE_CLAIMS, "default", claim("a", request_))
    with pytest.raises(StatusError) as caught:
        made.create(RESOURCE_CLAIMS, "default", claim("b", exactly()))
    why = f"exceeded quota: q, requested: {GPUS}=1, used: {GPUS}={count}, limited: {GPUS}={count}"
    assert refusal_of(caught) == (403, f'resourceclaims.resource.k8s.io "b" is forbidden: {why}')


def test_a_quota_of_a_class_ignores_other_classes_and_namespaces() -> None:
    made = with_quota(**{GPUS: "1", "count/resourceclaims.resource.k8s.io": "2"})
    made.create(NAMESPACES, "", {"metadata": {"name": "other"}})
    made.create(RESOURCE_CLAIMS, "other", claim("a", exactly(5)))
    other = {"name": "r", "exactly": {"deviceClassName": "nic"}}
    made.create(RESOURCE_CLAIMS, "default", claim("a", other))
    made.create(RESOURCE_CLAIMS, "default", claim("b", exactly()))
    with pytest.raises(
        StatusError, match=r"requested: count/resourceclaims\.resource\.k8s\.io=1, used: .*=2"
    ):
        made.create(RESOURCE_CLAIMS, "default", claim("c", other))


def test_claims_and_pods_share_the_quota_of_an_extended_resource() -> None:
    """The class serves the resource, so both ways of asking for its devices count."""
    name = f"requests.{FPGA}"
    made = with_quota(**{name: "2"})
    made.create(RESOURCE_CLAIMS, "default", claim("a", exactly()))
    made.create(PODS, "default", pod("b"))
    for resource, one in ((PODS, pod("c")), (RESOURCE_CLAIMS, claim("c", exactly()))):
        with pytest.raises(StatusError, match=f"requested: {name}=1, used: {name}=2, limited: {name}=2"):
            made.create(resource, "default", one)


def test_the_claim_of_an_extended_resource_counts_once() -> None:
    """The pod counts the resource, and the scheduler's claim for the pod counts the class."""
    name = f"requests.{FPGA}"
    made = with_quota(**{name: "1", GPUS: "1"})
    owner = made.create(PODS, "default", pod("a"))
    uid = text(owner, "metadata", "uid")
    controller = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid, "controller": True}
    marked = {"resource.kubernetes.io/extended-resource-claim": "true"}
    made.create(
        RESOURCE_CLAIMS, "default", claim("a-x", exactly(), annotations=marked, ownerReferences=[controller])
    )
    with pytest.raises(StatusError, match=f"requested: {GPUS}=1"):
        made.create(RESOURCE_CLAIMS, "default", claim("b", exactly()))


def test_a_dry_run_is_answered_like_the_real_thing_and_leaves_nothing() -> None:
    made = registry()
    version = made.version
    dry = made.create(PODS, "default", pod(), dry_run=True)
    assert text(dry, "metadata", "uid")
    assert made.all(PODS) == ()
    assert made.version == version


# ── changing ──


def test_a_pod_is_bound_once() -> None:
    made = registry()
    made.create(PODS, "default", pod())
    bound = made.bind("default", "a", "worker-0")
    assert text(bound, "spec", "nodeName") == "worker-0"
    assert part(bound, "status", "conditions", "0") is None
    with pytest.raises(StatusError) as caught:
        made.bind("default", "a", "worker-1")
    code, words = refusal_of(caught)
    assert code == 409
    assert words.endswith('pod a is already assigned to node "worker-0"')


def test_a_patch_that_breaks_a_rule_changes_nothing() -> None:
    made = registry()
    made.create(NODES, "", {"metadata": {"name": "worker-0"}})
    patch = [{"op": "add", "path": "/status", "value": {"capacity": {FPGA: "0.5"}}}]
    with pytest.raises(StatusError, match="must be an integer"):
        made.patch(NODES, "", "worker-0", "application/json-patch+json", patch, part_name="status")
    assert part(made.get(NODES, "", "worker-0"), "status", "capacity") is None


def test_the_status_of_what_has_gone_is_set_by_nobody() -> None:
    assert registry().set_status(PODS, "default", "a", {"phase": "Running"}) is None


# ── following ──


def told(events: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(event.type.value, text(event.object, "metadata", "name")) for event in events]


async def collected(made: Registry, until: str, work: list[str]) -> list[WatchEvent]:
    """Follow pods until the one named `until` comes; the reader sleeps while `work` is done."""
    seen: list[WatchEvent] = []
    async for event in made.follow(PODS):
        seen.append(event)
        if event.type is ChangeType.ADDED and text(event.object, "metadata", "name") == until:
            return seen
        while work:
            name = work.pop(0)
            if made.find(PODS, "default", name):
                made.delete(PODS, "default", name)
            else:
                made.create(PODS, "default", pod(name))
    raise AssertionError


async def test_a_follower_sees_what_is_there_and_then_every_change() -> None:
    made = registry()
    made.create(PODS, "default", pod("first"))
    seen = await collected(made, "last", ["second", "second", "last"])
    assert told(seen) == [("ADDED", "first"), ("ADDED", "second"), ("DELETED", "second"), ("ADDED", "last")]


async def test_a_watcher_that_is_too_far_behind_is_told_so() -> None:
    made = registry(log_length=2)

    async def watch() -> None:
        async for _ in made.watch(PODS):
            for name in ("a", "b", "c", "d"):
                made.create(PODS, "default", pod(name))

    with pytest.raises(StatusError) as caught:
        await watch()
    assert caught.value.code == 410


@given(st.lists(st.sampled_from("abcde"), max_size=30), st.integers(1, 5))
async def test_a_follower_knows_how_it_ended_however_far_behind_it_was(
    work: list[str], log_length: int
) -> None:
    made = registry(log_length)
    made.create(PODS, "default", pod("first"))
    seen = await collected(made, "last", [*work, "last"])
    known: dict[str, str] = {}
    for event in seen:
        name, uid = text(event.object, "metadata", "name"), text(event.object, "metadata", "uid")
        if event.type is ChangeType.DELETED:
            assert known.pop(name) == uid
        else:
            assert known.setdefault(name, uid) == uid
    assert known == {text(one, "metadata", "name"): text(one, "metadata", "uid") for one in made.all(PODS)}


# ── telling ──


def test_what_happens_again_is_counted_and_not_told_twice() -> None:
    clock = Clock()
    made = registry(clock=clock)
    about = reference(made.create(PODS, "default", pod()), "spec.containers{c}")
    recorder = EventRecorder(made, EventSource("kubelet", "worker-0"))
    recorder.event(about, "Warning", "BackOff", "Back-off restarting failed container")
    clock.now += timedelta(seconds=30)
    recorder.event(about, "Warning", "BackOff", "Back-off restarting failed container")
    (event,) = made.all(EVENTS)
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (
        2,
        "2026-11-21T08:00:00Z",
        "2026-11-21T08:00:30Z",
    )
    assert event["source"] == {"component": "kubelet", "host": "worker-0"}


def test_a_series_counts_from_its_second_event() -> None:
    made = registry()
    about = reference(made.create(PODS, "default", pod()))
    recorder = EventRecorder(
        made, EventSource("default-scheduler", "default-scheduler-lab", writes_series=True)
    )
    for _ in range(2):
        recorder.event(about, "Warning", "FailedScheduling", "0/1 nodes are available")
    (event,) = made.all(EVENTS)
    assert event["series"] == {"count": 2, "lastObservedTime": "2026-11-21T08:00:00.000000Z"}
    assert event["firstTimestamp"] is None


def test_an_event_that_expired_is_told_anew() -> None:
    made = registry()
    about = reference(made.create(PODS, "default", pod()))
    recorder = EventRecorder(made, EventSource("kubelet"))
    recorder.event(about, "Normal", "Started", "Container started")
    (event,) = made.all(EVENTS)
    made.delete(EVENTS, "default", text(event, "metadata", "name"))
    recorder.event(about, "Normal", "Started", "Container started")
    assert [one["count"] for one in made.all(EVENTS)] == [1]


def test_the_first_namespaces_stay() -> None:
    with pytest.raises(StatusError) as caught:
        registry().delete(NAMESPACES, "", "default")
    assert refusal_of(caught) == (403, 'namespaces "default" is forbidden: this namespace may not be deleted')


def test_a_replaced_namespace_is_still_emptied_before_it_goes() -> None:
    made = registry()
    made.create(NAMESPACES, "", {"metadata": {"name": "lab"}})
    made.update(NAMESPACES, "", "lab", lambda old: {**old, "spec": {}})
    assert not made.delete(NAMESPACES, "", "lab").is_gone
    made.update(NAMESPACES, "", "lab", lambda old: {**old, "spec": {}}, part_name="finalize")
    assert made.find(NAMESPACES, "", "lab") is None


def test_a_quota_counts_pods_too() -> None:
    made = registry()
    made.create(QUOTAS, "default", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    made.create(PODS, "default", pod("a"))
    with pytest.raises(StatusError) as caught:
        made.create(PODS, "default", pod("b"))
    why = "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
    assert refusal_of(caught) == (403, f'pods "b" is forbidden: {why}')
