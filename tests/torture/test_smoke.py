"""Every case of the torture, each count divided by 50."""

from __future__ import annotations

import subprocess
import sys

import pytest

from torture.catalogue import cases

SEED = 1


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", cases())
def test_a_fiftieth_of_the_torture_is_survived(name: str) -> None:
    count = cases()[name].count_for(smoke=True)
    command = [sys.executable, "-m", "torture.playing", name, "--seed", str(SEED), "--count", str(count)]
    played = subprocess.run(command, capture_output=True, text=True, check=False)
    assert played.returncode == 0, f"{played.stdout}\n{played.stderr}"
