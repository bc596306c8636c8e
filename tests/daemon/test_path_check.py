"""Where paths lead right now, and who could change that.

Nothing more gets into a container than the file says.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest

from devplug.daemon.container_response import shares_of
from devplug.daemon.path_check import check_shares, node_fault, resolved
from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from devplug.daemon.sources.host import Host
from devplug.devices import Device
from devplug.errors import ForbiddenPathError, UnhealthyDeviceError
from devplug.linux.trust import open_to
from tests.daemon.hosts import block_node, char_node, link, needs_mknod, resource
from tests.deploy.security_context import seccomp

Result = TypeVar("Result")

PR_SET_NO_NEW_PRIVS: Final = 38
OPENAT2: Final = 437
RESOLVE_IN_ROOT: Final = 0x10
BUSY: Final = "could not be looked up: something renames or mounts files on this machine without pause"
NULL = HostDeviceNode("/dev/null", (1, 3))


def fault(node: HostDeviceNode, host: Host | None = None) -> str | None:
    return node_fault(host or Host(), node)


def checked(expose: str, rest: str = "", host: Host | None = None, **facts: str) -> None:
    """Check what a container would get of a device with these facts."""
    one = resource(f'discover: {{path: "/dev/x*"}}, expose: {{{expose}}}, {rest}'.rstrip(", "))
    check_shares(host or Host(), shares_of([Device("x")], {"x": HostDevice("x", facts=facts)}, one), one)


def forbidden(expose: str, rest: str = "", host: Host | None = None, **facts: str) -> str:
    with pytest.raises(ForbiddenPathError) as refused:
        checked(expose, rest, host, **facts)
    return str(refused.value)


# ── where a path leads ──


def test_a_path_leads_to_what_lies_there() -> None:
    place = resolved(Host(), "/dev/null")
    assert place is not None
    assert (place.real_path, stat.S_ISCHR(place.mode), place.number) == ("/dev/null", True, (1, 3))


def test_links_are_followed_to_their_end(tmp_path: Path) -> None:
    link(tmp_path / "b", "/dev/null")
    link(tmp_path / "a", "b")
    place = resolved(Host(), f"{tmp_path}/a")
    assert place is not None
    assert place.real_path == "/dev/null"


def test_a_path_that_leads_nowhere_is_none(tmp_path: Path) -> None:
    link(tmp_path / "dangling", "/dev/devplug-none")
    assert resolved(Host(), f"{tmp_path}/dangling") is None
    assert resolved(Host(), f"{tmp_path}/none/at/all") is None


def test_a_rename_elsewhere_on_the_machine_hides_nothing(tmp_path: Path) -> None:
    """The kernel gives up a path with `..` for any rename at that moment, and asks to be called again."""
    (tmp_path / "below").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "below" / "link").symlink_to("../file")
    (tmp_path / "a").touch()
    renames = "import os\nprint(flush=True)\nwhile True: os.rename('a', 'b'); os.rename('b', 'a')"
    with subprocess.Popen([sys.executable, "-c", renames], cwd=tmp_path, stdout=subprocess.PIPE) as elsewhere:
        try:
            assert elsewhere.stdout is not None
            elsewhere.stdout.readline()
            host = Host(tmp_path)
            given_up = 0
            for _ in range(60_000):  # with one processor hardly any rename comes between
                assert resolved(host, "/below/link")
                given_up += gives_up(tmp_path, "below/link")
                if given_up == 20:
                    break
        finally:
            elsewhere.kill()


def gives_up(root: Path, path: str) -> bool:
    """Whether openat2 asks for another try."""
    folder = os.open(root, os.O_PATH)
    try:
        how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT)
        libc = ctypes.CDLL(None, use_errno=True)
        place: int = libc.syscall(OPENAT2, folder, os.fsencode(path), how, len(how))
        if place >= 0:
            os.close(place)
        elif ctypes.get_errno() != errno.EAGAIN:
            pytest.skip(f"openat2: {os.strerror(ctypes.get_errno())}")
        return place < 0
    finally:
        os.close(folder)


def in_a_thread_whose_kernel_is_busy(check: Callable[[], Result]) -> Result:
    """Call a check where openat2 always asks for another try, as it does under renames without pause."""
    found: list[Result] = []

    def call() -> None:
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        seccomp.install(seccomp.refusing_program(OPENAT2, errno.EAGAIN))
        found.append(check())

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return found[0]


def test_a_node_that_cannot_be_looked_up_for_renames_is_not_called_missing() -> None:
    assert in_a_thread_whose_kernel_is_busy(lambda: fault(NULL)) == f'"/dev/null" {BUSY}'


def test_a_mount_that_cannot_be_looked_up_for_renames_is_refused() -> None:
    """Nothing is known of where it leads, so it must not be left to the runtime as one that is not there."""

    def refusal() -> str:
        with pytest.raises(UnhealthyDeviceError) as refused:
            checked("mounts: [{hostPath: /opt/devplug-none}]")
        return str(refused.value)

    assert in_a_thread_whose_kernel_is_busy(refusal) == f'"/opt/devplug-none" {BUSY}'


def test_an_absolute_link_stays_in_the_hosts_root(tmp_path: Path) -> None:
    """A daemon that has the host under /host must not take its own /dev for the host's."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "file").write_text("")
    link(tmp_path / "dev" / "a", "/dev/file")
    link(tmp_path / "dev" / "b", "../../../dev/file")
    link(tmp_path / "dev" / "c", "/dev/null")
    host = Host(tmp_path)
    for name in ("a", "b"):
        place = resolved(host, f"/dev/{name}")
        assert place is not None
        assert place.real_path == "/dev/file"
    assert resolved(host, "/dev/c") is None


