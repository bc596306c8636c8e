"""Promises that hold for every file, read from the code: tasks, imports, waiting, patching, comments."""

from __future__ import annotations

import ast
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import devplug

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTS = Path(__file__).parent
SOURCE = Path(devplug.__file__).parent
OURS = sorted(SOURCE.rglob("*.py"))
ALL = [
    *OURS,
    *sorted(TESTS.rglob("*.py")),
    *sorted((TESTS.parent / "bench").glob("*.py")),
    *sorted((TESTS.parent / "lab").glob("*.py")),
    *sorted((TESTS.parent / "supply").glob("*.py")),
    *sorted((TESTS.parent / "torture").rglob("*.py")),
]

HOMES = {
    "grpc": ("devplug.wire.grpciosetup",),
    "google.protobuf": (),
    "hpack": ("devplug.wire.http2.blocks",),
    "yaml": ("devplug.daemon.grammar.document", "devplug.kubelet.manifests"),
    "h11": ("devplug.web.",),
    "lightkube": ("devplug.apiserver.",),
    "msgspec": ("devplug.daemon.", "devplug.status.text"),
    "click": ("devplug.cli.",),
    "rich": ("devplug.cli.",),
    "signal": ("devplug.cli.", "devplug.daemon.commands", "devplug.plugin.serving"),
}
"""Who may import what: a module, or all of a package (with the dot at its end)."""


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """All trees together take 200 MB, which no other test needs."""
    yield
    parsed.cache_clear()


def trees(files: list[Path]) -> Iterator[tuple[Path, ast.Module]]:
    for file in files:
        yield file, parsed(file)


def places(files: list[Path], broken: Callable[[ast.AST, ast.Module], bool]) -> list[str]:
    return [
        f"{file}:{getattr(node, 'lineno', 0)}"
        for file, tree in trees(files)
        for node in ast.walk(tree)
        if broken(node, tree)
    ]


@cache
def comments_in(file: Path) -> tuple[tuple[str, str], ...]:
    with file.open("rb") as text:
        return tuple(
            (f"{file}:{token.start[0]}", token.string)
            for token in tokenize.tokenize(text.readline)
            if token.type == tokenize.COMMENT
        )


def comments(files: list[Path]) -> Iterator[tuple[str, str]]:
    for file in files:
        yield from comments_in(file)


def last_name(node: ast.AST | None) -> str:
    """`c` of `a.b.c`, of `a.b.c()` and of the text "a.b.c"."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.Call(func=called):
            return last_name(called)
        case ast.Constant(value=str(text)):
            return text.rpartition(".")[2]
    return ""


def first_name(node: ast.AST) -> str:
    """`a` of `a.b.c` and of the text "a.b.c"."""
    match node:
        case ast.Attribute(value=value):
            return first_name(value)
        case ast.Name(id=name):
            return name
        case ast.Constant(value=str(text)):
            return text.partition(".")[0]
    return ""


def task_groups(tree: ast.Module) -> set[str]:
    """The names that hold a TaskGroup in this file: made, annotated so, or assigned from such a name."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.withitem(context_expr=ast.Call() as made, optional_vars=ast.expr() as target):
                names |= {last_name(target)} if last_name(made) == "TaskGroup" else set()
            case ast.arg(annotation=ast.expr() as annotation) if "TaskGroup" in ast.unparse(annotation):
                names.add(node.arg)
            case ast.AnnAssign(target=target, annotation=annotation) if "TaskGroup" in ast.unparse(
                annotation
            ):
                names.add(last_name(target))
            case ast.Assign(targets=[target], value=value) if "TaskGroup()" in ast.unparse(value):
                names.add(last_name(target))
    passed_on = {
        last_name(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in names
    }
    return names | passed_on


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield node.lineno, module
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in names)


def test_every_task_belongs_to_a_task_group() -> None:
    def broken(node: ast.AST, tree: ast.Module) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(attr="create_task", value=owner)):
                return last_name(owner) not in task_groups(tree)
            case ast.Call(func=ast.Name("create_task")):
                return True
        return False

    assert places(ALL, broken) == []


@pytest.mark.parametrize("name", ["gather", "ensure_future", "add_done_callback", "run_until_complete"])
def test_nothing_goes_around_the_task_groups(name: str) -> None:
    assert places(ALL, lambda node, _: isinstance(node, ast.Call) and last_name(node) == name) == []


PLUGINS = {TESTS / "conformance" / "right.py", *(TESTS / "conformance" / "mutants").glob("*.py")}
"""Programs that the judge starts, and that poll as plugins in the field do."""


def test_tests_never_sleep() -> None:
    def broken(node: ast.AST, _: ast.Module) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(0)]):
                return False
            case ast.Call(func=ast.Attribute(attr="sleep", value=ast.Name("time" | "asyncio"))):
                return True
        return False

    assert places([file for file in sorted(TESTS.rglob("*.py")) if file not in PLUGINS], broken) == []


def test_tests_patch_nothing_of_ours() -> None:
    def broken(node: ast.AST, tree: ast.Module) -> bool:
        match node:
            case ast.Import() | ast.ImportFrom():
                return any(
                    name.startswith(("unittest.mock", "mock")) for _, name in imported(ast.Module([node], []))
                )
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[target, *_]):
                ours = {name.rpartition(".")[2] for _, name in imported(tree) if name.startswith("devplug")}
                return first_name(target) in ours | {"devplug"}
        return False

    assert places(sorted(TESTS.rglob("*.py")), broken) == []


@pytest.mark.parametrize("library", HOMES)
def test_libraries_are_imported_in_their_home_only(library: str) -> None:
    strangers = []
    for file, tree in trees(OURS):
        module = ".".join(("devplug", *file.relative_to(SOURCE).with_suffix("").parts))
        for line, name in imported(tree):
            if f"{name}.".startswith(f"{library}.") and not module.startswith(HOMES[library]):
                strangers.append(f"{file}:{line}")
    assert strangers == []


def test_each_type_ignore_names_its_code() -> None:
    pattern = re.compile(r"type:\s*ignore(?!\[[a-z-]+(, ?[a-z-]+)*\])")
    assert [place for place, text in comments(ALL) if pattern.search(text)] == []


def test_no_comment_leaves_work_undone() -> None:
    words = re.compile("TO" r"DO|FIX" r"ME|XX" r"X\b|HA" r"CK\b")
    assert [place for place, text in comments(ALL) if words.search(text)] == []


def test_no_file_knows_where_it_was_written() -> None:
    checkout = str(TESTS.parent)
    home = re.compile(r"/(home|Users)/\w+/")
    assert [str(file) for file in ALL if checkout in file.read_text() or home.search(file.read_text())] == []
