"""`devplug verify` as people meet it: tables, formats, choices, and what it says where it cannot judge."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from devplug.cli.commands import commands
from devplug.cli.exits import BAD_INPUT, INTERRUPTED, OK, exit_code_of
from devplug.conformance.checks import all_checks
from devplug.conformance.dra.checks import all_driver_checks
from tests.cli.programs import devplug, ended, processes_about, said_until, started
from tests.conformance.trials import ROOT

PLAY = (sys.executable, "-m", "tests.conformance.play")


def verify(*words: str, plugin: str = "right") -> subprocess.CompletedProcess[str]:
    return devplug("verify", *words, "--env", f"PYTHONPATH={ROOT}", "--", *PLAY, plugin, "{dir}", "{work}")


def verify_here(*words: str) -> int:
    """Return the exit code of what starts nothing, in this process."""
    return exit_code_of(lambda: commands.main(["verify", *words], standalone_mode=False))


def test_a_right_plugin_ends_with_0_and_a_table() -> None:
    done = verify("--only", "REG0[1-5]", "--only", "STR04")
    assert (done.returncode, done.stderr) == (0, "")
    first, *_, groups, last = done.stdout.splitlines()
    assert first == "judging example.com/mutant"
    assert groups.split() == ["registration", "5/5", "stream", "1/1"]
    assert last.startswith("6 of 6 passed, 0 failed in ")


def test_a_wrong_plugin_ends_with_1_and_what_to_change() -> None:
    done = verify("--only", "STR05", plugin="WritesHealthItsOwnWay")
    assert done.returncode == 1
    fail, because, change = done.stdout.splitlines()[1:4]
    assert fail.startswith("FAIL STR05 (must)  ")
    assert (because.split()[0], change.split()[0]) == ("because", "change")
    assert done.stdout.splitlines()[-1].endswith("devplug verify --explain STR05")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_ends_the_judged_program(tmp_path: Path, number: signal.Signals) -> None:
    words = ("--env", f"PYTHONPATH={ROOT}", "--", *PLAY, "right", "{dir}", "{work}", f"{tmp_path}/mark")
    with started("verify", *words) as process:
        said_until(process, "judging ", on_error=False)
        assert len(processes_about(tmp_path)) > 1
        process.send_signal(number)
        assert ended(process) == INTERRUPTED
        assert processes_about(tmp_path) == []


def test_json_junit_and_tap_are_read_by_their_readers() -> None:
    only = ("--only", "REG01", "--only", "REG03")
    value = json.loads(verify(*only, "-o", "json").stdout)
    assert [one["outcome"] for one in value["checks"]] == ["passed", "passed"]
    suite = ET.fromstring(verify(*only, "-o", "junit").stdout)[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "0")
    tap = verify(*only, "-o", "tap").stdout.splitlines()
    assert tap[:2] == ["TAP version 14", "1..2"]
    assert sorted(line.split(" - ")[0] for line in tap[2:]) == ["ok 1", "ok 2"]


def test_a_right_dra_driver_ends_with_0_as_a_program() -> None:
    program = (sys.executable, "-m", "tests.conformance.dra.right_driver")
    words = ("--dra", "--only", "DRA0[13-9]", "--only", "DRA32", "--env", f"PYTHONPATH={ROOT}")
    done = devplug("verify", *words, "--", *program)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.splitlines()[0] == "judging mutant.example.com"


def test_the_checks_of_dra_drivers_are_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_here("--dra", "--list") == OK
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()[1:]] == [one.id for one in all_driver_checks()]
    assert verify_here("--explain", "dra27") == OK
    assert capsys.readouterr().out.startswith("DRA27 (must, dra)  Slices that are deleted")


def test_the_list_and_the_explanation_start_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_here("--list") == OK
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()[1:]] == [one.id for one in all_checks()]
    assert verify_here("--explain", "str07") == OK
    explained = capsys.readouterr().out
    assert explained.startswith("STR07 (must, stream)  A list is sent only when something in it changed.")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--only", "STR99", "--", "x"], "no check is called STR99"),
        ([], "name either a COMMAND after --, or a socket with --attach"),
        (["--attach", "/nowhere/x.sock", "--", "x"], "name either a COMMAND"),
        (["--attach", "/nowhere/x.sock"], "/nowhere/x.sock is not a socket"),
        (["--dra", "--attach", "/nowhere/x.sock"], "--dra takes a COMMAND after --"),
        (["--dra", "--unplug", "true", "--", "x"], "--unplug and --replug need each other"),
        (["--unplug", "x", "--", "y"], "--unplug and --replug need each other"),
        (["--env", "X", "--", "y"], "--env takes NAME=VALUE"),
        (["--quick", "--only", "RES11", "--", "y"], "these options select no check"),
    ],
)
def test_what_cannot_be_judged_ends_with_2_and_says_why(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify_here(*words) == BAD_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    assert text in printed.err


def test_a_program_that_is_not_there_is_no_plugin_that_fails() -> None:
    done = devplug("verify", "--", "./no-such-plugin", "{dir}")
    assert (done.returncode, done.stdout) == (BAD_INPUT, "")
    assert "cannot run ./no-such-plugin" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting over the kubelet's own path takes root")
def test_a_plugin_that_is_told_nothing_finds_our_folder_at_the_kubelets_path() -> None:
    script = (
        "from pathlib import Path; from tests.conformance.right import RightPlugin, play; import sys;"
        "sys.exit(play(RightPlugin, Path('/var/lib/kubelet/device-plugins'), Path('/tmp')))"
    )
    done = devplug(
        "verify", "--only", "REG01", "--env", f"PYTHONPATH={ROOT}", "--", sys.executable, "-c", script
    )
    assert done.returncode == 0, done.stdout + done.stderr
