"""Terms of node selectors, from the API's objects to the nodes that meet them."""

from __future__ import annotations

from typing import Any

import pytest

from devplug.k8s.node_selectors import NAME_FIELD, Node, meets, term_of

NODE = Node("n1", {"zone": "a", "age": "7"})


def one(key: str, operator: str, *values: str) -> Any:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("term", "is_met"),
    [
        ({}, False),
        ({"matchExpressions": [one("zone", "In", "a")]}, True),
        ({"matchExpressions": [one("zone", "In", "a"), one("age", "Lt", "7")]}, False),
        ({"matchFields": [one(NAME_FIELD, "In", "n1")]}, True),
        ({"matchFields": [one(NAME_FIELD, "In", "n1", "n2")]}, False),
        ({"matchFields": [one(NAME_FIELD, "Exists")]}, False),
        (
            {"matchExpressions": [one("zone", "In", "a")], "matchFields": [one(NAME_FIELD, "NotIn", "n1")]},
            False,
        ),
    ],
)
def test_a_term_is_met_by_a_node_that_meets_all_of_it_and_an_empty_one_by_none(
    term: Any, *, is_met: bool
) -> None:
    assert meets(term_of(term), NODE) is is_met
