"""Our kubelet and the real one agree on what was recorded of the real one (`recordings.py`)."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.kubelet.recordings import differences, out_of_scope

RECORDINGS = Path(__file__).parents[3] / "shared" / "golden"


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"no recordings in {RECORDINGS}")
@pytest.mark.parametrize(
    ("name", "at_least"),
    [
        ("registration", 110),
        ("lifecycle", 127),
        ("lifecycle_random", 166),
        ("allocation", 277),
        ("checkpoint", 234),
    ],
)
def test_every_recording_in_scope_comes_out_the_same(name: str, at_least: int) -> None:
    """Played without a topology policy; the counts and the reasons of the others are printed."""
    with (RECORDINGS / f"{name}.jsonl").open() as lines:
        records = [json.loads(line) for line in lines]
    left_out: Counter[str] = Counter()
    found: list[str] = []
    played = 0

    async def play_all() -> None:
        nonlocal played
        for record in records:
            if reason := out_of_scope(record):
                left_out[reason] += 1
                continue
            with tempfile.TemporaryDirectory(prefix="dp-", dir="/tmp") as folder:
                found.extend(await differences(record, Path(folder)))
            played += 1

    asyncio.run(play_all())
    summary = f"{name}: {played} of {len(records)} played; left out: {dict(left_out)}"
    print(summary)  # noqa: T201 -- pytest shows it with -s
    assert not found, "\n".join(found[:10])
    assert played >= at_least
