"""The result of one run of a command that the file names. Pure."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["CommandResult"]


class CommandResult(Struct, frozen=True):
    """How one run of a command ended."""

    exit_code: int | None = None
    """As the command left it, -N if signal N ended it; None if it was not started."""
    output: str = ""
    """The beginning of its standard output, then of its standard error."""
    was_killed: bool = False
    """Whether the deadline passed, and it was told to end."""
    fault: str = ""
    """Why it could not be started."""

    @property
    def first_line(self) -> str:
        """The first line with something on it: of standard output, else of standard error."""
        return next((line.strip() for line in self.output.splitlines() if line.strip()), "")
