"""The queue: priority, then age; who is woken by what; and how long a pod backs off."""

from __future__ import annotations

import pytest

from devplug.sandbox.scheduler.filters import Plugin
from devplug.sandbox.scheduler.queue import NodeChange, PodGone, Queue, may_help
from devplug.sandbox.scheduler.types import CPU, PODS, Node, PendingPod, Shape, Taint

WIDGET = "kkloud.io/widget"
FIT = frozenset({Plugin.NODE_RESOURCES_FIT})
ONE = Shape.asking({WIDGET: 1})


def pod(name: str, shape: Shape = ONE, priority: int = 0) -> PendingPod:
    return PendingPod(name, name, shape=shape, priority=priority)


def node(widgets: int, *taints: Taint, zone: str = "a", cores: int = 1, is_closed: bool = False) -> Node:
    return Node("worker", {"zone": zone}, taints, is_closed, {WIDGET: widgets, PODS: 9, CPU: cores * 1000})


def popped(queue: Queue, now_seconds: float = 0) -> list[str]:
    names = []
    while found := queue.pop(now_seconds):
        names.append(found.name)
    return names


def refused(queue: Queue, name: str, now_seconds: float, shape: Shape = ONE) -> PendingPod:
    found = queue.pop(now_seconds)
    assert found is not None
    assert found.name == name
    queue.refuse(found, FIT, now_seconds)
    return found


def test_the_higher_priority_goes_first_and_then_who_waits_longest() -> None:
    queue = Queue()
    for name, priority, at in [("late", 0, 2), ("high", 5, 3), ("early", 0, 1), ("same", 0, 1)]:
        queue.add(pod(name, priority=priority), at)
    assert popped(queue) == ["high", "early", "same", "late"]


def test_a_refused_pod_stays_where_it_is_until_something_helps() -> None:
    queue = Queue()
    queue.add(pod("a"), 0)
    refused(queue, "a", 0)
    assert queue.pop(100) is None
    assert queue.change(NodeChange(node(0), node(0, cores=9)), 100) == []
    assert queue.pop(100) is None
    assert queue.change(NodeChange(node(0), node(1)), 100) == ["a"]
    assert popped(queue, 100) == ["a"]


def test_who_backs_off_comes_after_who_is_ready_and_before_nobody() -> None:
    queue = Queue()
    queue.add(pod("a", priority=9), 0)
    refused(queue, "a", 0)
    queue.add(pod("b"), 0.1)
    assert queue.change(PodGone(), 0.1) == ["a"]
    assert queue.next_seconds() == 0
    assert popped(queue, 0.1) == ["b", "a"]


def test_backoff_that_has_ended_gives_a_pod_its_place_again() -> None:
    queue = Queue()
    queue.add(pod("a", priority=9), 0)
    refused(queue, "a", 0)
    queue.change(PodGone(), 0.1)
    queue.add(pod("b"), 0.1)
    assert popped(queue, 1.0) == ["a", "b"]


def test_a_pod_that_nothing_helps_is_tried_again_after_five_minutes() -> None:
    queue = Queue()
    queue.add(pod("a"), 0)
    refused(queue, "a", 7)
    assert queue.next_seconds() == 307
    assert popped(queue, 306) == []
    assert popped(queue, 307) == ["a"]


def test_a_removed_pod_does_not_come_back() -> None:
    queue = Queue()
    queue.add(pod("a"), 0)
    queue.add(pod("b"), 0)
    queue.remove("b")
    found = queue.pop(0)
    assert found is not None
    queue.remove("a")
    queue.refuse(found, FIT, 0)
    assert len(queue) == 0
    assert popped(queue, 1000) == []
    assert queue.next_seconds() is None


def test_a_changed_pod_is_tried_at_once_and_only_once() -> None:
    queue = Queue()
    queue.add(pod("a"), 0)
    refused(queue, "a", 0)
    queue.add(pod("a"), 0.1)
    assert popped(queue, 0.1) == ["a"]
    assert popped(queue, 1000) == []


TAINTED = node(1, Taint("dedicated"))


