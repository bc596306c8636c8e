"""What `devplug` says of itself: its help, its version, and what a shell needs to complete commands."""

from __future__ import annotations

import gc
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from devplug import __version__
from devplug.cli.commands import commands
from devplug.cli.startup import uncollected
from tests.cli.programs import devplug


@pytest.mark.parametrize("command", [[], *([name] for name in commands.commands)])
def test_every_help_has_an_example(command: list[str]) -> None:
    ran = devplug(*command, "--help")
    assert ran.returncode == 0
    assert re.search(r"^  (Start here|Examples?):\s+devplug ", ran.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", commands.commands)
def test_every_option_says_what_it_is_for(name: str) -> None:
    options = [one for one in commands.commands[name].params if isinstance(one, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_the_version_is_the_packages() -> None:
    ran = devplug("--version")
    assert (ran.returncode, ran.stdout) == (0, f"devplug, version {__version__}\n")


@pytest.mark.parametrize("group", [[], ["sandbox"]], ids=["devplug", "devplug sandbox"])
def test_a_group_without_a_command_prints_its_help(group: list[str]) -> None:
    ran = devplug(*group)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == devplug(*group, "--help").stdout


@pytest.mark.parametrize("group", [[], ["sandbox"]], ids=["devplug", "devplug sandbox"])
def test_the_help_shows_each_summary_in_full_on_one_line(group: list[str]) -> None:
    rows = devplug(*group, "--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert len(rows) > 10
    for row in rows:
        assert re.fullmatch(r"  [a-z-]+ +[A-Z].+[^.]\.", row), row
        assert len(row) <= 80


@pytest.mark.parametrize("command", [["run"], ["validate"], ["manifests"]], ids="".join)
def test_the_configuration_is_always_the_option_c(command: list[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.yaml")
    ran = devplug(*command, "-c", missing)
    assert ran.returncode == 2
    assert missing in ran.stderr


def test_an_unknown_command_is_bad_input() -> None:
    ran = devplug("rnu")
    assert ran.returncode == 2
    assert "No such command 'rnu'" in ran.stderr


PROGRAM = Path(sys.executable).with_name("devplug")

ASK = """\
PATH="{folder}:$PATH"
eval "$(devplug completion bash)"
COMP_WORDS=({words}) COMP_CWORD={at}
_devplug_completion devplug
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "answer"),
    [("devplug val", "validate"), ("devplug run --plu", "--plugin-dir"), ("devplug sandbox unp", "unplug")],
)
def test_bash_completes_commands_and_options(words: str, answer: str) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash on this machine")
    script = ASK.format(folder=PROGRAM.parent, words=words, at=len(words.split()) - 1)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == [answer]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_of_theirs(shell: str) -> None:
    done = subprocess.run(
        [PROGRAM, "completion", shell], capture_output=True, text=True, check=True, timeout=30
    )
    assert f"_DEVPLUG_COMPLETE={shell}_complete" in done.stdout


def test_the_garbage_collector_never_looks_through_what_was_loaded_uncollected() -> None:
    try:
        with uncollected():
            assert not gc.isenabled()
            loaded: list[object] = [[]]
        assert gc.isenabled()
        assert all(one is not loaded for one in gc.get_objects())
    finally:
        gc.unfreeze()
