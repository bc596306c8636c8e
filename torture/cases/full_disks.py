"""Full disks: folders that the daemon writes to are full, read-only, or without the right.

The file systems are those of this process alone.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from torture.catalogue import BrokenError, case
from torture.daemons import config_text, node, pod_of

if TYPE_CHECKING:
    import random

    from torture.catalogue import Trial
    from torture.daemons import Daemon, Node


_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS: Final = 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND = 1, 32, 4096
_MNT_DETACH: Final = 2
_MS_REC, _MS_PRIVATE = 16384, 1 << 18

A: Final = "example.com/a"
COUNT: Final = 4
CDI: Final = Path("/var/run/cdi")
TRUTH_SECONDS: Final = 4.0
"""From a folder that takes files again to a socket in it: a second between two tries, and a start's dust."""

PLACES: Final = ("cdi", "cdi", "cdi", "state", "plugins")
FAULTS: Final = ("full", "read-only", "no right")
"""ENOSPC, EROFS and EACCES."""

_WITHOUT_RIGHTS: Final = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner")


# ── file systems ──


def private_mounts() -> bool:
    """Have mounts from now on concern this process and what it starts; False where that is not allowed.

    Call it before there is another thread: it concerns the calling one, and those that this one makes.
    """
    if _libc.unshare(_CLONE_NEWNS) != 0:
        return False
    return _mounted("none", "/", None, _MS_REC | _MS_PRIVATE, "") == 0


def tmpfs(path: Path, options: str) -> None:
    """Mount an empty file system in memory at `path`; `options` are its own, as `size=64k`."""
    _mount("tmpfs", str(path), "tmpfs", 0, options)


def bind_mount(source: Path, path: Path) -> None:
    """Have a folder at a second path, too."""
    _mount(str(source), str(path), None, _MS_BIND, "")


def remount_bound(path: Path, *, read_only: bool) -> None:
    """Let what is bound at `path` be read only, or written again, by way of that path."""
    _mount("none", str(path), None, _MS_REMOUNT | _MS_BIND | (_MS_RDONLY if read_only else 0), "")


def unmount(path: Path) -> None:
    """Take away what is mounted at `path`, also where somebody still has a file of it open."""
    _libc.umount2(os.fsencode(path), _MNT_DETACH)


def fill(folder: Path) -> Path:
    """Leave no room in the file system of a folder; return the file that takes it, which may be removed."""
    path = folder / ".full"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return path


def _mounted(source: str, target: str, kind: str | None, flags: int, options: str) -> int:
    words = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    result: int = _libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options))
    return result


def _mount(source: str, target: str, kind: str | None, flags: int, options: str) -> None:
    if _mounted(source, target, kind, flags, options) != 0:
        code = ctypes.get_errno() or errno.EIO
        raise OSError(code, os.strerror(code), target)


# ── the case ──


@case(
    "disk-full",
    fault="X17",
    promise="Where the folder of CDI files, of the daemon's memory or of its sockets takes nothing, no "
    "Allocate succeeds whose CDI file is missing, and all is well again when the folder is",
    count=150,
    unit="faults",
    invariants="I1 I2 I4 I6",
    limit_seconds=150,
)
async def disk_full(trial: Trial) -> None:
    """Break one of three folders in one of three ways, admit pods meanwhile, mend it, admit another."""
    if not private_mounts():
        trial.figure("skipped", "no right to make mounts here")
        return
    devices = trial.folder / "dev"
    devices.mkdir()
    for number in range(COUNT):
        (devices / f"n{number}").symlink_to("/dev/null")
    run = Path("/var/run").resolve()
    tmpfs(run, "size=1m,mode=755")
    CDI.mkdir()
    tmpfs(CDI, "size=64k,mode=755")
    view = trial.folder / "view"
    view.mkdir()
    text = config_text(
        f'{{name: {A}, discover: {{path: "{devices}/n*"}}, expose: {{strategy: cdi}}, '
        f"onRelease: {{exec: {{command: [/bin/true]}}}}}}"
    )
    async with node(trial.folder, text) as stage:
        # The same folder under another path: what becomes read-only for the daemon is not so for the kubelet.
        bind_mount(stage.plugin_dir, view)
        state = view / ".devplug"
        state.mkdir(mode=0o700)
        tmpfs(state, "size=64k,mode=700")
        try:
            await _break_all(trial, stage, view)
        finally:
            unmount(state)
            unmount(view)


