"""Cases side by side, each in a process of its own that is ended when its time is over."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from torture.results import CaseResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torture.catalogue import Case

__all__ = ["played"]

GRACE_SECONDS: Final = 30.0
"""How long a case that is out of time may take to say so, before it is killed."""


async def played(
    wanted: Sequence[Case],
    seed: int,
    jobs: int,
    *,
    smoke: bool,
    first: int | None,
    told: Callable[[Case, CaseResult], None],
) -> list[CaseResult]:
    """Play cases in `jobs` lanes and return their results in the catalogue's order.

    `told` gets each as it ends. With `first`, of each case only the round of that number. The longest begin
    first; those that have to be alone come after all others, one after the other.
    """
    results: dict[str, CaseResult] = {}
    free = asyncio.Semaphore(jobs)

    async def one(case: Case) -> None:
        async with free:
            results[case.name] = result = await _played(case, seed, smoke=smoke, first=first)
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


async def _played(case: Case, seed: int, *, smoke: bool, first: int | None) -> CaseResult:
    count = 1 if first is not None else case.count_for(smoke=smoke)
    words = [sys.executable, "-m", "torture.playing", case.name, "--seed", str(seed), "--count", str(count)]
    words += ["--first", str(first or 0)]
    child = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=16 * 1024 * 1024,
    )
    try:
        async with asyncio.timeout(case.limit_seconds + GRACE_SECONDS):
            output, errors = await child.communicate()
    except TimeoutError:
        return _lost(case, f"killed after {case.limit_seconds + GRACE_SECONDS:g} s")
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
