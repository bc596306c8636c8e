"""Label selectors: what they match, how they are written, and the words for what is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.sandbox.api.labelselectors import (
    LabelSelector,
    Operator,
    Requirement,
    SelectorError,
    label_selector,
    selector_of_object,
)

KEYS = st.sampled_from(["app", "in", "notin", "example.com/tier", "n"])
WORDS = st.sampled_from(["", "a", "in", "notin", "7", "12", "x-1"])
LABELS = st.dictionaries(KEYS, WORDS)
BLANKS = st.sampled_from(["", " ", "\t"])


@st.composite
def written(draw: st.DrawFn) -> tuple[str, str, str, list[str]]:
    """One requirement as it may be written, with its key, operator and values."""
    key, sign = draw(KEYS), draw(st.sampled_from(["", "!", "=", "==", "!=", "in", "notin", ">", "<"]))
    before, after = draw(BLANKS), draw(BLANKS)
    if sign in {"", "!"}:
        return f"{sign}{before}{key}{after}", key, sign, []
    if sign in {"in", "notin"}:
        values = draw(st.lists(WORDS, min_size=1, max_size=3))
        return f"{key} {before}{sign}{after}({f'{before},{after}'.join(values)})", key, sign, values
    value = draw(st.sampled_from(["7", "12", "-1"]) if sign in {">", "<"} else WORDS)
    return f"{key}{before}{sign}{after}{value}{before}", key, sign, [value]


def naive(labels: dict[str, str], key: str, sign: str, values: list[str]) -> bool:
    value = labels.get(key)
    if sign == "":
        return value is not None
    if sign == "!":
        return value is None
    if sign in {"=", "==", "in"}:
        return value is not None and value in values
    if sign in {"!=", "notin"}:
        return value is None or value not in values
    if value is None or not value.isdigit():
        return False
    return int(value) > int(values[0]) if sign == ">" else int(value) < int(values[0])


@given(st.lists(written().filter(lambda one: one[3] != ["-1"]), max_size=4), LABELS)
def test_a_selector_matches_just_when_each_of_its_requirements_does(
    asked: list[tuple[str, str, str, list[str]]], labels: dict[str, str]
) -> None:
    selector = label_selector(",".join(one[0] for one in asked))
    assert selector.matches(labels) == all(naive(labels, *one[1:]) for one in asked)


@given(st.lists(written().filter(lambda one: one[3] != ["-1"]), max_size=4), LABELS)
def test_what_a_selector_is_written_as_reads_as_the_same_selector(
    asked: list[tuple[str, str, str, list[str]]], labels: dict[str, str]
) -> None:
    selector = label_selector(",".join(one[0] for one in asked))
    assert str(label_selector(str(selector))) == str(selector)
    assert label_selector(str(selector)).matches(labels) == selector.matches(labels)


@given(st.text(alphabet="ab=!(),><in \t/", max_size=12))
def test_any_text_is_a_selector_or_is_refused_with_a_reason(text: str) -> None:
    try:
        label_selector(text)
    except SelectorError as error:
        assert str(error)  # noqa: PT017 - either way is right


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a==(", "unable to parse requirement: found '(', expected: identifier"),
        (
            "a>b",
            (
                "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, "
                "the value must be an integer"
            ),
        ),
        ("/a", 'unable to parse requirement: <nil>: Invalid value: "/a": prefix part must be non-empty'),
        (
            "a=-b",
            (
                'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be an '
                "empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
                "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex "
                "used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ),
        ),
        (
            f"{'k' * 64}=1",
            (
                f'unable to parse requirement: <nil>: Invalid value: "{"k" * 64}": '
                "name part must be no more than 63 bytes"
            ),
        ),
    ],
)
def test_what_is_no_selector_is_refused_in_the_server_s_words(text: str, told: str) -> None:
    with pytest.raises(SelectorError) as refused:
        label_selector(text)
    assert str(refused.value) == told


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a in ()", [""]),
        ("a in (,)", [""]),
        ("a in (b,)", ["", "b"]),
        ("a in (,b)", ["", "b"]),
        ("a in (b,,c)", ["", "b", "c"]),
        ("a=", [""]),
    ],
)
def test_nothing_between_commas_is_the_empty_value(text: str, values: list[str]) -> None:
    assert list(label_selector(text).requirements[0].values) == values


def test_an_object_s_selector_asks_for_its_labels_and_its_expressions() -> None:
    selector = selector_of_object(
        {
            "matchLabels": {"app": "fpga"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["b", "a"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }
    )
    assert str(selector) == "app=fpga,!old,tier in (a,b)"
    assert selector.matches({"app": "fpga", "tier": "a"})
    assert not selector.matches({"app": "fpga", "tier": "c"})


def test_an_empty_selector_matches_everything() -> None:
    assert label_selector("") == selector_of_object(None) == LabelSelector()
    assert LabelSelector().matches({})


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ({"key": "/a", "operator": "Exists"}, 'key: Invalid value: "/a": prefix part must be non-empty'),
        ({"key": "a", "operator": "Jump"}, '"Jump" is not a valid label selector operator'),
        (
            {"key": "a", "operator": "In"},
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            {"key": "a", "operator": "Exists", "values": ["b"]},
            'values: Invalid value: ["b"]: values set must be empty for exists and does not exist',
        ),
    ],
)
def test_an_expression_that_cannot_be_is_refused(expression: Any, told: str) -> None:
    with pytest.raises(SelectorError) as refused:
        selector_of_object({"matchExpressions": [expression]})
    assert str(refused.value) == told


def test_a_label_that_is_no_number_is_neither_more_nor_less() -> None:
    more, less = (Requirement("n", sign, ("5",)) for sign in (Operator.GREATER, Operator.LESS))
    assert not more.matches({"n": "many"})
    assert not less.matches({"n": "many"})
