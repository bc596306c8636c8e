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

import pytest

import devplug

ROOT = Path(devplug.__file__).parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages([str(ROOT)], "devplug.")
    if not module.name.endswith("__main__")
)

HEAVY = ("grpc", "google.protobuf", "yaml", "click", "rich", "msgspec")


def tree_of(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text())


@cache
def face_of(module: str) -> list[str] | None:
    """The `__all__` of a module, read without importing it."""
    for node in tree_of(module).body:
        match node:
            case ast.Assign(targets=[ast.Name("__all__")], value=value):
                names = ast.literal_eval(value)
                assert isinstance(names, list)
                return names
    return None


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


@pytest.mark.parametrize("module", MODULES)
def test_all_names_exist_and_stand_in_order(module: str) -> None:
    names = face_of(module) or []
    loaded = importlib.import_module(module)
    assert [name for name in names if not hasattr(loaded, name)] == []
    assert names == sorted(set(names), key=kind_then_name)


def is_registration(decorator: ast.expr) -> bool:
    """Whether a function is reached by its check's ID, and so by no name."""
    return (
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "check"
    )


@pytest.mark.parametrize("module", MODULES)
def test_all_lacks_no_public_class_or_function(module: str) -> None:
    defined = {
        node.name
        for node in tree_of(module).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not any(is_registration(one) for one in node.decorator_list)
    }
    face = face_of(module)
    assert face is None or defined - set(face) == set()


def is_public(module: str, name: str) -> bool:
    """Whether other modules may import a name; a module that no user imports may have no `__all__`."""
    face = face_of(module)
    return not name.startswith("_") if face is None else name in face


@pytest.mark.parametrize("module", MODULES)
def test_modules_take_only_public_names_from_each_other(module: str) -> None:
    private = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("devplug.")
        for alias in node.names
        if f"{node.module}.{alias.name}" not in MODULES and not is_public(node.module or "", alias.name)
    ]
    assert private == []


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
