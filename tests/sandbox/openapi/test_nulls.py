"""Null in what clients send: the zero value of its type, as the API server's decoder has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from devplug.sandbox.api.kinds import resource_of_kind
from devplug.sandbox.openapi.nulls import with_zeros

if TYPE_CHECKING:
    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object


def kind(api_version: str, name: str) -> Resource:
    found = resource_of_kind(api_version, name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("spec", "read"),
    [
        ({"nodeName": None, "priority": 5}, {"priority": 5}),
        ({"tolerations": [None, {"key": None}]}, {"tolerations": [{}, {}]}),
        ({"nodeSelector": {"zone": None}}, {"nodeSelector": {"zone": ""}}),
        ({"overhead": {"cpu": None}}, {"overhead": {"cpu": "0"}}),
        ({"containers": [{"command": [None], "env": None}]}, {"containers": [{"command": [""]}]}),
        (
            {"securityContext": {"supplementalGroups": [None]}},
            {"securityContext": {"supplementalGroups": [0]}},
        ),
        ({"noSuchField": [None]}, {"noSuchField": [None]}),
        ({"tolerations": "no list"}, {"tolerations": "no list"}),
    ],
)
def test_null_is_the_zero_value_of_its_type(spec: Any, read: Any) -> None:
    assert with_zeros(kind("v1", "Pod"), {"spec": spec}) == {"spec": read}


def test_times_stay_null() -> None:
    event: Object = {"metadata": {"name": "a"}, "eventTime": None, "firstTimestamp": None, "reason": None}
    told = {"metadata": {"name": "a"}, "eventTime": None, "firstTimestamp": None}
    assert with_zeros(kind("v1", "Event"), event) == told


def test_what_is_only_refused_is_left_alone() -> None:
    assert with_zeros(kind("apps/v1", "Deployment"), {"spec": None}) == {"spec": None}
