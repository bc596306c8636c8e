"""No socket of ours can be reached by another user, not for a moment, whatever the umask is."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devplug import serve
from devplug.daemon.config.loader import load
from devplug.daemon.service import serve_config
from devplug.errors import KubeletError
from devplug.kubelet.kubelet import Kubelet
from devplug.plugin.resource_lock import LOCK_FOLDER
from devplug.status import STATUS_SOCKETS
from devplug.web.addresses import UnixAddress
from devplug.web.server import serving
from devplug.wire.sockets import Listener
from tests.plugin.fakes import Listed, plugin_sockets
from tests.waiting import until
from tests.web.raw import hello

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0, to become another user")
INTRUDER = Path(__file__).with_name("intruder.py")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def intruded(folder: Path) -> Iterator[None]:
    """Another user tries all sockets below the folder while the block lasts; it must not reach any of ours.

    One socket in it is open to everybody, so that it is certain that he would have found the others.
    """
    folder.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as bait:
        bait.bind(str(folder / "bait"))
        (folder / "bait").chmod(0o777)
        bait.listen(0)
        process = subprocess.Popen(
            [sys.executable, "-I", str(INTRUDER), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "trying\n"
            yield
            told = json.loads(process.communicate("", timeout=40)[0])
        finally:
            process.kill()
            process.wait()
    (folder / "bait").unlink()
    assert told["tries"] > 10
    assert told["connected"] == [str(folder / "bait")]


def mode(path: Path) -> str:
    return stat.filemode(path.stat().st_mode)


# ── sockets that gRPC makes ──


@needs_root
@pytest.mark.root
async def test_nobody_else_reaches_a_plugins_socket_while_it_is_made_and_made_again(short_dir: Path) -> None:
    with umask(0), intruded(short_dir):
        for number in range(40):
            listener = Listener(short_dir / f"p{number % 3}.sock", (), by_rename=bool(number % 2))
            await listener.bind()
            assert mode(listener.path) == "srw-------"
            await listener.bind()
            await listener.close()


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077], ids=["000", "022", "077"])
async def test_the_sockets_of_plugin_kubelet_and_monitors_have_no_rights_for_others(
    short_dir: Path, mask: int
) -> None:
    """The emulated kubelet's too: it may run for a user whose folders are open to others."""
    with umask(mask):
        kubelet = Kubelet.under(short_dir)
        async with kubelet.running(), serve(Listed(), plugin_dir=kubelet.plugin_dir) as served:
            await served.wait_registered()
            (own,) = plugin_sockets(kubelet.plugin_dir)
            others = (kubelet.plugin_dir / "kubelet.sock", short_dir / "pod-resources" / "kubelet.sock")
            assert {mode(path) for path in (own, *others)} == {"srw-------"}
            lock_folder = kubelet.plugin_dir / LOCK_FOLDER
            assert stat.S_IMODE(lock_folder.stat().st_mode) == 0o700
            assert [path for path in lock_folder.iterdir() if path.is_socket()] == []


@pytest.mark.parametrize("by_rename", [False, True])
async def test_nothing_but_the_socket_is_left_whatever_becomes_of_it(
    short_dir: Path, *, by_rename: bool
) -> None:
    listener = Listener(short_dir / "p.sock", (), by_rename=by_rename)
    await listener.bind()
    assert list(short_dir.iterdir()) == [listener.path]
    await listener.close()
    (short_dir / "p.sock").mkdir()
    with pytest.raises(KubeletError):
        await listener.bind()
    assert list(short_dir.iterdir()) == [short_dir / "p.sock"]


# ── sockets that we make ourselves ──


@needs_root
@pytest.mark.root
async def test_nobody_else_reaches_a_status_socket_while_it_is_made(short_dir: Path) -> None:
    with umask(0), intruded(short_dir):
        for number in range(60):
            address = UnixAddress(str(short_dir / f"s{number % 3}.sock"))
            async with serving(address, hello, name="test"):
                assert mode(Path(address.path)) == "srw-------"


@needs_root
@pytest.mark.root
async def test_nobody_else_reaches_any_socket_of_a_whole_node(short_dir: Path) -> None:
    """Where every folder is as open as the umask lets it be."""
    config = load("version: 1\nresources: [{name: example.com/a, discover: {static: {ids: [a]}}}]", "f.yaml")
    monitoring = short_dir / "pod-resources" / "kubelet.sock"

    async def live() -> None:
        kubelet = Kubelet.under(short_dir)
        served = serve_config(config, plugin_dir=kubelet.plugin_dir, pod_resources=monitoring)
        async with kubelet.running(), served:
            await kubelet.wait(lambda: kubelet.allocatable().get("example.com/a") == 1)
            (path,) = await until(lambda: list(kubelet.plugin_dir.glob(STATUS_SOCKETS)))
            assert mode(path) == "srw-------"

    with umask(0), intruded(short_dir):
        for _ in range(3):
            await live()