@pytest.mark.parametrize("target", ["/proc/self/fd/0", "/proc/self/root/dev/null", "/dev/fd/0"])
def test_a_link_of_proc_is_refused(tmp_path: Path, target: str) -> None:
    link(tmp_path / "magic", target)
    with pytest.raises(ForbiddenPathError, match="leads through a link of /proc"):
        fault(HostDeviceNode(f"{tmp_path}/magic", (1, 3)))


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    link(tmp_path / "a", "b")
    link(tmp_path / "b", "a")
    with pytest.raises(ForbiddenPathError, match="in a circle"):
        fault(HostDeviceNode(f"{tmp_path}/a", (1, 3)))


def test_looking_opens_no_device(tmp_path: Path) -> None:
    """A pipe without a reader would hold whoever opens it for writing, and wake who waits for a writer."""
    os.mkfifo(tmp_path / "pipe")
    place = resolved(Host(), f"{tmp_path}/pipe")
    assert place is not None
    assert stat.S_ISFIFO(place.mode)
    with pytest.raises(OSError, match="No such device or address"):
        os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK)


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    link(tmp_path / "magic", "/proc/self/fd/0")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for path in ("/dev/null", f"{tmp_path}/none"):
        resolved(Host(), path)
    with pytest.raises(PermissionError):
        resolved(Host(), f"{tmp_path}/magic")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


# ── device nodes ──


def test_a_node_that_is_still_the_one_that_was_found_is_given() -> None:
    assert fault(NULL) is None


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (HostDeviceNode("/dev/devplug-none", (1, 3)), "node missing"),
        (HostDeviceNode("/dev/null", (1, 5)), "its node is another device now"),
        (HostDeviceNode("/dev/null", (1, 3), is_block=True), "its node is another device now"),
        (HostDeviceNode("/etc/passwd", (1, 3)), "its node is no device node any more"),
    ],
)
def test_a_node_that_is_not_is_refused(node: HostDeviceNode, text: str) -> None:
    assert fault(node) == text


@needs_mknod
def test_a_node_outside_the_folders_of_device_nodes_is_forbidden(tmp_path: Path) -> None:
    char_node(tmp_path / "srv" / "null", 3, 1)
    with pytest.raises(ForbiddenPathError, match="leads to"):
        fault(HostDeviceNode("/srv/null", (1, 3)), Host(tmp_path))


@needs_mknod
def test_the_machines_memory_is_forbidden_under_any_name(tmp_path: Path) -> None:
    node = char_node(tmp_path / "innocent", 1, 1)
    with pytest.raises(ForbiddenPathError):
        fault(HostDeviceNode(f"{node}", (1, 1)))


@needs_mknod
def test_an_attacker_who_swaps_a_link_never_brings_another_device_in(tmp_path: Path) -> None:
    """Whatever moment is hit: the number is read from the very place that was resolved."""
    good, bad = char_node(tmp_path / "good", 1), block_node(tmp_path / "bad", 2)
    path = tmp_path / "link"
    path.symlink_to(good)
    is_over = threading.Event()

    def swap() -> None:
        spare = tmp_path / "spare"
        while not is_over.is_set():
            for target in (bad, good):
                spare.symlink_to(target)
                spare.replace(path)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        seen = {
            (place.number, place.real_path) for _ in range(2000) if (place := resolved(Host(), str(path)))
        }
    finally:
        is_over.set()
        thread.join()
    assert seen <= {((240, 1), str(good)), ((240, 2), str(bad))}


