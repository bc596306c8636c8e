"""pytest finds the fixture in any project with devplug, and runs the page on testing as it stands."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

TEST = """
import devplug

class Fpga(devplug.DevicePlugin):
    resource_name = "example.com/fpga"
    def devices(self):
        return [devplug.Device("fpga-0")]

def test_one(kubelet):
    kubelet.start(Fpga())
    assert kubelet.admit({"example.com/fpga": 1}).container.device_ids == ("fpga-0",)

def test_another(kubelet):
    assert kubelet.allocatable == {}
"""

UNUSED = """
import sys

def test_that_needs_no_kubelet():
    assert "devplug.testing.fixtures" in sys.modules
    heavy = {"grpc", "google.protobuf", "yaml", "devplug.kubelet", "devplug.plugin", "devplug.wire"}
    assert heavy & set(sys.modules) == set()
"""

FAILING = """
import sys

PROGRAM = '''
import devplug
class Fpga(devplug.DevicePlugin):
    resource_name = "example.com/fpga"
    def devices(self):
        return [devplug.Device("fpga-0")]
print("one card, firmware 7")
devplug.run(Fpga())
'''

def test_that_fails(kubelet):
    kubelet.run([sys.executable, "-c", PROGRAM])
    kubelet.admit({"example.com/fpga": 2})
    assert kubelet.capacity == {"example.com/fpga": 2}
"""


def test_a_project_without_a_word_of_configuration_has_the_fixture_twice_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "test_fpga.py").write_text(TEST)
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) for _ in range(2)]
    outputs = [process.communicate()[0] for process in running]
    assert [
        (process.returncode, "2 passed" in output) for process, output in zip(running, outputs, strict=True)
    ] == [(0, True)] * 2, outputs


def test_a_run_without_the_fixture_loads_no_kubelet(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(UNUSED)
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_report_of_a_failed_test_has_the_node_and_what_programs_printed(tmp_path: Path) -> None:
    (tmp_path / "test_fpga.py").write_text(FAILING)
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    for part in (
        "resource     example.com/fpga: capacity 1, allocatable 1",
        "pod          default/pod-1 is Failed: UnexpectedAdmissionError: Pod was rejected:",
        "one card, firmware 7",
    ):
        assert part in done.stdout


ROOT = Path(__file__).parents[2]


def pytest_passes(folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_test_of_the_page_on_testing_passes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "test_page.py").write_text("\n".join(blocks))
    assert f"{page.count('def test_')} passed" in pytest_passes(tmp_path)


def test_the_example_of_a_test_passes(tmp_path: Path) -> None:
    for name in ("fpga.py", "test_fpga.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    assert "2 passed" in pytest_passes(tmp_path)
