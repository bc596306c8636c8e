"""The checks as tests of somebody else's suite."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.conformance.trials import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SUITE = """
import sys
from devplug.conformance.pytestitems import PluginConformance

class TestRight(PluginConformance):
    command = (sys.executable, "-m", "tests.conformance.play", "right", "{{dir}}", "{{work}}")
    environment = {{"PYTHONPATH": {root!r}}}
    only = ("REG01", "STR04", "STR20")

class TestWrong(PluginConformance):
    command = (sys.executable, "-m", "tests.conformance.play", "WritesHealthItsOwnWay", "{{dir}}", "{{work}}")
    environment = {{"PYTHONPATH": {root!r}}}
    only = ("STR04", "STR05")
    quick = True

class TestNone(PluginConformance):
    command = ("./no-such-plugin",)
    only = ("REG01",)
"""


def outcome(folder: Path, *words: str) -> str:
    (folder / "test_suite.py").write_text(SUITE.format(root=str(ROOT)))
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "pytest",
        "-v",
        "-rs",
        "-p",
        "no:cacheprovider",
        *words,
        ".",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder).stdout


def test_each_check_is_a_test_that_passes_fails_or_is_skipped_with_its_reason(tmp_path: Path) -> None:
    printed = outcome(tmp_path)
    words = dict(re.findall(r"::(\S+::test_conforms\S+) (PASSED|FAILED|SKIPPED|ERROR)", printed))
    assert words == {
        "TestRight::test_conforms[REG01]": "PASSED",
        "TestRight::test_conforms[STR04]": "PASSED",
        "TestRight::test_conforms[STR20]": "SKIPPED",
        "TestWrong::test_conforms[STR04]": "PASSED",
        "TestWrong::test_conforms[STR05]": "FAILED",
        "TestNone::test_conforms[REG01]": "FAILED",
    }, printed
    assert "FAIL STR05 (must)  " in printed
    assert "take a device away and bring it back" in printed
    assert "cannot run ./no-such-plugin" in printed
