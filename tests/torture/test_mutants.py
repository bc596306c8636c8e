"""The judge of the guards: it removes a guard, and sees that its test or case fails."""

from __future__ import annotations

import pytest

from torture.mutants import main


@pytest.mark.nightly  # takes 7 s; the guards are tried one by one in `make mutants`
@pytest.mark.parametrize("guard", ["nodes-of-the-machine", "streams-are-counted"])
def test_a_mutant_that_is_noticed_is_no_survivor(guard: str, capfd: pytest.CaptureFixture[str]) -> None:
    """By a case, and by a test."""
    assert main(["--only", guard, "--jobs", "1"]) == 0
    assert "1 guards removed in turn, 1 noticed" in capfd.readouterr().out
