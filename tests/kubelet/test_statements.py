"""Every statement about the real kubelet has a test here that names it: C01 to C98 of the reference."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__)

STATEMENTS = {f"C{number:02}" for number in range(1, 99)}
NOT_THE_KUBELETS = {"C99", "C100", "C101", "C102"}
"""On scheduler, validation and quota: a test may name them, and none has to."""

REASONS: dict[str, str] = {}
"""Statement → why no test can show it. Five at most: more, and the emulator would lack something."""


def named(source: str) -> set[str]:
    """Return the statements that stand in the docstrings of test functions."""
    return {number for docstring in docstrings(ast.parse(source)) for number in numbers(docstring)}


def docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield ast.get_docstring(node) or ""


def numbers(text: str) -> list[str]:
    return re.findall(r"\bC\d{2,3}\b", text)


def test_every_statement_has_a_test_that_names_it() -> None:
    files = [file for file in sorted(HERE.parent.glob("test_*.py")) if file != HERE]
    found = set().union(*(named(file.read_text()) for file in files))
    assert sorted(STATEMENTS - found - REASONS.keys()) == []
    assert sorted(found - STATEMENTS - NOT_THE_KUBELETS) == []
    assert sorted(found & REASONS.keys()) == []


def test_reasons_are_few_and_written_out() -> None:
    assert len(REASONS) <= 5
    assert STATEMENTS.issuperset(REASONS)
    assert all(len(reason.split()) > 5 for reason in REASONS.values())


def test_only_docstrings_of_tests_count() -> None:
    source = (
        '"""C01."""\ndef helper():\n    """C02."""\ndef test_x():\n    """C03, C100."""\n    "C04"  # C05\n'
    )
    assert named(source) == {"C03", "C100"}
