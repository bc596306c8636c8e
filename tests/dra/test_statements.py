"""Every fact about allocation and scheduling has a test here that names it in its docstring: D67 to D92."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__)

FACTS = {f"D{number}" for number in range(67, 93)}


def test_every_fact_has_a_test_that_names_it() -> None:
    found: set[str] = set()
    for file in HERE.parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if file != HERE and isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.update(re.findall(r"\bD\d{2,3}", ast.get_docstring(node) or ""))
    assert sorted(FACTS - found) == []
