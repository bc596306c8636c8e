"""What is told of a step from one status to the next: each thing once, and nothing where nothing changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devplug.monitor.differences import ChangeKind, differences
from devplug.status.values import (
    ConfigStatus,
    DeviceStatus,
    Holder,
    NodeStatus,
    ProcessStatus,
    ResourceStatus,
)

NAME = "example.com/a"
POD = Holder("lab", "p", "main")
HEALTHY = DeviceStatus(id="d", health="Healthy")
BROKEN = DeviceStatus(id="d", health="Unhealthy", reason="unplugged")


def node(*devices: DeviceStatus, **facts: Any) -> NodeStatus:
    return NodeStatus(name="n", at=5.0, resources=(ResourceStatus(name=NAME, devices=devices, **facts),))


def lines(before: NodeStatus, after: NodeStatus) -> list[str]:
    return [one.line for one in differences(before, after)]


def test_a_device_that_comes_is_told_and_one_that_goes() -> None:
    assert lines(node(), node(HEALTHY)) == [f"{NAME} d appeared"]
    assert lines(node(HEALTHY), node()) == [f"{NAME} d vanished"]


def test_a_change_of_health_is_told_with_its_reason() -> None:
    assert lines(node(HEALTHY), node(BROKEN)) == [f"{NAME} d unhealthy (unplugged)"]
    assert lines(node(BROKEN), node(HEALTHY)) == [f"{NAME} d healthy"]


def test_a_device_that_is_lost_to_its_holder_is_told_with_the_holder() -> None:
    held, broken = replace(HEALTHY, holders=(POD,)), replace(BROKEN, holders=(POD,))
    assert lines(node(held), node(broken)) == [
        f"{NAME} d unhealthy (unplugged)",
        f"{NAME} d lost (lab/p/main)",
    ]


def test_holds_and_releases_are_told_in_the_order_in_which_they_make_sense() -> None:
    before, after = replace(HEALTHY, holders=(POD,)), replace(HEALTHY, holders=(Holder("lab", "q", "c"),))
    assert lines(node(before), node(after)) == [f"{NAME} d released (lab/p/main)", f"{NAME} d held (lab/q/c)"]


def test_a_new_registration_is_told_though_it_was_registered_before() -> None:
    first, second = node(is_registered=True, registered_at=1.0), node(is_registered=True, registered_at=2.0)
    lost = node(is_registered=False, fault="no kubelet listens")
    assert lines(first, second) == [f"{NAME} registered"]
    assert lines(first, lost) == [f"{NAME} not-registered (no kubelet listens)"]
    assert lines(lost, lost) == []


def test_a_resource_that_comes_brings_its_devices() -> None:
    empty = NodeStatus(name="n", at=1.0)
    assert lines(empty, node(HEALTHY)) == [f"{NAME} added", f"{NAME} d appeared"]
    assert lines(node(HEALTHY), empty) == [f"{NAME} d vanished", f"{NAME} removed"]


def test_an_edit_is_told_whether_it_was_taken_or_not() -> None:
    def with_config(applied_at: float, *problems: str) -> NodeStatus:
        config = ConfigStatus(file="f.yaml", applied_at=applied_at, problems=problems)
        told = ProcessStatus(process=1, version="1", python="3", started_at=0, config=config)
        return NodeStatus(name="n", at=1.0, processes=(told,))

    assert lines(with_config(1), with_config(1, "f.yaml:1:1: error")) == [
        "config-refused (f.yaml:1:1: error)"
    ]
    assert lines(with_config(1), with_config(2)) == ["config-applied (f.yaml)"]
    assert lines(with_config(1), with_config(1)) == []


DEVICES = st.builds(
    DeviceStatus,
    id=st.sampled_from("abc"),
    health=st.sampled_from(["Healthy", "Unhealthy"]),
    holders=st.sets(st.sampled_from([POD, Holder("x", "y", "z")])).map(lambda one: tuple(sorted(one))),
)
LISTS = st.lists(DEVICES, unique_by=lambda one: one.id)


@given(LISTS, LISTS)
def test_the_changes_lead_from_the_one_status_to_the_other(
    before: list[DeviceStatus], after: list[DeviceStatus]
) -> None:
    listed = {one.id for one in before}
    holds = {(one.id, holder) for one in before for holder in one.holders}
    holders = {f"{one.namespace}/{one.pod}/{one.container}": one for one in (POD, Holder("x", "y", "z"))}
    for change in differences(node(*before), node(*after)):
        match change.kind:
            case ChangeKind.APPEARED:
                listed.add(change.device_id)
            case ChangeKind.VANISHED:
                listed.remove(change.device_id)
            case ChangeKind.HELD:
                holds.add((change.device_id, holders[change.text]))
            case ChangeKind.RELEASED:
                holds.remove((change.device_id, holders[change.text]))
            case _:
                continue
    assert listed == {one.id for one in after}
    assert holds == {(one.id, holder) for one in after for holder in one.holders}
    assert differences(node(*after), node(*after)) == ()
