"""What the types of the configuration are made of, for those who walk them: decoder and schema. Pure."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from msgspec import inspect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["places_of", "sections_of", "type_info"]

type_info = functools.cache(inspect.type_info)
"""What msgspec knows of a type; once, because it takes 10 ms for the whole configuration."""


def sections_of(wanted: type) -> Iterator[tuple[str, inspect.StructType]]:
    """Yield every map that `wanted` can contain, itself first, each with its place: `expose.mounts[]`."""
    yield from _sections(type_info(wanted), "")


def _sections(kind: inspect.Type, place: str) -> Iterator[tuple[str, inspect.StructType]]:
    match kind:
        case inspect.Metadata(type=inner):
            yield from _sections(inner, place)
        case inspect.UnionType(types=kinds):
            for inner in kinds:
                yield from _sections(inner, place)
        case inspect.VarTupleType(item_type=inner):
            yield from _sections(inner, f"{place}[]")
        case inspect.StructType(fields=fields):
            yield place, kind
            for one in fields:
                yield from _sections(one.type, f"{place}.{one.encode_name}" if place else one.encode_name)


@functools.cache
def places_of(wanted: type) -> Mapping[str, str]:
    """Return the first place of each key, shortest first, as `expose.env`."""
    places: dict[str, str] = {}
    found = sorted(sections_of(wanted), key=lambda section: (section[0].count("."), len(section[0])))
    for place, section in found:
        short = place.removeprefix("resources[]").removeprefix(".")
        for one in section.fields:
            places.setdefault(one.encode_name, f"{short}.{one.encode_name}" if short else one.encode_name)
    return places
