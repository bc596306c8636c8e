"""Edits that take a behaviour out of the code, found by names and never by lines.

A place is a function or a class, or for `sets` a name that is assigned or passed, with as much of its dotted
name as is unique in the package. `part` is what the edit looks for there, just once: a name, or an expression
or a statement in any layout; `f(...)` is a call of `f` with any arguments. So code may move within its
function, and a function to another module, and the edit still applies.
"""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import devplug

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SOURCE: Final = Path(devplug.__file__).parent

_Change: TypeAlias = "Callable[[ast.AST], ast.AST | None]"
"""Returns what takes the place of a node, which may be the node itself; None where nothing changes."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change at one place."""

    place: str
    sought: str
    """What is changed there, in words."""
    change: _Change
    new: str = ""
    """The code that comes in. The file must have the names that are used in it."""
    of_definition: bool = True
    """Whether the place is a function or a class, and not a name that is assigned or passed."""


def skip(place: str, part: str) -> Edit:
    """Leave out the statement with this part: a call, a `raise`, an assignment or a `del`."""

    def change(node: ast.AST) -> ast.AST | None:
        is_simple = isinstance(node, ast.Expr | ast.Raise | ast.Assign | ast.Delete)
        return ast.Pass() if is_simple and _has(node, part) else None

    return Edit(place, f"statement with {part}", change)


def never(place: str, part: str) -> Edit:
    """Make the condition with this part false."""
    return _condition(place, part, "False and test")


def always(place: str, part: str) -> Edit:
    """Make the condition with this part true."""
    return _condition(place, part, "True or test")


def _condition(place: str, part: str, new: str) -> Edit:
    def change(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.If | ast.IfExp | ast.While) and _has(node.test, part):
            joined = ast.parse(new, mode="eval").body
            assert isinstance(joined, ast.BoolOp)
            node.test, joined.values[1] = joined, node.test
            return node
        return None

    return Edit(place, f"condition with {part}", change)


def ignore(place: str, part: str) -> Edit:
    """Leave out the operands of an `and` or `or`, or the filters of a comprehension, that have this part."""

    def change(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.BoolOp(values=operands) | ast.comprehension(ifs=operands):
                kept = [operand for operand in operands if not _has(operand, part)]
                if len(kept) < len(operands):
                    operands[:] = kept
                    return kept[0] if isinstance(node, ast.BoolOp) and len(kept) == 1 else node
        return None

    return Edit(place, f"operand or filter with {part}", change)


def swap(place: str, part: str, new: str) -> Edit:
    """Put other code in the place of a name, an expression or a statement."""
    return Edit(place, part, lambda node: _parsed(new) if _is(node, part) else None, new)


def returns(place: str, new: str) -> Edit:
    """Make a function return this at once."""

    def change(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and f".{place}".endswith(f".{node.name}"):
            node.body = ast.parse(f"return {new}").body
            return node
        return None

    return Edit(place, "function", change, new)


def sets(place: str, new: str) -> Edit:
    """Give another value to a constant, to a variable or field, or to an argument that is passed by name."""

    def change(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.keyword):
            node.value = ast.parse(new, mode="eval").body
            return node
        return None

    return Edit(place, "value", change, new, of_definition=False)


def mutated(edits: Iterable[Edit], source: Path = SOURCE) -> dict[Path, str]:
    """Return the new text of the files of a package that these edits change.

    Raises `LookupError` if the place of an edit, or what it changes there, is missing or is there twice.
    """
    trees: dict[Path, ast.Module] = {}
    for edit in edits:
        file = _file_of(edit, source)
        if file not in trees:
            trees[file] = ast.parse(file.read_text())
        tree = trees[file]
        if edit.new and (unknown := _names(ast.parse(edit.new)) - _names(tree) - set(dir(builtins))):
            raise LookupError(f"{edit.new!r}: {file} has no {', '.join(sorted(unknown))}")
        (node,) = (
            node
            for name, node in _places(tree, edit.of_definition)
            if _ends(_dotted(file, source, name), edit.place)
        )
        changer = _Changer(edit.change)
        changer.visit(node)
        if changer.count != 1:
            raise LookupError(
                f"{edit.place} in {file} must have one {edit.sought}, and has {changer.count or 'none'}"
            )
    return {file: ast.unparse(ast.fix_missing_locations(tree)) for file, tree in trees.items()}


class _Changer(ast.NodeTransformer):
    """A change of a node and of what is in it, and how often it was made."""

    def __init__(self, change: _Change) -> None:
        self._change = change
        self.count = 0

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        new = self._change(node)
        self.count += new is not None
        return new or node


# ── places ──


def _file_of(edit: Edit, source: Path) -> Path:
    last = edit.place.rpartition(".")[2]
    marks = (
        (f"def {last}(", f"class {last}") if edit.of_definition else (f"{last} =", f"{last}: ", f"{last}=")
    )
    found = {
        dotted: file
        for file, text in _texts(source).items()
        if any(mark in text for mark in marks)
        for name in _names_of_places(text, edit.of_definition)
        if _ends(dotted := _dotted(file, source, name), edit.place)
    }
    if len(found) != 1:
        kind = "function or class" if edit.of_definition else "assigned name"
        raise LookupError(f"{source} must have one {kind} {edit.place}, and has {', '.join(found) or 'none'}")
    return found.popitem()[1]


@cache
def _names_of_places(text: str, of_definition: bool) -> list[str]:  # noqa: FBT001
    return [name for name, _ in _places(ast.parse(text), of_definition)]


def _places(tree: ast.AST, of_definition: bool, scope: str = "") -> Iterator[tuple[str, ast.AST]]:  # noqa: FBT001
    """Yield the definitions, or else the assigned and passed names, each with its name from the module on."""
    for child in ast.iter_child_nodes(tree):
        inner = scope
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                inner = f"{scope}.{name}"
                if of_definition:
                    yield inner, child
            case (
                ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)])
                | ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), value=ast.expr())
                | ast.keyword(arg=str(name))
            ) if not of_definition:
                yield f"{scope}.{name}", child
        if not (of_definition and isinstance(child, ast.expr)):
            yield from _places(child, of_definition, inner)


@cache
def _texts(source: Path) -> dict[Path, str]:
    return {file: file.read_text() for file in source.rglob("*.py")}


def _dotted(file: Path, source: Path, name: str) -> str:
    return ".".join(file.relative_to(source.parent).with_suffix("").parts) + name


def _ends(dotted: str, place: str) -> bool:
    return dotted.endswith(f".{place}")


# ── nodes ──


def _has(node: ast.AST, part: str) -> bool:
    return any(_is(one, part) for one in ast.walk(node))


def _is(node: ast.AST, part: str) -> bool:
    match _pattern(part), node:
        case ast.Name(id=name), ast.Name(id=found) | ast.Attribute(attr=found):
            return name == found
        case ast.Call(func=called, args=[ast.Constant(value=builtins.Ellipsis)]), ast.Call(func=function):
            return _is(function, ast.unparse(called))
        case wanted, _:
            return type(wanted) is type(node) and _shape(wanted) == _shape(node)


def _shape(node: ast.AST) -> str:
    return re.sub(r"ctx=\w+\(\)", "", ast.dump(node))


def _parsed(text: str) -> ast.AST:
    """Return a new tree of an expression or a statement."""
    (statement,) = ast.parse(text).body
    return statement.value if isinstance(statement, ast.Expr) else statement


_pattern = cache(_parsed)


def _names(tree: ast.AST) -> set[str]:
    """Return the names that this code uses, takes or imports."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.alias(asname=str(name)) | ast.alias(name=name):
                names.add(name)
    return names