async def _break_all(trial: Trial, stage: Node, view: Path) -> None:
    daemon = stage.start(plugin_dir=view, prefix=_WITHOUT_RIGHTS)
    await stage.until_listed({A: COUNT}, daemon=daemon)
    scene = _Scene(trial, stage, daemon, view)
    for turn in trial.rounds():
        place, fault = turn.random.choice(PLACES), turn.random.choice(FAULTS)
        await scene.play(place, fault, turn.number, turn.random)
    code, _ = await daemon.stop()
    trial.check(code == 0, f"I4: exit code {code}: {daemon.last_words()}")
    trial.check("Traceback" not in daemon.said(), f"I4: {daemon.last_words()}")
    trial.figure("pods refused meanwhile", scene.refused)


class _Scene:
    """A daemon, and the folders that it writes to."""

    def __init__(self, trial: Trial, stage: Node, daemon: Daemon, view: Path) -> None:
        self._trial = trial
        self._stage = stage
        self._daemon = daemon
        self._view = view
        self._pods = 0
        self.refused = 0

    async def play(self, place: str, fault: str, number: int, chance: random.Random) -> None:
        """Break a folder, look at what pods get, mend it, look again."""
        folder = {"cdi": CDI, "state": self._view / ".devplug", "plugins": self._view}[place]
        # The kubelet's checkpoint is in the plugin folder, too, so that is never full here; and a file system
        # with the open lock of a name cannot become read-only.
        fault = {("plugins", "full"): "read-only", ("state", "read-only"): "full"}.get((place, fault), fault)
        story = f"{place} is {fault}"
        if place == "cdi" and chance.random() < 0.5:
            for path in CDI.glob("*.json"):
                path.unlink()
        remains = await self._broken(folder, fault)
        try:
            if place == "plugins":
                await self._stage.kubelet.restart()
                await asyncio.sleep(chance.uniform(0, 0.1))
            else:
                for _ in range(chance.randint(1, 3)):
                    await self._admit(story, number, must_run=place == "state")
        finally:
            self._mend(folder, fault, remains)
        await self._stage.until_listed({A: COUNT}, TRUTH_SECONDS, self._daemon)
        await self._admit(f"{story} no longer", number, must_run=True)

    async def _broken(self, folder: Path, fault: str) -> Path | None:
        if fault == "full":
            return fill(folder)
        if fault == "no right":
            folder.chmod(0o500)
            return None
        for _ in range(100):
            # Not while a file in it is being written.
            with suppress(OSError):
                remount_bound(folder, read_only=True)
                return None
            await asyncio.sleep(0.02)
        raise BrokenError(f"I5: {folder} has a file open for writing all the time")

    def _mend(self, folder: Path, fault: str, remains: Path | None) -> None:
        if remains is not None:
            remains.unlink(missing_ok=True)
        elif fault == "read-only":
            remount_bound(folder, read_only=False)
        else:
            folder.chmod(0o755)

    async def _admit(self, story: str, number: int, *, must_run: bool) -> None:
        """Admit a pod, and hold what it got against the CDI files; it is gone afterwards."""
        self._pods += 1
        pod = pod_of(f"pod-{self._pods}", A)
        async with asyncio.timeout(15):
            status = await self._stage.kubelet.run_pod(pod)
        if status.phase == "Running":
            options = status.containers[0].options
            names = options.cdi_devices if options else ()
            missing = set(names) - _cdi_names()
            self._trial.check(names and not missing, f"I6: {story}: {names}, no file says {missing}", number)
        else:
            self.refused += 1
            self._trial.check(not must_run, f"I6: {story}: {status.message}", number)
        self._stage.kubelet.remove_pod(pod.uid)


def _cdi_names() -> set[str]:
    """Return the qualified names of all devices in the CDI folder; a file that is no JSON has none."""
    names: set[str] = set()
    for path in CDI.glob("*.json"):
        with suppress(ValueError, KeyError):
            spec = json.loads(path.read_text())
            names |= {f"{spec['kind']}={device['name']}" for device in spec["devices"]}
    return names
