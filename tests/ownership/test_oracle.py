"""The oracle catches each violation, and accepts what is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.ownership.oracle import Container, Machine, Numbers, Offer, Oracle

A, B, C = "a", "b", "c"
RESOURCE, FIRST = "example.com/any", "example.com/special"


def number(minor: int) -> Numbers:
    return frozenset({(240, minor)})


def machine(**minors: int) -> Machine:
    """Hardware by name, each with a link `/by/NAME`, and a node `/tty/MINOR`."""
    links = {f"/by/{name}": number(minor) for name, minor in minors.items()}
    nodes = {f"/tty/{minor}": number(minor) for minor in minors.values()}
    return Machine({name: number(minor) for name, minor in minors.items()}, links | nodes)


def container(name: str, minor: int, hardware: str, path: str = "", **more: Any) -> Container:
    return Container(name, RESOURCE, number(minor), (path,) if path else (), frozenset({hardware}), **more)


def judged(*, healthy: int, capacity: int | None = None, matches: str = "abc") -> Mapping[str, Offer]:
    return {RESOURCE: Offer(frozenset(matches), healthy, healthy if capacity is None else capacity)}


def violations(oracle: Oracle) -> list[str]:
    """Return the statements that were violated."""
    return [line.partition(":")[0] for line in oracle.violations]


# ── O1 ──


def test_two_containers_with_one_device_number() -> None:
    oracle, now = Oracle(), machine(a=0)
    oracle.started(container("p", 0, A), now)
    oracle.started(container("q", 0, A), now)
    assert oracle.violations == ["O1: q was given a, which p has"]


def test_hardware_that_a_running_container_can_open() -> None:
    """The container was given other hardware, whose number the new hardware has now."""
    oracle = Oracle()
    oracle.started(container("p", 0, A), machine(a=0))
    oracle.started(container("q", 0, B), machine(b=0))
    assert violations(oracle) == ["O1"]


def test_hardware_that_a_restarted_container_would_open() -> None:
    oracle = Oracle()
    oracle.started(container("p", 0, A, "/tty/1"), machine(a=0))
    oracle.started(container("q", 1, B), machine(b=1))
    assert violations(oracle) == ["O1"]


def test_container_whose_own_restart_would_open_held_hardware() -> None:
    oracle, now = Oracle(), machine(a=0, b=1)
    oracle.started(container("p", 0, A), now)
    oracle.started(container("q", 1, B, "/by/a"), now)
    assert violations(oracle) == ["O1"]


def test_held_hardware_with_another_number() -> None:
    oracle = Oracle()
    oracle.started(container("p", 0, A), machine(a=0))
    oracle.started(container("q", 5, A), machine(a=5))
    assert violations(oracle) == ["O1"]


@pytest.mark.parametrize("how", ["is_sharing", "is_privileged"])
def test_hardware_that_is_shared_on_purpose(how: str) -> None:
    oracle, now = Oracle(), machine(a=0)
    more: dict[str, Any] = {how: True}
    for name in ("p", "q"):
        oracle.started(container(name, 0, A, **more), now)
    assert oracle.violations == []


def test_sharing_does_not_include_an_earlier_container() -> None:
    oracle, now = Oracle(), machine(a=0)
    oracle.started(container("p", 0, A), now)
    oracle.started(container("q", 0, A, is_sharing=True), now)
    assert violations(oracle) == ["O1"]


def test_hardware_after_its_release() -> None:
    oracle, now = Oracle(), machine(a=0)
    oracle.started(container("p", 0, A), now)
    oracle.ended("p")
    oracle.started(container("q", 0, A), now)
    assert oracle.violations == []


# ── O2 ──


def test_clean_up_of_hardware_in_use() -> None:
    oracle = Oracle()
    oracle.started(container("p", 0, A), machine(a=0))
    oracle.cleaned(A)
    assert oracle.violations == ["O2: a was cleaned while p has it"]


def test_hardware_given_without_the_clean_up_of_its_last_use() -> None:
    oracle, now = Oracle(), machine(a=0)
    oracle.started(container("p", 0, A), now)
    oracle.ended("p", is_cleaned=True)
    oracle.started(container("q", 0, A), now)
    assert violations(oracle) == ["O2"]


def test_clean_up_that_is_left_out() -> None:
    oracle, now = Oracle(), machine(a=0)
    oracle.started(container("p", 0, A), now)
    oracle.ended("p", is_cleaned=True)
    oracle.quiet(now, judged(healthy=1))
    assert violations(oracle) == ["O2"]


def test_clean_up_of_unplugged_hardware_may_come_later() -> None:
    oracle, now = Oracle(), machine(a=0)
    oracle.started(container("p", 0, A), now)
    oracle.ended("p", is_cleaned=True)
    oracle.unplugged(A)
    oracle.quiet(now, judged(healthy=0, capacity=1))
    assert oracle.violations == []
    oracle.started(container("q", 0, A), now)
    assert violations(oracle) == ["O2"]


def test_shared_hardware_is_cleaned_after_the_last_use() -> None:
    oracle, now = Oracle(), machine(a=0)
    for name in ("p", "q"):
        oracle.started(container(name, 0, A, is_sharing=True), now)
    oracle.ended("p", is_cleaned=True)
    assert oracle.used == set()
    oracle.ended("q", is_cleaned=True)
    assert oracle.used == {A}
    oracle.cleaned(A)
    oracle.quiet(now, judged(healthy=1))
    assert oracle.violations == []


# ── O3, O4 ──


@pytest.mark.parametrize(
    ("healthy", "capacity", "found"),
    [(2, 2, []), (1, 2, ["O4"]), (3, 3, ["O3", "O4"]), (2, 3, ["O3"]), (0, 0, ["O4"])],
)
def test_hardware_is_counted_and_offered_once(healthy: int, capacity: int, found: list[str]) -> None:
    oracle, now = Oracle(), machine(a=0, b=1)
    oracle.started(container("p", 0, A), now)
    oracle.quiet(now, judged(healthy=healthy, capacity=capacity))
    assert violations(oracle) == found


def test_held_hardware_counts_while_it_is_unplugged() -> None:
    oracle = Oracle()
    oracle.started(container("p", 0, A), machine(a=0))
    oracle.quiet(machine(b=1), judged(healthy=1, capacity=2))
    assert oracle.violations == []


def test_hardware_that_a_container_can_open_is_not_offered() -> None:
    oracle = Oracle()
    oracle.started(container("p", 0, A), machine(a=0))
    oracle.quiet(machine(b=0), judged(healthy=0, capacity=1))
    assert oracle.violations == []
    oracle.quiet(machine(b=0), judged(healthy=1, capacity=2))
    assert violations(oracle) == ["O4"]


@pytest.mark.parametrize(
    ("first", "second", "found"), [(1, 0, []), (0, 1, ["O4", "O4"]), (1, 1, ["O3", "O4"])]
)
def test_first_resource_in_the_file_offers_free_hardware(first: int, second: int, found: list[str]) -> None:
    oracle = Oracle()
    offers = {name: Offer(frozenset(A), n, n) for name, n in ((FIRST, first), (RESOURCE, second))}
    oracle.quiet(machine(a=0), offers)
    assert violations(oracle) == found


def test_held_hardware_stays_with_its_resource() -> None:
    oracle, now = Oracle(), machine(a=0)
    oracle.started(container("p", 0, A), now)
    offers = {FIRST: Offer(frozenset(A), 0, 0), RESOURCE: Offer(frozenset(A), 1, 1)}
    oracle.quiet(now, offers)
    assert oracle.violations == []


def test_resource_that_is_configured_no_more_keeps_held_hardware() -> None:
    oracle, now = Oracle(), machine(a=0)
    oracle.started(container("p", 0, A), now)
    oracle.quiet(now, {FIRST: Offer(frozenset(A), 0, 0), RESOURCE: Offer(frozenset(), 1, 1)})
    assert oracle.violations == []
    oracle.quiet(now, {FIRST: Offer(frozenset(A), 0, 0)})
    assert violations(oracle) == ["O4"]


# ── O5 ──


@pytest.mark.parametrize(("is_plugged", "health"), [(True, "Unhealthy"), (False, "Healthy")])
def test_held_name_that_means_other_hardware(is_plugged: bool, health: str) -> None:
    """The name of unplugged hardware is Healthy, or hardware is called unplugged that is not."""
    oracle = Oracle()
    oracle.started(container("p", 0, A), machine(a=0))
    now = machine(a=0) if is_plugged else machine()
    oracle.quiet(now, judged(healthy=int(is_plugged), capacity=1), {"p": health})
    assert violations(oracle) == ["O5"]
