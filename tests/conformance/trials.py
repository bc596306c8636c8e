"""How tests try a plugin of `play` by the checks: with short waits, and only in the lanes that matter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.conformance.judging import ARRIVAL, judge
from devplug.conformance.pace import Pace
from devplug.conformance.program import Subject
from devplug.conformance.registry import all_checks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.conformance.registry import Check
    from devplug.conformance.verdicts import Verdict

BRISK: Final = Pace(
    start_seconds=4.0,
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
    )


def lanes_of(ids: Iterable[str]) -> Sequence[Check]:
    """Return the checks of the lanes that have these checks in them, and those of the arrival."""
    checks = all_checks()
    lanes = {one.lane for one in checks if one.id in set(ids)} | {ARRIVAL}
    return [one for one in checks if one.lane in lanes]


async def trial(
    name: str, checks: Sequence[Check], *, pace: Pace = BRISK, jobs: int = 3
) -> Sequence[Verdict]:
    """Return the verdicts on `right` or a mutant."""
    return await judge(subject_of(name), checks, pace=pace, jobs=jobs)


def told(verdicts: Iterable[Verdict]) -> str:
    """Return verdicts as lines for the message of a failed test."""
    return "\n".join(f"{one.check.id} {one.outcome}: {one.seen}" for one in verdicts)
