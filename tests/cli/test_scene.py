"""What the demo is set on: its configuration loads, wherever the temporary folder is."""

from __future__ import annotations

from pathlib import Path

import pytest

from devplug.cli.hotplug import LoopPlug, TerminalPlug
from devplug.cli.scene import demo_config, devices_here, shared_here
from devplug.daemon.grammar.loading import load


@pytest.mark.parametrize("plug", [TerminalPlug(), LoopPlug(200)])
@pytest.mark.parametrize("present", [[], [("fuse", "/dev/fuse"), ("tun", "/dev/net/tun")]])
def test_the_configuration_loads(plug: TerminalPlug | LoopPlug, present: list[tuple[str, str]]) -> None:
    config = load(demo_config(present, plug, Path("/tmp/demo/firmware")), "demo.yaml")
    names = [*(f"example.com/{kind}" for kind, _ in present), f"example.com/{plug.kind}"]
    assert [resource.name for resource in config.resources] == names


@pytest.mark.parametrize("folder", ["/tmp/a b", "/tmp/a,b", "/tmp/{a}", "/tmp/[a]: b", "/tmp/é"])
def test_the_temporary_folder_may_have_any_name(folder: str) -> None:
    config = load(demo_config([], TerminalPlug(), Path(folder)), "demo.yaml")
    (mount,) = config.resources[0].expose.mounts
    assert mount.host_path.literal == folder


def test_what_is_shared_here_exists() -> None:
    assert all(Path(path).exists() for _, path in shared_here())


def test_a_device_here_has_its_row() -> None:
    config = load("version: 1\nresources: [{name: a.b/c, discover: {path: /dev/null}}]", "f.yaml")
    assert devices_here(config) == [
        {
            "resource": "a.b/c",
            "device": "null",
            "node": "/dev/null",
            "numa_node": None,
            "health": "Healthy",
            "replicas": 1,
        }
    ]
