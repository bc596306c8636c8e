"""Promises that hold for every file, read from the code: tasks, imports, waiting, patching, comments."""

from __future__ import annotations

import ast
import gc
import re
import tokenize
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Final, TypeAlias

import pytest

import devplug

TESTS = Path(__file__).parent
SOURCE = Path(devplug.__file__).parent
OURS = sorted(SOURCE.rglob("*.py"))
OF_TESTS = sorted(TESTS.rglob("*.py"))
ALL = [
    *OURS,
    *OF_TESTS,
    *sorted((TESTS.parent / "bench").glob("*.py")),
    *sorted((TESTS.parent / "lab").glob("*.py")),
    *sorted((TESTS.parent / "supply").glob("*.py")),
    *sorted((TESTS.parent / "torture").rglob("*.py")),
]

HOMES = {
    "cel_expr_python": ("devplug.dra.",),
    "grpc": ("devplug.wire.",),
    "google.protobuf": (),
    "hpack": ("devplug.wire.http2.",),
    "yaml": ("devplug.daemon.config.", "devplug.k8s.", "devplug.kubelet."),
    "h11": ("devplug.web.",),
    "click": ("devplug.cli.",),
    "rich": ("devplug.cli.",),
    "signal": ("devplug.cli.", "devplug.daemon.", "devplug.linux."),
}
"""The packages that may import a library."""


DAEMON = (
    *("cdi/", "cli/run_options.py", "daemon/", "driver/", "holds/", "k8s/account.py", "k8s/calls.py"),
    *(
        "k8s/client.py",
        "k8s/credentials.py",
        "k8s/kubeconfig.py",
        "k8s/quantity.py",
        "linux/",
        "metrics/",
        "plugin/",
        "status.py",
        "web/",
        "wire/",
    ),
)
"""What `devplug run` may load, whose values are Structs."""

LOADED_BY_OTHERS = ("daemon/importers/", "daemon/inspection/", "wire/grpcio.py")
"""What of these only other commands and the tests load."""

EITHER = ("dra/", "daemon/config/templates.py")
"""`dra` is for both; a Struct among the values of the file would be read as one of its maps."""


JUDGED = TESTS / "conformance"
PLUGINS = {
    JUDGED / "right.py",
    JUDGED / "dra" / "right_driver.py",
    JUDGED / "dra" / "unusual_drivers.py",
    *JUDGED.glob("mutants/*.py"),
    *JUDGED.glob("dra/mutants/*.py"),
}
"""What the judge starts, and polls as plugins and drivers in the field do."""


@dataclass(frozen=True)
class Module:
    """One file, read once: its text, and of its tree the nodes that a promise is about."""

    file: Path
    text: str
    nodes: list[ast.AST]

    @classmethod
    @cache
    def of(cls, file: Path) -> Module:
        text = file.read_text()
        told_of = ast.AnnAssign | ast.Assign | ast.Call | ast.Import | ast.ImportFrom | ast.arg | ast.withitem
        return cls(file, text, [node for node in ast.walk(ast.parse(text)) if isinstance(node, told_of)])

    def imported(self) -> Iterator[tuple[int, str]]:
        for node in self.nodes:
            match node:
                case ast.Import(names=names):
                    yield from ((node.lineno, alias.name) for alias in names)
                case ast.ImportFrom(module=str(module), names=names, level=0):
                    yield node.lineno, module
                    yield from ((node.lineno, f"{module}.{alias.name}") for alias in names)

    def comments(self, pattern: re.Pattern[str]) -> Iterator[int]:
        """Yield the lines whose comment has this in it; a file that has it nowhere has it in no comment."""
        if pattern.search(self.text):
            for token in tokenize.generate_tokens(StringIO(self.text).readline):
                if token.type == tokenize.COMMENT and pattern.search(token.string):
                    yield token.start[0]


Promise: TypeAlias = "Callable[[Module], Iterator[int]]"
"""Yields the lines of a file where it is not kept."""

PROMISES: dict[str, tuple[Collection[Path], Promise]] = {}


def promised(files: Collection[Path]) -> Callable[[Promise], None]:
    """Keep a promise under its name, with the files that it is about."""

    def keep(promise: Promise) -> None:
        PROMISES[promise.__name__] = frozenset(files), promise

    return keep


@pytest.fixture(scope="module")
def broken() -> Iterator[Mapping[str, list[str]]]:
    """Where each promise is broken, from one reading of each file."""
    places: dict[str, list[str]] = {name: [] for name in PROMISES}
    gc.disable()  # a tree has no cycles, and to look for some takes longer than all the rest
    try:
        for file in ALL:
            module = Module.of(file)
            for name, (files, promise) in PROMISES.items():
                if file in files:
                    places[name] += [f"{file}:{line}" for line in promise(module)]
    finally:
        gc.enable()
    yield places
    Module.of.cache_clear()  # or the collections at the end of the tests go through all trees: 13 s


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


def task_groups(module: Module) -> set[str]:
    """The names that hold a TaskGroup in this file: made, annotated so, or assigned from such a name."""
    names: set[str] = set()
    for node in module.nodes:
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
        for node in module.nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in names
    }
    return names | passed_on


@promised(ALL)
def every_task_belongs_to_a_task_group(module: Module) -> Iterator[int]:
    groups = task_groups(module) if "create_task" in module.text else set()
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr="create_task", value=owner)):
                if last_name(owner) not in groups:
                    yield node.lineno
            case ast.Call(func=ast.Name("create_task")):
                yield node.lineno


