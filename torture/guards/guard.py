"""A guard: some lines that an invariant stands on, and what notices when they are gone."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Guard"]


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard, by the text that is its own, and the text that is there without it.

    `caught_by` is a test (`tests/…::test_…`) or a case of the torture (`case NAME COUNT`), which fails then.
    """

    name: str
    invariant: str
    what: str
    file: str
    """Below the repository."""
    old: str
    new: str
    caught_by: str

    def removed_from(self, text: str) -> str:
        """Return a file's text without this guard; raises `ValueError` if that is not in it just once."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: its text is {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)
