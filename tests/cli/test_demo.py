"""`devplug demo` as people and machines read it, on this machine's devices."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from devplug.cli.demo import play
from devplug.cli.demo_devices import TerminalPlug
from devplug.cli.demo_report import JsonReporter
from tests.cli.programs import (
    DEVPLUG,
    IN_BACKGROUND,
    devplug,
    ended,
    environment,
    processes_about,
    said_until,
    started,
)

WORDS = "requested number of devices unavailable"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one demo tells machines; what lies in the current folder is no part of it."""
    folder = tmp_path_factory.mktemp("current")
    (folder / "yaml.py").write_text("raise SystemExit(9)\n")
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "devplug", "demo"],
        cwd=folder,
        env=environment(DEVPLUG_OUTPUT="json"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)  # type: ignore[no-any-return]


@pytest.fixture
def temporary(short_dir: Path) -> Iterator[Path]:
    """A folder for the demo's own one, in which nothing may be left."""
    yield short_dir
    assert list(short_dir.iterdir()) == []


# ── for machines ──────────────────────────────────────────────────────────────────────────────────


def test_the_story_is_good(story: dict[str, Any]) -> None:
    assert story["ok"] is True


def test_the_story_has_this_machines_devices(story: dict[str, Any]) -> None:
    """But for those that any other program may pull out since."""
    (hot,) = story["pods"][1]["limits"]
    assert story["devices"]
    assert all(Path(one["node"]).exists() for one in story["devices"] if one["resource"] != hot)


def test_the_kubelet_counts_what_was_found(story: dict[str, Any]) -> None:
    """But for those that any other program may plug in meanwhile: they only have to be there."""
    registration, (hot,) = story["registration"], story["pods"][1]["limits"]
    expected = Counter({hot: registration["capacity"][hot]})
    for device in story["devices"]:
        expected[device["resource"]] += device["replicas"] if device["resource"] != hot else 0
    assert registration["capacity"] == registration["allocatable"] == expected
    assert expected[hot] > 0


def test_the_first_pod_runs_with_a_node_for_each_of_its_resources(story: dict[str, Any]) -> None:
    pod = story["pods"][0]
    assert pod["phase"] == "Running"
    assert len(pod["device_nodes"]) == len(pod["limits"])
    assert pod["env"]["DEVICES"] in {node["container"] for node in pod["device_nodes"]}
    assert [mount["container"] for mount in pod["mounts"]] == ["/lib/firmware/demo"]


def test_the_second_pod_is_refused_in_the_kubelets_words(story: dict[str, Any]) -> None:
    pod = story["pods"][1]
    ((resource, asked),) = pod["limits"].items()
    assert (pod["phase"], pod["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert f"{WORDS} for {resource}. Requested: {asked}, Available: {asked - 1}" in pod["message"]


def test_the_times_are_numbers_of_milliseconds(story: dict[str, Any]) -> None:
    times = [story["hot_plug"]["plugged_ms"], story["hot_plug"]["unplugged_ms"]]
    times += [story["restart"]["registered_ms"], story["registration"]["ms_after_start"], story["stop"]["ms"]]
    assert all(isinstance(time, float) and 0 < time < 20_000 for time in times)


def test_the_running_pod_keeps_its_devices_through_the_restart(story: dict[str, Any]) -> None:
    assert story["restart"]["phase"] == "Running"
    assert len(story["restart"]["kept"]) == len(story["pods"][0]["limits"])


def test_the_daemon_stops_cleanly(story: dict[str, Any]) -> None:
    assert (story["stop"]["exit_code"], story["stop"]["left_behind"]) == (0, [])


# ── for people ────────────────────────────────────────────────────────────────────────────────────


def test_a_file_gets_plain_lines_that_fit(temporary: Path) -> None:
    ran = devplug("demo", COLUMNS="60", TMPDIR=str(temporary))
    lines = ran.stdout.splitlines()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\x1b" not in ran.stdout
    assert [line for line in lines if line != line.rstrip() or len(line) > 60] == []
    assert lines[1].split() == ["RESOURCE", "DEVICE", "NODE", "NUMA", "HEALTH", "SHARED"]
    heads = [line.split()[0] for line in lines if re.match(r"[a-z]", line) and not line.startswith("example")]
    assert heads == ["registered", "node", "pod-a", "pod-b", "hot-plug", "restart", "stop"]
    assert WORDS in " ".join(ran.stdout.split())


def test_on_a_terminal_it_is_coloured_and_ends_with_the_cursor_shown(temporary: Path) -> None:
    said = on_a_terminal(temporary, until="stop ")
    assert "\x1b[1m" in said
    assert said.count("\x1b[?25l") == said.count("\x1b[?25h") > 0


# ── its end ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("number", "by"), [(signal.SIGINT, ()), (signal.SIGTERM, IN_BACKGROUND)], ids=["terminal", "background"]
)
def test_an_interrupted_demo_leaves_nothing_behind(
    temporary: Path, number: signal.Signals, by: tuple[str, ...]
) -> None:
    with started("demo", by=by, TMPDIR=str(temporary)) as process:
        said_until(process, "registered ", on_error=False)
        process.send_signal(number)
        assert ended(process) == 130
        assert processes_about(temporary) == []


def test_an_interrupted_demo_shows_the_cursor_again(temporary: Path) -> None:
    said = on_a_terminal(temporary, until="registered ", number=signal.SIGINT)
    assert said.count("\x1b[?25l") == said.count("\x1b[?25h") > 0


def test_a_reader_that_goes_away_is_no_failure(temporary: Path) -> None:
    with started("demo", TMPDIR=str(temporary)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0
        assert processes_about(temporary) == []
        assert process.stderr is not None
        assert process.stderr.read() == ""


async def test_terminals_will_do_where_nobody_may_make_loop_devices(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    reporter = JsonReporter()

    async with asyncio.timeout(30):
        await play(reporter, TerminalPlug)
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    assert re.fullmatch(r"/dev/pts/[0-9]+", told["hot_plug"]["path"])
    assert WORDS in told["pods"][1]["message"]


# ── a terminal ────────────────────────────────────────────────────────────────────────────────────


def on_a_terminal(folder: Path, *, until: str, number: signal.Signals | None = None) -> str:
    """Run the demo on a terminal, with a signal once it has said `until`; return all that it wrote there."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [*DEVPLUG, "demo"],
        env=environment(TERM="xterm-256color", TMPDIR=str(folder)),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        said = ""
        with suppress(OSError):  # EIO: the other end is closed
            while piece := os.read(ours, 4096):
                said += piece.decode()
                if number and until in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said):
                    process.send_signal(number)
                    number = None
        os.close(ours)
    assert until in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)
    return said
