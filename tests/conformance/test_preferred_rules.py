"""What is asked about preferences is what a kubelet can ask, and only wrong answers have a fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.conformance.rules.preferred import (
    completing_questions,
    foreign_fault,
    fresh_questions,
    missing_fault,
    repeat_fault,
    size_fault,
    total_question,
)
from devplug.exchange import PreferenceRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.conformance.rules.preferred import Ids

IDS = st.integers(1, 30).map(lambda count: [f"dev-{number:02}" for number in range(count)])
RULES = (size_fault, missing_fault, foreign_fault, repeat_fault)
QUESTION = PreferenceRequest(("a", "b", "c", "d"), ("c",), 2)


@given(IDS)
def test_a_kubelet_can_ask_every_question(ids: list[str]) -> None:
    for question in (total_question(ids), *fresh_questions(ids), *completing_questions(ids)):
        assert set(question.must_include) <= set(question.available) <= set(ids)
        assert len(question.must_include) < question.size <= len(question.available)


@given(IDS)
def test_a_choice_of_the_right_size_and_an_empty_one_have_no_fault(ids: list[str]) -> None:
    for question in (*fresh_questions(ids), *completing_questions(ids)):
        right = tuple(dict.fromkeys((*question.must_include, *question.available)))[: question.size]
        for answer in (right, ()):
            assert [rule(question, answer) for rule in RULES] == ["", "", "", ""]


@given(IDS.filter(lambda ids: len(ids) > 2))
def test_a_plugin_that_always_takes_the_first_or_the_last_is_caught_by_some_question(ids: list[str]) -> None:
    questions = completing_questions(ids)
    assert any(missing_fault(one, tuple(sorted(one.available))[: one.size]) for one in questions)
    assert any(missing_fault(one, tuple(sorted(one.available))[-one.size :]) for one in questions)


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (("c",), size_fault),
        (("c", "a", "b"), size_fault),
        (("a", "b"), missing_fault),
        (("c", "x"), foreign_fault),
        (("c", "c"), repeat_fault),
    ],
)
def test_a_wrong_answer_has_the_one_fault_that_it_has(
    answer: Ids, rule: Callable[[PreferenceRequest, Ids], str]
) -> None:
    assert [one for one in RULES if one(QUESTION, answer)] == [rule]
