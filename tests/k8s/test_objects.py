"""Objects as maps: reading what may not be there, and changing copies only."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import entries, fields, part, same, text, whole, with_part
from tests.sandbox.jsons import KEYS, MAPS, VALUES

PATHS = st.lists(KEYS, min_size=1, max_size=3)


@given(MAPS, PATHS, VALUES)
def test_what_was_put_is_there_and_the_original_is_as_it_was(one: Any, path: list[str], value: Any) -> None:
    untouched = copy.deepcopy(one)
    changed = with_part(one, value, *path)
    assert same(part(changed, *path), value)
    assert same(one, untouched)


@given(MAPS, PATHS)
def test_what_was_taken_away_is_gone_and_nothing_is_made_for_it(one: Any, path: list[str]) -> None:
    changed = with_part(one, None, *path)
    assert part(changed, *path) is None
    owner = part(one, *path[:-1])
    if not isinstance(owner, dict) or path[-1] not in owner:
        assert same(changed, one)


@given(VALUES, VALUES)
def test_equal_is_what_json_calls_equal(left: Any, right: Any) -> None:
    assert same(left, copy.deepcopy(left))
    assert same(left, right) == same(right, left)


def test_true_is_not_one_and_one_is_one() -> None:
    assert not same([True], [1])
    assert same({"a": [1]}, {"a": [1.0]})


def test_what_is_of_another_form_is_read_as_nothing() -> None:
    odd = {"a": True, "b": 1, "c": "x"}
    assert (text(odd, "a"), whole(odd, "a"), fields(odd, "b"), entries(odd, "c")) == ("", 0, {}, [])
    assert part(odd, "b", "c") is None
