"""The checks as tests of somebody else's suite."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

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


class Reports:
    """What a session of pytest tells of its tests."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.texts: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.outcomes[report.nodeid.partition("::")[2]] = report.outcome
            self.texts.append(str(report.longrepr))


def test_each_check_is_a_test_that_passes_fails_or_is_skipped_with_its_reason(tmp_path: Path) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE.format(root=str(ROOT)))
    reports = Reports()
    words = [
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
    ]
    pytest.main([*words, str(suite)], plugins=[reports])
    assert reports.outcomes == {
        "TestRight::test_conforms[REG01]": "passed",
        "TestRight::test_conforms[STR04]": "passed",
        "TestRight::test_conforms[STR20]": "skipped",
        "TestWrong::test_conforms[STR04]": "passed",
        "TestWrong::test_conforms[STR05]": "failed",
        "TestNone::test_conforms[REG01]": "failed",
    }, reports.texts
    told = "\n".join(reports.texts)
    assert "FAIL STR05 (must)  " in told
    assert "take a device away and bring it back" in told
    assert "cannot run ./no-such-plugin" in told
