"""The example of PreStartContainer resets before each start; a container waits for what it cannot reset."""

from __future__ import annotations

from pathlib import Path

import pytest

from devplug.testing import SyncKubelet
from examples.reset import Dsp
from tests.examples.beds import command, nodes

NAME = "example.com/dsp"


@pytest.fixture
def processors(tmp_path: Path) -> list[str]:
    """Two processors that can be reset; the arguments of the plugin that finds them."""
    for name in ("dsp0", "dsp1"):
        reset_file(tmp_path, name).parent.mkdir(parents=True)
        reset_file(tmp_path, name).touch()
    return [str(nodes(tmp_path / "dev", "dsp0", "dsp1")), str(tmp_path / "class")]


def reset_file(tmp_path: Path, name: str) -> Path:
    return tmp_path / "class" / name / "device" / "reset"


def test_each_start_of_a_container_resets_its_devices_and_no_others(
    kubelet: SyncKubelet, processors: list[str], tmp_path: Path
) -> None:
    kubelet.start(Dsp(*processors))
    pod = kubelet.admit({NAME: 1})
    (name,) = pod.container.device_ids
    assert reset_file(tmp_path, name).read_text() == "1"
    (other,) = {"dsp0", "dsp1"} - {name}
    assert reset_file(tmp_path, other).read_text() == ""
    reset_file(tmp_path, name).write_text("")
    pod.restart_container("main")
    assert reset_file(tmp_path, name).read_text() == "1"


def test_a_container_waits_until_its_device_can_be_reset(
    kubelet: SyncKubelet, processors: list[str], tmp_path: Path
) -> None:
    kubelet.start(Dsp(*processors))
    for name in ("dsp0", "dsp1"):
        reset_file(tmp_path, name).unlink()
        reset_file(tmp_path, name).mkdir()
    pod = kubelet.admit({NAME: 1})
    assert pod.phase == "Pending"
    (name,) = pod.container.device_ids
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 1)
    reset_file(tmp_path, name).rmdir()
    pod.restart_container("main")
    assert pod.phase == "Running"
    assert reset_file(tmp_path, name).read_text() == "1"


def test_the_program_resets_what_it_gives_out(
    kubelet: SyncKubelet, processors: list[str], tmp_path: Path
) -> None:
    program = kubelet.run(command("reset.py", *processors))
    assert kubelet.admit({NAME: 2}).phase == "Running"
    assert [reset_file(tmp_path, name).read_text() for name in ("dsp0", "dsp1")] == ["1", "1"]
    assert program.stop() == 0
