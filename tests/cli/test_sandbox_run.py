"""`devplug sandbox run` in a sandbox that is up: what a program is told, its signals and its exit code."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devplug.sandbox.sandboxdir import SandboxDir
from tests.cli.programs import DEVPLUG, IN_BACKGROUND, devplug, ended, environment, run, said_until, started
from tests.sandbox.standin import up_in

PYTHON = (sys.executable, "-c")
TELLS = "import json, os, sys; print(json.dumps({'words': sys.argv[1:], **os.environ}))"
WAITS = """
import os, signal, sys, time
signal.signal(signal.{number}, lambda *_: sys.exit(7))
print("ready", os.getpid(), flush=True)
while True: time.sleep(60)
"""
BEARS_ALL = """
import os, signal, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: print("seen", flush=True))
print("ready", os.getpid(), flush=True)
while True: time.sleep(60)
"""


@pytest.fixture
def place(short_dir: Path) -> Iterator[SandboxDir]:
    with up_in(short_dir) as (place, _):
        yield place


def told(place: SandboxDir, *words: str, **variables: str) -> dict[str, Any]:
    ran = devplug("sandbox", "run", *words, DEVPLUG_SANDBOX_DIR=str(place.folder), **variables)
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)  # type: ignore[no-any-return]


def is_gone(pid: int) -> bool:
    """Whether a process ends; its outputs are closed a moment before it has."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], 30)[0])
    finally:
        os.close(fd)


def test_a_program_is_told_where_everything_is(place: SandboxDir) -> None:
    found = told(place, "--", *PYTHON, TELLS, "{dir}", "{dev}/x", "--node={node}")
    assert found["words"] == [
        str(place.folder / "nodes/worker-0/device-plugins"),
        str(place.folder / "dev/x"),
        "--node=worker-0",
    ]
    assert found["DEVPLUG_PLUGIN_DIR"] == str(place.folder / "nodes/worker-0/device-plugins")
    assert found["DEVPLUG_KUBELET_ROOT"] == str(place.folder / "nodes/worker-0")
    assert found["DEVPLUG_CDI_DIR"] == str(place.folder / "nodes/worker-0/cdi")
    assert found["DEVPLUG_SANDBOX_DEV"] == str(place.folder / "dev")
    assert found["DEVPLUG_SANDBOX_DIR"] == str(place.folder)
    assert found["KUBECONFIG"] == str(place.folder / "kubeconfig")
    assert found["NODE_NAME"] == "worker-0"


def test_a_program_runs_on_the_node_that_is_named(place: SandboxDir) -> None:
    place.node("worker-1").make()
    found = told(place, "--node", "worker-1", "--", *PYTHON, TELLS, "{dir}")
    assert found["words"] == [str(place.folder / "nodes/worker-1/device-plugins")]
    assert found["NODE_NAME"] == "worker-1"


def test_a_service_account_is_for_a_sandbox_with_roles(place: SandboxDir) -> None:
    asks = ("sandbox", "run", "--service-account", "a", "--", "true")
    for folder in (place.folder, place.folder / "none"):
        ran = devplug(*asks, DEVPLUG_SANDBOX_DIR=str(folder))
        assert ran.returncode == 2
        assert (
            "--service-account needs a sandbox with roles; start one: devplug sandbox up --rbac" in ran.stderr
        )


def test_a_node_that_is_not_there_is_bad_input(place: SandboxDir) -> None:
    ran = devplug("sandbox", "run", "--dir", place.folder, "--node", "worker-9", "--", "true")
    assert ran.returncode == 2
    assert 'no node "worker-9"; it has worker-0, worker-1' in ran.stderr


def test_output_goes_where_ours_does_and_the_exit_code_is_the_programs(place: SandboxDir) -> None:
    script = "echo out {dir}; echo err >&2; exit 5"
    ran = devplug("sandbox", "run", "--dir", place.folder, "--", "sh", "-c", script)
    folder = place.node("worker-0").plugin_dir
    assert (ran.returncode, ran.stdout, ran.stderr) == (5, f"out {folder}\n", "err\n")


def test_a_program_reads_what_is_piped_in(place: SandboxDir) -> None:
    command = [*DEVPLUG, "sandbox", "run", "--dir", str(place.folder), "--", "cat", "-"]
    ran = subprocess.run(
        command, input="hello", env=environment(), capture_output=True, text=True, check=False, timeout=30
    )
    assert ran.stdout == "hello"


