"""Who may serve a name in a folder, and which sockets may be removed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.plugin.resource_lock import LOCK_FOLDER, ResourceLock, new_socket_name, remove_stale_sockets
from tests.plugin.fakes import OTHER_RESOURCE, RESOURCE

# ── names ──


@given(st.text(min_size=1, max_size=400))
def test_a_socket_name_is_one_file_name_of_at_most_forty_bytes(resource_name: str) -> None:
    name = new_socket_name(resource_name)
    assert len(os.fsencode(name)) <= 40
    assert "/" not in name
    assert name.startswith("devplug-")
    assert name.endswith(".sock")


def test_each_socket_name_is_new() -> None:
    assert len({new_socket_name(RESOURCE) for _ in range(50)}) > 45  # of 65,536 in each process


def test_socket_names_of_two_resources_differ_in_their_first_part() -> None:
    first, second = new_socket_name(RESOURCE), new_socket_name(OTHER_RESOURCE)
    assert first[:20] != second[:20]
    assert new_socket_name(RESOURCE)[:20] == first[:20]


# ── the lock ──


def test_a_free_name_can_be_taken_once(short_dir: Path) -> None:
    lock, other = ResourceLock(short_dir, RESOURCE), ResourceLock(short_dir, RESOURCE)
    assert not lock.is_held()
    assert lock.take() is None
    assert lock.is_held()
    assert other.take() == f"process {os.getpid()}"
    assert not other.is_held()
    lock.release()
    assert other.take() is None
    other.release()


def test_another_name_or_another_folder_is_free(short_dir: Path) -> None:
    (short_dir / "b").mkdir()
    locks = [
        ResourceLock(short_dir, RESOURCE),
        ResourceLock(short_dir, OTHER_RESOURCE),
        ResourceLock(short_dir / "b", RESOURCE),
    ]
    assert [lock.take() for lock in locks] == [None, None, None]
    for lock in locks:
        lock.release()


def test_owner_sees_who_waits_for_its_lock(short_dir: Path) -> None:
    owner, others = ResourceLock(short_dir, RESOURCE), [ResourceLock(short_dir, RESOURCE) for _ in range(2)]
    assert owner.take() is None
    assert not owner.is_wanted()
    for other in others:
        assert other.take() is not None
    assert owner.is_wanted()
    owner.release()
    assert others[0].take() is None
    others[0].release()
    others[1].release()
    assert [*short_dir.iterdir()] == []


def test_owner_keeps_its_lock_where_it_cannot_see_who_waits(short_dir: Path) -> None:
    """As without a free descriptor."""
    owner = ResourceLock(short_dir, RESOURCE)
    assert owner.take() is None
    owner.wanted_path.mkdir()
    assert not owner.is_wanted()


def test_releasing_leaves_nothing_and_may_be_repeated(short_dir: Path) -> None:
    lock = ResourceLock(short_dir, RESOURCE)
    lock.release()
    lock.take()
    lock.release()
    lock.release()
    assert list(short_dir.iterdir()) == []


def test_the_folder_of_the_locks_stays_while_another_lock_is_in_it(short_dir: Path) -> None:
    first, second = ResourceLock(short_dir, RESOURCE), ResourceLock(short_dir, OTHER_RESOURCE)
    first.take()
    second.take()
    first.release()
    assert second.is_held()
    second.release()
    assert list(short_dir.iterdir()) == []


def test_the_locks_are_nobody_elses_to_read(short_dir: Path) -> None:
    lock = ResourceLock(short_dir, RESOURCE)
    lock.take()
    assert (short_dir / LOCK_FOLDER).stat().st_mode & 0o777 == 0o700
    assert lock.path.stat().st_mode & 0o777 == 0o600
    lock.release()


@pytest.mark.parametrize("loss", ["removed", "replaced", "folder removed"])
def test_a_lock_whose_file_others_would_not_find_is_lost(short_dir: Path, loss: str) -> None:
    lock = ResourceLock(short_dir, RESOURCE)
    lock.take()
    if loss == "folder removed":
        shutil.rmtree(short_dir / LOCK_FOLDER)
    else:
        lock.path.unlink()
    if loss == "replaced":
        lock.path.touch()
    assert not lock.is_held()
    assert lock.take() is None
    assert lock.is_held()
    lock.release()


def test_a_lost_lock_is_not_removed_with_the_file_of_its_next_owner(short_dir: Path) -> None:
    lock, other = ResourceLock(short_dir, RESOURCE), ResourceLock(short_dir, RESOURCE)
    lock.take()
    lock.path.unlink()
    assert other.take() is None
    lock.release()
    assert other.is_held()
    other.release()


def test_the_lock_of_a_dead_process_is_free(short_dir: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from devplug.plugin.resource_lock import ResourceLock; "
        f"lock = ResourceLock(Path(sys.argv[1]), {RESOURCE!r}); assert lock.take() is None; os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(short_dir)], check=False)
    assert done.returncode == 9
    lock = ResourceLock(short_dir, RESOURCE)
    assert lock.path.exists()
    assert lock.take() is None
    assert lock.path.read_text() == f"process {os.getpid()}\n"
    lock.release()


def test_a_folder_that_takes_no_lock_says_why(short_dir: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ResourceLock(short_dir / "missing", RESOURCE).take()
    (short_dir / LOCK_FOLDER).touch()
    with pytest.raises(OSError, match="File exists"):
        ResourceLock(short_dir, RESOURCE).take()


# ── stale sockets ──


def bound(stack: ExitStack, path: Path, *, listening: bool) -> None:
    server = stack.enter_context(socket.socket(socket.AF_UNIX))
    server.bind(str(path))
    if listening:
        server.listen()
    else:
        server.close()


def test_only_dead_sockets_of_the_same_name_are_removed(short_dir: Path) -> None:
    with ExitStack() as stack:
        dead = [new_socket_name(RESOURCE) for _ in range(3)]
        for name in dead:
            bound(stack, short_dir / name, listening=False)
        bound(stack, short_dir / new_socket_name(RESOURCE), listening=True)
        bound(stack, short_dir / new_socket_name(OTHER_RESOURCE), listening=False)
        bound(stack, short_dir / "nvidia-gpu.sock", listening=False)
        bound(stack, short_dir / "kubelet.sock", listening=False)
        (short_dir / new_socket_name(RESOURCE)).touch()
        (short_dir / new_socket_name(RESOURCE)).mkdir()
        (short_dir / new_socket_name(RESOURCE)).symlink_to("nvidia-gpu.sock")
        before = {path.name for path in short_dir.iterdir()}
        assert sorted(remove_stale_sockets(short_dir, RESOURCE)) == sorted(dead)
        assert before - {path.name for path in short_dir.iterdir()} == set(dead)


def test_a_socket_whose_maker_was_killed_before_it_had_its_name_is_removed(short_dir: Path) -> None:
    program = (
        "import asyncio, os, sys; from pathlib import Path; from devplug.wire.sockets import Listener\n"
        "Path.hardlink_to = lambda *_: os._exit(9)\n"
        "asyncio.run(Listener(Path(sys.argv[1]), ()).bind())"
    )
    path = short_dir / new_socket_name(RESOURCE)
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 9
    (left,) = (path.name for path in short_dir.iterdir())
    assert left.startswith(".")
    assert remove_stale_sockets(short_dir, OTHER_RESOURCE) == []
    assert remove_stale_sockets(short_dir, RESOURCE) == [left]
    assert list(short_dir.iterdir()) == []


def test_a_live_socket_that_is_too_busy_to_answer_is_kept(short_dir: Path) -> None:
    with ExitStack() as stack:
        path = short_dir / new_socket_name(RESOURCE)
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(str(path))
        server.listen(0)
        for _ in range(3):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            client.connect_ex(str(path))
        assert remove_stale_sockets(short_dir, RESOURCE) == []
        assert path.exists()


def test_a_folder_without_sockets_has_nothing_to_remove(short_dir: Path) -> None:
    assert remove_stale_sockets(short_dir, RESOURCE) == []
    assert remove_stale_sockets(short_dir / "missing", RESOURCE) == []
