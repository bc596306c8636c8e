"""Every fact about Dynamic Resource Allocation has a test that names it in its docstring: D01 to D99."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]

FACTS = {f"D{number:02}" for number in range(1, 100)}
NUMBER = re.compile(r"\bD\d{2,3}\b")

REASONS = {
    "D02": "it names a package of Kubernetes; what that can do are D86 and D90, and what it cannot D49",
    "D52": "how a driver names its slices is the driver's choice; that their order counts is D74",
    "D97": "what the DaemonSet of a driver needs is a practice of others' charts, and no rule of Kubernetes",
    "D98": "the container runtime reads the CDI files of a driver, and the sandbox has no runtime",
}
"""Fact → why no test has to show it."""


def named() -> set[str]:
    """Return the facts that stand in the docstrings of test functions."""
    found: set[str] = set()
    for file in TESTS.rglob("test_*.py"):
        source = file.read_text()
        if file != Path(__file__) and NUMBER.search(source):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                    found.update(NUMBER.findall(ast.get_docstring(node) or ""))
    return found


def test_every_fact_has_a_test_that_names_it_or_a_reason() -> None:
    found = named()
    assert sorted(FACTS - found - REASONS.keys()) == []
    assert sorted(found - FACTS - {"D100"}) == []


def test_reasons_are_few_and_written_out() -> None:
    assert len(REASONS) <= 8
    assert FACTS.issuperset(REASONS)
    assert all(len(reason.split()) > 5 for reason in REASONS.values())
