"""What pods ask for, against the scheduler's own sum in the sandbox, over all shapes of pods."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.pod_requests import device_requests, devices_by_container
from devplug.k8s.resource_names import is_extended
from devplug.sandbox.scheduler.types import shape

A, B = "example.com/a", "example.com/b"
COUNTS = st.dictionaries(st.sampled_from([A, B, "cpu", "memory"]), st.integers(0, 9).map(str))


@st.composite
def _containers(draw: st.DrawFn, *, initial: bool) -> list[dict[str, Any]]:
    made = []
    for number in range(draw(st.integers(0, 4))):
        counts = draw(COUNTS)
        # As the API server keeps them: requests stand beside limits, and are equal for extended resources.
        container: dict[str, Any] = {
            "name": f"c{number}",
            "resources": {"limits": counts, "requests": counts},
        }
        if initial and draw(st.booleans()):
            container["restartPolicy"] = "Always"
        made.append(container)
    return made


SPECS = st.fixed_dictionaries(
    {"containers": _containers(initial=False), "initContainers": _containers(initial=True)},
    optional={"overhead": COUNTS, "resources": st.fixed_dictionaries({"requests": COUNTS})},
)


@given(SPECS)
def test_the_sum_is_the_schedulers(spec: dict[str, Any]) -> None:
    counted = {name: number for name, number in shape(spec).requests if is_extended(name)}
    assert device_requests({"spec": spec}) == counted


def test_limits_alone_are_requests() -> None:
    pod: dict[str, object] = {"spec": {"containers": [{"name": "c", "resources": {"limits": {A: "2"}}}]}}
    assert device_requests(pod) == {A: 2}
    assert [asked for _, asked in devices_by_container(pod)] == [{A: 2}]


def test_a_sidecar_counts_beside_the_app_and_an_init_container_only_if_it_needs_more() -> None:
    def limits(count: int) -> dict[str, object]:
        return {"limits": {A: str(count)}}

    sidecar = {"name": "s", "restartPolicy": "Always", "resources": limits(1)}
    initial = {"name": "i", "resources": limits(3)}
    app = {"name": "c", "resources": limits(2)}
    assert device_requests({"spec": {"initContainers": [sidecar], "containers": [app]}}) == {A: 3}
    assert device_requests({"spec": {"initContainers": [initial], "containers": [app]}}) == {A: 3}
    assert device_requests({"spec": {"initContainers": [sidecar, initial], "containers": [app]}}) == {A: 4}


@pytest.mark.parametrize(
    "name", ["EXAMPLE.com/a", "a/b/c", "requests.example.com/a", "x.kubernetes.io/y", "cpu"]
)
def test_what_is_no_extended_resource_to_the_kubelet_is_none_to_the_monitor(name: str) -> None:
    """The monitor once had a rule of its own, which took the first two."""
    limits: dict[str, object] = {name: "1", A: "1"}
    assert device_requests({"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}) == {
        A: 1
    }


def test_what_is_of_another_shape_asks_for_nothing() -> None:
    for odd in ({}, {"spec": None}, {"spec": {"containers": "x"}}, {"spec": {"containers": [1, {}]}}):
        assert device_requests(odd) == {}  # type: ignore[arg-type]  # any server may answer
    assert device_requests({"spec": {"containers": [{"resources": {"limits": {A: "much"}}}]}}) == {}
