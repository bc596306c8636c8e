"""The start of a process, kept small: commands are imported when used, and OpenSSL is left out of a daemon.

A daemon that runs for months needs one command of them all.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    import click

    from devplug.cli.run_options import RunOptions


@contextmanager
def uncollected() -> Iterator[None]:
    """Switch off the garbage collector for a block that loads modules, and keep them out of all later looks.

    They stay, and each look through them takes milliseconds.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def do_without_openssl() -> None:
    """Keep OpenSSL out of a process that stays: 8 MB and 20 ms for nothing, since no socket here speaks TLS.

    asyncio and hashlib are made to do without these two modules, as in a Python that was built without them.
    """
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    for name in ("ssl", "_hashlib"):
        modules.setdefault(name, None)


def import_msgspec() -> None:
    """Import msgspec, and not typing_extensions: 2 ms for what `typing` has, which msgspec asks next.

    Whoever else wants that gets it.
    """
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    is_hidden = modules.setdefault("typing_extensions", None) is None
    importlib.import_module("msgspec")
    if is_hidden:
        del modules["typing_extensions"]


def start_daemon(options: RunOptions) -> int:
    """Serve a configuration until a signal; return the exit code."""
    with uncollected():
        from devplug.k8s.account import may_have_account

        # Where the labels of this Node may be asked for, now or after an edit, the API server speaks TLS.
        if not may_have_account():
            do_without_openssl()
        from devplug.cli.run import run
    return run(
        options.config,
        options.plugin_dir,
        options.pod_resources,
        cdi_dir=options.cdi_dir,
        listen=options.listen,
        log_level=options.log_level,
        log_format=options.log_format,
        kube_events=options.kube_events,
    )


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
