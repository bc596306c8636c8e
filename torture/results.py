"""What came of cases and of a whole run, as values and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CaseResult", "RunResult"]


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
