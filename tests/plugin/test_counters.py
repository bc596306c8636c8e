"""What is remembered of resources whose plugins have gone: enough for the next one, and never without end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from devplug.plugin.counters import FORMER_LIMIT, REPLACED_WITHIN_SECONDS, Records
from devplug.plugin.snapshot import Past


def test_what_a_plugin_leaves_is_taken_once_and_soon() -> None:
    records, past = Records(), Past(since={"a": 5.0})
    assert records.take("r", 0.0) is None
    records.leave("r", past, 0.0)
    assert records.take("other", 0.0) is None
    assert records.take("r", REPLACED_WITHIN_SECONDS) is past
    assert records.take("r", REPLACED_WITHIN_SECONDS) is None
    records.leave("r", past, 20.0)
    assert records.take("r", 20.1 + REPLACED_WITHIN_SECONDS) is None


STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=600)


@given(STEPS)
def test_counts_of_what_is_served_stay_and_those_of_the_rest_are_bounded(
    steps: list[tuple[bool, int]],
) -> None:
    records = Records()
    served: dict[str, object] = {}
    for now, (is_added, number) in enumerate(steps):
        name = f"example.com/r{number}"
        if is_added and name not in served:
            served[name] = records.counters_of(name)
            records.forget_former(served)
        elif not is_added and name in served:
            del served[name]
            records.leave(name, Past(), now)
        assert {name: records.counters[name] for name in served} == served
        assert len(records.counters) <= len(served) + FORMER_LIMIT + 1
