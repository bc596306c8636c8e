"""No file, socket or folder is believed that another user could have made or changed."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devplug import serve
from devplug.cdi.files import write_locked
from devplug.daemon.config_file import read_served_file
from devplug.errors import ConfigError, KubeletError
from devplug.holds.client import UnansweredError, ask
from devplug.k8s.kubeconfig import KubeconfigError, read_kubeconfigs
from devplug.linux.trust import UntrustedError, check_trusted, untrusted_writer
from devplug.monitor.collector import collected
from devplug.sandbox.sandboxdir import SandboxDir, SandboxDirError
from devplug.sandbox.statefile import StateFileError, opened
from tests.plugin.fakes import Listed

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0, to give files to other users")
STRANGER = 1234

MADE_BY_A_STRANGER = """
import fcntl, json, os, sys, time
folder = sys.argv[1]
os.setgroups([]); os.setgid(1234); os.setuid(1234)
os.mkdir(folder, 0o755)
lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT, 0o644)
fcntl.flock(lock, fcntl.LOCK_EX)
json.dump({"pid": os.getpid(), "server": "http://127.0.0.1:1", "token": "t", "started": "",
           "nodes": ["worker-0"]}, open(f"{folder}/sandbox.json", "w"))
open(f"{folder}/kubeconfig", "w").write("{}")
os.mkdir(f"{folder}/nodes"), os.mkdir(f"{folder}/nodes/worker-0")
os.mkdir(f"{folder}/nodes/worker-0/device-plugins")
print("made", flush=True)
sys.stdin.read()
"""


@contextmanager
def strangers_sandbox(folder: Path) -> Iterator[None]:
    """The folder of a sandbox that another user seems to have up."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", MADE_BY_A_STRANGER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        yield
    finally:
        process.communicate("", timeout=30)


def devplug(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return subprocess.run(
        [sys.executable, "-P", "-m", "devplug", *arguments],
        env=environment | {"COLUMNS": "300"} | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# ── the folder of a sandbox ──

COMMANDS = [
    ["sandbox", "kubeconfig"],
    ["sandbox", "describe"],
    ["sandbox", "plug", "tty0"],
    ["sandbox", "run", "--", "true"],
    ["sandbox", "down"],
    ["sandbox", "up", "--detach"],
    ["status"],
    ["why", "pod"],
    ["advertise", "worker-0", "example.com/x=1"],
    ["ui", "--listen", "127.0.0.1:0"],
    ["top"],
]


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_believes_another_users_sandbox(command: list[str]) -> None:
    folder = Path(f"/tmp/dp-stranger-{os.getpid()}-{time.monotonic_ns()}")
    with strangers_sandbox(folder):
        told = devplug(*command, DEVPLUG_SANDBOX_DIR=str(folder))
    subprocess.run(["rm", "-r", str(folder)], check=True)
    assert told.returncode not in {0, 3}, told
    assert f"{folder} belongs to uid 1234, and what is in it is not trusted" in told.stderr
    assert "--dir" in told.stderr


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777, 0o750])
def test_a_sandbox_folder_that_is_open_to_others_is_not_believed(short_dir: Path, mode: int) -> None:
    place = SandboxDir(short_dir / "sb")
    with place.claimed():
        place.folder.chmod(mode)
        with pytest.raises(SandboxDirError, match=f"chmod 700 {place.folder}"):
            place.running()
        with pytest.raises(SandboxDirError, match=f"chmod 700 {place.folder}"):
            place.is_claimed()
        place.folder.chmod(0o700)


def test_a_sandbox_below_a_folder_that_others_may_replace_is_not_believed(short_dir: Path) -> None:
    (short_dir / "open").mkdir()
    place = SandboxDir(short_dir / "open" / "sb")
    with place.claimed():
        (short_dir / "open").chmod(0o777)
        with pytest.raises(SandboxDirError, match=r"everybody, who may write to the folder .*/open; name"):
            place.running()


def test_without_a_kubeconfig_variable_alone_the_default_sandbox_is_looked_at(short_dir: Path) -> None:
    folder = short_dir / "sb"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    (short_dir / "config").write_text("{}")
    told = devplug(
        "why", "pod", DEVPLUG_SANDBOX_DIR="", XDG_RUNTIME_DIR="", KUBECONFIG=str(short_dir / "config")
    )
    assert "it has no current-context" in told.stderr


# ── files and folders of the node ──


@pytest.fixture
def open_dir(short_dir: Path) -> Path:
    """A folder that everybody may write to."""
    (short_dir / "open").mkdir()
    (short_dir / "open").chmod(0o777)
    return short_dir / "open"


