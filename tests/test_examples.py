"""The examples are real: every file loads, every plugin serves its devices to a kubelet."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import pytest

import devplug
from devplug.daemon.loading import load
from devplug.kubelet.manager import Kubelet

EXAMPLES = Path(__file__).parent.parent / "examples"


def plugin_of(file: str) -> devplug.DevicePlugin:
    """Return the one plugin of an example, made as its last line makes it."""
    spec = importlib.util.spec_from_file_location(f"example_{Path(file).stem}", EXAMPLES / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (plugin_class,) = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, devplug.DevicePlugin)
        and value is not devplug.DevicePlugin
    ]
    return plugin_class()


@pytest.mark.parametrize("file", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_a_configuration_of_the_examples_loads(file: str) -> None:
    assert load((EXAMPLES / file).read_bytes(), file).resources


@pytest.mark.parametrize(
    "file", sorted(path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith("test_"))
)
def test_a_plugin_of_the_examples_registers(file: str, short_dir: Path) -> None:
    async def scenario() -> None:
        plugin = plugin_of(file)
        kubelet = Kubelet(short_dir)
        async with asyncio.timeout(10), kubelet.running(), devplug.serve(plugin, plugin_dir=short_dir):
            await kubelet.wait(lambda: plugin.resource_name in kubelet.capacity())

    asyncio.run(scenario())


def test_the_table_of_the_examples_names_them_all() -> None:
    page = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.iterdir():
        assert f"[{path.name}]({path.name})" in page or path.name in {"README.md", "__pycache__"}
