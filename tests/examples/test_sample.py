"""The twin of the upstream sample plugin does what the manifests of Kubernetes' own tests expect of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from devplug import Device
from devplug.testing import SyncKubelet
from devplug.testing.programs import Program
from examples.sample import Sample
from tests.examples.beds import command

NAME = "example.com/resource"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PLUGIN_SOCK_DIR", "REGISTER_CONTROL_FILE", "CDI_ENABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def withheld(kubelet: SyncKubelet, tmp_path: Path) -> Iterator[Program]:
    """A program of the example that waits for the deletion of tmp_path/registration."""
    control = tmp_path / "registration"
    control.touch()
    program = Program(command("sample.py"), kubelet.plugin_dir, {"REGISTER_CONTROL_FILE": str(control)})
    kubelet.wait(lambda: "registers when this file is deleted" in program.output)
    yield program
    program.stop()


def test_a_pod_gets_a_file_per_device_at_the_same_place(kubelet: SyncKubelet, tmp_path: Path) -> None:
    kubelet.start(Sample(str(tmp_path)))
    assert [device.id for device in kubelet.devices(NAME)] == ["Dev-1", "Dev-2"]
    container = kubelet.admit({NAME: 2}).container
    files = [str(tmp_path / "Dev-1"), str(tmp_path / "Dev-2")]
    assert sorted((mount.host_path, mount.container_path) for mount in container.mounts) == [
        (file, file) for file in files
    ]
    assert not container.device_nodes
    assert not container.envs
    assert (tmp_path / "Dev-1").read_bytes() == b""


def test_a_file_of_an_earlier_run_is_made_anew(kubelet: SyncKubelet, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (tmp_path / "Dev-1").symlink_to(elsewhere)
    kubelet.start(Sample(str(tmp_path)))
    kubelet.admit({NAME: 1})
    assert not (tmp_path / "Dev-1").is_symlink()
    assert elsewhere.read_text() == "mine"


def test_with_cdi_the_devices_are_named_as_in_the_file_that_is_there_meanwhile(
    kubelet: SyncKubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDI_ENABLED", "1")
    started = kubelet.start(Sample(str(tmp_path), str(tmp_path)))
    container = kubelet.admit({NAME: 1}).container
    (name,) = container.cdi_devices
    assert name == "example.com/resource=CDI-Dev-1"
    assert container.mounts
    file = tmp_path / "example.com.json"
    spec: dict[str, Any] = json.loads(file.read_text())
    assert (spec["cdiVersion"], spec["kind"]) == ("0.3.0", "example.com/resource")
    assert [device["name"] for device in spec["devices"]] == ["CDI-Dev-1", "CDI-Dev-2"]
    assert spec["devices"][1]["containerEdits"] == {
        "env": ["CDI_DEVICE=CDI-Dev-2"],
        "deviceNodes": [{"path": "/tmp/CDI-Dev-2", "type": "b", "major": 1, "minor": 1}],
    }
    started.stop()
    assert not file.exists()


def test_the_program_uses_the_folder_that_the_manifests_name(kubelet: SyncKubelet, tmp_path: Path) -> None:
    folder = {"DEVPLUG_PLUGIN_DIR": str(tmp_path), "PLUGIN_SOCK_DIR": str(kubelet.plugin_dir)}
    program = kubelet.run(command("sample.py"), environment=folder)
    assert kubelet.allocatable == {NAME: 2}
    assert program.stop() == 0


def test_the_program_registers_when_the_control_file_is_deleted_and_not_before(
    kubelet: SyncKubelet, withheld: Program, tmp_path: Path
) -> None:
    assert NAME not in kubelet.capacity
    (tmp_path / "registration").unlink()
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 2)
    assert withheld.stop() == 0


def test_the_program_can_be_stopped_while_it_is_held_back(withheld: Program) -> None:
    assert withheld.stop() == 0


async def test_a_control_file_that_nobody_has_made_yet_holds_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = tmp_path / "registration"
    monkeypatch.setenv("REGISTER_CONTROL_FILE", str(control))

    # aclosing wants what only generators have, and the annotation does not promise one.
    async with asyncio.timeout(30), aclosing(Sample().devices()) as lists:  # type: ignore[type-var]
        async with asyncio.TaskGroup() as group:
            first: asyncio.Task[list[Device]] = group.create_task(anext(lists))  # type: ignore[arg-type]
            await turns()
            assert not first.done()
            control.touch()
            await turns()
            assert not first.done()
            control.unlink()
        assert [device.id for device in first.result()] == ["Dev-1", "Dev-2"]


async def turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)