async def test_a_plugin_is_not_served_in_a_folder_that_others_may_write_to(open_dir: Path) -> None:
    with pytest.raises(
        KubeletError, match=f"^{open_dir} is not trusted: .*everybody, who may write to it; let"
    ):
        async with serve(Listed(), plugin_dir=open_dir):
            pass


async def test_status_believes_no_socket_that_others_could_have_made(open_dir: Path) -> None:
    (open_dir / ".devplug").mkdir()
    status = await collected(open_dir, open_dir / "pods.sock", node_name="n")
    assert f"{open_dir}/.devplug is not trusted: it could be changed by everybody" in status.problems[0]


async def test_no_kubelet_is_believed_where_others_could_have_made_its_socket(open_dir: Path) -> None:
    (open_dir / "kubelet.sock").touch()
    with pytest.raises(UnansweredError, match=f"{open_dir} is not trusted"):
        await ask(open_dir / "kubelet.sock", timeout_seconds=1)


def test_no_cdi_file_is_written_where_others_could_replace_it(open_dir: Path) -> None:
    with pytest.raises(KubeletError, match=f"{open_dir} is not trusted"):
        write_locked(open_dir, "x.json", "0" * 12, b"{}")
    assert [*open_dir.iterdir()] == []


@pytest.mark.parametrize("mode", [0o666, 0o646])
def test_a_configuration_that_others_may_write_is_not_served(short_dir: Path, mode: int) -> None:
    file = short_dir / "devplug.yaml"
    file.write_text("version: 1\n")
    assert read_served_file(file) == b"version: 1\n"
    file.chmod(mode)
    with pytest.raises(ConfigError, match=rf"changed by everybody, who may write to it; .*chmod go-w {file}"):
        read_served_file(file)


@needs_root
@pytest.mark.root
def test_a_configuration_of_another_user_is_not_served_to_root(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = short_dir / "devplug.yaml"
    file.write_text("version: 1\n")
    os.chown(file, STRANGER, STRANGER)
    monkeypatch.delenv("SUDO_UID", raising=False)
    with pytest.raises(ConfigError, match="changed by user 1234, who owns it"):
        read_served_file(file)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    assert read_served_file(file) == b"version: 1\n"


def served_from_read_only_mount(folder: Path) -> str:
    """Read `c.yaml` of a folder that is mounted read-only over itself; return what was printed."""
    script = f"""
mount --make-rprivate / && mount --bind {folder} {folder} &&
mount -o remount,bind,ro {folder} && exec {sys.executable} -c '
from devplug.daemon.config_file import read_served_file
from devplug.errors import ConfigError
try:
    print(read_served_file("{folder}/c.yaml"))
except ConfigError as error:
    print(error)'"""
    told = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    if "unshare failed" in told.stderr:
        pytest.skip("no mounts here")
    return told.stdout


@needs_root
@pytest.mark.root
def test_the_mode_of_a_read_only_mount_does_not_count(short_dir: Path) -> None:
    (short_dir / "config").mkdir()
    (short_dir / "config").chmod(0o777)  # as the kubelet makes the folder of a ConfigMap
    (short_dir / "config" / "c.yaml").write_text("version: 1\n")
    assert served_from_read_only_mount(short_dir / "config") == "b'version: 1\\n'\n"
    with pytest.raises(ConfigError, match="everybody, who may write to the folder"):
        read_served_file(short_dir / "config" / "c.yaml")


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("owned", [".", "c.yaml"])
def test_the_owner_of_what_is_mounted_read_only_counts(short_dir: Path, owned: str) -> None:
    """The owner can still change it at the place from which it was mounted."""
    (short_dir / "config").mkdir()
    (short_dir / "config" / "c.yaml").write_text("version: 1\n")
    os.chown(short_dir / "config" / owned, STRANGER, STRANGER)
    assert "user 1234, who owns" in served_from_read_only_mount(short_dir / "config")


@needs_root
@pytest.mark.root
def test_a_user_namespace_trusts_no_user_from_outside(short_dir: Path) -> None:
    """All of them have the number 65534 there."""
    (short_dir / "f").touch()
    os.chown(short_dir / "f", STRANGER, STRANGER)
    program = (
        "import sys; from devplug.linux.trust import untrusted_writer; print(untrusted_writer(sys.argv[1]))"
    )
    told = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", program, str(short_dir / "f")],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in told.stderr:
        pytest.skip("no user namespaces here")
    assert told.stdout == "user 65534, who owns it\n", told.stderr


@needs_root
@pytest.mark.root
def test_the_group_root_is_trusted_only_without_other_members(short_dir: Path) -> None:
    short_dir.chmod(0o775)
    others = short_dir / "etc-group"
    others.write_text("root:x:0:daemon\n")
    script = f"""
mount --make-rprivate / && mount --bind {others} /etc/group && exec {sys.executable} -c '
from devplug.linux.trust import untrusted_writer
print(untrusted_writer("{short_dir}"))'"""
    told = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    if "unshare failed" in told.stderr:
        pytest.skip("no mounts here")
    assert told.stdout == "group 0, who may write to it\n", told.stderr
    assert untrusted_writer(short_dir) == ""


KUBECONFIG = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    "clusters": [{"name": "k", "cluster": {"server": "https://x", "certificate-authority": "ca"}}],
}
USERS = [
    {"exec": {"apiVersion": "v1", "command": "./x"}},
    {"tokenFile": "secret"},
    {"client-certificate": "cert", "client-key": "key"},
    {"token": "t"},
]


