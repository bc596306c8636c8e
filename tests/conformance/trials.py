"""How tests try a plugin of `play` by the checks: with short waits, and only in the lanes that matter."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.conformance.judging import ARRIVAL, judge
from devplug.conformance.program import Subject
from devplug.conformance.registry import all_checks
from devplug.conformance.times import Times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from devplug.conformance.registry import Check
    from devplug.conformance.verdicts import Verdict

BRISK: Final = Times(
    start_seconds=12.0,
    answer_seconds=3.0,
    first_list_limit_seconds=1.0,
    silence_seconds=1.5,
    slow_kubelet_seconds=2.0,
    refusing_seconds=1.5,
    down_seconds=1.0,
    return_seconds=4.0,
    return_limit_seconds=1.0,
    change_seconds=3.0,
    end_seconds=4.0,
    end_limit_seconds=1.5,
    idle_seconds=1.0,
    settle_seconds=0.3,
    restarts=8,
    calls=30,
    check_seconds=40.0,
)
"""For plugins of ours, which do in tenths of a second what others may take seconds for."""

ROOT: Final = Path(__file__).parents[2]


def subject_of(name: str) -> Subject:
    """Return how `right` or a mutant is started."""
    return Subject(
        (sys.executable, "-m", "tests.conformance.play", name, "{dir}", "{work}"),
        environment={"PYTHONPATH": str(ROOT)},
        unplug=("touch", "{work}/gone-dev-0"),
        replug=("rm", "-f", "{work}/gone-dev-0"),
        cdi_dirs=("{work}/cdi",),
    )


def lanes_of(ids: Iterable[str]) -> Sequence[Check]:
    """Return the checks of the lanes that have these checks in them, and those of the arrival."""
    checks = all_checks()
    lanes = {one.lane for one in checks if one.id in set(ids)} | {ARRIVAL}
    return [one for one in checks if one.lane in lanes]


async def trial(
    name: str, checks: Sequence[Check], *, times: Times = BRISK, jobs: int = 3
) -> Sequence[Verdict]:
    """Return the verdicts on `right` or a mutant."""
    return await judge(subject_of(name), checks, times=times, jobs=jobs)


@contextmanager
def trials(
    names: Sequence[str], checks_of: Callable[[str], Sequence[Check]], *, at_once: int = 4
) -> Iterator[Mapping[str, Future[Sequence[Verdict]]]]:
    """Try several plugins, side by side in a thread; yield their verdicts to come.

    Those that are measured where nothing else may run come last, one after the other.
    """
    futures: dict[str, Future[Sequence[Verdict]]] = {name: Future() for name in names}

    async def one(name: str, places: asyncio.Semaphore) -> None:
        async with places:
            try:
                futures[name].set_result(await trial(name, checks_of(name)))
            except Exception as error:  # noqa: BLE001 -- the test that waits for it fails of it
                futures[name].set_exception(error)

    async def run_all() -> None:
        alone = [name for name in names if any(check.alone for check in checks_of(name))]
        for group_names, places in (
            ([name for name in names if name not in alone], asyncio.Semaphore(at_once)),
            (alone, asyncio.Semaphore(1)),
        ):
            async with asyncio.TaskGroup() as group:
                for name in group_names:
                    group.create_task(one(name, places))

    thread = threading.Thread(target=lambda: asyncio.run(run_all()), name="trials", daemon=True)
    thread.start()
    yield futures


def told(verdicts: Iterable[Verdict]) -> str:
    """Return verdicts as lines for the message of a failed test."""
    return "\n".join(f"{one.check.id} {one.outcome}: {one.seen}" for one in verdicts)
