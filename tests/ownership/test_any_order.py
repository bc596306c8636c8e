"""Any order of hot-plug, edits, restarts and pods: hypothesis draws histories, and the oracle judges."""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.daemon.hosts import needs_mknod
from tests.ownership.history import VERBS, Step, play_history

pytestmark = needs_mknod

EXAMPLES = settings().max_examples // 4
"""Each costs a second."""

numbers = st.integers(0, 20)
steps = st.tuples(
    st.sampled_from([verb for verb, weight in VERBS.items() for _ in range(weight)]), numbers, numbers
)


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
