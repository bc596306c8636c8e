"""The words of file names and messages: the field's own, and none that only this tree would know."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import devplug

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = Path(devplug.__file__).parent
OURS: Final = sorted(SOURCE.rglob("*.py"))
PARTS: Final = ("bench", "lab", "torture")
FILES: Final = [*OURS, *(file for part in PARTS for file in (ROOT / part).rglob("*.py"))]

NOUNS: Final = {"advertising", "claim_binding", "scheduling", "serving", "settings", "warnings"}
"""What ends as a verb's form does, and is a noun of the field or of Python."""

VERB_FORM: Final = re.compile(
    r"(?:^|_)\w+?(?:ing|ings)$|^(?:found|held|kept|looked|made|served|told|watched)$"
)

BANNED: Final = (
    *(
        "answerer",
        "bustle",
        "contest",
        "custody",
        "farewell",
        "gadget",
        "grounds",
        "hurry",
        "plenty",
        "shelf",
    ),
    *("shelves", "stake", "stranger", "strangers", "surroundings", "tally", "twin", "untold", "vouch"),
    "wrongs",
)
"""Words that files, classes or messages of ours once had for what the field has a word for."""


def test_files_are_called_by_nouns() -> None:
    assert [file for file in FILES if file.stem not in NOUNS and VERB_FORM.search(file.stem)] == []
    assert [file for file in FILES if set(file.stem.split("_")) & set(BANNED)] == []


def messages(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the texts of a module that are no docstrings."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node


def suspects() -> Iterator[tuple[Path, ast.Module]]:
    """Yield the modules that have a banned word anywhere, as text, with their trees."""
    word = re.compile("|".join(BANNED), re.IGNORECASE)
    for file in OURS:
        text = file.read_text()
        if word.search(text):
            yield file, ast.parse(text)


def test_no_message_has_a_private_word() -> None:
    word = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
    found = [
        f"{file.relative_to(SOURCE)}:{text.lineno}: {text.value!r}"
        for file, tree in suspects()
        for text in messages(tree)
        if word.search(str(text.value))
    ]
    assert found == []


def test_no_class_or_function_has_a_private_word() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{node.lineno}: {node.name}"
        for file, tree in suspects()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if {one.lower() for one in re.findall(r"[A-Z]?[a-z]+", node.name)} & set(BANNED)
    ]
    assert found == []
