"""CDI files: whole at every moment, ours to the last, nobody else's; in real folders, with real deaths."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devplug.cdi.spec import CdiDevice, CdiNode, CdiSpec, qualified_name, text
from devplug.daemon.cdi.spec_files import CdiFolder, file_name
from devplug.errors import KubeletError, PluginError

KIND = "devplug.example.com/serial"
OTHER_KIND = "devplug.example.com/camera"
ONE = CdiSpec(KIND, (CdiDevice("one", (CdiNode("/dev/serial0", "/dev/ttyUSB0"),)),))
TWO = CdiSpec(KIND, (CdiDevice("two", (CdiNode("/dev/serial0", "/dev/ttyUSB1"),)),))
CAMERA = CdiSpec(OTHER_KIND, (CdiDevice("front", (CdiNode("/dev/video0", "/dev/video0"),)),))
HUGE = CdiSpec(KIND, tuple(CdiDevice(f"d{n}", (CdiNode(f"/dev/x{n}", f"/dev/y{n}"),)) for n in range(2000)))
REMAINS = ".devplug-0123456789ab-7-01234567.tmp"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cdi"


@pytest.fixture
def cdi(folder: Path) -> Iterator[CdiFolder]:
    made = CdiFolder(folder)
    yield made
    made.close()


def ended_daemon(folder: Path, *specs: CdiSpec) -> None:
    """A daemon that wrote these and ended."""
    daemon = CdiFolder(folder)
    for spec in specs:
        daemon.write(spec)
    daemon.close()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# ── writing ───────────────────────────────────────────────────────────────────────────────────────


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
        "import os, sys; os.umask(0o077); from tests_cdi import ONE, CdiFolder, Path;"
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


# ── deaths in the middle ──────────────────────────────────────────────────────────────────────────

DYING = """
import json, resource, signal
from tests_cdi import *

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


@contextmanager
def started(program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that runs a program which can import this file."""
    with tempfile.TemporaryDirectory() as made:
        Path(made, "tests_cdi.py").symlink_to(Path(__file__).resolve())
        with subprocess.Popen(
            [sys.executable, "-c", program, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": made, "PYTHONDONTWRITEBYTECODE": "1"},
        ) as process:
            yield process


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
from tests_cdi import *
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
        ["mount", "-t", "tmpfs", "-o", options, "devplug-test", path], check=True, capture_output=True
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


# ── removing ──────────────────────────────────────────────────────────────────────────────────────


def test_only_the_file_of_that_kind_is_removed(cdi: CdiFolder, folder: Path) -> None:
    cdi.write(ONE)
    cdi.write(CAMERA)
    assert cdi.remove(KIND)
    assert not cdi.remove(KIND)
    assert names_in(folder) == [file_name(OTHER_KIND)]
    assert cdi.write(ONE)


def test_an_end_leaves_the_files_because_containers_restart(folder: Path) -> None:
    ended_daemon(folder, ONE)
    assert CdiFolder(folder).read(KIND) == ONE


def test_a_start_removes_what_no_resource_needs_and_leaves_the_rest(cdi: CdiFolder, folder: Path) -> None:
    ended_daemon(folder, ONE, CAMERA)
    foreign = ["nvidia.yaml", "devplug.json", "devplug.io-gpu.json", "spec.123.tmp", ".devplug-notes.tmp"]
    for name in foreign:
        (folder / name).write_text(text(ONE))
    (folder / REMAINS).write_text("{")
    assert cdi.clean([OTHER_KIND], []) == [REMAINS, file_name(KIND)]
    assert names_in(folder) == sorted([*foreign, file_name(OTHER_KIND)])


def test_a_file_with_a_name_that_a_container_may_hold_stays(cdi: CdiFolder, folder: Path) -> None:
    ended_daemon(folder, ONE, CAMERA)
    assert cdi.clean([], [qualified_name(KIND, "one"), qualified_name(OTHER_KIND, "one")]) == [
        file_name(OTHER_KIND)
    ]
    assert cdi.read(KIND) == ONE


def test_a_copy_of_our_file_is_not_ours_and_stays_with_a_warning(
    cdi: CdiFolder, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended_daemon(folder, ONE)
    (folder / file_name(OTHER_KIND)).write_text(text(ONE))
    assert cdi.clean([KIND], []) == []
    assert [record.message for record in caplog.records] == [
        "a CDI file with a name of devplug's was not written by devplug; it is left alone"
    ]


def test_there_is_nothing_to_clean_where_no_folder_is(tmp_path: Path) -> None:
    assert CdiFolder(tmp_path / "none").clean([], []) == []
    assert not (tmp_path / "none").exists()


# ── two daemons on one machine ────────────────────────────────────────────────────────────────────


def test_a_start_leaves_the_files_of_another_living_daemon(cdi: CdiFolder, folder: Path) -> None:
    cdi.write(ONE)
    other = CdiFolder(folder)
    assert other.clean([], []) == []
    assert not other.remove(KIND)
    cdi.write(TWO)
    assert other.clean([], []) == []
    cdi.close()
    assert other.clean([], []) == [file_name(KIND)]


def test_a_daemon_never_cleans_up_what_it_serves(cdi: CdiFolder) -> None:
    cdi.write(ONE)
    assert cdi.clean([], []) == []
    assert cdi.remove(KIND)


def test_a_successor_takes_the_file_over_and_its_predecessor_cannot_remove_it(folder: Path) -> None:
    old, new = CdiFolder(folder), CdiFolder(folder)
    old.write(ONE)
    assert new.write(ONE), "the lock is the other's, so the file must be made anew"
    assert not old.remove(KIND)
    old.close()
    assert CdiFolder(folder).clean([], []) == []
    assert new.read(KIND) == ONE
    new.close()


def test_files_that_are_kept_open_are_as_many_as_there_are_kinds(cdi: CdiFolder) -> None:
    cdi.write(CAMERA)
    cdi.write(ONE)
    before = open_files()
    for _ in range(5):
        cdi.write(TWO)
        cdi.write(ONE)
        cdi.write(ONE)
        cdi.read(KIND)
        cdi.clean([], [])
    assert open_files() == before
    cdi.close()
    cdi.close()
    assert open_files() == before - 2


READING = """
from tests_cdi import *
path = Path(sys.argv[1]) / file_name(KIND)
print("reading", flush=True)
seen = set()
while not (path.parent / "stop").exists():
    seen.add(path.read_text())
print(seen <= {text(ONE), text(HUGE)})
"""


def test_a_reader_never_sees_half_a_file(cdi: CdiFolder, folder: Path) -> None:
    cdi.write(ONE)
    with started(READING, folder) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        for _ in range(8):
            cdi.write(HUGE)
            cdi.write(ONE)
        (folder / "stop").touch()
        assert reader.communicate() == ("True\n", "")
