"""The catalogue of cases: each is one fault, tried many times, with the invariants that hold after it.

A case is an `async def` under `@case`, in a module of `torture.cases`. It gets a `Trial`, and runs in a
process of its own: what it leaks is its own, and what it breaks breaks nobody else. What came of it is a
`CaseResult`, of all of them a `RunResult`, as values and as JSON.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from torture.cases import SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

INVARIANTS: Final = {
    "I1": "no device is in two containers that run",
    "I2": "the kubelet's view is the truth within 2 s of the fault's end; after its restart p99 within 1 s",
    "I3": "descriptors, tasks and threads are back where they were; memory has grown by 2 MiB at most",
    "I4": "the plugin never ends because of what a peer does",
    "I5": "no socket of ours is left after an end, and nobody else's is removed",
    "I6": "Allocate answers, and within its deadline",
    "I7": "at most one Register at a time for each resource, and few of them in a minute",
    "I8": "the last list that the kubelet got is the truth",
    "I9": "a device has the ID that it had before",
    "I10": "one line in the log for each change of state",
    "I11": "each refusal has the code and the text of its row in the table",
    "I12": "an ID that a container may hold is never dropped from the list",
    "I13": "a prepared claim has its CDI file and its entry; after its unprepare nothing of it is left",
    "I14": "the end of each use is one release; one more where a process died before it was noted",
    "I15": "the ResourceSlices are the devices of the machine within a second of quiet",
}

SMOKE_DIVISOR: Final = 50
"""By how much the smoke run divides each count."""

PATIENCE: Final = ContextVar("patience", default=1.0)
"""How far every bound on time and memory is stretched: in a brief run only a hang or a flood reaches it."""

KEPT_TEXTS: Final = 5
"""How many broken rounds are told in words."""


# ── invariants ──

# ── results ──


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of one case. `broken` tells some of the broken promises, `broken_count` counts all."""

    name: str
    done: int
    seconds: float
    figures: Mapping[str, str]
    broken: list[str]
    broken_count: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> CaseResult:
        """Return what `as_json` has written."""
        return cls(**content)


@dataclass(frozen=True, slots=True)
class RunResult:
    """A whole run: its seed, the machine that it ran on, how long it took, and each case."""

    seed: int
    machine: Mapping[str, str]
    seconds: float
    cases: tuple[CaseResult, ...]

    @property
    def broken(self) -> tuple[CaseResult, ...]:
        """The cases in which a promise was not kept."""
        return tuple(case for case in self.cases if case.broken_count)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> RunResult:
        """Return what `as_json` has written."""
        cases = tuple(CaseResult.of_json(case) for case in content["cases"])
        return cls(content["seed"], content["machine"], content["seconds"], cases)


# ── cases ──


Body: TypeAlias = Callable[["Trial"], Awaitable[None]]


class BrokenError(Exception):
    """A promise that was not kept; the text begins with the invariant's number."""


@dataclass(frozen=True, slots=True)
class Case:
    """One fault of the catalogue. `count` is how often it is tried in a full run."""

    name: str
    fault: str
    """Its row in the catalogue of faults (X01 …), or what else it is about."""
    promise: str
    count: int
    unit: str
    invariants: tuple[str, ...]
    limit_seconds: float
    """How long the whole case may take in a full run; a hang is a failure."""
    body: Body
    is_alone: bool = False
    """Whether it takes what all processes share, such as inotify descriptors; it runs after all others."""
    is_brief: bool = False
    """Whether a brief run has it although it notices no guard's absence: it is soon over on any machine."""

    def count_for(self, *, smoke: bool) -> int:
        """Return how often it is tried."""
        return max(1, self.count // SMOKE_DIVISOR) if smoke else self.count


@dataclass(frozen=True, slots=True)
class Round:
    """One try, with chance of its own: the same for the same seed and number, whatever came before."""

    number: int
    random: random.Random


@dataclass(slots=True)
class Trial:
    """One run of one case: its count, its chance, its folder; and what came of it."""

    case: Case
    seed: int
    count: int
    folder: Path
    """Empty, with a path short enough for sockets; removed afterwards."""
    first: int = 0
    """The number of the first round: to play one again, with a count of 1."""
    figures: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    broken_count: int = 0
    done: int = 0

    def rounds(self, count: int | None = None) -> Iterator[Round]:
        """Yield the rounds of this run; `count` where the case divides its own otherwise."""
        for number in range(self.first, self.first + (self.count if count is None else count)):
            # A random seed of text is hashed the same way in every process.
            yield Round(number, random.Random(f"{self.seed}/{self.case.name}/{number}"))
            self.done += 1

    def check(self, holds: object, text: str, number: int | None = None) -> bool:
        """Note that something does not hold, and go on; the text begins with the invariant (`I2: …`)."""
        if not holds:
            self.broke(text, number)
        return bool(holds)

    def broke(self, text: str, number: int | None = None) -> None:
        """Note a promise that was not kept in the round of this number."""
        self.broken_count += 1
        if len(self.broken) < KEPT_TEXTS:
            where = self.first + self.done if number is None else number
            self.broken.append(f"round {where}: {text}")

    def figure(self, name: str, value: object) -> None:
        """Keep a figure for the page of results."""
        self.figures[name] = str(value)

    def times(self, name: str, seconds: list[float], *, p99_within: float | None = None) -> None:
        """Keep p50, p99 and the longest of some times, and hold p99 against a bound in seconds."""
        if not seconds:
            self.broke(f"{name}: nothing was measured")
            return
        ordered = sorted(seconds)
        p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        self.figure(name, f"p50 {_shown(p50)}, p99 {_shown(p99)}, longest {_shown(ordered[-1])}")
        if p99_within is not None and p99 > p99_within * PATIENCE.get():
            self.broke(f"{name}: p99 is {_shown(p99)}, over {_shown(p99_within)}")


def _shown(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1000 * seconds:.1f} ms" if seconds >= 0.001 else f"{1_000_000 * seconds:.0f} µs"


_CASES: dict[str, Case] = {}


def case(
    name: str,
    *,
    fault: str,
    promise: str,
    count: int,
    invariants: str,
    unit: str = "times",
    limit_seconds: float = 300,
    alone: bool = False,
    brief: bool = False,
) -> Callable[[Body], Body]:
    """Put a case into the catalogue. `invariants` are numbers with spaces between: "I1 I2"."""
    numbers = tuple(invariants.split())
    if unknown := [number for number in numbers if number not in INVARIANTS]:
        raise ValueError(f"{name}: no such invariant: {', '.join(unknown)}")

    def add(body: Body) -> Body:
        if name in _CASES:
            raise ValueError(f"{name} is in the catalogue already")
        _CASES[name] = Case(name, fault, promise, count, unit, numbers, limit_seconds, body, alone, brief)
        return body

    return add


def cases() -> Mapping[str, Case]:
    """Return all cases by name, in the order of their subjects. None that cannot be imported is skipped."""
    for subject in SUBJECTS:
        importlib.import_module(f"torture.cases.{subject}")
    return dict(_CASES)