@pytest.mark.parametrize("user", USERS, ids=lambda user: next(iter(user)))
def test_a_kubeconfig_that_others_may_change_is_refused(short_dir: Path, user: dict[str, object]) -> None:
    """With `tokenFile` it would send a secret of the user to a server that another user chose."""
    file = short_dir / "config"
    file.write_text(json.dumps({**KUBECONFIG, "users": [{"name": "u", "user": user}]}))
    read_kubeconfigs([file]).chosen(None)
    file.chmod(0o666)
    with pytest.raises(KubeconfigError, match=rf"changed by everybody, .* chmod go-w {file}"):
        read_kubeconfigs([file])


@pytest.mark.parametrize("name", ["ca", "secret", "cert", "key"])
def test_a_file_of_a_kubeconfig_that_others_may_change_is_refused(short_dir: Path, name: str) -> None:
    file = short_dir / "config"
    user = {"tokenFile": "secret", "client-certificate": "cert", "client-key": "key"}
    file.write_text(json.dumps({**KUBECONFIG, "users": [{"name": "u", "user": user}]}))
    (short_dir / name).touch()
    (short_dir / name).chmod(0o666)
    read = read_kubeconfigs([file])
    with pytest.raises(KubeconfigError, match=f"{short_dir / name} is not trusted"):
        read.chosen(None)


def test_a_state_file_that_others_may_change_is_refused(short_dir: Path) -> None:
    file = short_dir / "state.db"
    file.touch()
    file.chmod(0o666)
    with pytest.raises(StateFileError, match=f"chmod go-w {file}"), opened(file):
        pass


# ── the rule ──


def test_what_is_ours_is_trusted(short_dir: Path) -> None:
    (short_dir / "file").touch(mode=0o644)
    for path in (short_dir, short_dir / "file", short_dir / "missing"):
        assert untrusted_writer(path) == ""


def test_a_path_that_is_not_there_is_the_one_who_could_make_it(open_dir: Path) -> None:
    assert untrusted_writer(open_dir / "later") == f"everybody, who may write to the folder {open_dir}"


def test_the_error_names_the_path_the_user_and_the_command(open_dir: Path) -> None:
    with pytest.raises(UntrustedError) as refused:
        check_trusted(open_dir, "chmod go-w x")
    assert str(refused.value) == (
        f"{open_dir} is not trusted: it could be changed by everybody, who may write to it; chmod go-w x"
    )


@needs_root
@pytest.mark.root
def test_a_link_that_another_user_made_in_a_sticky_folder_is_not_followed(short_dir: Path) -> None:
    short_dir.chmod(0o1777)
    (short_dir / "ours").mkdir()
    (short_dir / "link").symlink_to(short_dir / "ours")
    assert untrusted_writer(short_dir / "link") == ""
    os.chown(short_dir / "link", STRANGER, STRANGER, follow_symlinks=False)
    assert untrusted_writer(short_dir / "link") == f"user 1234, who owns {short_dir}/link"


def test_an_acl_of_the_folder_itself_counts(short_dir: Path) -> None:
    (short_dir / "x").mkdir()
    entries = [(1, 7, 2**32 - 1), (2, 7, STRANGER), (4, 5, 2**32 - 1), (16, 7, 2**32 - 1), (32, 5, 2**32 - 1)]
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(short_dir / "x", "system.posix_acl_access", content)
    except OSError as error:
        pytest.skip(f"no ACLs here: {error.strerror}")
    assert untrusted_writer(short_dir / "x") == "user 1234, who may write to it"
