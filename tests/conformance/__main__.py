"""`python -m tests.conformance`: mutants against checks, as a matrix without a hole.

A row is a mutant, a column a check: X is a failure that is due, ! one that is not, ? one that is due and
did not come, a dot a check that passed. Each mutant is tried in the lanes where its fault shows, with --full
in all, which takes an hour on two cores. Ends with 1 if there is a hole: a check that fails on no mutant, or
a ! or a ?.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial

from devplug.conformance.checks import all_checks
from devplug.conformance.verdicts import Outcome
from tests.conformance.mutants import mutants
from tests.conformance.trials import lanes_of, side_by_side, trial


async def main(words: list[str]) -> int:
    """Print the matrix, for all mutants or for those that are named; return the exit code."""
    is_full = "--full" in words
    words = [word for word in words if word != "--full"]
    checks = all_checks()
    rows = {name: mutant for name, mutant in mutants().items() if not words or name in words}
    width = max(map(len, rows))
    groups = [one.id[:3] for one in checks]
    for heading in (groups, [one.id[3:] for one in checks]):
        for line in zip(*heading, strict=True):
            print(" " * width, "".join(line))
    caught: set[str] = set()
    wrong: list[str] = []
    names = list(rows)
    tried = {name: partial(trial, name, checks if is_full else lanes_of(name)) for name in ("right", *names)}
    async with side_by_side(tried) as verdicts_on:
        for name in ("right", *names):
            verdicts = await verdicts_on[name]
            failed = {one.check.id for one in verdicts if one.outcome is Outcome.FAILED}
            made = {one.check.id for one in verdicts}
            due = {*rows[name].fails, *rows[name].also} & made if name in rows else set()
            caught |= failed & due
            marks = dict.fromkeys(failed & due, "X") | dict.fromkeys(failed - due, "!")
            marks |= dict.fromkeys(due - failed, "?")
            print(
                name.ljust(width),
                "".join(marks.get(one.id, "." if one.id in made else " ") for one in checks),
                flush=True,
            )
            wrong += [
                f"{name}: {one.check.id} {one.outcome}: {one.seen}"
                for one in verdicts
                if marks.get(one.check.id) in {"!", "?"}
            ]
    holes = [] if words else [one.id for one in checks if one.id not in caught]
    print(f"{len(checks)} checks, {len(rows)} mutants, {len(holes)} checks without a mutant: {holes}")
    print("\n".join(wrong))
    return 1 if holes or wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
