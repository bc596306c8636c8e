"""The report of a run: one row per device, and what was not as claimed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["Report", "Row", "as_text"]

_HEADER: Final = ("DEVICE", "ID", "NUMA", "FOUND", "LOST", "FOUND AGAIN")


@dataclass(frozen=True, slots=True)
class Row:
    """How one device fared. Times are from the kernel's first word of it to the kubelet's table."""

    title: str
    id: str
    numa_node: int | None
    """As the kubelet's table has it."""
    found_ms: float | None = None
    """None, as of all times: it did not get so far."""
    lost_ms: float | None = None
    again_ms: float | None = None


@dataclass(slots=True)
class Report:
    """What is known of a run so far."""

    rows: list[Row] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Each a claim that does not hold, and what was there instead."""
    has_ended: bool = False
    """Whether the guest came to its last line; if not, nothing is proved."""

    @property
    def holds(self) -> bool:
        """Whether everything is as claimed."""
        return self.has_ended and not self.faults


def as_text(report: Report) -> str:
    """Return the table, and below it the claims that do not hold."""
    cells = [_HEADER, *(_cells(row) for row in report.rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(_HEADER))]
    lines = [
        "  ".join(
            text.ljust(width) if at < 2 else text.rjust(width)
            for at, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    return "\n".join([*lines, *(f"FAIL {fault}" for fault in report.faults)])


def _cells(row: Row) -> tuple[str, ...]:
    times = (row.found_ms, row.lost_ms, row.again_ms)
    numa_node = "-" if row.numa_node is None else str(row.numa_node)
    return (row.title, row.id, numa_node, *("-" if ms is None else f"{ms:.0f} ms" for ms in times))
