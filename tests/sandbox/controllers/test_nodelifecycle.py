"""What the node controller tells and taints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import entries, fields, text
from devplug.sandbox.controllers.nodelifecycle import NodeLifecycleController, tainted
from devplug.sandbox.registry import EVENTS, NODES, Registry
from tests.sandbox.controllers.beds import Clock, add_node, new_registry, running, settled, told
from tests.sandbox.jsons import printed
from tests.waiting import until


def taints(registry: Registry) -> list[Any]:
    return entries(registry.get(NODES, "", "worker-0"), "spec", "taints")


def set_condition(registry: Registry, type_: str, status: str) -> None:
    held = fields(registry.get(NODES, "", "worker-0"), "status")
    registry.set_status(NODES, "", "worker-0", {**held, "conditions": [{"type": type_, "status": status}]})


async def test_a_node_that_comes_and_goes_is_told_of_as_on_a_real_cluster() -> None:
    """Recorded on a real node: 12-describe-node.txt."""
    registry = new_registry()
    async with running(NodeLifecycleController(registry)):
        node = add_node(registry)
        await until(lambda: told(registry, "worker-0"))
        set_condition(registry, "Ready", "True")
        await settled(registry)
        (event,) = registry.all(EVENTS)
        row = printed("12-describe-node.txt").splitlines()[-1].split(maxsplit=4)
        assert [row[0], row[1], row[4]] == [text(event, word) for word in ("type", "reason", "message")]
        assert event["source"] == {"component": row[3]}
        assert event["involvedObject"] == {
            "kind": "Node",
            "name": "worker-0",
            "uid": node["metadata"]["uid"],
            "apiVersion": "v1",
        }
        registry.delete(NODES, "", "worker-0")
        await until(lambda: len(told(registry, "worker-0")) == 2)
    assert told(registry, "worker-0")[1] == (
        "Normal RemovingNode Node worker-0 event: Removing Node worker-0 from Controller"
    )


@pytest.mark.parametrize(
    ("type_", "status", "key"),
    [
        ("Ready", "False", "not-ready"),
        ("Ready", "Unknown", "unreachable"),
        ("MemoryPressure", "True", "memory-pressure"),
    ],
)
async def test_a_node_that_is_not_well_is_tainted_until_it_is(type_: str, status: str, key: str) -> None:
    registry = new_registry()
    add_node(registry, taints=[{"key": "dedicated", "effect": "NoSchedule"}])
    async with running(NodeLifecycleController(registry)):
        set_condition(registry, type_, status)
        await until(lambda: len(taints(registry)) == 2)
        assert taints(registry)[1]["key"] == f"node.kubernetes.io/{key}"
        assert taints(registry)[1]["effect"] == "NoSchedule"
        set_condition(registry, type_, "True" if type_ == "Ready" else "False")
        await until(lambda: len(taints(registry)) == 1)
        assert taints(registry)[0]["key"] == "dedicated"


async def test_a_cordoned_node_shows_it_among_its_taints() -> None:
    registry = new_registry()
    add_node(registry, unschedulable=True)
    async with running(NodeLifecycleController(registry)):
        (taint,) = await until(lambda: taints(registry))
        assert taint["key"] == "node.kubernetes.io/unschedulable"
        registry.update(NODES, "", "worker-0", lambda old: {**old, "spec": {"taints": taints(registry)}})
        await until(lambda: not taints(registry))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Ready", "DiskPressure", "PIDPressure", "Other"]),
            st.sampled_from(["True", "False", "Unknown"]),
        ),
        unique_by=lambda one: one[0],
    ),
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from(["a", "node.kubernetes.io/not-ready", "node.kubernetes.io/disk-pressure"]),
            st.sampled_from(["NoSchedule", "NoExecute"]),
        ),
        unique=True,
    ),
)
def test_taints_that_are_put_right_stay_right(
    conditions: list[tuple[str, str]], unschedulable: bool, held: list[tuple[str, str]]
) -> None:
    clock = Clock()
    before: list[Any] = [{"key": key, "effect": effect} for key, effect in held]
    node: Any = {
        "spec": {"unschedulable": unschedulable, "taints": before},
        "status": {"conditions": [{"type": type_, "status": status} for type_, status in conditions]},
    }
    after: list[Any] = tainted(node, clock.now())
    clock.passed = 60
    assert tainted({**node, "spec": {**node["spec"], "taints": after}}, clock.now()) == after
    assert [one for one in before if one["effect"] != "NoSchedule" or one["key"] == "a"] == [
        one for one in after if one["effect"] != "NoSchedule" or one["key"] == "a"
    ]
    assert ("Ready", "False") not in conditions or "node.kubernetes.io/not-ready" in {
        one["key"] for one in after
    }
