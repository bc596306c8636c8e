"""Commands that are imported when somebody uses them: a daemon that runs for months needs one of them."""

from __future__ import annotations

import gc
import importlib
from collections.abc import MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import click

__all__ = ["LazyCommands", "uncollected"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage for a block that loads modules: there is none, and every look takes longer."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class LazyCommands(MutableMapping[str, "click.Command"]):
    """Commands by their names; lives as long as its group, and is all that a group wants of a dict.

    `homes` says of each that is not there yet where it is, as `module:name`.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = dict(homes)
        self._there: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        """Return a command, imported now if it was not yet."""
        if name not in self._there and name in self._homes:
            module, _, attribute = self._homes[name].partition(":")
            self._there[name] = getattr(importlib.import_module(module), attribute)
        return self._there[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        """Add a command that is there."""
        self._there[name] = command

    def __delitem__(self, name: str) -> None:
        """Take a command out."""
        del self._there[name]
        self._homes.pop(name, None)

    def __contains__(self, name: object) -> bool:
        """Whether there is such a command; none is imported for that."""
        return name in self._there or name in self._homes

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._homes | self._there)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._homes | self._there)
