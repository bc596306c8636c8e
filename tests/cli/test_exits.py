"""What the end of a command means to the shell, and what people read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from devplug import __version__
from devplug.cli.exits import BAD_INPUT, FAILED, INTERRUPTED, OK, OUR_BUG, exit_code_of
from devplug.errors import ConfigError, KubeletError, PluginFolderLostError, Problem


def raising(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize(("returned", "code"), [(None, OK), (0, OK), (1, FAILED), (2, BAD_INPUT)])
def test_a_command_decides_its_exit_code(returned: int | None, code: int) -> None:
    assert exit_code_of(lambda: returned) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (click.UsageError("no such option"), BAD_INPUT),
        (ConfigError("f.yaml", [Problem(1, 2, "version", "is missing")]), BAD_INPUT),
        (KubeletError("it is not there"), FAILED),
        (PluginFolderLostError("/plugins"), FAILED),
        (KeyboardInterrupt(), INTERRUPTED),
        (click.Abort(), INTERRUPTED),
        (ZeroDivisionError("division by zero"), OUR_BUG),
        (SystemExit(1), OK),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code_of(raising(error)) == code


def test_a_bad_configuration_is_one_line_for_each_problem(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(
        raising(ConfigError("f.yaml", [Problem(4, 2, "b", "is bad"), Problem(3, 1, "a", "is worse")]))
    )
    assert capsys.readouterr() == ("", "f.yaml:3:1: error: a: is worse\nf.yaml:4:2: error: b: is bad\n")


def test_an_error_of_ours_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(raising(KubeletError("it is not there")))
    assert capsys.readouterr() == ("", "devplug: it is not there\n")


def test_a_bug_of_ours_is_said_to_be_one_below_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(raising(ZeroDivisionError("division by zero")))
    *traceback, last = capsys.readouterr().err.splitlines()
    assert "ZeroDivisionError: division by zero" in traceback
    assert last.startswith(f"devplug: this is a bug in devplug {__version__} (Python ")
    assert last.endswith("please report it with the lines above")


def test_an_interruption_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(raising(KeyboardInterrupt()))
    assert capsys.readouterr() == ("", "")


def test_no_command_looks_through_all_its_objects_before_it_ends() -> None:
    """Which took a daemon most of its end, and long where processor time is short."""
    code = (
        "import atexit, gc, sys; from devplug.cli.main import main; sys.argv = ['devplug', '--version']\n"
        "atexit.register(lambda: print(len(gc.get_objects()) < 100 < gc.get_freeze_count()))\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"
