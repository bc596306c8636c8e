"""Strategies for objects of the kinds that are served, made of the tables of fields."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from devplug.k8s.times import micro_stamp, stamp
from devplug.sandbox.api.kinds import SERVED
from devplug.sandbox.openapi.types import TYPES, WORDS, Field, Form, type_of

SUMS = st.sampled_from(["1", "500m", "1Gi", "1e3", "0.5", 2, 0.5])
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 30)).map(lambda one: one.replace(tzinfo=UTC))  # noqa: DTZ001
TEXTS = st.sampled_from(["", "a", "é", "spec.foo", '"'])

PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "FieldsV1": st.dictionaries(TEXTS, TEXTS, max_size=2),
    "IntOrString": st.integers(-(2**31), 2**31 - 1) | TEXTS,
    "MicroTime": MOMENTS.map(micro_stamp),
    "Quantity": SUMS,
    "RawExtension": st.dictionaries(TEXTS, TEXTS, max_size=2),
    "ResourceList": st.dictionaries(TEXTS, SUMS, max_size=2),
    "Time": MOMENTS.map(stamp) | st.just("2026-01-02T03:04:05.678+01:00"),
    "UID": TEXTS,
    "bool": st.booleans(),
    "bytes": st.sampled_from(["", "aGk=", "AAA\n="]),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "string": TEXTS,
    **dict.fromkeys(WORDS, TEXTS),
}

SERVED_KINDS = st.sampled_from(SERVED)


def _values(field: Field, depth: int) -> st.SearchStrategy[Any]:
    one = PLAIN.get(field.type)
    if one is None:
        one = objects(field.type, depth - 1)
    match field.form:
        case Form.LIST:
            return st.lists(one | st.none(), max_size=3)
        case Form.MAP:
            return st.dictionaries(TEXTS, one | st.none(), max_size=2)
    return one


def objects(type_name: str, depth: int = 4) -> st.SearchStrategy[dict[str, Any]]:
    """Maps with a few of the fields of a type, down to some depth, and null now and then."""
    fields = list(TYPES[type_name].fields.values())
    if depth <= 0:
        fields = [field for field in fields if field.type in PLAIN]
    if not fields:
        return st.just({})

    @st.composite
    def made(draw: st.DrawFn) -> dict[str, Any]:
        chosen = draw(st.lists(st.sampled_from(fields), max_size=4, unique_by=lambda field: field.name))
        return {field.name: draw(_values(field, depth) | st.none()) for field in chosen}

    return made()


@st.composite
def served_objects(draw: st.DrawFn) -> tuple[Any, dict[str, Any]]:
    """A resource, and an object of it."""
    resource = draw(SERVED_KINDS)
    type_ = type_of(resource)
    assert type_ is not None
    return resource, draw(objects(type_.name))
