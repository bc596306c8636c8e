"""`python -m tests.conformance`: mutants against checks, as matrices without a hole.

A row is a mutant, a column a check: X is a failure that is due, ! one that is not, ? one that is due and
did not come, + one that may come and did, a dot a check that passed. There is one of device plugins, and one
of DRA drivers, which --plugins and --dra choose. A driver is tried in all lanes, a plugin in those where its
fault shows, and with --full in all, which takes an hour on two cores. Ends with 1 if there is a hole: a check
that fails on no mutant, or a ! or a ?.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from devplug.conformance.checks import all_checks
from devplug.conformance.dra.checks import all_driver_checks
from devplug.conformance.verdicts import Check, Outcome, Verdict
from tests.conformance import mutants as plugin_mutants
from tests.conformance import trials as plugin_trials
from tests.conformance.dra import mutants as driver_mutants
from tests.conformance.dra import trials as driver_trials
from tests.conformance.trials import side_by_side


@dataclass(frozen=True)
class Row:
    """A mutant, or the right one: what is due on it."""

    fails: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    """What its fault may show in, too, and need not."""


@dataclass(frozen=True)
class Matrix:
    """The checks of plugins or of drivers, and those that are to fail them."""

    checks: Sequence[Check]
    rows: Mapping[str, Row]
    """By name; `right` is the first."""
    lanes_of: Callable[[str], Sequence[Check]]
    """The checks by which a mutant is tried."""
    trial: Callable[[str, Sequence[Check]], Awaitable[Sequence[Verdict]]]

    def heading(self, width: int) -> Sequence[str]:
        """Return the IDs of the checks, from the top down."""
        groups, numbers = [one.id[:3] for one in self.checks], [one.id[3:] for one in self.checks]
        rows = (*zip(*groups, strict=True), *zip(*numbers, strict=True))
        return [" " * width + " " + "".join(row) for row in rows]


def of_plugins() -> Matrix:
    """Return the matrix of device plugins; what its mutants fail `also` is due wherever it is tried."""
    rows = {name: Row(frozenset({*one.fails, *one.also})) for name, one in plugin_mutants.mutants().items()}
    return Matrix(all_checks(), {"right": Row(), **rows}, plugin_trials.lanes_of, plugin_trials.trial)


def of_drivers() -> Matrix:
    """Return the matrix of DRA drivers."""
    rows = {
        name: Row(frozenset(one.fails), frozenset(one.also)) for name, one in driver_mutants.mutants().items()
    }
    return Matrix(
        all_driver_checks(), {"right": Row(), **rows}, lambda _: all_driver_checks(), driver_trials.trial
    )


MATRICES = {"--plugins": of_plugins, "--dra": of_drivers}


async def printed(matrix: Matrix, names: Sequence[str], *, is_full: bool) -> bool:
    """Print a matrix, for these mutants or for all; return whether it has no hole."""
    chosen = [name for name in matrix.rows if not names or name in {"right", *names}]
    width = max(map(len, chosen))
    print("\n".join(matrix.heading(width)))
    caught: set[str] = set()
    wrong: list[str] = []
    tried = {
        name: partial(matrix.trial, name, matrix.checks if is_full else matrix.lanes_of(name))
        for name in chosen
    }
    async with side_by_side(tried) as verdicts_on:
        for name in chosen:
            verdicts = await verdicts_on[name]
            marks = _marks(matrix.rows[name], verdicts)
            caught |= {id_ for id_, mark in marks.items() if mark == "X"}
            cells = "".join(marks.get(one.id, " ") for one in matrix.checks)
            print(name.ljust(width), cells, flush=True)
            wrong += [
                f"{name}: {one.check.id} {one.outcome}: {one.seen}"
                for one in verdicts
                if marks[one.check.id] in {"!", "?"}
            ]
    holes = [] if names else [one.id for one in matrix.checks if one.id not in caught]
    count = len(chosen) - 1
    print(f"{len(matrix.checks)} checks, {count} mutants, {len(holes)} checks without a mutant: {holes}")
    print("\n".join(wrong))
    return not holes and not wrong


def _marks(row: Row, verdicts: Sequence[Verdict]) -> Mapping[str, str]:
    """Return the cells of a row, by check."""
    failed = {one.check.id for one in verdicts if one.outcome is Outcome.FAILED}
    made = {one.check.id for one in verdicts}
    marks = dict.fromkeys(made, ".") | dict.fromkeys(failed, "!") | dict.fromkeys(failed & row.also, "+")
    return marks | dict.fromkeys(failed & row.fails, "X") | dict.fromkeys(row.fails & made - failed, "?")


async def main(words: Sequence[str]) -> int:
    """Print the matrices that are asked for; return the exit code."""
    chosen = [made() for word, made in MATRICES.items() if word in words] or [
        made() for made in MATRICES.values()
    ]
    names = [word for word in words if not word.startswith("--")]
    is_right = True
    for matrix in chosen:
        if not names or any(name in matrix.rows for name in names):
            is_right &= await printed(matrix, names, is_full="--full" in words)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
