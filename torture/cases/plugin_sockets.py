"""Files of sockets: they are deleted or replaced in the plugin folder while everybody lives on."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from devplug import Health, serve
from devplug.errors import RemoteError
from devplug.wire import deviceplugin
from torture.catalogue import case
from torture.footprint import nothing_kept
from torture.raw_grpc import dialled, listening_socket
from torture.raw_kubelet import hand_kubelet
from torture.testbed import RESOURCE, Fed, devices, within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torture.catalogue import Round, Trial
    from torture.raw_kubelet import HandKubelet

IDS: Final = [f"d{number}" for number in range(8)]
WARM_UP: Final = 50
BACK_SECONDS: Final = 1.0
"""How long our socket may be away (X04)."""


@case(
    "sockets-deleted",
    fault="X04",
    promise="A deleted socket of ours is back within 1 s and costs no registration, one of the kubelet's "
    "nothing at all; the next kubelet finds everything",
    count=1_000,
    unit="deletions",
    invariants="I2 I3 I7 I8 I9",
)
async def sockets_deleted(trial: Trial) -> None:
    """Delete our socket, the kubelet's, or both, while the list is watched."""
    times: list[float] = []
    plugin = Fed(*IDS)
    async with hand_kubelet(trial.folder) as kubelet:
        kubelet.start()
        async with serve(plugin, plugin_dir=trial.folder, registration="socket"):
            await within(5, kubelet.until_listed(IDS), lambda: "I2: not registered at first")
            for _ in range(min(WARM_UP, trial.count)):
                await _gone(kubelet, plugin, 0)
                kubelet.kill()
                kubelet.start()
                await within(2, kubelet.until_listed(IDS), lambda: "I2: no list within 2 s")
            async with nothing_kept(trial):
                for turn in trial.rounds():
                    times.append(await _gone(kubelet, plugin, turn.number % 3))
                    count = len(kubelet.life.attempts)
                    trial.check(count == 1, f"I7: {count} × Register for a socket's file", turn.number)
                    if turn.number % 3:
                        kubelet.kill()
                        kubelet.start()
                    await within(2, kubelet.until_listed(IDS), lambda: "I2: no list within 2 s")
                    await within(2, kubelet.until_answered(), lambda: "I7: Register is open")
                    trial.check(kubelet.life.clients[RESOURCE].ids == IDS, "I9: other IDs", turn.number)
    trial.times("deleted → back", times, p99_within=BACK_SECONDS)


async def _gone(kubelet: HandKubelet, plugin: Fed, which: int) -> float:
    """Delete our socket (0), the kubelet's (1) or both (2); return how long ours was away."""
    path = kubelet.life.clients[RESOURCE].path
    started = asyncio.get_running_loop().time()
    if which in {0, 2}:
        path.unlink()
    if which in {1, 2}:
        kubelet.path.unlink()
    await within(2, _answering(path), lambda: "I2: our socket is not back within 2 s")
    took = asyncio.get_running_loop().time() - started
    await _tell(kubelet, plugin)
    return took


async def _answering(path: Path) -> None:
    """Wait until somebody serves the plugin's API at `path`."""
    while True:
        with suppress(OSError, RemoteError, TimeoutError):
            connection = await dialled(path)
            try:
                await connection.call(deviceplugin.GET_OPTIONS, None, seconds=0.1)
            finally:
                connection.abort()
            return
        await asyncio.sleep(0.001)


async def _tell(kubelet: HandKubelet, plugin: Fed) -> None:
    """Hold that a change still comes by the stream that was open before."""
    client = kubelet.life.clients[RESOURCE]
    plugin.feed.put(replace(devices(IDS[0])[0], health=Health.unhealthy("tried")))
    await within(2, kubelet.until(lambda: IDS[0] not in client.healthy_ids), lambda: "I8: no change came")
    plugin.feed.put(*devices(IDS[0]))
    await within(2, kubelet.until(lambda: client.healthy_ids == IDS), lambda: "I8: no change back came")


# ── something else at our path ──


def _file(path: Path, _: ExitStack) -> None:
    path.write_text("no socket")


def _link(path: Path, _: ExitStack) -> None:
    path.symlink_to("elsewhere.sock")


def _fifo(path: Path, _: ExitStack) -> None:
    os.mkfifo(path)


def _folder(path: Path, _: ExitStack) -> None:
    path.mkdir()


def _listening(path: Path, kept: ExitStack) -> None:
    kept.enter_context(listening_socket(path))


def _dead(path: Path, _: ExitStack) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))


REPLACEMENTS: Final[tuple[Callable[[Path, ExitStack], None], ...]] = (
    _file,
    _link,
    _fifo,
    _folder,
    _listening,
    _dead,
)


@case(
    "sockets-replaced",
    fault="X04 X20",
    promise="Whatever is put at our socket's path, it is ours again within 1 s, and nothing else is touched",
    count=600,
    unit="replacements",
    invariants="I2 I3 I5 I7",
)
async def sockets_replaced(trial: Trial) -> None:
    """Put something else at our path, by rename or after a deletion; have a kubelet start upon it, or not."""
    times: list[float] = []
    other = trial.folder / "other.sock"
    plugin = Fed(*IDS)
    async with hand_kubelet(trial.folder) as kubelet:
        kubelet.start()
        async with serve(plugin, plugin_dir=trial.folder, registration="socket"):
            await within(5, kubelet.until_listed(IDS), lambda: "I2: not registered at first")
            async with nothing_kept(trial):
                for turn in trial.rounds():
                    with ExitStack() as kept:
                        kept.enter_context(listening_socket(other))
                        identity = other.stat().st_ino
                        times.append(await _replaced(turn, kubelet, kept))
                        is_there = other.exists() and other.stat().st_ino == identity
                        trial.check(is_there, "I5: another's socket is gone", turn.number)
                    other.unlink(missing_ok=True)
                    await within(2, kubelet.until_listed(IDS), lambda: "I2: no list within 2 s")
                    await within(2, kubelet.until_answered(), lambda: "I7: Register is open")
        left = sorted(path.name for path in trial.folder.iterdir())
        trial.check(left == ["kubelet.sock"], f"I5: left after the end: {left}")
    trial.times("replaced → ours again", times, p99_within=BACK_SECONDS)


async def _replaced(turn: Round, kubelet: HandKubelet, kept: ExitStack) -> float:
    path = kubelet.life.clients[RESOURCE].path
    put = REPLACEMENTS[turn.number % len(REPLACEMENTS)]
    if turn.random.random() < 0.5 or put is _folder:
        path.unlink()
        put(path, kept)
    else:
        aside = path.with_name("aside")
        put(aside, kept)
        aside.rename(path)
    started = asyncio.get_running_loop().time()
    if put is _folder:
        # A folder is nobody's to remove: it is waited out.
        await asyncio.sleep(turn.random.choice([0.0, 0.02]))
        started = asyncio.get_running_loop().time()
        path.rmdir()
    await within(2, _answering(path), lambda: f"I2: not ours again within 2 s: {put.__name__}")
    return asyncio.get_running_loop().time() - started