@pytest.mark.parametrize(
    ("plugin", "shape", "before", "after", "helps"),
    [
        (Plugin.NODE_RESOURCES_FIT, ONE, None, node(1), True),
        (Plugin.NODE_RESOURCES_FIT, ONE, None, node(0), False),
        (Plugin.NODE_RESOURCES_FIT, ONE, node(1), node(1), False),
        (Plugin.NODE_RESOURCES_FIT, ONE, node(1), node(2), True),
        (Plugin.NODE_RESOURCES_FIT, ONE, node(2), node(1), False),
        (Plugin.TAINT_TOLERATION, ONE, TAINTED, node(1), True),
        (Plugin.TAINT_TOLERATION, ONE, node(1), node(2), False),
        (Plugin.TAINT_TOLERATION, ONE, None, TAINTED, False),
        (Plugin.NODE_UNSCHEDULABLE, ONE, node(1, is_closed=True), node(1), True),
        (Plugin.NODE_UNSCHEDULABLE, ONE, node(1), node(1), False),
        (Plugin.NODE_NAME, ONE, None, node(1), True),
        (Plugin.NODE_NAME, ONE, node(1), node(1), False),
        (
            Plugin.NODE_AFFINITY,
            Shape.asking({}, node_selector={"zone": "b"}),
            node(1),
            node(1, zone="b"),
            True,
        ),
        (Plugin.NODE_AFFINITY, Shape.asking({}, node_selector={"zone": "a"}), node(1), node(2), False),
        (Plugin.NODE_AFFINITY, Shape.asking({}, node_selector={"zone": "a"}), None, node(2), True),
    ],
)
def test_a_change_of_a_node_helps_those_that_it_takes_the_reason_from(
    plugin: Plugin, shape: Shape, before: Node | None, after: Node, *, helps: bool
) -> None:
    assert may_help(shape, {plugin}, NodeChange(before, after)) is helps


def test_a_pod_that_goes_helps_only_who_lacked_resources() -> None:
    assert may_help(ONE, FIT, PodGone())
    assert not may_help(ONE, {Plugin.TAINT_TOLERATION, Plugin.NODE_AFFINITY}, PodGone())


def test_a_pod_that_no_plugin_refused_waits_for_any_change() -> None:
    """There were no nodes at all."""
    queue = Queue()
    pod = PendingPod("u", "p")
    queue.add(pod, 0)
    assert queue.pop(0) == pod
    queue.refuse(pod, frozenset(), 0)
    assert queue.pop(1) is None
    assert queue.change(NodeChange(None, Node("n", allocatable={PODS: 1})), 1) == ["u"]
    assert queue.pop(1) == pod


def test_the_next_time_to_ask_is_the_earliest_of_all_that_still_wait() -> None:
    queue = Queue()
    assert queue.next_seconds() is None
    queue.add(pod("a"), 0)
    queue.add(pod("b"), 1)
    refused(queue, "a", 0)
    refused(queue, "b", 1)
    assert queue.next_seconds() == 300
    queue.remove("a")
    assert queue.next_seconds() == 301
    assert queue.change(PodGone(), 1) == ["b"]
    assert queue.next_seconds() == 2
    queue.remove("b")
    assert queue.next_seconds() is None


def failed(queue: Queue, name: str, now_seconds: float) -> PendingPod:
    found = queue.pop(now_seconds)
    assert found is not None
    assert found.name == name
    queue.fail(found, now_seconds)
    return found


def test_a_pod_whose_attempt_failed_is_tried_again_when_its_backoff_ends() -> None:
    """Not before, though nothing else is ready: and no change helps it, as no plugin refused it."""
    queue = Queue()
    queue.add(pod("a"), 0)
    failed(queue, "a", 0)
    assert queue.next_seconds() == 1
    assert queue.change(PodGone(), 0.5) == []
    assert popped(queue, 0.9) == []
    failed(queue, "a", 1)
    assert queue.next_seconds() == 3
    assert popped(queue, 2.9) == []
    assert popped(queue, 3) == ["a"]


def test_failures_and_refusals_are_one_backoff() -> None:
    queue = Queue()
    queue.add(pod("a"), 0)
    refused(queue, "a", 0)
    queue.change(PodGone(), 1)
    failed(queue, "a", 1)
    assert queue.next_seconds() == 3


def test_a_failed_pod_comes_back_to_its_place() -> None:
    queue = Queue()
    queue.add(pod("a", priority=9), 0)
    failed(queue, "a", 0)
    queue.add(pod("b"), 0)
    assert popped(queue, 1) == ["a", "b"]


def test_a_failed_pod_that_was_removed_or_changed_does_not_come_back_twice() -> None:
    queue = Queue()
    for name in ("a", "b", "c"):
        queue.add(pod(name), 0)
    failed(queue, "a", 0)
    failed(queue, "b", 0)
    taken = queue.pop(0)
    assert taken is not None
    for uid in ("a", "c"):
        queue.remove(uid)
    queue.fail(taken, 0)
    queue.add(pod("b"), 0.5)
    assert popped(queue, 0.5) == ["b"]
    assert popped(queue, 1000) == []
    assert (len(queue), queue.next_seconds()) == (0, None)
