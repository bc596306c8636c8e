"""The brief run: `python -m torture.brief_run`, or with names; prints a JSON line for each case.

It plays each case that notices the absence of a guard, as often as that takes, and of modules without one the
case that is marked, a thousandth as often. Only a hang or a flood reaches a bound on time or memory. Each is
forked from this process, which has loaded everything.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import signal
import sys
import tempfile
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final

from torture.catalogue import PATIENCE, CaseResult, cases
from torture.guards import GUARDS
from torture.player import play

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torture.catalogue import Case

DIVISOR: Final = 1000
"""By how much the counts of cases without a guard are divided."""

LEFT_OUT: Final = frozenset({"crash-while-writing", "kubelet-events-lost", "plugin-signals"})
"""They start programs all the time, which takes seconds of processor."""

LANES: Final = 4
"""How many are played at a time: most of them wait most of the time."""

LIMIT_SECONDS: Final = 60.0
"""What only a case that hangs needs."""

BRIEF_PATIENCE: Final = 20.0

SEED: Final = 1

_PR_SET_PDEATHSIG: Final = 1


def brief_counts() -> dict[str, int]:
    """Return how often each case is tried, those that take longest first."""
    counts = {case.name: max(2, case.count // DIVISOR) for case in cases().values() if case.is_brief}
    for guard in GUARDS:
        match guard.caught_by.split():
            case ["case", name, count] if name not in LEFT_OUT:
                counts[name] = max(counts.get(name, 0), int(count))
    return dict(sorted(counts.items(), key=lambda row: -row[1] / cases()[row[0]].count))


def main(names: Sequence[str]) -> None:
    """Play these cases, and print what came of each as it ends."""
    logging.disable(logging.CRITICAL)
    counts = brief_counts()
    waiting = [*(names or counts)]
    gc.collect()
    gc.freeze()  # what is loaded is nobody's leak, and need not be looked at again by each
    running: dict[int, tuple[str, IO[bytes]]] = {}
    while waiting or running:
        while waiting and len(running) < LANES:
            name = waiting.pop(0)
            output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- closed when its case has ended
            running[_forked(cases()[name], counts[name], output)] = name, output
        child, status = os.wait()
        # What a case that died has left behind goes with it.
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        name, output = running.pop(child)
        with output:
            output.seek(0)
            lost = CaseResult(name, 0, 0.0, {}, [f"its process ended with status {status}"], 1)
            print(output.read().decode() or json.dumps(lost.as_json()), flush=True)


def _forked(case: Case, count: int, output: IO[bytes]) -> int:
    """Play a case in a process of its own; return its ID."""
    parent = os.getpid()
    if child := os.fork():
        return child
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            PATIENCE.set(BRIEF_PATIENCE)
            result = play(case, SEED, count, limit_seconds=LIMIT_SECONDS)
            output.write(json.dumps(result.as_json()).encode())
            output.flush()
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
