"""The plan for a DaemonSet's pods: what holds for every cluster and every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.sandbox.controllers.daemonsetplan import (
    DaemonPod,
    Placement,
    Plan,
    Rollout,
    daemon_status,
    plan,
    rollout_of,
    seconds_until_available,
)

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NODES = [f"worker-{number}" for number in range(6)]

wishes_of_nodes = st.dictionaries(st.sampled_from(NODES), st.sampled_from(Placement))
rollouts = st.builds(Rollout, st.just("new"), is_rolling=st.booleans(), max_unavailable=st.integers(1, 3))
pods_of_nodes = st.lists(
    st.builds(
        DaemonPod,
        name=st.uuids().map(str),
        node_name=st.sampled_from([*NODES, "gone"]),
        revision=st.sampled_from(["new", "old", "older"]),
        phase=st.sampled_from(["Running", "Pending", "Failed", "Succeeded"]),
        ready_since=st.sampled_from([None, NOW, NOW - timedelta(hours=1)]),
        is_ending=st.booleans(),
        is_bound=st.booleans(),
        created=st.sampled_from(["1", "2"]),
    ),
    max_size=12,
)


@dataclass
class World:
    """A cluster where each plan is carried out; what a kubelet does happens between two of them."""

    wishes: dict[str, Placement]
    pods: list[DaemonPod]
    made: int = 0
    now: datetime = NOW
    deleted: list[str] = field(default_factory=list)

    def carry_out(self, todo: Plan) -> None:
        for node_name in todo.make:
            self.made += 1
            pod = DaemonPod(f"made-{self.made}", node_name, "new", "Pending", created=f"9-{self.made}")
            self.pods.append(pod)
        self.pods = [replace(pod, is_ending=True) if pod.name in todo.delete else pod for pod in self.pods]
        self.deleted += todo.delete

    def pass_time(self) -> None:
        self.now += timedelta(minutes=1)
        self.pods = [
            replace(pod, phase="Running", ready_since=pod.ready_since or self.now, is_bound=True)
            if pod.phase in {"Pending", "Running"}
            else pod
            for pod in self.pods
            if not pod.is_ending
        ]


def available(world: World, rollout: Rollout) -> set[str]:
    return {
        pod.node_name
        for pod in world.pods
        if not pod.is_ending and pod.is_available(rollout.min_ready_seconds, world.now)
    }


@given(wishes_of_nodes, pods_of_nodes, rollouts)
def test_plans_that_are_carried_out_lead_to_one_right_pod_on_each_node(
    wishes: dict[str, Placement], pods: list[DaemonPod], rollout: Rollout
) -> None:
    world = World(wishes, [replace(pod, is_bound=True) if pod.node_name == "gone" else pod for pod in pods])
    for _ in range(40):
        world.carry_out(plan(wishes, world.pods, rollout, world.now))
        world.pass_time()
    assert plan(wishes, world.pods, rollout, world.now) == Plan()
    counts = Counter(pod.node_name for pod in world.pods)
    for name, wish in wishes.items():
        assert counts[name] == 1 or (counts[name] == 0 and wish is not Placement.RUN)
        assert counts[name] == 0 or wish is not Placement.NONE
    if rollout.is_rolling:
        assert all(pod.revision == "new" for pod in world.pods if pod.node_name in wishes)


@given(wishes_of_nodes, pods_of_nodes, rollouts)
def test_a_plan_that_was_carried_out_leaves_nothing_to_do_at_once(
    wishes: dict[str, Placement], pods: list[DaemonPod], rollout: Rollout
) -> None:
    world = World(wishes, pods)
    for _ in range(3):
        todo = plan(wishes, world.pods, rollout, world.now)
        world.carry_out(todo)
    # Two at most: what is missing or too much comes first, then what is out of date.
    assert plan(wishes, world.pods, rollout, world.now) == Plan()
    assert len(set(world.deleted)) == len(world.deleted)


@given(
    st.lists(st.sampled_from(["new", "old"]), min_size=1, max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.integers(1, 3),
)
def test_no_more_than_max_unavailable_are_unavailable_because_of_us(
    revisions: list[str], ready: list[bool], most: int
) -> None:
    names = NODES[: len(revisions)]
    wishes = dict.fromkeys(names, Placement.RUN)
    pods = [
        DaemonPod(f"pod-{name}", name, revision, ready_since=NOW if is_ready else None)
        for name, revision, is_ready in zip(names, revisions, ready, strict=False)
    ]
    rollout = Rollout("new", max_unavailable=most)
    world = World(wishes, pods)
    fewest = min(len(available(world, rollout)), len(names) - most)
    for step in range(40):
        world.carry_out(plan(wishes, world.pods, rollout, world.now))
        assert len(available(world, rollout)) >= fewest
        if step % 2:
            world.pass_time()
    assert all(pod.revision == "new" for pod in world.pods)


def test_of_two_pods_on_a_node_the_older_one_with_a_node_stays() -> None:
    pods = [
        DaemonPod("young", "worker-0", "new", created="2"),
        DaemonPod("old", "worker-0", "new", created="1"),
        DaemonPod("nowhere", "worker-0", "new", created="0", is_bound=False),
    ]
    todo = plan({"worker-0": Placement.RUN}, pods, Rollout("new"), NOW)
    assert todo.delete == ("young", "nowhere")


def test_a_failed_pod_is_left_while_its_node_backs_off() -> None:
    pod = DaemonPod("p", "worker-0", "new", "Failed")
    wishes = {"worker-0": Placement.RUN}
    todo = plan(wishes, [pod], Rollout("new"), NOW)
    assert (todo.delete, todo.ended, todo.is_held_back) == (("p",), (pod,), False)
    todo = plan(wishes, [pod], Rollout("new"), NOW, {"worker-0"})
    assert (todo.make, todo.delete, todo.ended, todo.is_held_back) == ((), (), (), True)


def test_a_pod_for_a_node_that_is_gone_goes_unless_it_was_there() -> None:
    pods = [DaemonPod("waits", "gone", "new", is_bound=False), DaemonPod("was", "gone", "new")]
    assert plan({}, pods, Rollout("new"), NOW).delete == ("waits",)


@pytest.mark.parametrize(
    ("asked", "most"), [(None, 1), (3, 3), ("25%", 3), ("10%", 1), ("0%", 1), (0, 1), ("x", 1)]
)
def test_max_unavailable_is_a_number_or_a_part_of_the_nodes(asked: object, most: int) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": asked}}
    assert rollout_of({"spec": {"updateStrategy": strategy}}, "r", 9) == Rollout("r", max_unavailable=most)


def test_a_status_counts_nodes_by_their_first_pod() -> None:
    wishes = {
        "a": Placement.RUN,
        "b": Placement.RUN,
        "c": Placement.RUN,
        "d": Placement.KEEP,
        "e": Placement.NONE,
    }
    pods = [
        DaemonPod("a1", "a", "new", ready_since=NOW - timedelta(seconds=20), created="1"),
        DaemonPod("a2", "a", "new", created="2"),
        DaemonPod("b1", "b", "old", ready_since=NOW),
        DaemonPod("d1", "d", "new", ready_since=NOW),
    ]
    rollout = Rollout("new", min_ready_seconds=10)
    assert daemon_status({"metadata": {"generation": 3}}, wishes, pods, rollout, NOW) == {
        "currentNumberScheduled": 2,
        "numberMisscheduled": 1,
        "desiredNumberScheduled": 3,
        "numberReady": 2,
        "observedGeneration": 3,
        "updatedNumberScheduled": 1,
        "numberAvailable": 1,
        "numberUnavailable": 2,
    }
    assert seconds_until_available(pods, 10, NOW) == 10
    assert seconds_until_available(pods, 10, NOW + timedelta(seconds=10)) is None
