"""The writing of CDI files: whole at every moment, also when the writer dies or the disk is full."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devplug.cdi.spec import CdiDevice, CdiSpec, text
from devplug.daemon.cdi.spec_files import CdiFolder, file_name
from devplug.errors import KubeletError, PluginError
from tests.daemon.cdi.spec_folders import CAMERA, HUGE, KIND, ONE, TWO, ended_daemon, names_in, started

# ── writing ────────────────────────────────────────────────────────────────────────────────────────


def test_a_spec_is_written_for_everybody_to_read_and_nothing_else_is_left(
    cdi: CdiFolder, folder: Path
) -> None:
    assert cdi.write(ONE)
    assert names_in(folder) == [file_name(KIND)]
    file = folder / file_name(KIND)
    assert file.read_text() == text(ONE)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_strict_umask_changes_no_mode(tmp_path: Path) -> None:
    program = (
        "import os, sys; os.umask(0o077); from tests.daemon.cdi.spec_folders import ONE, CdiFolder, Path;"
        "CdiFolder(Path(sys.argv[1])).write(ONE)"
    )
    run(program, tmp_path / "cdi")
    assert stat.S_IMODE((tmp_path / "cdi").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "cdi" / file_name(KIND)).stat().st_mode) == 0o644


def test_what_is_there_already_is_not_written_again(cdi: CdiFolder, folder: Path) -> None:
    cdi.write(ONE)
    before = (folder / file_name(KIND)).stat()
    assert not cdi.write(ONE)
    after = (folder / file_name(KIND)).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_what_a_daemon_before_us_wrote_is_not_written_again(cdi: CdiFolder, folder: Path) -> None:
    ended_daemon(folder, ONE)
    before = (folder / file_name(KIND)).stat().st_ino
    assert not cdi.write(ONE)
    assert (folder / file_name(KIND)).stat().st_ino == before


def test_a_new_spec_takes_the_place_of_the_old_one(cdi: CdiFolder, folder: Path) -> None:
    cdi.write(ONE)
    assert cdi.write(TWO)
    assert names_in(folder) == [file_name(KIND)]
    assert cdi.read(KIND) == TWO


def test_a_file_that_somebody_removed_is_written_again(cdi: CdiFolder, folder: Path) -> None:
    cdi.write(ONE)
    (folder / file_name(KIND)).unlink()
    assert cdi.write(ONE)
    assert cdi.read(KIND) == ONE


def test_an_empty_file_that_a_power_cut_left_is_written_again(cdi: CdiFolder, folder: Path) -> None:
    folder.mkdir()
    (folder / file_name(KIND)).touch()
    assert cdi.write(ONE)


def test_the_longest_kind_has_a_file_name_that_fits(cdi: CdiFolder, folder: Path) -> None:
    longest = CdiSpec(f"devplug.{'a' * 244}/{'b' * 63}", ONE.devices)
    cdi.write(longest)
    cdi.write(CdiSpec(f"devplug.{'a' * 244}/{'b' * 62}", ONE.devices))
    assert len(names_in(folder)) == 2
    assert cdi.read(longest.kind) == longest


def test_a_spec_that_runtimes_would_drop_is_refused_and_the_old_file_stays(cdi: CdiFolder) -> None:
    cdi.write(ONE)
    broken = CdiSpec(KIND, (CdiDevice("aa"), CdiDevice("b c")))
    with pytest.raises(PluginError) as caught:
        cdi.write(broken)
    assert len(caught.value.faults) == 3
    assert caught.value.faults[0].startswith(f'CDI spec "{KIND}": device "aa": it gives nothing')
    assert cdi.read(KIND) == ONE


@pytest.mark.parametrize("content", ["# mine", text(CAMERA), '{"kind": "nvidia.com/gpu"}'])
def test_a_foreign_file_with_our_name_is_never_written_over(
    cdi: CdiFolder, folder: Path, content: str
) -> None:
    folder.mkdir()
    (folder / file_name(KIND)).write_text(content)
    with pytest.raises(
        KubeletError, match="was not written by devplug, which must write there; move it away"
    ):
        cdi.write(ONE)
    assert (folder / file_name(KIND)).read_text() == content
    assert cdi.read(KIND) is None
    assert not cdi.remove(KIND)
    assert names_in(folder) == [file_name(KIND)]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/etc/passwd")])
def test_what_is_no_file_is_neither_opened_nor_written_over(
    cdi: CdiFolder, folder: Path, make: object
) -> None:
    assert callable(make)
    folder.mkdir()
    make(folder / file_name(KIND))
    with pytest.raises(
        KubeletError, match="is not a regular file, but devplug must write one there; move it away"
    ):
        cdi.write(ONE)
    assert cdi.read(KIND) is None
    assert cdi.clean([], []) == []
    assert names_in(folder) == [file_name(KIND)]


# ── deaths in the middle ───────────────────────────────────────────────────────────────────────────


DYING = """
import json, os, resource, signal, sys
from devplug.cdi.spec import text
from devplug.daemon.cdi.spec_files import file_name
from tests.daemon.cdi.spec_folders import HUGE, KIND, ONE, CdiFolder, Path, names_in

