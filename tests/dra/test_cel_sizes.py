"""The estimate of CEL expressions: no value of an evaluation is larger than its bound."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from devplug.dra.cel_sizes import Estimate
from devplug.dra.selectors import _environment

pytest.importorskip("cel_expr_python")

LITERALS = ("''", "'a'", "'ab'", "'aXbXc'", "'é漢'", "' a\\n'", "'" + "x" * 40 + "'")
Expressions = st.SearchStrategy[str]


def texts_over(names: tuple[str, ...], depth: int) -> Expressions:
    """Expressions that are a text, with these variables that are texts, too."""
    leaf = st.sampled_from((*LITERALS, *names))
    if not depth:
        return leaf
    text, many = texts_over(names, depth - 1), lists_over(names, depth - 1)
    variable = f"v{depth}"
    return st.one_of(
        leaf,
        st.builds("({} + {})".format, text, text),
        st.builds("{}.replace({}, {})".format, text, text, text),
        st.builds("{}.join({})".format, many, text),
        st.builds("{}.join()".format, many),
        st.builds("strings.quote({})".format, text),
        st.builds("{}.lowerAscii()".format, text),
        st.builds("{}.substring(0)".format, text),
        st.builds("string({}.size())".format, text),
        st.builds("({}.size() > 3 ? {} : {})".format, text, text, text),
        st.builds("{}[0]".format, many),
        st.builds(
            f"cel.bind({variable}, {{}}, {{}})".format, text, texts_over((*names, variable), depth - 1)
        ),
    )


def lists_over(names: tuple[str, ...], depth: int) -> Expressions:
    """Expressions that are a list of texts."""
    text = texts_over(names, max(0, depth - 1))
    leaf = st.lists(text, min_size=1, max_size=4).map(lambda items: f"[{', '.join(items)}]")
    if not depth:
        return leaf
    many, variable = lists_over(names, depth - 1), f"x{depth}"
    return st.one_of(
        leaf,
        st.builds("{}.split({})".format, text, text),
        st.builds("({} + {})".format, many, many),
        st.builds(f"{{}}.map({variable}, {{}})".format, many, texts_over((*names, variable), depth - 1)),
        st.builds(f"{{}}.filter({variable}, {variable}.size() > 1)".format, many),
        st.builds("{}.findAll('a|X')".format, text),
    )


def size_of(value: Any) -> int:
    """The characters of all texts, and the elements of all lists."""
    if isinstance(value, str):
        return len(value)
    assert isinstance(value, Iterable)
    return sum(1 + size_of(item) for item in value)


@given(texts_over((), 3) | lists_over((), 3))
@example(f"{LITERALS[-1]}.replace('x', 'aXbXc')")
@example(f"{LITERALS[-1]}.replace('', 'ab')")
def test_no_value_is_larger_than_its_bound(expression: str) -> None:
    """Each part of an expression is an expression of these, so this holds for all values on the way."""
    compiled = _environment(is_check=False).compile(expression)
    found = compiled.eval(data={})
    assume(found.type().name() != "ERROR")
    value, bound = found.plain_value(), Estimate(compiled.serialize()).result
    assert size_of(value) <= bound.total
    assert len(value) <= bound.length


@given(texts_over((), 2) | lists_over((), 2))
def test_a_value_that_is_made_is_counted(expression: str) -> None:
    """What is not counted as work stands in the expression itself."""
    compiled = _environment(is_check=False).compile(f"{expression}.size()")
    found = compiled.eval(data={})
    assume(found.type().name() != "ERROR")
    assert found.plain_value() <= Estimate(compiled.serialize()).work + len(expression)
