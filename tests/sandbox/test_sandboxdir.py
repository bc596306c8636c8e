"""The folder of a sandbox: whose it is, who is up in it, and what is plugged in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devplug.sandbox.sandboxdir import (
    SANDBOX_DIR_VARIABLE,
    SandboxDir,
    SandboxDirError,
    SandboxRecord,
    default_folder,
)
from tests.cli.programs import ended, said_until

RECORD = SandboxRecord(
    os.getpid(), "http://127.0.0.1:1/secret", "secret", "2026-11-21T00:00:00Z", ("worker-0",)
)

HOLDS = """
import sys, time
from pathlib import Path
from devplug.sandbox.sandboxdir import SandboxDir, SandboxRecord
place = SandboxDir(Path(sys.argv[1]))
with place.claimed():
    place.announce(SandboxRecord(1, "http://x", "t", "", ("worker-0",)))
    print("up", flush=True)
    sys.stdin.read()
"""


def place_in(folder: Path) -> SandboxDir:
    return SandboxDir(folder / "sb")


def refusal(place: SandboxDir, node_count: int = 1) -> str:
    with pytest.raises(SandboxDirError) as refused, place.claimed(node_count=node_count):
        pass
    return str(refused.value)


# ── where it is ──


def test_the_folder_is_the_one_that_is_named() -> None:
    assert default_folder({SANDBOX_DIR_VARIABLE: "/x", "XDG_RUNTIME_DIR": "/tmp"}, 1000) == Path("/x")


def test_otherwise_it_is_below_the_users_runtime_folder(short_dir: Path) -> None:
    environment = {"XDG_RUNTIME_DIR": str(short_dir)}
    assert default_folder(environment, os.geteuid()) == short_dir / "devplug-sandbox"


@pytest.mark.parametrize("runtime", ["", "relative", "/nowhere/at/all", "/"])
def test_a_runtime_folder_that_is_not_the_users_is_not_taken(runtime: str) -> None:
    assert default_folder({"XDG_RUNTIME_DIR": runtime}, 4242) == Path("/tmp/devplug-sandbox-4242")


def test_nobody_else_may_look_into_it(short_dir: Path) -> None:
    place = place_in(short_dir)
    with place.claimed():
        place.announce(RECORD)
        assert place.folder.stat().st_mode & 0o777 == 0o700
        assert place.record_file.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_others_may_look_into_is_refused_with_the_command_that_mends_it(
    short_dir: Path,
) -> None:
    place = place_in(short_dir)
    place.folder.mkdir(mode=0o755)
    assert f"chmod 700 {place.folder}" in refusal(place)


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(short_dir: Path) -> None:
    place = place_in(short_dir)
    (place.folder / "dev").mkdir(parents=True)
    place.folder.chmod(0o700)
    assert "has other things in it" in refusal(place)
    assert [entry.name for entry in place.folder.iterdir()] == ["dev"]


def test_a_link_is_refused(short_dir: Path) -> None:
    (short_dir / "else").mkdir(mode=0o700)
    place_in(short_dir).folder.symlink_to(short_dir / "else")
    assert "is a link" in refusal(place_in(short_dir))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_is_refused(short_dir: Path) -> None:
    place = place_in(short_dir)
    place.folder.mkdir(mode=0o700)
    os.chown(place.folder, 4242, -1)
    assert "belongs to uid 4242" in refusal(place)


def test_a_folder_that_cannot_be_made_is_refused() -> None:
    assert "name another with --dir" in refusal(SandboxDir(Path("/proc/sb")))


def test_the_sockets_of_our_plugins_fit_into_the_longest_folder_that_is_taken(short_dir: Path) -> None:
    name = "devplug-0123456789ab-4194304-cacao.sock"
    room = 107 - len(f"{short_dir}//nodes/worker-0/device-plugins/{name}")
    place = SandboxDir(short_dir / ("x" * room))
    with place.claimed():
        assert len(str(place.node("worker-0").plugin_dir / name)) == 107
    assert "is 1 byte too long" in refusal(place, node_count=11)
    assert "is 1 byte too long" in refusal(SandboxDir(short_dir / ("x" * (room + 1))))


# ── who is up ──


def test_nobody_is_up_in_a_folder_that_is_not_there(short_dir: Path) -> None:
    assert place_in(short_dir).running() is None


def test_who_is_up_is_known_to_others_once_it_is_announced(short_dir: Path) -> None:
    place = place_in(short_dir)
    with place.claimed():
        assert place.running() is None
        assert place.is_claimed()
        place.announce(RECORD)
        assert place_in(short_dir).running() == RECORD
    assert place.running() is None


def test_two_cannot_be_up_in_one_folder(short_dir: Path) -> None:
    place = place_in(short_dir)
    with place.claimed():
        assert "starts or ends" in refusal(place)
        place.announce(RECORD)
        assert f"(process {os.getpid()})" in refusal(place)
        assert place.running() == RECORD


def test_one_that_was_killed_is_not_up_and_leaves_nothing_in_the_way(short_dir: Path) -> None:
    place = place_in(short_dir)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(place.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said_until(process, "up", on_error=False)
        assert place.running() is not None
    finally:
        process.kill()
        ended(process)
    assert place.record_file.exists()
    assert place.running() is None
    with place.claimed():
        assert not place.record_file.exists()


def test_what_nodes_and_programs_left_is_gone_at_the_next_start(short_dir: Path) -> None:
    place = place_in(short_dir)
    with place.claimed():
        place.node("worker-0").make()
        place.plug(["tty0"])
    assert [entry.name for entry in place.folder.iterdir()] == ["lock"]


def test_what_kubelets_remember_stays_if_the_objects_do(short_dir: Path) -> None:
    place = place_in(short_dir)
    for _ in range(2):
        with place.claimed(keeps=True):
            place.node("worker-0").make()
    assert place.node("worker-0").plugin_dir.is_dir()


# ── devices ──


def test_what_is_plugged_in_can_be_opened_by_everybody(short_dir: Path) -> None:
    place = place_in(short_dir)
    with place.claimed():
        assert place.plug(["tty1", "tty0"]) == ["tty1", "tty0"]
        assert place.plug(["tty1", "tty2"]) == ["tty2"]
        assert place.plugged() == ["tty0", "tty1", "tty2"]
        assert (place.devices / "tty0").is_char_device()
        assert place.unplug(["tty1", "tty9"]) == ["tty1"]
        assert place.plugged() == ["tty0", "tty2"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", ".hidden", "a\nb", "x" * 64])
def test_a_name_that_is_no_file_name_of_a_device_is_refused(short_dir: Path, name: str) -> None:
    place = place_in(short_dir)
    with place.claimed():
        for act in (place.plug, place.unplug):
            with pytest.raises(SandboxDirError):
                act(["tty0", name])
        assert place.plugged() == []
