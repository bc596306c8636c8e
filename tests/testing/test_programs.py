"""Plugins that are programs in any language, run beside the fixture `kubelet`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from devplug import PluginError
from devplug.testing import SyncKubelet

NAME = "example.com/serial"

SCRIPT = """
import sys, devplug
class Two(devplug.DevicePlugin):
    resource_name = "example.com/serial"
    def devices(self):
        return [devplug.Device("a"), devplug.Device("b")]
print("two are here", flush=True)
devplug.run(Two(), plugin_dir=sys.argv[1])
"""


def test_a_program_in_any_language_is_run_and_ended(kubelet: SyncKubelet, tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(SCRIPT)
    program = kubelet.run([sys.executable, str(script), "{dir}"], resources=[NAME])
    assert kubelet.allocatable == {NAME: 2}
    assert "two are here" in program.output
    assert program.exit_code is None
    assert program.stop() == 0
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 0)
    assert "two are here" in program.output


def test_the_processes_that_a_program_starts_end_with_it(kubelet: SyncKubelet, tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(SCRIPT)
    program = kubelet.run(["sh", "-c", f'"{sys.executable}" "{script}" "$0"; true', "{dir}"])
    program.stop()
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 0)
    assert [path.name for path in kubelet.plugin_dir.iterdir() if path.name.startswith("devplug")] == []


def test_a_program_that_cannot_be_started_is_named(kubelet: SyncKubelet) -> None:
    with pytest.raises(PluginError, match=r"cannot run ./no-such-plugin --fast: No such file"):
        kubelet.run(["./no-such-plugin", "--fast"])


def test_a_crashed_program_is_a_lost_plugin(kubelet: SyncKubelet, tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(SCRIPT)
    program = kubelet.run([sys.executable, str(script), "{dir}"])
    program.kill()
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 0)
    assert program.exit_code == -9


def test_a_program_that_ends_before_it_registers_is_told_with_what_it_printed(kubelet: SyncKubelet) -> None:
    with pytest.raises(ChildProcessError, match=r"ended with 3 .*it printed:\s+no such card"):
        kubelet.run([sys.executable, "-c", "print('no such card'); raise SystemExit(3)"])


def test_a_wait_in_vain_tells_what_the_node_is_like(kubelet: SyncKubelet, tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(SCRIPT)
    kubelet.run([sys.executable, str(script), "{dir}"])
    kubelet.admit({NAME: 3})
    with pytest.raises(TimeoutError) as caught:
        kubelet.wait(lambda: kubelet.allocatable[NAME] == 7, timeout_seconds=0.05)
    story = str(caught.value)
    for part in (
        "never came true within 0.05 s",
        "example.com/serial: capacity 2, allocatable 2",
        "default/pod-1 is Failed: UnexpectedAdmissionError",
        "Available: 2",
        "two are here",
    ):
        assert part in story
