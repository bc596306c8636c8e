"""`make torture`: every case of the catalogue, side by side, each in a process of its own.

A process is ended when its time is over.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from torture.catalogue import CaseResult, RunResult, cases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torture.catalogue import Case

# ── processes side by side ──

GRACE_SECONDS: Final = 30.0
"""How long a case that is out of time may take to say so, before it is killed."""


async def played(
    wanted: Sequence[Case],
    seed: int,
    jobs: int,
    *,
    smoke: bool,
    first: int | None,
    times: int = 1,
    patience: float = 1.0,
    told: Callable[[Case, CaseResult], None],
) -> list[CaseResult]:
    """Play cases in `jobs` lanes and return their results in the catalogue's order.

    `told` gets each as it ends. With `first`, of each case only the round of that number; `times` multiplies
    counts and limits, `patience` bounds on times. The longest begin first; those that have to be alone come
    after all others, one after the other.
    """
    results: dict[str, CaseResult] = {}
    free = asyncio.Semaphore(jobs)

    async def one(case: Case) -> None:
        async with free:
            results[case.name] = result = await _played(
                case, seed, smoke=smoke, first=first, times=times, patience=patience
            )
            told(case, result)

    ordered = sorted(wanted, key=lambda case: -case.limit_seconds)
    async with asyncio.TaskGroup() as group:
        for case in ordered:
            if not case.is_alone:
                group.create_task(one(case))
    for case in ordered:
        if case.is_alone:
            await one(case)
    return [results[case.name] for case in wanted]


async def _played(
    case: Case, seed: int, *, smoke: bool, first: int | None, times: int, patience: float
) -> CaseResult:
    count = 1 if first is not None else times * case.count_for(smoke=smoke)
    limit_seconds = times * patience * case.limit_seconds
    words = [sys.executable, "-m", "torture.player", case.name, "--seed", str(seed), "--count", str(count)]
    words += ["--first", str(first or 0), "--limit", str(limit_seconds), "--patience", str(patience)]
    child = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=16 * 1024 * 1024,
    )
    try:
        async with asyncio.timeout(limit_seconds + GRACE_SECONDS):
            output, errors = await child.communicate()
    except TimeoutError:
        return _lost(case, f"killed after {limit_seconds + GRACE_SECONDS:g} s")
    finally:
        # Its whole group: a case that dies may leave daemons behind.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
    lines = output.decode(errors="replace").splitlines()
    try:
        return CaseResult.of_json(json.loads(lines[-1]))
    except (IndexError, ValueError, TypeError):
        words_of_it = errors.decode(errors="replace").strip()[-2000:]
        return _lost(case, f"its process ended with {child.returncode}: {words_of_it}")


def _lost(case: Case, why: str) -> CaseResult:
    return CaseResult(case.name, 0, case.limit_seconds, {}, [why], 1)


# ── the command ──


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; return 0 if every promise was kept."""
    chosen = _parser().parse_args(arguments)
    catalogue = cases()
    if unknown := [name for name in chosen.only if name not in catalogue]:
        print(f"no such case: {', '.join(unknown)}; --list names all", file=sys.stderr)
        return 2
    wanted = [catalogue[name] for name in chosen.only] or [*catalogue.values()]
    if chosen.list:
        for case in wanted:
            print(f"{case.name:32} {case.fault:12} {case.count:>9,} {case.unit:14} {case.promise}")
        return 0
    seed = random.SystemRandom().randrange(1_000_000) if chosen.seed is None else chosen.seed
    print(f"seed {seed}, {len(wanted)} cases", flush=True)
    started = time.monotonic()

    def told(case: Case, result: CaseResult) -> None:
        print(_line(case, result, seed, smoke=chosen.smoke), flush=True)

    results = asyncio.run(
        played(
            wanted,
            seed,
            chosen.jobs,
            smoke=chosen.smoke,
            first=chosen.number,
            times=chosen.times,
            patience=chosen.patience,
            told=told,
        )
    )
    run = RunResult(seed, _machine(), round(time.monotonic() - started, 1), tuple(results))
    if chosen.keep:
        chosen.keep.parent.mkdir(parents=True, exist_ok=True)
        chosen.keep.write_text(json.dumps(run.as_json(), indent=1, ensure_ascii=False) + "\n")
    tries = sum(result.done for result in results)
    print(
        f"{len(results)} cases, {tries:,} tries, {run.seconds:.0f} s, {len(run.broken)} broken, seed {seed}"
    )
    return 1 if run.broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("--seed", type=int, help="the chance of every case; drawn, and printed, if not given")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help="these cases alone")
    parser.add_argument("--number", type=int, metavar="N", help="of each case the round of this number alone")
    parser.add_argument("--smoke", action="store_true", help="each count divided by 50")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="each count multiplied by N")
    parser.add_argument(
        "--patience",
        type=float,
        default=1.0,
        metavar="X",
        help="bounds on times multiplied by X: on a machine with other work only a hang is a fault",
    )
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1, help="cases side by side")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the results there, as JSON")
    parser.add_argument("--list", action="store_true", help="list the cases and run none")
    return parser


def _line(case: Case, result: CaseResult, seed: int, *, smoke: bool) -> str:
    figures = "; ".join(f"{name} {value}" for name, value in result.figures.items())
    outcome = f"BROKEN {result.broken_count}×" if result.broken_count else "kept"
    line = f"{outcome:10} {case.name:32} {result.done:>9,} {case.unit:14} {result.seconds:6.1f} s  {figures}"
    again = f"python -m torture --seed {seed} --only {case.name}{' --smoke' if smoke else ''}"
    return "\n".join(
        [line, *(f"    {text}" for text in result.broken), *([f"    {again}"] if result.broken else [])]
    )


def _machine() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processors": str(os.cpu_count()),
        "memory": f"{memory / 1024**3:.0f} GiB",
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


if __name__ == "__main__":
    sys.exit(main())
