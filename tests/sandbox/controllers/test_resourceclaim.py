"""How claims come from templates, who they are reserved for, and when they are free again."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.dra.objects import FINALIZER
from devplug.k8s.objects import text, with_part
from devplug.sandbox.controllers.garbagecollector import GarbageCollector
from devplug.sandbox.controllers.resourceclaim import ResourceClaimController, generated_claim, may_run
from devplug.sandbox.registry import CLAIM_TEMPLATES, EVENTS, PODS, RESOURCE_CLAIMS, Registry
from tests.sandbox.controllers.beds import (
    Clock,
    add_node,
    add_pod,
    end,
    new_registry,
    running,
    set_pod_status,
    settled,
    told,
)
from tests.sandbox.controllers.claims import (
    add_claim,
    add_template,
    allocate,
    allocation,
    claim_of,
    generated_name,
    of_claim,
    of_template,
    reserved_for,
    run_pod,
)
from tests.waiting import until


@pytest.fixture
def registry() -> Registry:
    one = new_registry()
    add_node(one)
    return one


# ── templates ──


async def test_a_template_becomes_a_claim_that_belongs_to_the_pod(registry: Registry) -> None:
    """D60: its name, annotation, labels and owner, and what the pod's status says of it."""
    add_template(registry, labels={"a": "b"}, annotations={"k": "v"})
    pod = add_pod(registry, "trainer", **of_template())
    async with running(ResourceClaimController(registry)):
        name = await until(lambda: generated_name(registry, "trainer"))
    claim = claim_of(registry, name)
    assert name.startswith("trainer-gpu-")
    assert len(name) == len("trainer-gpu-") + 5
    assert claim["metadata"]["generateName"] == "trainer-gpu-"
    assert claim["metadata"]["labels"] == {"a": "b"}
    assert claim["metadata"]["annotations"] == {
        "k": "v",
        "resource.kubernetes.io/pod-claim-name": "gpu",
    }
    assert claim["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "trainer",
            "uid": pod["metadata"]["uid"],
            "controller": True,
        }
    ]
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"
    found: Any = registry.get(PODS, "default", "trainer")
    assert found["status"]["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": name}]


def test_names_that_are_too_long_are_cut_in_proportion() -> None:
    """D60: then without a dash at the end."""
    pod: Any = {"metadata": {"name": "p" * 60, "uid": "u"}}
    claim: Any = generated_claim(pod, "c" * 30, {})
    assert claim["metadata"]["generateName"] == "p" * 37 + "-" + "c" * 18


@given(st.integers(1, 253), st.integers(1, 63))
def test_the_base_of_a_name_leaves_room_for_the_letters(pod_length: int, claim_length: int) -> None:
    """D60: no base is longer than 57, and one that fits is not cut."""
    pod: Any = {"metadata": {"name": "p" * pod_length, "uid": "u"}}
    claim: Any = generated_claim(pod, "c" * claim_length, {})
    base = claim["metadata"]["generateName"]
    assert len(base) <= 57
    if pod_length + claim_length + 2 <= 57:
        assert base == "p" * pod_length + "-" + "c" * claim_length + "-"


async def test_a_missing_template_is_told_of_until_it_is_there(registry: Registry) -> None:
    """D61, and kubectl/06: the event's words, and that nothing else is said."""
    add_pod(registry, "pod-notemplate", **of_template("not-there"))
    async with running(ResourceClaimController(registry)):
        (event,) = await until(lambda: told(registry, "pod-notemplate"))
        assert event == (
            'Warning FailedResourceClaimCreation PodResourceClaim gpu: resource claim template "not-there": '
            'resourceclaimtemplate.resource.k8s.io "not-there" not found'
        )
        add_template(registry, "not-there")
        await until(lambda: generated_name(registry, "pod-notemplate"))
    (one,) = registry.all(EVENTS)
    assert text(one, "source", "component") == "resource_claim"


async def test_a_claim_that_is_refused_is_told_of(registry: Registry) -> None:
    """D61: the words of a creation that fails have no name yet, as the claim has none."""
    add_template(registry, labels={"": "wrong"})
    add_pod(registry, "p", **of_template())
    async with running(ResourceClaimController(registry)):
        (event,) = await until(lambda: told(registry, "p"))
    assert event.startswith(
        "Warning FailedResourceClaimCreation PodResourceClaim gpu: create ResourceClaim : ResourceClaim"
    )


