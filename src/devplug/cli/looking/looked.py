"""What is asked for: which nodes, which of their resources and devices, and in which form."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.cli.looking.places import folder_fault
from devplug.cli.looking.views.grouping import chosen
from devplug.cli.looking.views.tables import node_lines
from devplug.cli.looking.views.words import Cell, Tone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.cli.looking.places import NodeFolders
    from devplug.cli.looking.views.layout import Line
    from devplug.status.values import NodeStatus

__all__ = ["Looked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """One command's question; lives as long as the command."""

    nodes: tuple[NodeFolders, ...]
    resources: tuple[str, ...] = ()
    """Globs; every resource without any."""
    unhealthy: bool = False
    """Whether only devices are listed that are not healthy."""
    output: str = "table"
    color: str = "auto"
    is_listed: bool = False
    """Whether programs get a list of nodes, as of a sandbox, and not the one that was asked for."""

    def fault(self) -> str:
        """Return what keeps us from looking at all; empty if nothing does."""
        return next((fault for one in self.nodes if (fault := folder_fault(one))), "")

    def keep_logs_quiet(self) -> None:
        """Say nothing of what is logged: what the monitor logs stands in the status, too."""
        logging.getLogger("devplug").addHandler(logging.NullHandler())

    def of(self, statuses: Sequence[NodeStatus]) -> tuple[NodeStatus, ...]:
        """Return statuses with the resources that are asked for."""
        return tuple(chosen(one, self.resources) for one in statuses)

    def lines(self, statuses: Sequence[NodeStatus], now: float, width: int | None) -> list[Line]:
        """Return the tables of all nodes."""
        lines: list[Line] = []
        for folders, one in zip(self.nodes, statuses, strict=True):
            if len(statuses) > 1:
                lines += [()] if lines else []
                lines.append((Cell(f"on {one.name}", Tone.HEAD),))
            lines += node_lines(
                one,
                now,
                str(folders.plugin_dir),
                width=width,
                wide=self.output == "wide",
                unhealthy=self.unhealthy,
            )
        return lines
