"""The counters of resources: they outlive their plugins, for a bounded number of names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from devplug.plugin.counters import FORMER_LIMIT, CounterBook

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=600)


@given(STEPS)
def test_counts_of_what_is_served_stay_and_those_of_the_rest_are_bounded(
    steps: list[tuple[bool, int]],
) -> None:
    book = CounterBook()
    served: dict[str, object] = {}
    for is_added, number in steps:
        name = f"example.com/r{number}"
        if is_added and name not in served:
            served[name] = book.counters_of(name)
            book.forget_former(served)
        elif not is_added and name in served:
            del served[name]
            book.leave(name)
        assert {name: book.counters[name] for name in served} == served
        assert len(book.counters) <= len(served) + FORMER_LIMIT + 1