async def test_a_pod_without_its_claim_made_by_hand_is_not_told_of(registry: Registry) -> None:
    """D62: no event and no condition come from the controller."""
    pod = add_pod(registry, "p", **of_claim("not-there"))
    async with running(ResourceClaimController(registry)):
        await settled(registry)
    assert registry.get(PODS, "default", "p") == pod
    assert not registry.all(EVENTS)


async def test_a_generated_claim_that_was_deleted_is_made_again(registry: Registry) -> None:
    add_template(registry)
    add_pod(registry, "p", **of_template())
    async with running(ResourceClaimController(registry)):
        first = await until(lambda: generated_name(registry, "p"))
        registry.delete(RESOURCE_CLAIMS, "default", first)
        await until(lambda: generated_name(registry, "p") != first)
    assert claim_of(registry, generated_name(registry, "p"))


async def test_a_deleted_claim_whose_template_is_gone_causes_no_event(registry: Registry) -> None:
    """The real controller has the claim in its cache for a minute, and needs no template for it."""
    add_template(registry)
    add_pod(registry, "p", **of_template())
    seconds = Clock()
    async with running(ResourceClaimController(registry, seconds=lambda: seconds.passed)):
        made = await until(lambda: generated_name(registry, "p"))
        registry.delete(CLAIM_TEMPLATES, "default", "t")
        registry.delete(RESOURCE_CLAIMS, "default", made)
        await settled(registry)
        assert not registry.all(EVENTS)
        seconds.passed = 61
        registry.update(PODS, "default", "p", lambda old: with_part(old, {"a": "b"}, "metadata", "labels"))
        await until(lambda: told(registry, "p"))


async def test_a_claim_is_found_again_that_no_status_told_of(registry: Registry) -> None:
    """The controller may end between the claim and the status."""
    add_template(registry)
    pod = add_pod(registry, "p", **of_template())
    claim = registry.create(RESOURCE_CLAIMS, "default", generated_claim(pod, "gpu", {"spec": {}}))
    async with running(ResourceClaimController(registry)):
        assert await until(lambda: generated_name(registry, "p")) == text(claim, "metadata", "name")
    assert len(registry.all(RESOURCE_CLAIMS)) == 1


# ── reservation ──


async def test_an_allocated_claim_is_reserved_for_a_pod_that_was_bound_by_hand(registry: Registry) -> None:
    """D65: and one that nobody has allocated is not."""
    add_claim(registry, "free")
    add_claim(registry)
    run_pod(registry, "first")
    add_pod(registry, "by-hand", nodeName="worker-0", **of_claim())
    add_pod(registry, "in-vain", nodeName="worker-0", **of_claim("free"))
    add_pod(registry, "waits", **of_claim())
    async with running(ResourceClaimController(registry)):
        await until(lambda: reserved_for(registry) == ["first", "by-hand"])
        await settled(registry)
    assert reserved_for(registry) == ["first", "by-hand"]
    assert reserved_for(registry, "free") == []


# ── release ──


@pytest.mark.parametrize("way", ["gone", "Succeeded", "Failed"])
async def test_a_pod_that_has_ended_or_is_gone_frees_its_claim(registry: Registry, way: str) -> None:
    """D63, and the last lines of taint_eviction.jsonl: the status is empty, and so are the finalizers."""
    add_claim(registry)
    run_pod(registry, "p")
    async with running(ResourceClaimController(registry)):
        await settled(registry)
        assert reserved_for(registry) == ["p"]
        if way == "gone":
            end(registry, "p")
        else:
            set_pod_status(registry, "p", phase=way)
        await until(lambda: not claim_of(registry).get("status"))
        await until(lambda: "finalizers" not in claim_of(registry)["metadata"])


