"""Objects of the API, to what the scheduler knows of them."""

from __future__ import annotations

from devplug.sandbox.scheduler.types import (
    CPU,
    MEMORY,
    UNSET_CPU,
    UNSET_MEMORY,
    Node,
    PendingPod,
    Preference,
    Requirement,
    Shape,
    Taint,
    Term,
    Toleration,
    amounts,
    node_of,
    pod_of,
    shape,
)


def container(**requests: str) -> dict[str, object]:
    return {"resources": {"requests": {name.replace("_", "/"): text for name, text in requests.items()}}}


def test_amounts_are_whole_numbers_and_cpu_is_in_thousandths() -> None:
    assert amounts({"cpu": "1500m", "memory": "1Ki", "a/b": 3, "pods": "110"}) == {
        "cpu": 1500,
        "memory": 1024,
        "a/b": 3,
        "pods": 110,
    }
    assert amounts({"cpu": "0.0001", "memory": "1m"}) == {"cpu": 1, "memory": 1}
    assert amounts(None) == {}


def test_a_node_is_read_with_what_is_allocatable() -> None:
    assert node_of(
        {
            "metadata": {"name": "one", "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "a", "effect": "NoExecute"}], "unschedulable": True},
            "status": {"allocatable": {"pods": "9"}, "capacity": {"pods": "10"}},
        }
    ) == Node("one", {"zone": "a"}, (Taint("a", "", "NoExecute"),), True, {"pods": 9})
    assert node_of({"metadata": {"name": "two"}, "status": {"capacity": {"pods": "10"}}}).allocatable == {
        "pods": 10
    }


def test_a_pod_is_read_with_all_that_decides_where_it_goes() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    spec = {
        "containers": [{"resources": {"limits": {"a/b": "2"}}}],
        "nodeSelector": {"zone": "a"},
        "priority": 7,
        "preemptionPolicy": "Never",
        "tolerations": [{"operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [expression]}]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 3, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In"}]}}
                ],
            }
        },
    }
    wanted = Shape(
        (("a/b", 2),),
        UNSET_CPU,
        UNSET_MEMORY,
        (("zone", "a"),),
        (Term((Requirement("zone", "In", ("a",)),)),),
        (Preference(3, Term(fields=(Requirement("metadata.name", "In"),))),),
        (Toleration(operator="Exists"),),
    )
    found = pod_of({"metadata": {"name": "w", "namespace": "n", "uid": "u"}, "spec": spec})
    assert found == PendingPod("u", "w", "n", wanted, 7, may_preempt=False)
    assert pod_of({"metadata": {"name": "w"}}).uid == "default/w"
    assert hash(found.shape) == hash(wanted)


def test_requests_are_those_of_the_greatest_moment() -> None:
    found = shape(
        {
            "initContainers": [
                container(cpu="3", a_b="1"),
                {**container(cpu="1"), "restartPolicy": "Always"},
                container(cpu="2500m", a_b="4"),
            ],
            "containers": [container(cpu="500m", a_b="1"), container(cpu="1", a_b="2")],
            "overhead": {"cpu": "250m"},
        }
    )
    assert dict(found.requests) == {CPU: 3750, "a/b": 4}
    assert found.scored_cpu == 3750
    assert found.scored_memory == 3 * UNSET_MEMORY


def test_what_the_pod_requests_as_a_whole_stands_before_its_containers() -> None:
    found = shape({"containers": [container(cpu="1"), container()], "resources": {"requests": {"cpu": "4"}}})
    assert (dict(found.requests), found.scored_cpu, found.scored_memory) == (
        {CPU: 4000},
        4000,
        2 * UNSET_MEMORY,
    )
    assert MEMORY not in dict(found.requests)
