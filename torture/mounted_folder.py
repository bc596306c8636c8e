"""What of `plugin-folder-mounted-over` mounts: `python -m torture.mounted_folder SEED COUNT FIRST FOLDER`.

It runs in a mount namespace of its own, and prints what came of it as one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug import serve
from devplug.errors import KubeletError
from torture.catalogue import BrokenError
from torture.raw_kubelet import hand_kubelet
from torture.testbed import RESOURCE, Fed, within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torture.raw_kubelet import HandKubelet

IDS: Final = [f"d{number}" for number in range(8)]
FULL_SECONDS: Final = (0.0, 0.03, 0.2)


def main() -> None:
    """Play the rounds that the command line asks for."""
    logging.disable(logging.CRITICAL)
    seed, count, first = (int(word) for word in sys.argv[1:4])
    folder = Path(sys.argv[4]) / "device-plugins"
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=64,mode=755", "plugins", str(folder))
    print(json.dumps(asyncio.run(_played(seed, range(first, first + count), folder))))


async def _played(seed: int, numbers: range, folder: Path) -> dict[str, object]:
    seconds: list[float] = []
    broken: dict[int, list[str]] = {}
    ways = ["over", "full", *(["immutable"] if _can_be_immutable(folder) else []), "busy start"]
    async with hand_kubelet(folder) as kubelet:
        kubelet.start()
        async with serve(Fed(*IDS), plugin_dir=folder, registration="socket"):
            await within(5, kubelet.until_listed(IDS), lambda: "I2: not registered at first")
            for number in numbers:
                chance = random.Random(f"{seed}/mounts/{number}")
                try:
                    seconds.append(await _one(kubelet, ways[number % len(ways)], chance))
                except BrokenError as error:
                    broken.setdefault(number, []).append(str(error))
                    kubelet.kill()
                    kubelet.start()
                    with suppress(BrokenError):
                        await within(10, kubelet.until_listed(IDS), lambda: "")
    return {"seconds": seconds, "broken": broken, "ways": ways}


async def _one(kubelet: HandKubelet, way: str, chance: random.Random) -> float:
    folder = kubelet.folder
    if way == "over":
        kubelet.kill()
        _run("mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "over", str(folder))
        try:
            await asyncio.sleep(chance.choice([0.0, 0.01]))
            kubelet.start()
            await _listed(kubelet, "over the folder")
        finally:
            kubelet.kill()
            # Lazily: our lock and our watch in it are still open.
            _run("umount", "--lazy", str(folder))
        kubelet.start()
        return await _listed(kubelet, "after the mount over it")
    if way == "full":
        kubelet.kill()
        with _filled(folder):
            kubelet.life.deafen()
            for path in folder.glob("devplug-*.sock"):
                path.unlink()
            _fill(folder)
            await asyncio.sleep(chance.choice(FULL_SECONDS))
        kubelet.start()
        return await _listed(kubelet, "after it was full")
    if way == "immutable":
        kubelet.kill()
        for path in folder.glob("devplug-*.sock"):
            path.unlink()
        _run("chattr", "+i", str(folder))
        try:
            await asyncio.sleep(chance.choice(FULL_SECONDS))
        finally:
            _run("chattr", "-i", str(folder))
        kubelet.start()
        return await _listed(kubelet, "after it took no change")
    return await _late(kubelet, chance)


async def _late(kubelet: HandKubelet, chance: random.Random) -> float:
    """Start a second plugin, of another name, in a full folder that has room a little later."""
    with _filled(kubelet.folder):
        _fill(kubelet.folder)
        other = Fed("x", resource_name="example.com/late")
        try:
            async with serve(other, plugin_dir=kubelet.folder, registration="socket"):
                await asyncio.sleep(chance.choice(FULL_SECONDS))
                _emptied(kubelet.folder)
                started = asyncio.get_running_loop().time()
                await within(
                    2,
                    kubelet.until_listed(["x"], "example.com/late"),
                    lambda: "I2: who started in a full folder has no list within 2 s of its end",
                )
                return asyncio.get_running_loop().time() - started
        except KubeletError as error:
            raise BrokenError(f"I4: {error}") from error


async def _listed(kubelet: HandKubelet, when: str) -> float:
    took = await within(2, kubelet.until_listed(IDS), lambda: f"I2: no whole list within 2 s {when}")
    await within(2, kubelet.until_answered(), lambda: f"I7: Register is open {when}")
    await within(2, kubelet.until_listed(IDS), lambda: f"I2: the list was lost again {when}")
    attempts = kubelet.life.attempts
    if len([one for one in attempts if one.request.resource_name == RESOURCE]) > 2:
        raise BrokenError(f"I7: {len(attempts)} × Register {when}")
    return took


@contextmanager
def _filled(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        _emptied(folder)


def _fill(folder: Path) -> None:
    with suppress(OSError):
        for number in range(1_000):
            (folder / f"filler{number}").touch()


def _emptied(folder: Path) -> None:
    for path in folder.glob("filler*"):
        path.unlink()


def _can_be_immutable(folder: Path) -> bool:
    tried = folder / "tried"
    tried.mkdir()
    try:
        can = not subprocess.run(["chattr", "+i", str(tried)], check=False, capture_output=True).returncode
        subprocess.run(["chattr", "-i", str(tried)], check=False, capture_output=True)
    except OSError:
        can = False
    tried.rmdir()
    return can


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"})


if __name__ == "__main__":
    main()
