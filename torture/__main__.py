"""`make torture`: every case of the catalogue, side by side, each in a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from torture.catalogue import cases
from torture.lanes import played
from torture.results import RunResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torture.catalogue import Case
    from torture.results import CaseResult


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
        played(wanted, seed, chosen.jobs, smoke=chosen.smoke, first=chosen.number, told=told)
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
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1, help="cases side by side")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the results there, as JSON")
    parser.add_argument("--list", action="store_true", help="list the cases and run none")
    return parser


def _line(case: Case, result: CaseResult, seed: int, *, smoke: bool) -> str:
    figures = "; ".join(f"{name} {value}" for name, value in result.figures.items())
    verdict = f"BROKEN {result.broken_count}×" if result.broken_count else "kept"
    line = f"{verdict:10} {case.name:32} {result.done:>9,} {case.unit:14} {result.seconds:6.1f} s  {figures}"
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
