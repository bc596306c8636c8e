"""One case in this process: `python -m torture.player NAME --seed N --count N`; prints one JSON line."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from devplug.errors import DevplugError
from torture.catalogue import PATIENCE, BrokenError, CaseResult, Trial, cases

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torture.catalogue import Case


def play(
    case: Case,
    seed: int,
    count: int,
    first: int = 0,
    limit_seconds: float | None = None,
) -> CaseResult:
    """Run one case on a loop of its own and return what came of it, also if it raises."""
    folder = Path(tempfile.mkdtemp(prefix="tt-", dir="/tmp"))
    trial = Trial(case, seed, count, folder, first)
    # What no case draws for itself (jitter, names of sockets) is the same for the same seed, too.
    random.seed(f"{seed}/{case.name}")
    started = time.monotonic()
    try:
        asyncio.run(_bounded(trial, limit_seconds or case.limit_seconds))
    except TimeoutError:
        trial.broke(
            f"no end within {limit_seconds or case.limit_seconds:g} s\n{traceback.format_exc(limit=-6)}"
        )
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 -- a case that dies is a broken case
        for one in _leaves(error):
            trial.broke(_text_of(one))
    else:
        if not trial.broken_count and trial.done < count:
            trial.broke(f"it ended after {trial.done} of {count}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return CaseResult(
        case.name,
        trial.done,
        round(time.monotonic() - started, 1),
        trial.figures,
        trial.broken,
        trial.broken_count,
    )


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield what went wrong in a group of errors, and in its groups."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _text_of(error: BaseException) -> str:
    """Return what broke: the promise by its text, anything else with its traceback."""
    if isinstance(error, BrokenError):
        return str(error)
    kind = "" if isinstance(error, DevplugError) else f"{type(error).__name__}: "
    return f"{kind}{error}\n{''.join(traceback.format_exception(error))}"


async def _bounded(trial: Trial, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        # By a thread, because some cases put the loop's clock forward.
        timer = threading.Timer(
            seconds, lambda: loop.call_soon_threadsafe(lambda: limit.reschedule(loop.time()))
        )
        timer.daemon = True
        timer.start()
        try:
            await trial.case.body(trial)
        finally:
            timer.cancel()


def main(arguments: Sequence[str] | None = None) -> int:
    """Play one case and print its result; return 1 if a promise was not kept."""
    parser = argparse.ArgumentParser(prog="python -m torture.player")
    parser.add_argument("name")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--limit", type=float)
    parser.add_argument("--patience", type=float, default=1.0)
    parser.add_argument("--log", action="store_true", help="show what the case logs")
    chosen = parser.parse_args(arguments)
    if not chosen.log:
        logging.disable(logging.CRITICAL)
    PATIENCE.set(chosen.patience)
    case = cases()[chosen.name]
    result = play(case, chosen.seed, chosen.count or case.count, chosen.first, chosen.limit)
    print(json.dumps(result.as_json()))
    return 1 if result.broken_count else 0


if __name__ == "__main__":
    sys.exit(main())
