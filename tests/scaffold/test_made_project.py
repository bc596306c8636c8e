"""A new project works as it is: its own tests pass, and the page that leads through it says what is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from devplug import __version__
from devplug.scaffold.project import Project, project_files
from tests.cli.programs import environment

PAGE = (Path(__file__).parents[2] / "docs" / "five-minutes.md").read_text(encoding="utf-8")
FILES = project_files(Project("my-fpga", "example.com/my-fpga"), __version__)
FENCE = re.compile(r"^```(\S+)( no-run)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


MARK = "--- the command has ended ---"


def run(commands: Sequence[str], folder: Path, package: Path) -> list[str]:
    """Run commands in one shell, as if the project in `package` were installed; return what each printed."""
    script = "\n".join(f"{one} || exit\necho '{MARK}'" for one in commands)
    places = [os.path.dirname(sys.executable), os.environ["PATH"]]  # noqa: PTH120
    variables = environment(
        PATH=os.pathsep.join(places), PYTHONPATH=str(package / "src"), PYTHONDONTWRITEBYTECODE="1"
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split(f"{MARK}\n")[:-1]


def commands_of_the_page() -> Iterator[tuple[str, str]]:
    """Yield each command of the page that can be run here, in order, and what it shows of the output."""
    for language, no_run, text in FENCE.findall(PAGE):
        if language == "console" and not no_run:
            for one in text.removeprefix("$ ").split("\n$ "):
                command, _, output = one.partition("\n")
                yield command, output


@pytest.mark.parametrize(
    "of_the_tests",
    ["tests/test_plugin.py", pytest.param("", marks=pytest.mark.nightly)],
    ids=["without the judge", "whole"],
)
def test_every_command_of_the_page_works_and_prints_what_it_shows(tmp_path: Path, of_the_tests: str) -> None:
    """The project's other tests are the judge's, who has it once more in the next command."""
    page = list(commands_of_the_page())
    tried = [command for command, _ in page]
    # ALL13 measures how long answers take, and on a busy machine they take longer.
    words = [
        (f"{one} {of_the_tests}" if one.endswith("pytest") else one).replace(
            " verify ", " verify --skip ALL13 "
        )
        for one in tried
    ]
    printed = run(words, tmp_path, tmp_path / "my-fpga")
    for (command, shown), said in zip(page, printed, strict=True):
        assert said.startswith(shown), command
    if of_the_tests:
        said_by_pytest = printed[tried.index("python -m pytest")]
        assert f"{FILES[of_the_tests].count('def test_')} passed" in said_by_pytest
    assert [words for words in ("devplug new", "pytest", "devplug verify") if words in " ".join(tried)] == [
        "devplug new",
        "pytest",
        "devplug verify",
    ]


def test_the_code_of_the_page_is_the_projects() -> None:
    blocks = [text for language, _, text in FENCE.findall(PAGE) if language == "python"]
    assert blocks
    for block in blocks:
        assert any(block in text for text in FILES.values()), block
