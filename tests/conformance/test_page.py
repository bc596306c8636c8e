"""The page on what the checks mean, and the table of faults on it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from devplug.conformance.coverage import FAULTS
from devplug.conformance.registry import all_checks
from devplug.conformance.reports.page import page
from tests.conformance.trials import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_the_committed_page_is_that_of_the_registry() -> None:
    assert (ROOT / "docs" / "checks.md").read_text() == page(all_checks(), FAULTS), "run: make pages"


def test_the_catalogue_of_faults_has_no_gap() -> None:
    numbers = {fault.number for fault in FAULTS}
    rows = {"L": 10, "A": 14, "C": 12}
    expected = {f"{letter}{number}" for letter, count in rows.items() for number in range(1, count + 1)}
    of_kubelets_plugins_and_devices = {f"X{number:02}" for number in range(1, 37)}
    assert numbers == expected | of_kubelets_plugins_and_devices


def test_every_fault_names_checks_that_exist_or_why_there_is_none() -> None:
    ids = {one.id for one in all_checks()}
    for fault in FAULTS:
        assert set(fault.checks) <= ids, fault
        assert bool(fault.checks) != bool(fault.why_not), fault


def test_the_suite_on_the_page_on_judging_passes(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "verify.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "test_conformance.py").write_text(block)
    (tmp_path / "fpga.py").write_text((ROOT / "examples" / "sample.py").read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "REG or STR", "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