async def test_a_claim_stays_allocated_as_long_as_one_pod_uses_it(registry: Registry) -> None:
    """D63."""
    add_claim(registry)
    run_pod(registry, "one")
    run_pod(registry, "two")
    async with running(ResourceClaimController(registry)):
        end(registry, "one")
        await until(lambda: reserved_for(registry) == ["two"])
        await settled(registry)
        assert claim_of(registry)["status"]["allocation"]
        end(registry, "two")
        await until(lambda: not claim_of(registry).get("status"))


async def test_a_pod_that_is_being_deleted_keeps_its_claim_until_it_is_gone(registry: Registry) -> None:
    """D63, D99: the kubelet has to stop its containers first."""
    add_claim(registry)
    run_pod(registry, "p")
    async with running(ResourceClaimController(registry)):
        registry.delete(PODS, "default", "p")
        await settled(registry)
        assert reserved_for(registry) == ["p"]
        end(registry, "p")
        await until(lambda: not claim_of(registry).get("status"))


async def test_another_pod_of_the_same_name_does_not_hold_the_claim(registry: Registry) -> None:
    """D63: the reservation is for a UID."""
    add_claim(registry)
    run_pod(registry, "p")
    end(registry, "p")
    add_pod(registry, "p")
    async with running(ResourceClaimController(registry)):
        await until(lambda: not claim_of(registry).get("status"))


async def test_a_claim_that_was_never_reserved_stays_allocated_until_it_is_deleted(
    registry: Registry,
) -> None:
    """D64."""
    add_claim(registry, finalizers=[FINALIZER])
    registry.set_status(RESOURCE_CLAIMS, "default", "c", {"allocation": allocation()})
    async with running(ResourceClaimController(registry)):
        await settled(registry)
        assert claim_of(registry)["status"]["allocation"]
        registry.delete(RESOURCE_CLAIMS, "default", "c")
        await until(lambda: claim_of(registry) is None)


async def test_a_claim_in_use_that_is_deleted_goes_with_its_pod(registry: Registry) -> None:
    """D64, and kubectl/08."""
    add_claim(registry)
    run_pod(registry, "p")
    async with running(ResourceClaimController(registry)):
        registry.delete(RESOURCE_CLAIMS, "default", "c")
        await settled(registry)
        assert claim_of(registry)["metadata"]["deletionTimestamp"]
        assert reserved_for(registry) == ["p"]
        end(registry, "p")
        await until(lambda: claim_of(registry) is None)


async def test_a_generated_claim_goes_when_its_pod_is_done(registry: Registry) -> None:
    """D63: not only when the pod is deleted, and it is not made again."""
    add_template(registry)
    add_pod(registry, "p", **of_template())
    async with running(ResourceClaimController(registry)):
        name = await until(lambda: generated_name(registry, "p"))
        allocate(registry, registry.get(PODS, "default", "p"), name)
        registry.bind("default", "p", "worker-0")
        set_pod_status(registry, "p", phase="Succeeded")
        await until(lambda: not registry.all(RESOURCE_CLAIMS))
        await settled(registry)
        assert not registry.all(RESOURCE_CLAIMS)


async def test_a_generated_claim_is_collected_with_its_pod(registry: Registry) -> None:
    """D63, D99: the garbage collector marks it, and it is released and unprotected."""
    add_template(registry)
    add_pod(registry, "p", **of_template())
    async with running(ResourceClaimController(registry), GarbageCollector(registry)):
        name = await until(lambda: generated_name(registry, "p"))
        allocate(registry, registry.get(PODS, "default", "p"), name)
        registry.bind("default", "p", "worker-0")
        await settled(registry)
        assert reserved_for(registry, name) == ["p"]
        end(registry, "p")
        await until(lambda: not registry.all(RESOURCE_CLAIMS))


async def test_what_ended_while_nobody_looked_is_released_at_the_start(registry: Registry) -> None:
    """D63."""
    add_claim(registry)
    run_pod(registry, "p")
    end(registry, "p")
    async with running(ResourceClaimController(registry)):
        await until(lambda: not claim_of(registry).get("status"))


# ── any order ──


STEPS = (
    *("hand", "generated", "by hand", "schedule", "succeed", "delete", "remove"),
    *("delete claim", "new claim", "turn"),
)