# ── mounts and folders ──


def test_a_mount_that_leads_into_the_system_is_forbidden(tmp_path: Path) -> None:
    link(tmp_path / "firmware", "/etc")
    assert forbidden(f"mounts: [{{hostPath: {tmp_path}/firmware}}]").endswith(" may give access to /etc")


def test_a_devices_own_value_cannot_lead_a_mount_into_the_system(tmp_path: Path) -> None:
    link(tmp_path / "evil", "/root")
    assert "may give access to /root" in forbidden(
        f'mounts: [{{hostPath: "{tmp_path}/{{file}}"}}]', file="evil"
    )


def test_a_socket_is_forbidden_whatever_it_is_called(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "innocent"))
        assert "is a socket" in forbidden(f"mounts: [{{hostPath: {short_dir}/innocent}}]")


def test_what_the_file_allows_is_given(tmp_path: Path) -> None:
    link(tmp_path / "firmware", "/etc")
    checked(f"mounts: [{{hostPath: {tmp_path}/firmware}}]", "allow: [hostMounts]")


def test_a_mount_that_cannot_be_seen_from_here_is_judged_as_it_is_written() -> None:
    checked("mounts: [{hostPath: /opt/devplug-none}]")


def test_a_folder_of_device_nodes_is_given(tmp_path: Path) -> None:
    (tmp_path / "dev" / "snd").mkdir(parents=True)
    checked("directories: [/dev/snd]", host=Host(tmp_path))


def test_a_folder_that_leads_elsewhere_is_forbidden(tmp_path: Path) -> None:
    (tmp_path / "srv").mkdir()
    link(tmp_path / "dev" / "snd", "/srv")
    assert "no folder below /dev" in forbidden("directories: [/dev/snd]", host=Host(tmp_path))


@needs_mknod
def test_a_folder_with_a_disk_in_it_needs_leave_for_disks(tmp_path: Path) -> None:
    block_node(tmp_path / "dev" / "sda")
    (tmp_path / "dev" / "snd").mkdir()
    os.rename(tmp_path / "dev" / "sda", tmp_path / "dev" / "snd" / "sda")  # noqa: PTH104
    assert "is a disk" in forbidden("directories: [/dev/snd]", host=Host(tmp_path))


def test_a_folder_that_is_missing_makes_its_device_unhealthy(tmp_path: Path) -> None:
    with pytest.raises(UnhealthyDeviceError, match="the folder /dev/snd is missing"):
        checked("directories: [/dev/snd]", host=Host(tmp_path))


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0, to give files to other users")
SOMEBODY = 1234


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is this user's alone, below a root of its own."""
    (tmp_path / "dev").mkdir(mode=0o755)
    return tmp_path / "dev"


def whom(folder: Path, path: str) -> str:
    return open_to(path, above=str(folder.parent))


def test_the_machines_own_nodes_can_be_replaced_by_nobody() -> None:
    for path in ("/dev/null", "/dev", "/", "/dev/devplug-none/x"):
        assert open_to(path) == ""


def test_a_folder_that_everybody_may_write_to_is_open(folder: Path) -> None:
    (folder / "x").mkdir()
    link(folder / "x" / "a")
    assert whom(folder, "/dev/x/a") == ""
    (folder / "x").chmod(0o757)
    assert whom(folder, "/dev/x/a") == "everybody, who may write to the folder /dev/x"
    folder.chmod(0o777)
    assert whom(folder, "/dev/x/a") == "everybody, who may write to the folder /dev"


def test_in_a_sticky_folder_what_belongs_to_us_is_ours_and_what_is_not_there_is_open(folder: Path) -> None:
    folder.chmod(0o1777)
    (folder / "a").touch()
    assert whom(folder, "/dev/a") == ""
    assert whom(folder, "/dev/b") == "everybody, who may write to the folder /dev"


@needs_root
@pytest.mark.root
def test_a_folder_of_another_user_is_open_to_him(folder: Path) -> None:
    (folder / "x").mkdir()
    link(folder / "x" / "a")
    os.chown(folder / "x", SOMEBODY, 0)
    assert whom(folder, "/dev/x/a") == "user 1234, who owns the folder /dev/x"


@needs_root
@pytest.mark.root
def test_in_a_sticky_folder_what_belongs_to_another_user_is_open_to_him(folder: Path) -> None:
    folder.chmod(0o1777)
    link(folder / "a")
    os.chown(folder / "a", SOMEBODY, 0, follow_symlinks=False)
    assert whom(folder, "/dev/a") == "user 1234, who owns /dev/a"