@promised(ALL)
def nothing_goes_around_the_task_groups(module: Module) -> Iterator[int]:
    ways = {"gather", "ensure_future", "add_done_callback", "run_until_complete"}
    for node in module.nodes:
        if isinstance(node, ast.Call) and last_name(node) in ways:
            yield node.lineno


@promised({*OF_TESTS} - PLUGINS)
def tests_never_sleep(module: Module) -> Iterator[int]:
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(0)]):
                continue
            case ast.Call(func=ast.Attribute(attr="sleep", value=ast.Name("time" | "asyncio"))):
                yield node.lineno


@promised(OF_TESTS)
def tests_patch_nothing_of_ours(module: Module) -> Iterator[int]:
    imported = [*module.imported()]
    yield from (line for line, name in imported if name.startswith(("unittest.mock", "mock")))
    ours = {"devplug", *(name.rpartition(".")[2] for _, name in imported if name.startswith("devplug"))}
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[target, *_]):
                if first_name(target) in ours:
                    yield node.lineno


IMPURE: Final = frozenset(
    {
        *(
            "asyncio",
            "concurrent",
            "ctypes",
            "fcntl",
            "glob",
            "google",
            "grpc",
            "logging",
            "multiprocessing",
            "os",
        ),
        *("pathlib", "random", "resource", "secrets", "select", "selectors", "shutil", "signal", "socket"),
        *("sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "uuid"),
    }
)
"""The libraries that no pure module reaches. `datetime` is allowed: a moment is a value."""

NO_IO: Final = {"os.fspath"}
"""What of `os` only turns values into values."""


def is_pure(file: Path) -> bool:
    """Whether "Pure." is in the docstring of the module, or of a package that it is in."""
    packages = (folder / "__init__.py" for folder in file.parents if SOURCE in folder.parents)
    docstrings = (re.match(r'"""(.*?)"""', text.read_text(), re.DOTALL) for text in (file, *packages))
    return any(re.search(r"\bPure\.", docstring[1]) for docstring in docstrings if docstring)


PURE = frozenset(filter(is_pure, OURS))


@promised(PURE)
def values_and_rules_ask_neither_system_nor_clock(module: Module) -> Iterator[int]:
    for node in module.nodes:
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "open" or called.endswith((".now", ".utcnow", ".today")):
                yield node.lineno
            if (of_os := re.match(r"os\.[\w.]+", called)) and of_os[0] not in NO_IO and "(" not in called:
                yield node.lineno


def name_of(file: Path) -> str:
    return ".".join(("devplug", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def lies_in(file: Path, *places: str) -> bool:
    return str(file.relative_to(SOURCE)).startswith(places)


@promised(OURS)
def values_of_the_daemon_are_structs_and_all_others_dataclasses(module: Module) -> Iterator[int]:
    if lies_in(module.file, *EITHER):
        return
    has_structs = lies_in(module.file, *DAEMON) and not lies_in(module.file, *LOADED_BY_OTHERS)
    other_kind = r"@dataclass\(" if has_structs else r"class \w+\((msgspec\.)?Struct\b"
    for number, line in enumerate(module.text.splitlines(), 1):
        if re.match(rf" *{other_kind}.*frozen=True", line):
            yield number


@promised(OURS)
def libraries_are_imported_in_their_home_only(module: Module) -> Iterator[int]:
    own_name = name_of(module.file)
    for line, name in module.imported():
        for library, homes in HOMES.items():
            if f"{name}.".startswith(f"{library}.") and not own_name.startswith(homes):
                yield line


@promised(ALL)
def each_type_ignore_names_its_code(module: Module) -> Iterator[int]:
    return module.comments(re.compile(r"type:\s*ignore(?!\[[a-z-]+(, ?[a-z-]+)*\])"))


@promised(ALL)
def no_comment_leaves_work_undone(module: Module) -> Iterator[int]:
    return module.comments(re.compile("TO" r"DO|FIX" r"ME|XX" r"X\b|HA" r"CK\b"))


@promised(ALL)
def no_file_knows_where_it_was_written(module: Module) -> Iterator[int]:
    if str(TESTS.parent) in module.text or re.search(r"/(home|Users)/\w+/", module.text):
        yield 1


def test_pure_modules_reach_no_impure_library() -> None:
    """Not through other modules either, but `devices` has `os.PathLike` and `os.fspath`, which are values."""
    files = {name_of(file): file for file in OURS}

    @cache
    def imported_by(name: str) -> set[str]:
        found = {target for _, target in Module.of(files[name]).imported()}
        modules = found & files.keys()
        # Of `from package import module`, the module alone is meant.
        packages = {target.rpartition(".")[0] for target in modules}
        return modules - packages | {target.partition(".")[0] for target in found} & IMPURE

    broken = []
    for start in map(name_of, PURE):
        ways = {start: start}
        waiting = [start]
        while waiting:
            name = waiting.pop()
            for target in imported_by(name) - ways.keys():
                ways[target] = f"{ways[name]} -> {target}"
                if target in files:
                    waiting.append(target)
                elif (name, target) != ("devplug.devices", "os"):
                    broken.append(ways[target])
    assert broken == []


@pytest.mark.parametrize("name", PROMISES)
def test_every_file_keeps_a_promise(name: str, broken: Mapping[str, list[str]]) -> None:
    assert broken[name] == []
