"""Deliberately wrong plugins, one fault each: what shows that a check can fail."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, TypeVar

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


M = TypeVar("M", bound=type[Mutant])


def fails(
    *checks: str, also: tuple[str, ...] = (), skips: tuple[str, ...] = (), **times: Any
) -> Callable[[M], M]:
    """Say of a mutant which checks have to notice it, and what else a `Mutant` says of itself."""

    def said(mutant: M) -> M:
        mutant.fails, mutant.also, mutant.skips, mutant.times = checks, also, skips, times
        return mutant

    return said


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