def test_a_program_that_dies_of_a_signal_has_the_shells_exit_code(place: SandboxDir) -> None:
    ran = devplug("sandbox", "run", "--dir", place.folder, "--", "sh", "-c", "kill -9 $$ # {dir}")
    assert ran.returncode == 128 + 9


def test_a_program_that_is_not_there_is_told_in_one_line(place: SandboxDir) -> None:
    for words in (["no-such-program"], ["no-such-program", "{dir}"]):
        ran = devplug("sandbox", "run", "--dir", place.folder, "--", *words)
        assert ran.returncode == 1
        assert re.fullmatch(r"devplug: cannot run no-such-program.*: No such file or directory\n", ran.stderr)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on_and_what_the_program_makes_of_them_counts(
    place: SandboxDir, number: signal.Signals
) -> None:
    script = WAITS.format(number=number.name)
    with started("sandbox", "run", "--dir", place.folder, "--", *PYTHON, script, "{dir}") as process:
        said_until(process, "ready", on_error=False)
        process.send_signal(number)
        assert ended(process) == 7


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 128 + signal.SIGINT), (signal.SIGHUP, 5)])
def test_a_program_of_a_background_job_is_interrupted_and_outlives_its_terminal(
    place: SandboxDir, number: signal.Signals, code: int
) -> None:
    script = f"kill -{number} $$; exit 5 # {{dir}}"
    words = ("sandbox", "run", "--dir", str(place.folder), "--", "sh", "-c", script)
    assert run([*IN_BACKGROUND, *DEVPLUG, *words]).returncode == code


def test_a_program_that_does_not_end_is_killed_at_the_third_signal(place: SandboxDir) -> None:
    with started("sandbox", "run", "--dir", place.folder, "--", *PYTHON, BEARS_ALL, "{dir}") as process:
        pid = int(said_until(process, "ready", on_error=False).split()[1])
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            said_until(process, "seen", on_error=False)
        process.send_signal(signal.SIGINT)
        assert ended(process) == 128 + 9
    assert is_gone(pid)


def test_a_program_does_not_outlive_us_if_we_are_killed(place: SandboxDir) -> None:
    script = WAITS.format(number="SIGTERM")
    with started("sandbox", "run", "--dir", place.folder, "--", *PYTHON, script, "{dir}") as process:
        pid = int(said_until(process, "ready", on_error=False).split()[1])
        process.kill()
        process.communicate(timeout=30)  # which ends when nobody has the outputs any more
    assert is_gone(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_ends_with_its_sandbox(short_dir: Path, number: signal.Signals) -> None:
    script = WAITS.format(number="SIGTERM")
    with started("sandbox", "up", "--dir", short_dir / "sb") as up:
        said_until(up, "sandbox describe", on_error=False)
        command = ("sandbox", "run", "--dir", short_dir / "sb", "--", *PYTHON, script, "{dir}")
        with started(*command) as process:
            said_until(process, "ready", on_error=False)
            up.send_signal(number)
            said_until(process, "the sandbox has ended, and its program was stopped with it")
            assert ended(process) == 7


def test_what_the_program_started_ends_with_it(place: SandboxDir) -> None:
    script = "sleep 600 >/dev/null 2>&1 & echo $! # {dir}"
    ran = devplug("sandbox", "run", "--dir", place.folder, "--", "sh", "-c", script)
    assert is_gone(int(ran.stdout))


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="only root may mount")
def test_a_program_that_is_told_no_folder_finds_the_nodes_at_the_kubelets_path(place: SandboxDir) -> None:
    (place.node("worker-0").plugin_dir / "here").touch()
    ran = devplug("sandbox", "run", "--dir", place.folder, "--", "ls", "/var/lib/kubelet/device-plugins")
    if "mount" in ran.stderr:
        pytest.skip("this root may not mount")
    assert (ran.returncode, ran.stdout) == (0, "here\n")


def test_without_a_command_the_usage_is_shown() -> None:
    ran = run([*DEVPLUG, "sandbox", "run"])
    assert ran.returncode == 2
    assert "Usage: " in ran.stderr
