"""The texts of the package's source, to find there what a page quotes; an f-string's holes are `HOLE`."""

from __future__ import annotations

import ast
import functools
from typing import Final

from tests.docs.pages import ROOT

__all__ = ["HOLE", "source_texts"]

HOLE: Final = "\0"


@functools.cache
def source_texts() -> str:
    """Return every text of the package, docstrings left out, one after the other."""
    texts = [
        text
        for path in sorted((ROOT / "src" / "devplug").rglob("*.py"))
        for text in _texts(ast.parse(path.read_text(encoding="utf-8")))
    ]
    return f"{HOLE}\n".join(texts)


def _texts(tree: ast.AST) -> list[str]:
    found: list[str] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.JoinedStr(values=parts):
                found.append(
                    "".join(str(one.value) if isinstance(one, ast.Constant) else HOLE for one in parts)
                )
                continue
            case ast.Constant(value=str(text)):
                found.append(text)
        waiting.extend(ast.iter_child_nodes(node))
    return found
