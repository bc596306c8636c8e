"""What the torture itself can see: a broken promise, a leak, a hang, and the same chance again."""

from __future__ import annotations

import asyncio
import os
import pkgutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import torture.cases
from torture.cases import SUBJECTS
from torture.catalogue import BrokenError, Case, CaseResult, Trial, case
from torture.footprint import nothing_kept
from torture.player import play

pytestmark = pytest.mark.nightly


def played(
    body: Callable[[Trial], Awaitable[None]], count: int = 3, seed: int = 1, first: int = 0
) -> CaseResult:
    made = Case("a-case", "X00", "it is kept", count, "times", ("I3",), 2, body)
    return play(made, seed, count, first)


def test_each_file_of_cases_is_a_subject() -> None:
    assert sorted(SUBJECTS) == [info.name for info in pkgutil.iter_modules(torture.cases.__path__)]


def test_a_promise_that_is_kept_is_counted() -> None:
    async def body(trial: Trial) -> None:
        for turn in trial.rounds():
            trial.check(holds=True, text="I1: never", number=turn.number)

    result = played(body)
    assert (result.done, result.broken_count) == (3, 0)


def test_a_promise_that_is_not_kept_is_told_with_its_round() -> None:
    async def body(trial: Trial) -> None:
        for turn in trial.rounds():
            trial.check(turn.number != 1, "I1: two hold one", turn.number)

    result = played(body)
    assert (result.done, result.broken) == (3, ["round 1: I1: two hold one"])


def test_a_case_that_ends_before_all_its_tries_is_broken() -> None:
    async def body(trial: Trial) -> None:
        next(trial.rounds())

    assert played(body).broken == ["round 0: it ended after 0 of 3"]


def test_all_broken_promises_are_counted_and_some_told() -> None:
    async def body(trial: Trial) -> None:
        for turn in trial.rounds():
            trial.broke("I1: again", turn.number)

    result = played(body, count=100)
    assert (result.broken_count, len(result.broken)) == (100, 5)


def test_a_case_that_dies_is_broken_at_the_round_of_its_death() -> None:
    async def body(trial: Trial) -> None:
        for turn in trial.rounds():
            if turn.number == 2:
                raise BrokenError("I4: it ended")

    assert played(body).broken == ["round 2: I4: it ended"]


def test_a_case_that_hangs_is_broken_and_says_where() -> None:
    async def body(trial: Trial) -> None:
        await asyncio.Event().wait()

    made = Case("a-case", "X00", "it ends", 1, "times", ("I3",), 0.05, body)
    (text,) = play(made, 1, 1).broken
    assert "no end within 0.05 s" in text
    assert "in body" in text


def test_one_round_played_again_has_the_chance_that_it_had() -> None:
    def chances(first: int, count: int) -> list[float]:
        drawn: list[float] = []

        async def body(trial: Trial) -> None:
            drawn.extend(turn.random.random() for turn in trial.rounds())

        played(body, count, first=first)
        return drawn

    assert chances(first=7, count=1) == [chances(first=0, count=10)[7]]


def test_another_seed_is_another_chance() -> None:
    drawn: list[float] = []

    async def body(trial: Trial) -> None:
        drawn.extend(turn.random.random() for turn in trial.rounds())

    for seed in (1, 2):
        played(body, 1, seed)
    assert drawn[0] != drawn[1]


def leaked_descriptor() -> object:
    return [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]


def leaked_memory() -> object:
    return bytearray(os.urandom(8 * 1024 * 1024))


def leaked_threads() -> object:
    end = threading.Event()
    for _ in range(20):  # far more than an earlier test of this process may have left to end now
        threading.Thread(target=end.wait, daemon=True).start()
    return end


@pytest.mark.parametrize(
    ("leak", "text"),
    [
        (leaked_descriptor, "I3: "),
        (leaked_memory, "I3: memory grew by 8"),
        (leaked_threads, "threads before"),
    ],
)
def test_what_is_kept_is_seen(leak: Callable[[], object], text: str) -> None:
    kept: list[object] = []

    async def body(trial: Trial) -> None:
        async with nothing_kept(trial, settle_seconds=0.1):
            kept.append(leak())

    broken = played(body).broken
    match kept[0]:
        case list() as descriptors:
            for descriptor in descriptors:
                os.close(descriptor)
        case threading.Event() as end:
            end.set()
    assert any(text in one for one in broken), broken


def test_a_task_that_goes_on_is_seen() -> None:
    async def body(trial: Trial) -> None:
        end = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            async with nothing_kept(trial, settle_seconds=0.1):
                group.create_task(end.wait())
            end.set()

    broken = played(body).broken
    assert any("I3: 1 tasks before, 2 after" in one for one in broken), broken


def test_times_over_their_bound_are_broken() -> None:
    async def body(trial: Trial) -> None:
        trial.times("slow", [0.1] * 99 + [3.0], p99_within=1.0)
        trial.times("quick", [0.1] * 100, p99_within=1.0)
        trial.times("none", [])

    result = played(body)
    assert [text.partition(": ")[2] for text in result.broken] == [
        "slow: p99 is 3.00 s, over 1.00 s",
        "none: nothing was measured",
    ]
    assert result.figures["quick"] == "p50 100.0 ms, p99 100.0 ms, longest 100.0 ms"


def test_a_case_names_invariants_that_there_are() -> None:
    with pytest.raises(ValueError, match="no such invariant: I99"):
        case("x", fault="X00", promise="p", count=1, invariants="I1 I99")


def test_the_folder_of_a_case_is_gone_afterwards() -> None:
    folders: list[Path] = []

    async def body(trial: Trial) -> None:
        folders.append(trial.folder)
        (trial.folder / "left").touch()

    played(body)
    assert not folders[0].exists()
