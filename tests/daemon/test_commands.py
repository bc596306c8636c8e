"""Commands of the file: what they get, how they end, and that nothing of them stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from devplug.daemon.commands import CommandResult, command_arguments, command_environment, run_command
from devplug.daemon.config.templates import Missing, parse_template
from devplug.daemon.sources.device import HostDevice
from tests.waiting import until

ENV = {"PATH": os.environ["PATH"]}


def shell(script: str, *, timeout_seconds: float = 10, grace_seconds: float = 1) -> CommandResult:
    """Run a script; a shell is a program like any other."""
    return asyncio.run(
        run_command(
            ["/bin/sh", "-c", script], timeout_seconds=timeout_seconds, env=ENV, grace_seconds=grace_seconds
        )
    )


def is_running(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def open_files() -> list[Path]:
    return sorted(Path("/proc/self/fd").iterdir())


async def assert_all_end(pids: str) -> None:
    await until(lambda: not any(is_running(int(pid)) for pid in pids.split()))


# ── what a command gets ───────────────────────────────────────────────────────────────────────────


async def test_a_command_gets_its_arguments_as_they_are_and_no_shell() -> None:
    result = await run_command(["/bin/echo", "$HOME; *", "a  b", "`id`"], timeout_seconds=10, env=ENV)
    assert result.first_line == "$HOME; * a  b `id`"
    assert result.exit_code == 0


async def test_a_command_gets_the_given_environment_and_nothing_else() -> None:
    result = await run_command(["/usr/bin/env"], timeout_seconds=10, env={"A": "1", "B": "x y"})
    assert result.output.split("\n")[:2] == ["A=1", "B=x y"]
    assert set(result.output.split("\n")[2:]) == {""}


def test_a_command_runs_in_the_root_folder_in_a_session_of_its_own_without_input() -> None:
    result = shell("pwd; cat; cut -d' ' -f1,5,6 /proc/$$/stat")
    assert result.exit_code == 0
    folder, numbers = result.output.split()[0], result.output.split()[1:4]
    assert folder == "/"
    assert len(set(numbers)) == 1, "pid, group and session are one"


def test_arguments_are_made_of_what_is_known_of_the_device() -> None:
    found = HostDevice("dongle", facts={"serial": "A 7"})
    command = [parse_template("/opt/test"), parse_template("--port={serial}"), parse_template("{id}")]
    assert command_arguments(command, found) == ("/opt/test", "--port=A 7", "dongle")


def test_a_device_without_a_value_makes_no_command() -> None:
    missing = command_arguments(
        [parse_template("/opt/test"), parse_template("{serial}")], HostDevice("dongle")
    )
    assert isinstance(missing, Missing)
    assert missing.reason == "no value for {serial}"


def test_the_environment_says_what_is_known_of_the_device() -> None:
    found = HostDevice(
        "dongle", facts={"pciAddress": "0000:01:00.0", "attr.idVendor": "0403\0", "numaNode": 1}
    )
    assert command_environment("example.com/a", found) == {
        "PATH": os.environ["PATH"],
        "DEVPLUG_RESOURCE_NAME": "example.com/a",
        "DEVPLUG_DEVICE_ID": "dongle",
        "DEVPLUG_PCI_ADDRESS": "0000:01:00.0",
        "DEVPLUG_ATTR_ID_VENDOR": "0403",
        "DEVPLUG_NUMA_NODE": "1",
    }


# ── how it ends ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [0, 1, 77])
def test_the_exit_code_is_the_commands_own(code: int) -> None:
    assert shell(f"exit {code}") == CommandResult(code, "\n")


def test_a_command_that_a_signal_ends_says_which() -> None:
    assert shell("kill -SEGV $$").exit_code == -signal.SIGSEGV


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("echo out; echo err >&2", "out"),
        ("echo err >&2; echo; echo '  out '", "out"),
        ("echo err >&2", "err"),
        ("true", ""),
    ],
)
def test_the_first_line_is_of_the_output_or_else_of_the_errors(script: str, line: str) -> None:
    assert shell(script).first_line == line


def test_an_endless_output_is_cut_and_does_not_block_the_command() -> None:
    result = shell("echo first; head -c 1000000 /dev/zero | tr '\\0' x; head -c 300000 /dev/zero >&2")
    assert (result.exit_code, result.first_line) == (0, "first")
    assert len(result.output) <= 2 * 4096 + 1


def test_output_that_is_no_text_is_kept_as_far_as_it_is() -> None:
    assert shell(r"printf 'a\377b'").first_line == "a�b"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("/nowhere/at/all", '"/nowhere/at/all" cannot be started: No such file or directory'),
        ("/etc/passwd", '"/etc/passwd" cannot be started: Permission denied'),
        ("/bin/a\0b", '"/bin/a\\u0000b" cannot be started: embedded null byte'),
    ],
)
async def test_a_command_that_cannot_be_started_says_why(program: str, reason: str) -> None:
    result = await run_command([program], timeout_seconds=10, env=ENV)
    assert (result.exit_code, result.fault) == (None, reason)


# ── late, cancelled, left behind ──────────────────────────────────────────────────────────────────


def late(script: str, *, grace_seconds: float = 30) -> CommandResult:
    """Run a script that says something and is too late then; a busy machine may need longer until it does."""
    for seconds in (0.3, 3):
        result = shell(script, timeout_seconds=seconds, grace_seconds=grace_seconds)
        if result.output:
            return result
    return shell(script, timeout_seconds=30, grace_seconds=grace_seconds)


def test_a_late_command_is_told_to_end_and_may_clean_up() -> None:
    result = late("trap 'echo cleaned; exit 0' TERM; echo on; while :; do :; done")
    assert result.was_killed
    assert result.output.split() == ["on", "cleaned"]


def test_a_late_command_that_does_not_listen_is_killed_with_all_its_children() -> None:
    script = "trap '' TERM; sleep 60 & echo $$ $!; wait; while :; do :; done"
    result = late(script, grace_seconds=0.1)
    assert (result.was_killed, result.exit_code) == (True, -signal.SIGKILL)
    assert len(result.output.split()) == 2
    asyncio.run(assert_all_end(result.output))


def test_what_a_command_leaves_running_in_its_group_ends_with_it() -> None:
    result = shell("sleep 60 & echo $!")
    assert (result.exit_code, result.was_killed) == (0, False)
    asyncio.run(assert_all_end(result.output))


def test_a_process_in_a_session_of_its_own_holds_nobody_up(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = f"setsid sh -c 'echo $$ > {file}; exec sleep 60' & while ! [ -s {file} ]; do :; done; echo done"
    result = shell(script)
    pid = int(file.read_text())
    try:
        assert (result.exit_code, result.first_line) == (0, "done")
        assert is_running(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_a_cancelled_command_is_killed_at_once_with_its_children(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    script = f"trap '' TERM; sleep 60 & echo $$ $! > {file}; wait; while :; do :; done"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(
            run_command(["/bin/sh", "-c", script], timeout_seconds=60, env=ENV, grace_seconds=60)
        )
        await until(lambda: file.exists() and len(file.read_text().split()) == 2)
        task.cancel()
    assert task.cancelled()
    leader, child = map(int, file.read_text().split())
    assert not Path(f"/proc/{leader}").exists(), "it was reaped"
    await until(lambda: not is_running(child))


async def test_however_a_command_ends_it_is_reaped_and_no_file_stays_open() -> None:
    before = open_files()
    for script, seconds in (("echo $$", 30), ("echo $$; kill $$", 30), ("echo $$; sleep 60", 0.3)):
        result = await run_command(["/bin/sh", "-c", script], timeout_seconds=seconds, env=ENV)
        assert not result.first_line or not Path(f"/proc/{result.first_line}").exists()
    await run_command(["/nowhere"], timeout_seconds=1, env=ENV)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await run_command(["/bin/sleep", "60"], timeout_seconds=60, env=ENV)
    assert open_files() == before


async def test_many_commands_run_beside_each_other() -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(run_command(["/bin/echo", f"{n}"], timeout_seconds=10, env=ENV))
            for n in range(30)
        ]
    assert [task.result().first_line for task in tasks] == [str(n) for n in range(30)]
