"""Deliberately wrong plugins, one fault each: what shows that a check can fail."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

from tests.conformance.right import RightPlugin


class Mutant(RightPlugin):
    """A plugin with one fault; its docstring names it."""

    fails: ClassVar[tuple[str, ...]] = ()
    """The IDs of the checks that have to notice."""
    also: ClassVar[tuple[str, ...]] = ()
    """Those of other lanes that notice too, as the fault shows there as well."""
    skips: ClassVar[tuple[str, ...]] = ()
    """Checks of other lanes that must not fail for it: they are skipped, and say which check is about it."""
    times: ClassVar[Mapping[str, Any]] = {}
    """Times of its own: limits that a late one breaks, where nothing that is right is held to them, and more
    time to see a fault that needs it."""


@cache
def mutants() -> Mapping[str, type[Mutant]]:
    """Return every mutant by its class's name."""
    found: dict[str, type[Mutant]] = {}
    for module in pkgutil.iter_modules(__path__):
        members = vars(import_module(f"{__name__}.{module.name}"))
        for name, one in members.items():
            if inspect.isclass(one) and issubclass(one, Mutant) and one.fails:
                assert name not in found, f"two mutants are called {name}"
                found[name] = one
    return dict(sorted(found.items()))
