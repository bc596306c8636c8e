"""Any order of hot-plug, edits, restarts and pods: hypothesis draws histories, and the oracle judges."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.daemon.hosts import needs_mknod
from tests.ownership.history import VERBS, History, Step
from tests.ownership.node import node
from tests.virtualtime import play

pytestmark = needs_mknod

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
"""The folder of nodes: the kubelet syncs its checkpoint all the time, which costs nothing in memory."""

EXAMPLES = settings().max_examples // 4
"""Each costs a second."""

numbers = st.integers(0, 20)
steps = st.tuples(
    st.sampled_from([verb for verb, weight in VERBS.items() for _ in range(weight)]), numbers, numbers
)


async def pass_through(folder: Path, history: Sequence[Step], *, is_cleaning: bool, is_alone: bool) -> None:
    """Play a history, and have each step and its end judged."""
    async with node(folder) as here:
        played = History(here)
        async with played.begun(is_cleaning=is_cleaning, is_alone=is_alone):
            for step in history:
                await played.take(step)
            await played.end_well()


def play_history(history: Sequence[Step], *, is_cleaning: bool = True, is_alone: bool = True) -> None:
    """Play a history on a node of its own, in no time."""
    folder = Path(tempfile.mkdtemp(prefix="dp-", dir=MEMORY))
    try:
        play(pass_through(folder, history, is_cleaning=is_cleaning, is_alone=is_alone))
    finally:
        shutil.rmtree(folder)


@settings(max_examples=EXAMPLES, phases=[Phase.generate])
@given(history=st.lists(steps, max_size=30), is_cleaning=st.booleans())
def test_no_history_gives_a_stick_twice_or_leaves_one_out(history: list[Step], is_cleaning: bool) -> None:
    """O1 to O6."""
    play_history(history, is_cleaning=is_cleaning)


@settings(max_examples=EXAMPLES // 2, phases=[Phase.generate])
@given(history=st.lists(steps, max_size=30), is_cleaning=st.booleans())
def test_no_history_of_two_daemons_gives_a_stick_twice(history: list[Step], is_cleaning: bool) -> None:
    """O1 and O2: two processes with resources that find the same sticks."""
    play_history(history, is_cleaning=is_cleaning, is_alone=False)