def die_at(step):
    seen = 0
    def count(event, args):
        nonlocal seen
        seen += 1
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)

def die_after_4096_bytes(_):
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

folder = Path(sys.argv[1])
for step in range(100):
    with_before = CdiFolder(folder)
    with_before.write(ONE)
    with_before.close()
    child = os.fork()
    if child == 0:
        (die_at if step else die_after_4096_bytes)(step)
        CdiFolder(folder).write(HUGE)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    whole = (folder / file_name(KIND)).read_text() in {text(ONE), text(HUGE)}
    remains = [path.stat().st_size for path in folder.glob(".*.tmp")]
    CdiFolder(folder).clean([KIND], [])
    print(json.dumps([status, whole, remains, names_in(folder)]))
    if status == 0:
        break
"""


def run(program: str, folder: Path) -> str:
    with started(program, folder) as process:
        out, errors = process.communicate()
    assert process.returncode == 0, errors
    return out


def test_a_death_at_any_step_of_a_write_leaves_a_whole_file_and_remains_that_the_next_start_removes(
    folder: Path,
) -> None:
    steps = [json.loads(line) for line in run(DYING, folder).splitlines()]
    assert all(whole for _, whole, *_ in steps)
    assert all(left == [file_name(KIND)] for *_, left in steps)
    assert [remains for _, _, remains, _ in steps if remains] == [
        [4096],  # in the middle of the content
        *[[0]] * 3,  # before the lock, the mode and the content
        [len(text(HUGE).encode())],  # before the rename
    ]
    assert [status == 0 for status, *_ in steps] == [False] * (len(steps) - 1) + [True]


def test_a_write_that_is_cut_short_leaves_the_old_file_and_no_remains(cdi: CdiFolder, folder: Path) -> None:
    cdi.write(ONE)
    cdi.close()
    program = """
import resource, sys
from devplug.errors import KubeletError
from tests.daemon.cdi.spec_folders import HUGE, CdiFolder, Path
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    CdiFolder(Path(sys.argv[1])).write(HUGE)
except KubeletError as error:
    print(error)
"""
    assert run(program, folder).startswith(f"cannot write {folder}: File too large; look at")
    assert names_in(folder) == [file_name(KIND)]
    assert cdi.read(KIND) == ONE


@contextmanager
def small_file_system(path: Path, options: str) -> Iterator[None]:
    path.mkdir(exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"{options},mode=755", "devplug-test", path],
        check=True,
        capture_output=True,
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def _may_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_file_system(Path(folder, "small"), "size=64k"):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


needs_mount = pytest.mark.skipif(not _may_mount(), reason="only uid 0 with CAP_SYS_ADMIN mounts file systems")


@needs_mount
def test_a_full_disk_leaves_the_old_file_and_heals_when_there_is_room(cdi: CdiFolder, folder: Path) -> None:
    with small_file_system(folder, "size=16k"):
        cdi.write(ONE)
        with pytest.raises(KubeletError, match="No space left on device; make room in that file system"):
            cdi.write(HUGE)
        assert names_in(folder) == [file_name(KIND)]
        assert cdi.read(KIND) == ONE
        subprocess.run(["mount", "-o", "remount,size=4m", folder], check=True)
        assert cdi.write(HUGE)
        assert cdi.read(KIND) is not None
        cdi.close()


@needs_mount
def test_a_read_only_folder_is_told_with_what_to_change(cdi: CdiFolder, folder: Path) -> None:
    with small_file_system(folder, "size=64k"):
        cdi.write(ONE)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        with pytest.raises(
            KubeletError, match="Read-only file system; mount the host's /var/run/cdi there, and"
        ):
            cdi.write(TWO)
        assert not cdi.write(ONE)
        cdi.close()


def test_a_folder_that_cannot_be_made_is_told_with_what_to_mount(tmp_path: Path) -> None:
    with pytest.raises(KubeletError, match=r"cannot write .*/gone/cdi: No such file .*; mount the host's"):
        CdiFolder(tmp_path / "gone" / "cdi").write(ONE)
    (tmp_path / "file").touch()
    with pytest.raises(KubeletError, match="Not a directory; mount the host's"):
        CdiFolder(tmp_path / "file").write(ONE)
