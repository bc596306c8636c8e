"""The examples are real: every file loads, every plugin serves its devices to a kubelet."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from pathlib import Path

import pytest

import devplug
from devplug.daemon.config.loader import load
from devplug.daemon.config.selectors import Discover
from devplug.daemon.container_response import container_response, share_of
from devplug.daemon.sources.kinds import source_of
from devplug.kubelet.kubelet import Kubelet
from tests.daemon import idhosts
from tests.daemon.hosts import needs_mknod

EXAMPLES = Path(__file__).parent.parent / "examples"
CONFIGURATIONS = sorted(path.name for path in EXAMPLES.glob("*.yaml"))


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


@pytest.mark.parametrize("file", CONFIGURATIONS)
def test_a_configuration_of_the_examples_loads_and_says_what_a_pod_asks_for(file: str) -> None:
    text = (EXAMPLES / file).read_text()
    resources = load(text, file).resources
    header = text.partition("version: 1\n")[0]
    assert all(line.startswith("#") for line in header.splitlines())
    asked = re.search(
        r"^# The pod asks for    (.*\n(?:#  .*\n)*)# The container has   ", header, re.MULTILINE
    )
    assert asked
    assert any(f"{resource.name}: " in asked[1] for resource in resources)


@pytest.mark.parametrize("file", CONFIGURATIONS)
def test_a_configuration_of_the_examples_is_in_block_style(file: str) -> None:
    for line in (EXAMPLES / file).read_text().splitlines():
        bare = re.sub(r'"[^"]*"|#.*|: (\{\}|\[\])$', "", line)
        assert not re.search(r"[\[{]", bare), line


@needs_mknod
@pytest.mark.parametrize(
    ("file", "host", "nodes", "env"),
    [
        (
            "serial.yaml",
            "adapters",
            ["/dev/serial0", "/dev/serial1", "/dev/serial2"],
            {"SERIAL_PORTS": "/dev/serial0,/dev/serial1,/dev/serial2", "SERIAL_0": "0403:6001:A50285BI"},
        ),
        ("cameras.yaml", "adapters", ["/dev/video0"], {"CAMERAS": "/dev/video0", "CAMERA_MODELS": "Eye"}),
        ("audio.yaml", "everything", ["/dev/snd"], {}),
        ("fpga.yaml", "functions", ["/dev/dfl-port.0"], {"FPGA_ADDRESSES": "0000:d8:00.0"}),
        ("render.yaml", "functions", ["/dev/dri/renderD128"], {}),
        ("tpm.yaml", "everything", ["/dev/tpmrm0"], {}),
        (
            "sriov-dpdk.yaml",
            "functions",
            ["/dev/vfio/71", "/dev/vfio/72", "/dev/vfio/vfio"],
            {"PCIDEVICE_EXAMPLE_COM_VF": "0000:3b:10.0,0000:3b:10.2"},
        ),
        ("bundle.yaml", "paths", ["/dev/dsp0", "/dev/dsp0-ctl"], {"DSP_CONTROL": "/dev/dsp0-ctl"}),
    ],
)
def test_a_container_gets_what_the_example_says(
    file: str, host: str, nodes: list[str], env: dict[str, str], tmp_path: Path
) -> None:
    machine = idhosts.OURS[host](tmp_path)
    (resource,) = load((EXAMPLES / file).read_bytes(), file).resources
    found = source_of(resource, machine).look()
    assert found
    shares = [share_of(one, index, resource.expose) for index, one in enumerate(found)]
    response = container_response(shares, resource)
    assert sorted(node.container_path for node in response.device_nodes) == nodes
    assert env.items() <= response.envs.items()


def test_there_is_an_example_for_each_kind_of_hardware_but_none() -> None:
    kinds = {
        resource.discover.kind
        for file in CONFIGURATIONS
        for resource in load((EXAMPLES / file).read_bytes(), file).resources
    }
    assert kinds == set(Discover.alternatives) - {"static"}


@pytest.mark.parametrize(
    "file", sorted(path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith("test_"))
)
async def test_a_plugin_of_the_examples_registers(file: str, short_dir: Path) -> None:
    plugin = plugin_of(file)
    kubelet = Kubelet(short_dir)
    async with asyncio.timeout(10), kubelet.running(), devplug.serve(plugin, plugin_dir=short_dir):
        await kubelet.wait(lambda: plugin.resource_name in kubelet.capacity())


def test_the_table_of_the_examples_names_them_all() -> None:
    page = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.iterdir():
        assert f"[{path.name}]({path.name})" in page or path.name in {"README.md", "__pycache__"}
