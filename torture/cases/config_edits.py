"""Edits of the configuration: all the time, in every way in which files are, and wrongly in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.daemon.config.loader import load
from devplug.daemon.service import serve_config
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from torture.catalogue import case
from torture.daemons import config_text
from torture.footprint import nothing_kept
from torture.testbed import within

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from torture.catalogue import Trial

A: Final = "example.com/a"
B: Final = "example.com/b"
SETTLE_SECONDS: Final = 5.0
SETTLE_CHANCE: Final = 0.003
SPOILT_SHARE: Final = 0.2
WARM_UP: Final = 60
READ_SECONDS: Final = 0.25
"""How long a state of the file stands that is to be read, at least."""

LINKED: Final = 1_000_000
"""What is added to the version of a state that a link alone leads to."""


def _config(version: int) -> str:
    """Return a configuration whose device IDs all name its version; some have more of them than others."""
    return config_text(
        *(
            f"{{name: {name}, discover: {{static: {{ids: [{', '.join(_ids(name, version))}]}}}}}}"
            for name in (A, B)
        )
    )


def _ids(name: str, version: int) -> list[str]:
    return [f"v{version}-{name[-1]}{number}" for number in range(1 + version % 7)]


@case(
    "config-rewritten",
    fault="X40",
    promise="A file that is rewritten 10,000 times, also half, wrongly and by links, ends as its last good "
    "state; at no time is a mixture of two served, and what is overtaken is not applied",
    count=10_000,
    unit="edits",
    invariants="I2 I3 I4 I8",
    limit_seconds=300,
)
async def config_rewritten(trial: Trial) -> None:
    """Edit a served file without pause, and now and then look whether what is served is what it says."""
    folder = trial.folder / "etc"
    folder.mkdir()
    edits = _Edits(folder)
    edits.write(0)
    kubelet = Kubelet.under(trial.folder)
    look_again = asyncio.Event()
    config = load(edits.file.read_text(), str(edits.file))
    async with (
        kubelet.running(),
        serve_config(
            config, plugin_dir=kubelet.plugin_dir, file=edits.file, look_again=look_again
        ) as serving,
        asyncio.TaskGroup() as group,
    ):
        await asyncio.wait_for(serving.wait_registered(), 10)
        lists: Counter[str] = Counter()
        watching = group.create_task(_watch(trial, kubelet, lists))
        for version in range(1, min(WARM_UP, trial.count // 50)):
            edits.write(version)
            await _settled(kubelet, version)
        before, settled = lists[A], 0
        async with nothing_kept(trial):
            for turn in trial.rounds():
                version = turn.number + 1
                edits.edit(version, turn.random)
                if turn.random.random() < SETTLE_CHANCE or turn.number == trial.first + trial.count - 1:
                    settled += await _settle(kubelet, edits, version, turn.random, look_again)
                else:
                    await asyncio.sleep(turn.random.choice([0, 0, 0, 0, 0.001, 0.003]))
        applied = lists[A] - before
        # Each look at a good state makes one; a few more are caught in a pause.
        trial.check(applied <= 3 * settled + 20, f"I2: {applied} reloads for {settled} pauses")
        trial.figure("reloads", applied)
        watching.cancel()


async def _settle(
    kubelet: Kubelet, edits: _Edits, version: int, chance: random.Random, look_again: asyncio.Event
) -> int:
    """Come to a good state after one that is wrong for long enough to be read, and to another one by a link
    alone; return how many good ones there were.
    """
    edits.spoil(chance)
    # Where the kernel tells of nothing, it would be read in a second only.
    look_again.set()
    await asyncio.sleep(READ_SECONDS)
    edits.edit_well(version, chance)
    await _settled(kubelet, version)
    edits.swap_links(version)
    await asyncio.sleep(READ_SECONDS)
    edits.swap_links(LINKED + version)
    await _settled(kubelet, LINKED + version)
    return 2


async def _settled(kubelet: Kubelet, version: int) -> None:
    """Wait until a version is served, and nothing else."""

    def is_served() -> bool:
        return all(_offered(kubelet, name) == _ids(name, version) for name in (A, B))

    def story() -> str:
        return f"I8: version {version} is in the file, {_offered(kubelet, A)} is served"

    await within(SETTLE_SECONDS, kubelet.wait(is_served), story)


def _offered(kubelet: Kubelet, resource_name: str) -> list[str]:
    """Return the IDs of the healthy devices. After an edit the old devices stay Unhealthy for a moment."""
    return [one.id for one in kubelet.devices(resource_name) if one.health == "Healthy"]


async def _watch(trial: Trial, kubelet: Kubelet, lists: Counter[str]) -> None:
    """Hold every list against the files: it has all devices of one version, and none of another."""
    with kubelet.changes() as changes:
        async for change in changes:
            if change.kind is ChangeKind.LISTED:
                lists[change.resource_name] += 1
                ids = _offered(kubelet, change.resource_name)
                version = int(ids[0].partition("-")[0][1:]) if ids else 0
                trial.check(ids == _ids(change.resource_name, version), f"I8: a mixture: {ids}")


@dataclass(slots=True)
class _Edits:
    """What is done to one file, and to the links that lead to it."""

    folder: Path
    made: int = 0

    @property
    def file(self) -> Path:
        """The configuration."""
        return self.folder / "devplug.yaml"

    def edit(self, version: int, chance: random.Random) -> None:
        """Change the file in one way or another, or spoil it."""
        if chance.random() < SPOILT_SHARE:
            self.spoil(chance)
        else:
            self.edit_well(version, chance)

    def edit_well(self, version: int, chance: random.Random) -> None:
        """Change the file in one way or another."""
        chance.choice((self.write, self.write_in_pieces, self.rename, self.swap_links))(version)

    def write(self, version: int) -> None:
        """Write it in place, wherever its links lead."""
        self._mend()
        self.file.write_text(_config(version))

    def write_in_pieces(self, version: int) -> None:
        """Write it piece by piece, so that half of it can be read meanwhile."""
        self._mend()
        text = _config(version)
        with self.file.open("w") as file:
            for start in range(0, len(text), 40):
                file.write(text[start : start + 40])
                file.flush()

    def rename(self, version: int) -> None:
        """Put a new file in its place, as editors do."""
        fresh = self.folder / ".new"
        fresh.write_text(_config(version))
        self._clear()
        fresh.replace(self.file)

    def swap_links(self, version: int) -> None:
        """Publish it as the kubelet does a ConfigMap: a new folder, and a link renamed over `..data`."""
        self.made += 1
        data = self.folder / f"..{self.made}"
        data.mkdir()
        (data / "devplug.yaml").write_text(_config(version))
        old = self.folder / "..data"
        before = old.resolve() if old.is_symlink() else None
        link = self.folder / "..data_tmp"
        link.symlink_to(data.name)
        link.replace(old)
        if not (self.file.is_symlink() and self.file.exists()):  # or it is one that leads to itself
            self._clear()
            self.file.unlink(missing_ok=True)
            self.file.symlink_to("..data/devplug.yaml")
        if before is not None:
            (before / "devplug.yaml").unlink(missing_ok=True)
            before.rmdir()

    def spoil(self, chance: random.Random) -> None:
        """Leave something there that is no good configuration."""
        kind = chance.choice(["gone", "cut", "empty", "bytes", "folder", "link", "unknown"])
        if kind == "gone":
            self._clear()
            self.file.unlink(missing_ok=True)
        elif kind == "folder":
            self._clear()
            self.file.unlink(missing_ok=True)
            self.file.mkdir()
        elif kind == "link":
            self._clear()
            self.file.unlink(missing_ok=True)
            self.file.symlink_to("devplug.yaml")
        else:
            self._mend()
            text = _config(chance.randrange(1000))
            spoilt = {
                "cut": text[: text.index("}") - chance.randint(0, 9)],
                "empty": "",
                "bytes": "\0" * chance.randint(1, 9),
                "unknown": f"{text}colour: red\n",
            }
            self.file.write_text(spoilt[kind])

    def _mend(self) -> None:
        """Have nothing in the way of writing to the file."""
        self._clear()
        with suppress(OSError):
            if self.file.is_symlink() and not self.file.exists():
                self.file.unlink()
        if self.file.is_symlink() and self.file.readlink().name == self.file.name == str(
            self.file.readlink()
        ):
            self.file.unlink()

    def _clear(self) -> None:
        if self.file.is_dir() and not self.file.is_symlink():
            self.file.rmdir()
