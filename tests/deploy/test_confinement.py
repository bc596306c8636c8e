"""The daemon under exactly what the DaemonSet grants can do nothing but its work."""

from __future__ import annotations

import copy
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy.security_context.grants import container_of
from tests.deploy.security_context.manifest import daemon_set
from tests.deploy.security_context.namespaces import NODES
from tests.deploy.security_context.stage import (
    CONFIG,
    UNUSED_MAJOR,
    Node,
    needs_namespaces,
    play,
    until_advertised,
)

pytestmark = [pytest.mark.root, needs_namespaces]


async def test_it_has_no_capability_and_no_way_to_gain_one(short_dir: Path) -> None:
    node = Node(short_dir, [daemon_set(CONFIG)])
    node.plug("ttyX0")
    async with node.kubelet() as kubelet, node.container() as container:
        await until_advertised(kubelet, "ttyX0")
        lines = Path(f"/proc/{container.pid()}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        none = "0" * 16
        assert [status[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")] == [none] * 5
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert status["Uid"].split() == ["0"] * 4


async def test_the_plugin_folder_is_all_that_it_can_write_to(short_dir: Path) -> None:
    node = Node(short_dir, [daemon_set(CONFIG)])
    node.plug("ttyX0")
    async with node.kubelet() as kubelet, node.container() as container:
        await until_advertised(kubelet, "ttyX0")
        writable = {
            fields[1]
            for fields in map(str.split, Path(f"/proc/{container.pid()}/mounts").read_text().splitlines())
            if "ro" not in fields[3].split(",")
        }
        usable_nodes = {path for path in writable if path.startswith("/dev/")}
        assert usable_nodes == {f"/dev/{name}" for name in (*NODES, "console")}
        assert writable - usable_nodes == {"/proc", "/var/lib/kubelet/device-plugins"}


CDI_CONFIG: Final = CONFIG.rstrip() + "\n    expose: {strategy: cdi}\n"


async def test_with_cdi_the_folder_of_the_specs_is_the_only_further_one(short_dir: Path) -> None:
    program = """
import json
lines = [line.split() for line in open("/proc/self/mounts")]
print(json.dumps([fields[1] for fields in lines if "ro" not in fields[3].split(",")]))
"""

    node = Node(short_dir, [daemon_set(CDI_CONFIG)])
    (short_dir / "cdi").mkdir()
    writable = set(await node.result_of(program, "--map", f"/var/run/cdi={short_dir / 'cdi'}"))
    assert {path for path in writable if not path.startswith("/dev/")} == {
        *("/proc", "/var/lib/kubelet/device-plugins", "/var/run/cdi")
    }


TRIES: Final = """
import ctypes, errno, json, os, platform, signal, socket

def outcome(call):
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

def libc(name, *arguments):
    if ctypes.CDLL(None, use_errno=True)[name](*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)

def call(on_x86_64, on_arm64, *arguments):
    libc("syscall", on_x86_64 if platform.machine() == "x86_64" else on_arm64, *arguments)

def reach(address):
    with socket.create_connection(address, 1):
        pass

plugins = "/var/lib/kubelet/device-plugins"
print(json.dumps({
    "write /": outcome(lambda: open("/x", "w")),
    "write /dev": outcome(lambda: open("/dev/x", "w")),
    "write /sys": outcome(lambda: open("/sys/kernel/mm/transparent_hugepage/enabled", "w")),
    "write below /dev": outcome(lambda: open("/dev/shm/x", "w")),
    "write the config": outcome(lambda: open("/etc/devplug/config.yaml", "a")),
    "write pod-resources": outcome(lambda: open("/var/lib/kubelet/pod-resources/x", "w")),
    "write the kernel's settings": outcome(lambda: open("/proc/sys/kernel/hostname", "w")),
    "write the plugin folder": outcome(lambda: open(plugins + "/x", "w")),
    "open a device": outcome(lambda: os.open("/dev/ttyX0", os.O_RDWR | os.O_NOCTTY)),
    "open null": outcome(lambda: os.open("/dev/null", os.O_RDWR)),
    "make a device": outcome(lambda: os.mknod(plugins + "/n", 0o20600, os.makedev(60, 0))),
    "become another user": outcome(lambda: os.setuid(1)),
    "give a file away": outcome(lambda: os.chown(plugins + "/x", 1, 1)),
    "mount": outcome(lambda: libc("mount", b"none", b"/tmp", b"tmpfs", 0, None)),
    "leave namespaces": outcome(lambda: libc("unshare", 0x10000000)),
    "trace": outcome(lambda: libc("ptrace", 0, 0, 0, 0)),
    "reach a network": outcome(lambda: reach(("192.0.2.1", 80))),
    "reach the node's own services": outcome(lambda: reach(("127.0.0.1", 10250))),
    "read packets": outcome(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()),
    "send raw packets": outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()),
    "rename the machine": outcome(lambda: libc("sethostname", b"x", 1)),
    "load into the kernel": outcome(lambda: call(321, 280, 5, 0, 0)),
    "load a module": outcome(lambda: call(175, 105, 0, 0, b"")),
    "replace the kernel": outcome(lambda: call(246, 104, 0, 0, 0, 0)),
    "read the kernel's log": outcome(lambda: call(103, 116, 3, 0, 0)),
    "reach files by their numbers": outcome(lambda: call(304, 265, -100, 0, 0)),
    "count events of the processor": outcome(lambda: call(298, 241, 0, 0, -1, -1, 0)),
    "read keys of others": outcome(lambda: call(250, 219, 0, -3, 0)),
    "go around the filter": outcome(lambda: call(425, 425, 1, 0)),
    "set the clock": outcome(lambda: call(227, 112, 0, 0)),
    "link what it may only read": outcome(
        lambda: os.link("/etc/devplug/config.yaml", plugins + "/y")
    ),
    "mount by a link": outcome(lambda: libc("mount", b"/", plugins.encode(), b"", 0x1000, None)),
    "gain by a set-user-ID program": outcome(lambda: libc("prctl", 39, 0, 0, 0, 0) or os.setgid(1)),
    "take a capability back": outcome(lambda: libc("prctl", 47, 2, 21, 0, 0)),
    "end the filter": outcome(lambda: libc("prctl", 22, 0, 0, 0, 0)),
    "end another process": outcome(lambda: os.kill(2, signal.SIGKILL)),
    "see others": [name for name in os.listdir("/proc") if name.isdecimal()],
    "change its root": outcome(lambda: os.chroot(plugins)),
}))
"""


def tried(short_dir: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}

    async def story() -> None:
        node = Node(short_dir, [manifest])
        node.plug("ttyX0")
        result.update(await node.result_of(TRIES))

    play(story())
    return result


def test_whatever_is_beyond_its_work_is_refused(short_dir: Path) -> None:
    assert tried(short_dir, daemon_set(CONFIG)) == {
        "write /": "EROFS",
        "write /dev": "EROFS",
        "write /sys": "EROFS",
        "write below /dev": "EROFS",
        "write the config": "EROFS",
        "write pod-resources": "EROFS",
        "write the kernel's settings": "EROFS",
        "write the plugin folder": "done",
        "open a device": "EACCES",
        "open null": "done",
        "make a device": "EPERM",
        "become another user": "EPERM",
        "give a file away": "EPERM",
        "mount": "EPERM",
        "leave namespaces": "EPERM",
        "trace": "EPERM",
        "reach a network": "ENETUNREACH",
        "reach the node's own services": "ECONNREFUSED",
        "read packets": "EPERM",
        "send raw packets": "EPERM",
        "rename the machine": "EPERM",
        "load into the kernel": "EPERM",
        "load a module": "EPERM",
        "replace the kernel": "EPERM",
        "read the kernel's log": "EPERM",
        "reach files by their numbers": "EPERM",
        "count events of the processor": "EPERM",
        "read keys of others": "EPERM",
        "go around the filter": "EPERM",
        "set the clock": "EPERM",
        "change its root": "EPERM",
        "link what it may only read": "EXDEV",
        "mount by a link": "EPERM",
        "gain by a set-user-ID program": "EPERM",
        "take a capability back": "EPERM",
        "end the filter": "EINVAL",
        "end another process": "ESRCH",
        "see others": ["1"],
    }


@pytest.mark.parametrize(
    ("grant", "attempt"),
    [
        (lambda container: container["securityContext"].update(readOnlyRootFilesystem=False), "write /"),
        (lambda container: container["securityContext"].pop("seccompProfile", None), "trace"),
        (lambda container: mount_of(container, "/dev").pop("readOnly"), "write /dev"),
    ],
    ids=["root", "seccomp", "dev"],
)
def test_it_is_the_manifest_that_refuses_it(
    short_dir: Path, grant: Callable[[dict[str, Any]], object], attempt: str
) -> None:
    manifest = copy.deepcopy(daemon_set(CONFIG))
    pod_spec = manifest["spec"]["template"]["spec"]
    pod_spec.get("securityContext", {}).pop("seccompProfile", None)
    container = container_of(pod_spec)
    if attempt != "trace":
        container["securityContext"]["seccompProfile"] = {"type": "RuntimeDefault"}
    grant(container)
    assert tried(short_dir, manifest)[attempt] == "done"


OPENED: Final = """
import json, os, socket, stat

def opens(path, flags):
    if stat.S_ISSOCK(os.lstat(path).st_mode):
        return not socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect_ex(path)
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW))
    except OSError:
        return False
    return True

found = {}
for folder, _, names in os.walk("/dev"):
    for path in (f"{folder}/{name}" for name in names):
        if ways := "r" * opens(path, os.O_RDONLY) + "w" * opens(path, os.O_WRONLY):
            number = os.stat(path).st_rdev
            found[path] = f"{ways} {os.major(number)}:{os.minor(number)}"
print(json.dumps(found))
"""
HARMLESS: Final = {
    "/dev/null": "rw 1:3",
    "/dev/zero": "rw 1:5",
    "/dev/full": "rw 1:7",
    "/dev/random": "rw 1:8",
    "/dev/urandom": "rw 1:9",
    "/dev/console": "rw 1:3",
}
"""Nodes that the container would have without the machine's /dev, too; the console is none of them."""


async def opened(short_dir: Path, manifest: dict[str, Any]) -> dict[str, str]:
    """Return what a container can open, read or write in the /dev of a machine with everything in it."""
    node = Node(short_dir, [manifest])
    node.plug("ttyX0")
    os.mknod(node.dev / "sdx", 0o60600, os.makedev(UNUSED_MAJOR, 0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(node.dev / "log"))
        found: dict[str, str] = await node.result_of(OPENED)
    return found


async def test_of_the_machines_dev_it_can_open_what_each_container_has_and_sockets_that_lie_there(
    short_dir: Path,
) -> None:
    assert await opened(short_dir, daemon_set(CONFIG)) == {**HARMLESS, "/dev/log": "rw 0:0"}


async def test_without_the_sub_path_and_what_hides_it_terminals_memory_and_queues_are_open_to_it(
    short_dir: Path,
) -> None:
    manifest = copy.deepcopy(daemon_set(CONFIG))
    container = container_of(manifest["spec"]["template"]["spec"])
    mount_of(container, "/dev").pop("subPath")
    hiding = {"/dev/pts", "/dev/shm", "/dev/console"}
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["mountPath"] not in hiding]
    found = await opened(short_dir, manifest)
    found.pop("/dev/console", None)  # not each machine has one that can be opened
    assert {path: ways for path, ways in found.items() if path not in HARMLESS} == {
        "/dev/pts/0": "rw 136:0",
        "/dev/pts/ptmx": "rw 5:2",
        "/dev/shm/secret": "r 0:0",
        "/dev/mqueue/secret": "r 0:0",
        "/dev/hugepages/secret": "r 0:0",
        "/dev/log": "rw 0:0",
    }


async def test_with_what_is_mounted_below_dev_files_are_open_to_it_and_terminals_are_not(
    short_dir: Path,
) -> None:
    found = await opened(short_dir, daemon_set(CONFIG, {"dev": {"submounts": True}}))
    assert {path for path in found if path not in HARMLESS} == {
        *("/dev/mqueue/secret", "/dev/hugepages/secret", "/dev/log")
    }


def mount_of(container: dict[str, Any], path: str) -> dict[str, Any]:
    return next(one for one in container["volumeMounts"] if one["mountPath"] == path)