class Story:
    """Pods that come, run and go in any order; `held` has the claim of each pod that was allocated one."""

    def __init__(self, draw: random.Random) -> None:
        self.registry = new_registry()
        self.draw = draw
        self.held: dict[str, tuple[Any, str]] = {}
        add_node(self.registry)
        add_template(self.registry)
        add_claim(self.registry)

    def step(self, what: str, number: int) -> None:
        registry = self.registry
        match what:
            case "hand":
                add_pod(registry, f"p{number}", **of_claim())
            case "generated":
                add_pod(registry, f"p{number}", **of_template())
            case "by hand":
                add_pod(registry, f"p{number}", nodeName="worker-0", **of_claim())
            case "schedule" if waiting := self.pods(is_bound=False):
                self.schedule(self.draw.choice(waiting))
            case "succeed" if bound := self.pods(is_bound=True):
                set_pod_status(registry, self.draw.choice(bound)["metadata"]["name"], phase="Succeeded")
            case "delete" | "remove" if pods := registry.all(PODS):
                name = text(self.draw.choice(pods), "metadata", "name")
                registry.delete(PODS, "default", name, grace_seconds=0 if what == "remove" else None)
            case "delete claim" if claims := registry.all(RESOURCE_CLAIMS):
                name = text(self.draw.choice(claims), "metadata", "name")
                registry.delete(RESOURCE_CLAIMS, "default", name)
            case "new claim" if claim_of(registry) is None:
                add_claim(registry)

    def pods(self, *, is_bound: bool) -> list[Any]:
        pods: list[Any] = list(self.registry.all(PODS))
        return [one for one in pods if ("nodeName" in one["spec"]) is is_bound and may_run(one)]

    def schedule(self, pod: Any) -> None:
        name, (used,) = pod["metadata"]["name"], pod["spec"]["resourceClaims"]
        claim_name = used.get("resourceClaimName") or generated_name(self.registry, name)
        claim = claim_of(self.registry, claim_name) if claim_name else None
        if claim and "deletionTimestamp" not in claim["metadata"]:
            allocate(self.registry, pod, claim_name)
            self.registry.bind("default", name, "worker-0")
            self.held[pod["metadata"]["uid"]] = claim["metadata"]["uid"], claim_name

    def check(self) -> None:
        """No pod that can still run has lost its claim."""
        for pod in self.registry.all(PODS):
            if (held := self.held.get(text(pod, "metadata", "uid"))) and may_run(pod):
                claim = claim_of(self.registry, held[1])
                assert claim["metadata"]["uid"] == held[0]
                assert claim["status"]["allocation"]
                assert text(pod, "metadata", "name") in reserved_for(self.registry, held[1])

    def check_at_the_end(self) -> None:
        """Who holds a claim is there and may run; a claim that nobody holds is free, and has its owner."""
        running = {text(one, "metadata", "uid") for one in self.registry.all(PODS) if may_run(one)}
        there = {text(one, "metadata", "uid") for one in self.registry.all(PODS)}
        claims: list[Any] = list(self.registry.all(RESOURCE_CLAIMS))
        for claim in claims:
            status, metadata = claim.get("status", {}), claim["metadata"]
            holders = {one["uid"] for one in status.get("reservedFor", [])}
            assert holders <= running
            assert ("allocation" in status) == bool(holders) == ("finalizers" in metadata)
            assert {one["uid"] for one in metadata.get("ownerReferences", [])} <= there


@given(st.lists(st.sampled_from(STEPS), min_size=20, max_size=60), st.randoms(use_true_random=False))
def test_in_any_order_no_pod_loses_its_claim_and_none_that_is_gone_keeps_one(
    steps: list[str], draw: random.Random
) -> None:
    """D63, D64, D65: whoever comes, runs, ends and is deleted, and whenever the controllers have a turn."""

    async def play() -> None:
        story = Story(draw)
        async with running(ResourceClaimController(story.registry), GarbageCollector(story.registry)):
            for number, what in enumerate(steps):
                story.step(what, number)
                for _ in range(draw.randrange(6) if what == "turn" else 0):
                    await asyncio.sleep(0)
                    story.check()
            await settled(story.registry)
            story.check()
            story.check_at_the_end()

    asyncio.run(play())
