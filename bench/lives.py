"""The starts and ends of a plugin: how long they take, and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.kubelet import MissingError
from bench.process import STOP_SECONDS, Stopped
from bench.report import Figure, median
from bench.subjects import started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.subjects import Plugin, Subject


@dataclass(slots=True)
class Lives:
    """The starts and ends of one subject."""

    subject: Subject
    wanted: int
    registered: list[float] = field(default_factory=list)
    listed: list[float] = field(default_factory=list)
    ends: list[Stopped] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    failure: str = ""

    def born(self, plugin: Plugin) -> None:
        """Note how it started."""
        self.registered.append(plugin.started_to_registered)
        self.listed.append(plugin.registered_to_listed)

    async def die(self, plugin: Plugin) -> None:
        """Stop it, and note how that went and what it left in the folder."""
        self.ends.append(await plugin.process.stop())
        self.left |= {file.name for file in plugin.folder.iterdir()} - {"kubelet.sock"}

    def start_figures(self) -> list[Figure]:
        """Return how long starts took."""
        return [
            median("process start → Register, median", self.registered, self.failure),
            median("Register → full list, median", self.listed, self.failure),
        ]

    def stop_figures(self) -> list[Figure]:
        """Return how ends went."""
        codes = {end.exit_code for end in self.ends}
        code = self.ends[-1].exit_code if self.ends else None
        killed = f"killed after {STOP_SECONDS} s" if None in codes else ""
        several = f"several: {sorted(code for code in codes if code is not None)}" if len(codes) > 1 else ""
        return [
            median("SIGTERM → gone, median", [end.seconds for end in self.ends], self.failure),
            Figure(
                "exit code after SIGTERM",
                "",
                code,
                killed or several or (self.failure if code is None else ""),
            ),
            Figure(
                "files left in the plugin folder",
                "",
                float(len(self.left)) if self.ends else None,
                ", ".join(sorted(self.left)),
            ),
        ]


async def starting(lives: Sequence[Lives]) -> None:
    """Start and stop each subject, all but the last time, in turns."""
    for _ in range(max(life.wanted for life in lives) - 1):
        for life in lives:
            if life.failure:
                continue
            try:
                async with started(life.subject) as plugin:
                    life.born(plugin)
                    await life.die(plugin)
            except MissingError as error:
                life.failure = str(error)
