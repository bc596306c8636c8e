"""The plugin folder: missing, moved, removed and made again, full, read-only, mounted over, and healed."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from typing import TYPE_CHECKING, Final

from devplug import serve
from torture.catalogue import BrokenError, case
from torture.footprint import nothing_kept
from torture.raw_kubelet import hand_kubelet
from torture.testbed import RESOURCE, Fed, within

if TYPE_CHECKING:
    from pathlib import Path

    from torture.catalogue import Round, Trial
    from torture.raw_kubelet import HandKubelet

IDS: Final = [f"d{number}" for number in range(8)]
WARM_UP: Final = 20
AWAY_SECONDS: Final = (0.0, 0.001, 0.02)


@case(
    "plugin-folder-remade",
    fault="X05",
    promise="A plugin folder that is removed, or moved away and perhaps back, is found with its next kubelet",
    count=400,
    unit="folders",
    invariants="I2 I3 I4 I7 I9",
)
async def plugin_folder_remade(trial: Trial) -> None:
    """Take the folder away under the plugin in one of four ways, and make it again with another kubelet."""
    folder = trial.folder / "device-plugins"
    folder.mkdir()
    times: list[float] = []
    async with hand_kubelet(folder) as kubelet:
        kubelet.start()
        async with serve(Fed(*IDS), plugin_dir=folder, registration="socket"):
            await within(5, kubelet.until_listed(IDS), lambda: "I2: not registered at first")
            for number in range(min(WARM_UP, trial.count)):
                await _remade(kubelet, number, 0.0)
            async with nothing_kept(trial):
                for turn in trial.rounds():
                    away_seconds = turn.random.choice(AWAY_SECONDS)
                    times.append(await _remade(kubelet, turn.number, away_seconds))
                    _check_life(trial, turn, kubelet)
        left = sorted(path.name for path in folder.iterdir())
        trial.check(left == ["kubelet.sock"], f"I5: left after the end: {left}")
    trial.times("kubelet's start → whole list", times, p99_within=1.0)


async def _remade(kubelet: HandKubelet, number: int, away_seconds: float) -> float:
    """Take the folder away and bring one back; return how long the list took from the kubelet's start."""
    folder, aside = kubelet.folder, kubelet.folder.with_name("aside")
    kubelet.kill()
    way = number % 4
    if way == 0:
        await _removed(folder)
    else:
        folder.rename(aside)
    await asyncio.sleep(away_seconds)
    if way == 1:
        aside.rename(folder)
    else:
        folder.mkdir()
    kubelet.start()
    took = await within(2, kubelet.until_listed(IDS), lambda: "I2: no whole list within 2 s")
    await within(2, kubelet.until_answered(), lambda: "I7: Register is open")
    await within(2, kubelet.until_listed(IDS), lambda: "I2: the list was lost again")
    if aside.exists():
        await _removed(aside)
    return took


async def _removed(folder: Path) -> None:
    """Remove a folder; what the plugin makes in it meanwhile too."""
    for _ in range(1_000):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        await asyncio.sleep(0)
    raise BrokenError(f"I5: {folder.name} is made again and again")


def _check_life(trial: Trial, turn: Round, kubelet: HandKubelet) -> None:
    attempts = kubelet.life.attempts
    is_few = len(attempts) <= 2 and not any(attempt.overlapping for attempt in attempts)
    trial.check(is_few, f"I7: {len(attempts)} × Register for one start", turn.number)
    listed = kubelet.life.clients[RESOURCE].ids
    trial.check(listed == IDS, f"I9: {listed} were {IDS}", turn.number)


@case(
    "plugin-folder-missing",
    fault="X05 X07",
    promise="A plugin that starts before its folder is there is registered as soon as a kubelet made it",
    count=200,
    unit="starts",
    invariants="I2 I3 I5 I7",
)
async def plugin_folder_missing(trial: Trial) -> None:
    """Serve a plugin where up to three folders on the way are missing, then make them, at once or slowly."""
    times: list[float] = []
    for turn in trial.rounds():
        depth = turn.random.randint(0, 2)
        folder = trial.folder.joinpath(*"abc"[: depth + 1])
        async with hand_kubelet(folder) as kubelet:
            async with serve(Fed(*IDS), plugin_dir=folder, registration="socket"):
                for part in [*reversed(folder.parents)][-depth:] if depth else []:
                    await asyncio.sleep(turn.random.choice(AWAY_SECONDS))
                    part.mkdir(exist_ok=True)
                await asyncio.sleep(turn.random.choice(AWAY_SECONDS))
                folder.mkdir()
                await asyncio.sleep(turn.random.choice(AWAY_SECONDS))
                kubelet.start()
                times.append(await within(2, kubelet.until_listed(IDS), lambda: "I2: no list within 2 s"))
                await within(2, kubelet.until_answered(), lambda: "I7: Register is open")
                _check_life(trial, turn, kubelet)
            left = sorted(path.name for path in folder.iterdir())
            trial.check(left == ["kubelet.sock"], f"I5: left after the end: {left}", turn.number)
        shutil.rmtree(trial.folder / "a")
    trial.times("kubelet's start → whole list", times, p99_within=1.0)


# ── by mounts, in a process of their own ──


@case(
    "plugin-folder-mounted-over",
    fault="X05 X17",
    promise="A plugin folder that is mounted over, full, or takes no file for a while is served again soon",
    count=100,
    unit="mounts",
    invariants="I2 I3 I4 I7",
    limit_seconds=120,
)
async def plugin_folder_mounted_over(trial: Trial) -> None:
    """Mount over the folder, fill it, forbid changes of it, in a mount namespace of our own."""
    if shutil.which("unshare") is None or not await _may_mount():
        trial.figure("skipped", "this user may not make mounts of its own")
        for _ in trial.rounds():
            continue
        return
    words = [trial.seed, trial.count, trial.first, trial.folder]
    child = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "--propagation", "private", sys.executable, "-m", "torture.mounted_folder"),
        *(str(word) for word in words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise BrokenError(f"I4: the process ended with {child.returncode}: {errors.decode()[-2000:]}")
    told = json.loads(output.decode().splitlines()[-1])
    for turn in trial.rounds():
        for text in told["broken"].get(str(turn.number), []):
            trial.broke(text, turn.number)
    trial.figure("ways", ", ".join(told["ways"]))
    trial.times("healed → whole list", told["seconds"])


async def _may_mount() -> bool:
    words = ("unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "tried", "/mnt")
    child = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.DEVNULL)
    return not await child.wait()
