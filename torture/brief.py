"""The brief run: `python -m torture.brief`, or with names; prints a JSON line for each case.

Of each module of cases that has one it plays the case that is soon over, a few times. What is broken outright
is seen; times and memory are not judged. Each case is forked from this process, which has loaded everything.
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

from torture.catalogue import PATIENCE, cases
from torture.playing import play
from torture.results import CaseResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torture.catalogue import Case

LANES: Final = 4
"""How many are played at a time: most of them wait most of the time."""

LIMIT_SECONDS: Final = 60.0
"""What only a case that hangs needs."""

BRIEF_PATIENCE: Final = 20.0

SEED: Final = 1

_PR_SET_PDEATHSIG: Final = 1


def main(names: Sequence[str]) -> None:
    """Play these cases, and print what came of each as it ends."""
    logging.disable(logging.CRITICAL)
    waiting = [case for case in cases().values() if (case.name in names if names else case.is_brief)]
    gc.collect()
    gc.freeze()  # what is loaded is nobody's leak, and need not be looked at again by each
    running: dict[int, tuple[Case, IO[bytes]]] = {}
    while waiting or running:
        while waiting and len(running) < LANES:
            case = waiting.pop(0)
            output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- closed when its case has ended
            running[_forked(case, output)] = case, output
        child, status = os.wait()
        # What a case that died has left behind goes with it.
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        case, output = running.pop(child)
        with output:
            output.seek(0)
            lost = CaseResult(case.name, 0, 0.0, {}, [f"its process ended with status {status}"], 1)
            print(output.read().decode() or json.dumps(lost.as_json()), flush=True)


def _forked(case: Case, output: IO[bytes]) -> int:
    """Play a case in a process of its own; return its ID."""
    parent = os.getpid()
    if child := os.fork():
        return child
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            PATIENCE.set(BRIEF_PATIENCE)
            result = play(case, SEED, case.brief_count, limit_seconds=LIMIT_SECONDS)
            output.write(json.dumps(result.as_json()).encode())
            output.flush()
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
