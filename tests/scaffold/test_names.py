"""Which names a project may have, and what is said of others."""

from __future__ import annotations

import keyword
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.devices import resource_name_fault
from devplug.scaffold.project import NAME_LIMIT, Project, project_faults


def faults_of(name: str) -> tuple[str, ...]:
    return project_faults(Project(name, "example.com/a"))


@pytest.mark.parametrize("name", ["a", "fpga", "my-fpga", "x2-y3-z", "a" * NAME_LIMIT])
def test_a_plain_name_will_do(name: str) -> None:
    assert faults_of(name) == ()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("my_fpga", "my-fpga"),
        ("My FPGA", "my-fpga"),
        ("my--fpga-", "my-fpga"),
        ("../fpga", "fpga"),
        ("3d-printer", "d-printer"),
        ("class", "class-plugin"),
        ("json", "json-plugin"),
        ("devplug", "devplug-plugin"),
        ("tests", "tests-plugin"),
    ],
)
def test_the_refusal_of_a_name_names_a_better_one(name: str, advice: str) -> None:
    (fault,) = faults_of(name)
    assert fault.endswith(f'"{advice}"')
    assert faults_of(advice) == ()


@pytest.mark.parametrize("name", ["", "-", "12", "é"])
def test_the_refusal_of_a_name_without_anything_to_keep_says_the_rule(name: str) -> None:
    (fault,) = faults_of(name)
    assert fault.endswith("a letter first")


def test_a_name_that_fits_into_no_label_is_refused() -> None:
    (fault,) = faults_of("a" * (NAME_LIMIT + 1))
    assert "at most 63" in fault


def test_every_fault_of_both_names_is_told() -> None:
    first, second = project_faults(Project("My", "kubernetes.io/my"))
    assert first.startswith('name "My" must be')
    assert second.startswith('resource name "kubernetes.io/my" contains')


@given(st.text(max_size=70) | st.from_regex(r"[a-z0-9_-]{1,70}", fullmatch=True))
def test_a_name_without_a_fault_is_good_for_all_that_it_names(name: str) -> None:
    if faults_of(name):
        return
    package = Project(name, "example.com/a").package
    assert package.isidentifier()
    assert not keyword.iskeyword(package)
    assert package not in sys.stdlib_module_names
    assert resource_name_fault(f"example.com/{name}") is None
