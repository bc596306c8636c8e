"""The page on testing and the example of a test are real: pytest runs them as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

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
