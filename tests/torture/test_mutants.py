"""The guards: each of them is where it is said to be, and one that nothing notices would be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from torture.catalogue import INVARIANTS, cases
from torture.guards import GUARDS
from torture.guards.guard import Guard
from torture.mutants import main

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_is_in_its_file_once_and_its_mutant_is_python(guard: Guard) -> None:
    text = (ROOT / guard.file).read_text()
    compile(guard.removed_from(text), guard.file, "exec")
    assert guard.invariant in INVARIANTS


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_what_notices_a_guards_absence_is_there(guard: Guard) -> None:
    match guard.caught_by.split():
        case ["case", name, count]:
            assert name in cases()
            assert int(count) <= cases()[name].count
        case [test]:
            file, _, name = test.partition("::")
            assert f"def {name}" in (ROOT / file).read_text() if name else (ROOT / file).exists()


def test_each_invariant_has_guards() -> None:
    assert {guard.invariant for guard in GUARDS} == INVARIANTS.keys()


def test_guards_have_names_of_their_own() -> None:
    names = [guard.name for guard in GUARDS]
    assert sorted(set(names)) == sorted(names)


def test_a_text_that_is_not_there_once_is_no_guard() -> None:
    guard = Guard("a", "I1", "what", "f.py", "x = 1\n", "", "tests/x.py")
    for text in ("", "x = 1\nx = 1\n"):
        with pytest.raises(ValueError, match=r"times in f\.py, not once"):
            guard.removed_from(text)


@pytest.mark.parametrize(
    "guard", ["nodes-of-the-machine", pytest.param("streams-are-counted", marks=pytest.mark.nightly)]
)
def test_a_mutant_that_is_noticed_is_no_survivor(guard: str, capfd: pytest.CaptureFixture[str]) -> None:
    """By a case, and by a test."""
    assert main(["--only", guard, "--jobs", "1"]) == 0
    assert "1 guards removed in turn, 1 noticed" in capfd.readouterr().out
