"""The node's numbers as people read them: what plugins, time and other people make of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.resources import Capacity, NodeStatus
from devplug.kubelet_dir import CHECKPOINT_NAME
from tests.kubelet.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    Clock,
    FakePlugin,
    happened,
    healthy,
    pod,
    register,
    registered,
    running,
    served,
    unhealthy,
)


def numbers(kubelet: Kubelet) -> tuple[dict[str, int], dict[str, int]]:
    """Capacity and allocatable."""
    return dict(kubelet.capacity()), dict(kubelet.allocatable())


# ── the rule ──────────────────────────────────────────────────────────────────────────────────────


def test_a_report_leaves_the_one_before_it_as_it_was() -> None:
    before = NodeStatus({RESOURCE: 3}, {RESOURCE: 2})
    before.patched(RESOURCE, 9)
    before.updated(Capacity({}, {}, (RESOURCE,)))
    assert before == NodeStatus({RESOURCE: 3}, {RESOURCE: 2})


names = st.sampled_from("abc")
reports = st.lists(
    st.builds(
        Capacity,
        st.dictionaries(names, st.integers(0, 9)),
        st.dictionaries(names, st.integers(0, 9)),
        st.lists(names, unique=True).map(tuple),
    )
    | st.tuples(names, st.integers(0, 9)),
    max_size=6,
)


def set_step_by_step(reports: Iterable[Capacity | tuple[str, int]]) -> NodeStatus:
    """What setters.go does to one Node object, in its order; a pair is somebody's patch."""
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    for report in reports:
        if isinstance(report, tuple):
            name, count = report
            capacity[name] = count
            continue
        capacity |= report.capacity
        for name in report.deleted:
            capacity[name] = 0
        for name in [name for name in allocatable if name not in capacity]:
            del allocatable[name]
        allocatable |= capacity
        allocatable |= report.allocatable
    return NodeStatus(capacity, allocatable)


@given(reports)
def test_any_reports_and_patches_leave_what_the_steps_of_the_real_kubelet_leave(
    reports: list[Capacity | tuple[str, int]],
) -> None:
    """C32, C37, C39."""
    status = NodeStatus()
    for report in reports:
        status = status.patched(*report) if isinstance(report, tuple) else status.updated(report)
    assert status == set_step_by_step(reports)


# ── on a socket ───────────────────────────────────────────────────────────────────────────────────


async def test_the_numbers_are_those_of_the_last_list_when_it_is_told(short_dir: Path) -> None:
    """C33, C35, C42: the real kubelet takes up to ten seconds; this one shows no number that is older."""
    clock = Clock()
    async with running(short_dir, clock=clock) as kubelet, registered(kubelet, healthy("a")) as plugin:
        for devices, expected in (
            (healthy("a", "b"), ({RESOURCE: 2}, {RESOURCE: 2})),
            (healthy("a") + unhealthy("b", "c"), ({RESOURCE: 3}, {RESOURCE: 1})),
            ((), ({RESOURCE: 0}, {RESOURCE: 0})),
        ):
            with kubelet.changes() as changes:
                plugin.send(devices)
                change = await happened(changes, ChangeKind.LISTED)
            assert (change.at_seconds, numbers(kubelet)) == (clock.seconds, expected)
            # The loop that runs every ten seconds has nothing to add.
            clock.seconds += 10
            kubelet.update_node_status()
            assert numbers(kubelet) == expected


async def test_the_name_of_a_resource_that_expired_outlives_the_kubelet(short_dir: Path) -> None:
    """C37: the key is on the Node object, whatever the checkpoint says."""
    clock = Clock()
    async with running(short_dir, clock=clock) as kubelet, registered(kubelet, healthy("a")) as plugin:
        kubelet.drop_stream(RESOURCE)
        clock.seconds += 301
        kubelet.update_node_status()
        for _ in range(2):
            await kubelet.restart()
            assert numbers(kubelet) == ({RESOURCE: 0}, {RESOURCE: 0})
        await plugin.die()
        await plugin.listen()
        await register(kubelet, plugin)
        assert numbers(kubelet) == ({RESOURCE: 1}, {RESOURCE: 1})


async def test_a_resource_of_somebody_else_is_left_alone(short_dir: Path) -> None:
    """Whatever plugins do, and whichever kubelet runs; its allocatable is its capacity."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        kubelet.patch_node(OTHER_RESOURCE, 4)
        assert numbers(kubelet) == ({RESOURCE: 1, OTHER_RESOURCE: 4}, {RESOURCE: 1, OTHER_RESOURCE: 4})
        plugin.end_streams()
        await kubelet.wait(lambda: kubelet.allocatable() == {RESOURCE: 0, OTHER_RESOURCE: 4})
        await kubelet.run_pod(pod("u", 3, OTHER_RESOURCE))
        await kubelet.restart()
        assert numbers(kubelet) == ({RESOURCE: 0, OTHER_RESOURCE: 4}, {RESOURCE: 0, OTHER_RESOURCE: 4})


async def test_a_plugin_that_never_sends_a_list_puts_no_name_on_the_node(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, FakePlugin(short_dir, first="nothing").serving() as plugin:
        await plugin.register()
        await plugin.streams(1)
        kubelet.update_node_status()
        assert numbers(kubelet) == ({}, {})


async def test_a_lost_checkpoint_leaves_the_old_numbers_on_the_node(short_dir: Path) -> None:
    """No kubelet then knows that a plugin had the name, so nobody corrects it until one registers again."""
    async with served(short_dir, healthy("a") + unhealthy("b")) as (kubelet, plugin):
        (short_dir / CHECKPOINT_NAME).unlink()
        await kubelet.restart()
        assert numbers(kubelet) == ({RESOURCE: 2}, {RESOURCE: 2})
        await plugin.die()
        await plugin.listen()
        await register(kubelet, plugin)
        assert numbers(kubelet) == ({RESOURCE: 2}, {RESOURCE: 1})


async def test_assignments_do_not_show_on_the_node(short_dir: Path) -> None:
    """C41."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")):
        before = numbers(kubelet)
        await kubelet.run_pod(pod("u", 2))
        kubelet.update_node_status()
        assert numbers(kubelet) == before


async def test_the_nodes_status_does_not_mind_that_the_checkpoint_cannot_be_written(short_dir: Path) -> None:
    clock, folder = Clock(), short_dir / "plugins"
    async with running(folder, clock=clock) as kubelet, registered(kubelet, healthy("a")):
        kubelet.drop_stream(RESOURCE)
        clock.seconds += 301
        folder.rename(short_dir / "moved")
        kubelet.update_node_status()
        assert kubelet.capacity() == {RESOURCE: 0}
