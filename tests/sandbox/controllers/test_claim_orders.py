"""The claim controllers come to one state, in whatever order they learn of what became of pods and claims."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from devplug.dra.objects import FINALIZER
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.controllers.garbagecollector import GarbageCollector
from devplug.sandbox.controllers.resourceclaim import ResourceClaimController
from devplug.sandbox.registry import PODS, RESOURCE_CLAIMS, Registry
from tests.sandbox.controllers.beds import (
    add_node,
    add_pod,
    end,
    new_registry,
    running,
    set_pod_status,
    settled,
)
from tests.sandbox.controllers.claims import (
    add_claim,
    add_template,
    allocate,
    allocation,
    generated_name,
    of_claim,
    of_template,
)

FATES = {
    "runs": (),
    "comes": ("schedule",),
    "is leaving": ("delete",),
    "succeeds": ("Succeeded",),
    "fails": ("Failed",),
    "is gone": ("delete", "end"),
    "is gone after its end": ("Succeeded", "end"),
    "is replaced": ("end", "same name"),
}
HOLDS = {"runs", "comes", "is leaving"}
"""After which of its fates a pod still needs its claim: one that is being deleted may run on for a while."""
HAND_MADE = ("c0", "c1")
UNUSED = "unused"
"""A claim that is allocated and was never reserved."""


class Plan(NamedTuple):
    """What pods and claims there are, and what becomes of them; not when."""

    users: tuple[tuple[str, str], ...]
    """For each bound pod its claim, `template` for one of its own, and its fate."""
    late: tuple[str, ...]
    """The claims of pods that somebody binds by hand meanwhile; the claims stay, and have a user."""
    deleted: frozenset[str]
    """The claims that are deleted: those made by hand by name, generated ones by the name of their pod."""


class State(NamedTuple):
    """What is to be seen of a claim."""

    reserved_for: frozenset[str]
    is_allocated: bool
    is_protected: bool
    is_deleted: bool


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    choice = st.tuples(st.sampled_from((*HAND_MADE, "template")), st.sampled_from(sorted(FATES)))
    users = tuple(draw(st.lists(choice, min_size=1, max_size=5)))
    # A claim that is deleted is neither allocated nor reserved for anybody any more.
    comes = {claim for claim, fate in users if fate == "comes"}
    names = [UNUSED, *(name for name in HAND_MADE if name not in comes)]
    names += [f"p{at}" for at, (claim, fate) in enumerate(users) if claim == "template" and fate != "comes"]
    deleted = draw(st.frozensets(st.sampled_from(names)))
    kept = sorted({claim for claim, fate in users if fate in HOLDS} - {"template"} - deleted)
    late = tuple(draw(st.lists(st.sampled_from(kept), max_size=2))) if kept else ()
    return Plan(users, late, deleted)


def outcome(plan: Plan) -> dict[str, State]:
    """Return what is left of the claims, by what stands in D63, D64 and D65."""
    holders: dict[str, set[str]] = {name: set() for name in HAND_MADE}
    for at, (claim, fate) in enumerate(plan.users):
        name = f"p{at}" if claim == "template" else claim
        holders.setdefault(name, set()).update([f"p{at}"] if fate in HOLDS else [])
    for at, claim in enumerate(plan.late):
        holders[claim].add(f"late{at}")
    unused = {} if UNUSED in plan.deleted else {UNUSED: State(frozenset(), True, True, False)}
    return unused | {
        name: State(frozenset(pods), bool(pods), bool(pods), name in plan.deleted)
        for name, pods in holders.items()
        if pods or (name in HAND_MADE and name not in plan.deleted)
    }


class Story:
    """A plan that comes true step by step, in an order that is drawn."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.registry: Registry = new_registry()
        self.generated: dict[str, str] = {}

    async def begin(self) -> None:
        """Have all pods run whose claims are allocated by the scheduler."""
        registry = self.registry
        add_node(registry)
        add_template(registry)
        for name in HAND_MADE:
            add_claim(registry, name)
        add_claim(registry, UNUSED, finalizers=[FINALIZER])
        registry.set_status(RESOURCE_CLAIMS, "default", UNUSED, {"allocation": allocation()})
        for at, (claim, _) in enumerate(self.plan.users):
            add_pod(registry, f"p{at}", **(of_template() if claim == "template" else of_claim(claim)))
        async with running(ResourceClaimController(registry)):
            await settled(registry)
        for at, (claim, fate) in enumerate(self.plan.users):
            if claim == "template":
                self.generated[f"p{at}"] = generated_name(registry, f"p{at}")
            if fate != "comes":
                self.step("schedule", f"p{at}")

    def steps(self, draw: random.Random) -> list[tuple[str, str]]:
        """Return all that happens, as (what, to whom): in any order, but for what becomes of one pod."""
        lines = [[(what, f"p{at}") for what in FATES[fate]] for at, (_, fate) in enumerate(self.plan.users)]
        lines += [[("late", f"late{at}")] for at in range(len(self.plan.late))]
        lines += [[("delete claim", name)] for name in sorted(self.plan.deleted)]
        order = [at for at, line in enumerate(lines) for _ in line]
        draw.shuffle(order)
        return [lines[at].pop(0) for at in order]

    def step(self, what: str, name: str) -> None:
        registry = self.registry
        match what:
            case "schedule":
                claim = self.generated.get(name) or self.plan.users[int(name[1:])][0]
                allocate(registry, registry.get(PODS, "default", name), claim)
                registry.bind("default", name, "worker-0")
            case "delete":
                registry.delete(PODS, "default", name)
            case "end":
                end(registry, name)
            case "same name":
                add_pod(registry, name)
            case "late":
                claim = self.plan.late[int(name.removeprefix("late"))]
                add_pod(registry, name, nodeName="worker-0", **of_claim(claim))
            case "delete claim":
                with suppress(StatusError):  # it may be gone with its pod
                    registry.delete(RESOURCE_CLAIMS, "default", self.generated.get(name, name))
            case phase:
                set_pod_status(registry, name, phase=phase)

    def states(self) -> dict[str, State]:
        """Return the claims; a generated one by the name of its pod."""
        pods = {claim: pod for pod, claim in self.generated.items()}
        claims: list[Any] = list(self.registry.all(RESOURCE_CLAIMS))
        return {
            pods.get(one["metadata"]["name"], one["metadata"]["name"]): State(
                frozenset(user["name"] for user in one.get("status", {}).get("reservedFor", ())),
                "allocation" in one.get("status", {}),
                "finalizers" in one["metadata"],
                "deletionTimestamp" in one["metadata"],
            )
            for one in claims
        }


@given(plans(), st.randoms(use_true_random=False))
def test_any_order_of_events_ends_in_the_same_state(plan: Plan, draw: random.Random) -> None:
    """D63, D64, D65: while the controllers run, or are away, or had no turn yet between two of the events."""

    async def play() -> None:
        story = Story(plan)
        await story.begin()
        steps = story.steps(draw)
        is_settled = False
        while not is_settled:
            count = draw.randint(1, len(steps)) if steps else 0
            now, steps = steps[:count], steps[count:]
            if now and draw.random() < 0.3:
                for step in now:
                    story.step(*step)
                continue
            async with running(ResourceClaimController(story.registry), GarbageCollector(story.registry)):
                for step in now:
                    for _ in range(draw.choice((0, 0, 2, 5, 100))):
                        await asyncio.sleep(0)
                    story.step(*step)
                if is_settled := not steps:
                    await settled(story.registry)
        assert story.states() == outcome(plan)

    asyncio.run(play())
