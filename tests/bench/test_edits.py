"""The bench of edits, with one edit."""

from __future__ import annotations

import pytest

from bench.edits import measure_edits
from bench.subjects import COMMAND


@pytest.mark.nightly
async def test_edit_reaches_the_answers_without_a_refused_call() -> None:
    assert (await measure_edits(COMMAND, 1)).is_good
