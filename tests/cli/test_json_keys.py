"""The keys of JSON and YAML output, in all commands."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import devplug

SRC = Path(devplug.__file__).parent
WRITERS = [
    *(path for path in (SRC / "cli").rglob("*.py") if path.name != "manifests.py"),  # Kubernetes objects
    *(SRC / "monitor").rglob("*.py"),
    *(SRC / "conformance").rglob("*report*.py"),
    SRC / "sandbox" / "nodes" / "description.py",
    SRC / "status.py",
]


def test_every_key_is_in_snake_case() -> None:
    keys = {
        key.value
        for path in WRITERS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    assert len(keys) > 100
    assert {key for key in keys if re.fullmatch(r"[a-z]+([A-Z]\w*|-\w+)", key)} <= {
        # Names of Kubernetes, as values of strategies and of an Event's object.
        "least-allocated",
        "most-allocated",
        "requested-to-capacity-ratio",
    }
