"""Which resources a machine has: by its name, by its labels, by both; and what no label can be."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from devplug.daemon.config.rules import selector_faults
from devplug.daemon.config.types import Resource
from devplug.daemon.placement import placement_of
from tests.daemon.hosts import config

TWO = config(
    """
    - {name: example.com/everywhere, discover: {static: {ids: [a]}}}
    - {name: example.com/gpu, discover: {static: {ids: [a]}}, nodeSelector: {gpu: "on", zone: a}}
    - name: example.com/east
      discover: {static: {ids: [a]}}
      nodeNames: ["east-*"]
      nodeSelector: {gpu: "on"}
    """
)


def names(resources: list[Resource]) -> list[str]:
    return [resource.name.removeprefix("example.com/") for resource in resources]


def here(node_name: str, labels: dict[str, str] | None) -> list[str]:
    return names(placement_of(TWO, node_name, labels).here)


def test_a_resource_with_a_selector_is_on_machines_that_have_all_its_labels() -> None:
    assert here("west-1", {"gpu": "on", "zone": "a", "other": "x"}) == ["everywhere", "gpu"]


@pytest.mark.parametrize(
    "labels", [{}, {"gpu": "on"}, {"gpu": "off", "zone": "a"}, {"gpu": "On", "zone": "a"}, {"GPU": "on"}]
)
def test_a_missing_or_another_value_is_no_match(labels: dict[str, str]) -> None:
    assert here("west-1", labels) == ["everywhere"]


def test_a_name_and_a_selector_must_both_fit() -> None:
    assert here("east-7", {"gpu": "on"}) == ["everywhere", "east"]
    assert here("east-7", {}) == ["everywhere"]


def test_as_long_as_nobody_knows_the_labels_resources_with_a_selector_wait() -> None:
    assert here("east-7", None) == ["everywhere"]
    assert names(placement_of(TWO, "east-7", None).waiting) == ["gpu", "east"]


@pytest.mark.parametrize(
    ("labels", "elsewhere"), [(None, ["east"]), ({}, ["gpu", "east"]), ({"gpu": "on", "zone": "a"}, ["east"])]
)
def test_as_long_as_nobody_knows_the_labels_only_the_name_says_that_a_resource_is_elsewhere(
    labels: dict[str, str] | None, elsewhere: list[str]
) -> None:
    assert names(placement_of(TWO, "west-1", labels).elsewhere) == elsewhere


@pytest.mark.parametrize(
    ("node_name", "elsewhere"),
    [("east-7", []), ("west-7", ["east"]), ("far-east-7", ["east"]), ("East-7", ["east"])],
)
def test_a_name_is_matched_as_a_whole_and_in_its_case(node_name: str, elsewhere: list[str]) -> None:
    assert names(placement_of(TWO, node_name, None).elsewhere) == elsewhere


LABELS = st.none() | st.dictionaries(st.sampled_from(["gpu", "zone"]), st.sampled_from(["on", "a"]))


@given(st.sampled_from(["west-1", "east-7"]), LABELS)
def test_a_resource_is_here_or_elsewhere_or_waits_and_only_for_labels_that_nobody_knows(
    node_name: str, labels: dict[str, str] | None
) -> None:
    placement = placement_of(TWO, node_name, labels)
    parts = [*placement.here, *placement.elsewhere, *placement.waiting]
    assert sorted(names(parts)) == sorted(names(list(TWO.resources)))
    assert all(resource.node_selector for resource in placement.waiting)
    assert labels is None or not placement.waiting


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gpu-sharing", "on"),
        ("nvidia.com/gpu.product", "NVIDIA-L4"),
        ("node-role.kubernetes.io/worker", ""),
        ("a", "A_b.c-D"),
        ("x" * 63, "1" * 63),
        (f"{'a' * 200}.{'b' * 52}/x", "x"),
    ],
)
def test_what_kubernetes_takes_as_a_label_is_taken(key: str, value: str) -> None:
    assert list(selector_faults({key: value})) == []


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("", '"" is not the name of a label'),
        ("-a", '"-a" is not the name of a label'),
        ("a.", '"a." is not the name of a label'),
        ("x" * 64, "write 1 to 63 letters"),
        ("example.com/", '"" is not the name of a label'),
        ("gpu model", '"gpu model" is not the name of a label'),
        ("/gpu", '"" cannot stand before the /'),
        ("Example.com/gpu", '"Example.com" cannot stand before the /'),
        ("a/b/c", '"a/b" cannot stand before the /'),
        ("a..b/c", '"a..b" cannot stand before the /'),
        (f"{'a' * 254}/c", "at most 253"),
        ("gpu\n", "is not the name of a label"),
    ],
)
def test_a_key_that_no_label_has_is_named_with_what_to_write(key: str, part: str) -> None:
    ((where, fault),) = selector_faults({key: "x"})
    assert where == key
    assert part in fault


@pytest.mark.parametrize("value", ["NVIDIA *", "*L4*", " on", "on ", "-", "a/b", "x" * 64, "on\n", "é"])
def test_a_value_that_no_label_has_is_named_with_what_to_write(value: str) -> None:
    ((where, fault),) = selector_faults({"gpu": value})
    assert where == "gpu"
    assert "is not a value that a label can have, and no glob" in fault


def test_every_wrong_label_is_told_at_once() -> None:
    assert [key for key, _ in selector_faults({"a b": "c d", "ok": "ok", "-": "x"})] == ["a b", "a b", "-"]


@given(value=st.text(string.ascii_letters[:3] + string.digits[:2] + "-_. /*", max_size=66))
@example("a" * 63)
@example("a" * 64)
def test_values_are_judged_as_kubernetes_judges_them(value: str) -> None:
    # The expression of apimachinery's IsValidLabelValue, which the anchors make whole there.
    is_valid = len(value) <= 63 and re.fullmatch("(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", value)
    assert (not list(selector_faults({"k": value}))) == bool(is_valid)
