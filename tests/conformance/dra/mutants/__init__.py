"""Deliberately wrong DRA drivers, one fault each: what shows that a check can fail."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from tests.conformance.dra.right_driver import RightDriver


class Mutant(RightDriver):
    """A driver with one fault; its docstring names it."""

    fails: ClassVar[tuple[str, ...]] = ()
    """The IDs of the checks that have to notice."""
    also: ClassVar[tuple[str, ...]] = ()
    """Those that may notice too."""
    times: ClassVar[Mapping[str, Any]] = {}
    """Times of its own: limits that a late one breaks."""


M = TypeVar("M", bound=type[Mutant])


def fails(*checks: str, also: tuple[str, ...] = (), **times: Any) -> Callable[[M], M]:
    """Say of a mutant which checks have to notice it, and what else a `Mutant` says of itself."""

    def said(mutant: M) -> M:
        mutant.fails, mutant.also, mutant.times = checks, also, times
        return mutant

    return said


@cache
def mutants() -> Mapping[str, type[Mutant]]:
    """Return every mutant by its class's name."""
    found: dict[str, type[Mutant]] = {}
    for module in pkgutil.iter_modules(__path__):
        for name, one in vars(import_module(f"{__name__}.{module.name}")).items():
            if inspect.isclass(one) and issubclass(one, Mutant) and one.fails:
                assert name not in found, f"two mutants are called {name}"
                found[name] = one
    return dict(sorted(found.items()))
