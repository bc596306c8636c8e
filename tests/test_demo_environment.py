"""`make demo` on a machine that has only Python, make and pip."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MEGABYTE = 2**20


def make(target: str, folder: Path, *options: str) -> str:
    """Run make in a new copy of the source tree; return what it printed to standard output."""
    for name in ("Makefile", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    for name in ("requirements", "src"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        ["make", *options, target], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


@pytest.mark.skipif(not (ROOT / "src").is_dir(), reason="the source is not here, only the wheel")
def test_the_demo_builds_only_the_environment_of_the_runtime_lock(tmp_path: Path) -> None:
    commands = make("demo", tmp_path, "--dry-run")
    assert set(re.findall(r"requirements/(\w+)\.lock", commands)) == {"runtime"}
    assert not re.search(r"\.venv/", commands)


@pytest.mark.nightly  # asks the package index
@pytest.mark.skipif(not (ROOT / "src").is_dir(), reason="the source is not here, only the wheel")
def test_the_demo_of_a_new_clone_is_small_and_says_what_to_run_next(tmp_path: Path) -> None:
    folder = tmp_path / "a clone"
    folder.mkdir()
    printed = make("demo", folder)
    assert size_of(folder / ".venv-demo") < 60 * MEGABYTE
    commands = re.findall(r"^  (.+)$", printed.partition("To run devplug yourself:")[2], re.MULTILINE)
    assert commands[:2] == ["source .venv-demo/bin/activate", "devplug discover"]
    done = subprocess.run(["bash", "-c", " && ".join(commands[:2])], cwd=folder, check=False, timeout=60)
    assert done.returncode == 0
