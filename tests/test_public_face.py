"""The public face: what may be imported from where, and what an import costs."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import pytest

import devplug

ROOT = Path(devplug.__file__).parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages([str(ROOT)], "devplug.")
    if not module.name.endswith("__main__")
)

HEAVY = ("grpc", "google.protobuf", "yaml", "click", "rich", "msgspec")


class Module(NamedTuple):
    """What the tests ask of a module, from one reading without an import."""

    face: list[str] | None
    """Its `__all__`."""
    public: frozenset[str]
    """The classes and functions that are reached by a public name."""
    taken: frozenset[tuple[str, str]]
    """Modules of ours, and the names that this module takes from them."""


@cache
def read(module: str) -> Module:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    face, public, taken = None, set(), set()
    tree = ast.parse(Path(spec.origin).read_text())
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name("__all__")], value=value):
                face = ast.literal_eval(value)
                assert isinstance(face, list)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not name.startswith("_") and not any(map(is_registration, node.decorator_list)):
                    public.add(name)
    for inner in ast.walk(tree):
        match inner:
            case ast.ImportFrom(module=str(of), names=names) if of.startswith("devplug."):
                taken |= {(of, alias.name) for alias in names}
    return Module(face, frozenset(public), frozenset(taken))


def is_registration(decorator: ast.expr) -> bool:
    """Whether a function is reached by its check's ID, and so by no name."""
    return (
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "check"
    )


def kind_then_name(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def test_devplug_exports_exactly_its_eighteen_names() -> None:
    assert devplug.__all__ == [
        "AllocationError",
        "ContainerResponse",
        "Device",
        "DeviceFeed",
        "DeviceNode",
        "DevicePlugin",
        "DevplugError",
        "Health",
        "Mount",
        "Partition",
        "PluginError",
        "Serving",
        "UnhealthyDeviceError",
        "Version",
        "run",
        "serve",
        "stable_id",
        "watch_paths",
    ]


@pytest.mark.parametrize("name", devplug.__all__)
def test_devplug_has_each_name_that_it_exports(name: str) -> None:
    assert getattr(devplug, name).__name__ == name
    assert name in dir(devplug)


def test_devplug_refuses_other_names_as_modules_do() -> None:
    with pytest.raises(AttributeError, match="module 'devplug' has no attribute 'Devices'"):
        _ = devplug.Devices  # type: ignore[attr-defined]  # that is the point


def test_each_module_can_be_imported_and_has_the_names_that_it_exports_in_order() -> None:
    faults = []
    for module in MODULES:
        names = read(module).face or []
        loaded = importlib.import_module(module)
        missing = [name for name in names if not hasattr(loaded, name)]
        if missing or names != sorted(set(names), key=kind_then_name):
            faults.append((module, missing))
    assert faults == []


def test_a_module_exports_each_of_its_public_classes_and_functions() -> None:
    found = {name: read(name) for name in MODULES}
    assert {
        name: lacking
        for name, one in found.items()
        if one.face is not None and (lacking := one.public - set(one.face))
    } == {}


def is_public(module: str, name: str) -> bool:
    """Whether other modules may import a name; only modules that users import have `__all__`."""
    face = read(module).face
    return not name.startswith("_") if face is None else name in face


def test_modules_take_only_public_names_from_each_other() -> None:
    private = {
        (module, f"{of}.{name}")
        for module in MODULES
        for of, name in read(module).taken
        if f"{of}.{name}" not in MODULES and not is_public(of, name)
    }
    assert private == set()


@pytest.mark.parametrize("module", ["devplug", "devplug.errors", "devplug.devices"])
def test_importing_the_values_loads_no_library(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert set(HEAVY) & set(done.stdout.split()) == set()


@pytest.mark.parametrize(
    "file",
    [
        "py.typed",
        "daemon/config/config.schema.json",
        "deploy/chart/templates/_helpers.tpl",
        "deploy/chart/values.yaml",
        "monitor/page/static/page.html",
        "monitor/page/static/page.js",
        "scaffold/templates/daemonset.yaml.in",
        "wire/protos/deviceplugin_v1beta1.proto",
    ],
)
def test_the_package_brings_its_files(file: str) -> None:
    assert resources.files("devplug").joinpath(file).is_file()