@needs_root
@pytest.mark.root
def test_a_folder_that_another_group_may_write_to_is_open_to_it(folder: Path) -> None:
    (folder / "x").mkdir()
    (folder / "x").chmod(0o775)
    assert whom(folder, "/dev/x/a") == ""
    os.chown(folder / "x", 0, SOMEBODY)
    assert whom(folder, "/dev/x/a") == "group 1234, who may write to the folder /dev/x"
    (folder / "x").chmod(0o755)
    assert whom(folder, "/dev/x/a") == ""


def test_the_folders_behind_links_count_and_those_before_them_too(folder: Path) -> None:
    (folder / "by-id").mkdir()
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    link(folder / "open" / "b", "/dev/null")
    for target in ("../open/b", "/dev/open/b", "../../dev/./open/b"):
        link(folder / "by-id" / "a", target)
        assert whom(folder, "/dev/by-id/a") == "everybody, who may write to the folder /dev/open"
        (folder / "by-id" / "a").unlink()
    link(folder / "whole", "open")
    assert whom(folder, "/dev/whole/b") == "everybody, who may write to the folder /dev/open"


def test_links_in_a_circle_come_to_an_end(folder: Path) -> None:
    link(folder / "a", "b")
    link(folder / "b", "a")
    assert whom(folder, "/dev/a") == "links in a circle"


def test_no_link_leads_out_of_the_hosts_root(folder: Path) -> None:
    link(folder / "a", "../../../../../../../etc/passwd")
    assert whom(folder, "/dev/a") == ""


def test_a_device_that_others_could_replace_is_not_given(short_dir: Path) -> None:
    (short_dir / "open").mkdir()
    path = link(short_dir / "open" / "a")
    node = HostDeviceNode(str(path), (1, 3))
    assert node_fault(Host(), node) is None
    (short_dir / "open").chmod(0o777)
    with pytest.raises(ForbiddenPathError, match=f'^"{path}" could be replaced by everybody,'):
        node_fault(Host(), node)


@needs_mknod
def test_a_path_without_a_link_is_judged_by_its_folders_too(short_dir: Path) -> None:
    (short_dir / "open").mkdir()
    path = char_node(short_dir / "open" / "a", 3, 1)
    node = HostDeviceNode(str(path), (1, 3))
    assert node_fault(Host(), node) is None
    (short_dir / "open").chmod(0o777)
    with pytest.raises(ForbiddenPathError, match=f'^"{path}" could be replaced by everybody,'):
        node_fault(Host(), node)


# ── access control lists ──

USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32


def acl(mask: int, *named: tuple[int, int, int]) -> bytes:
    """An ACL in which the owner may do all and others may read, with named entries (acl(5))."""
    nobody = 2**32 - 1
    entries = [
        (USER_OBJ, 7, nobody),
        *named,
        (GROUP_OBJ, 5, nobody),
        (MASK, mask, nobody),
        (OTHER, 5, nobody),
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in sorted(entries))


def with_acl(folder: Path, content: bytes, name: str = "system.posix_acl_access") -> None:
    try:
        os.setxattr(folder, name, content)
    except OSError as error:
        pytest.skip(f"no ACLs here: {error.strerror}")


@pytest.mark.parametrize(
    ("entry", "mask", "whom"),
    [
        ((USER, 7, 1234), 7, "user 1234, who may write to the folder /deep"),
        ((GROUP, 7, 1234), 7, "group 1234, who may write to the folder /deep"),
        ((USER, 2, 1234), 2, "user 1234, who may write to the folder /deep"),
        ((USER, 7, 1234), 5, ""),
        ((USER, 5, 1234), 7, ""),
        ((USER, 7, 0), 7, ""),
    ],
)
def test_who_may_write_by_an_acl_could_change_a_path(
    short_dir: Path, entry: tuple[int, int, int], mask: int, whom: str
) -> None:
    deep = short_dir / "deep"
    deep.mkdir(mode=0o755)
    (deep / "node").touch()
    with_acl(deep, acl(mask, entry))
    assert open_to("/deep/node", above=str(short_dir)) == whom


def test_a_default_acl_counts_where_something_is_missing(short_dir: Path) -> None:
    deep = short_dir / "deep"
    deep.mkdir(mode=0o755)
    with_acl(deep, acl(7, (USER, 7, 1234)), "system.posix_acl_default")
    assert "user 1234" in open_to("/deep/made/later", above=str(short_dir))
    (deep / "there").touch()
    assert open_to("/deep/there", above=str(short_dir)) == ""
