"""The JSON Schema of the configuration, made of the same types that decode it.

Editors complete and check with it; `load` knows more (what keys must be together) and says it better. Print
it with `python -m devplug.daemon.config.schema`.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from msgspec import inspect

from devplug.daemon.config.decoder import sections_of
from devplug.daemon.config.types import Config, format_duration
from devplug.k8s.resource_names import ResourceName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.daemon.config.selectors import Section
    from devplug.daemon.config.types import DurationRange

SCHEMA_FILE: Final = "config.schema.json"
"""Name of the file beside this module that holds the text of the schema."""

Schema: TypeAlias = dict[str, object]

_DURATION: Final = "([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?"
_RESOURCE_NAME: Final = "^[a-z0-9][a-z0-9.-]*/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"


def schema_text() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n"


def config_schema() -> Schema:
    """Return the JSON Schema (2020-12) of the configuration."""
    sections = {section.cls.__name__: _section(section) for _, section in sections_of(Config)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "devplug configuration",
        **sections.pop(Config.__name__),
        "$defs": dict(sorted(sections.items())),
    }


def _section(kind: inspect.StructType) -> Schema:
    section = cast("type[Section]", kind.cls)
    key_of = {one.name: one.encode_name for one in kind.fields}
    schema: Schema = {
        "description": _first_sentence(section),
        "type": "object",
        "properties": {one.encode_name: _field(one) for one in kind.fields},
        "additionalProperties": False,
    }
    if required := [one.encode_name for one in kind.fields if one.required]:
        schema["required"] = required
    if section.alternatives:
        schema["oneOf"] = [{"required": [key_of[name]]} for name in section.alternatives]
    if section.at_least_one:
        schema["anyOf"] = [{"required": [key_of[name]]} for name in section.at_least_one]
    if not section.shorthand:
        return schema
    short = next(one for one in kind.fields if one.name == section.shorthand)
    return {"description": schema.pop("description"), "anyOf": [_field(short), schema]}


def _first_sentence(section: type[Section]) -> str:
    return (section.__doc__ or "").split("\n", 1)[0]


def _field(one: inspect.Field) -> Schema:
    schema = _type(one.type, {})
    default = _default(one)
    return schema if default is None else {**schema, "default": default}


def _default(one: inspect.Field) -> object:
    """Return the default as the file would have it, or None for one that a file cannot write."""
    extra = one.type.extra if isinstance(one.type, inspect.Metadata) else None
    if extra and "duration" in extra:
        return format_duration(cast("float", one.default))
    match one.default:
        case bool() | int() | float() | str() as plain:
            return plain
        case ():
            return None if extra and "or_one" in extra else []
    return None


def _type(kind: inspect.Type, extra: Mapping[str, object]) -> Schema:
    match kind:
        case inspect.Metadata(type=inner, extra_json_schema=described):
            return {**(described or {}), **_type(inner, {**extra, **(kind.extra or {})})}
        case inspect.UnionType(types=kinds):
            return _type(next(one for one in kinds if not isinstance(one, inspect.NoneType)), extra)
        case inspect.StructType(cls=cls):
            return {"$ref": f"#/$defs/{cls.__name__}"}
        case inspect.VarTupleType():
            return _list(kind, or_one="or_one" in extra)
        case inspect.DictType(value_type=inner):
            return {"type": "object", "additionalProperties": _type(inner, {})}
    return _scalar(kind, extra)


def _list(kind: inspect.VarTupleType, *, or_one: bool) -> Schema:
    item = _type(kind.item_type, {})
    least = max(kind.min_length or 0, int(or_one))
    schema: Schema = {"type": "array", "items": item}
    schema |= {"minItems": least} if least else {}
    schema |= {"maxItems": kind.max_length} if kind.max_length is not None else {}
    return {"anyOf": [item, schema]} if or_one else schema


def _scalar(kind: inspect.Type, extra: Mapping[str, object]) -> Schema:
    match kind:
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType(ge=least, le=most):
            ends = {"minimum": least, "maximum": most}
            return {"type": "integer", **{key: end for key, end in ends.items() if end is not None}}
        case inspect.FloatType() if "duration" in extra:
            forever = "|forever" if cast("DurationRange", extra["duration"]).forever else ""
            return {"type": "string", "pattern": f"^((?=.){_DURATION}{forever})$"}
        case inspect.FloatType():
            return {"type": "number"}
        case inspect.LiteralType(values=words):
            return {"const": words[0]} if len(words) == 1 else {"enum": list(words)}
        case inspect.StrType() if pattern := extra.get("pattern"):
            return {"type": "string", "pattern": pattern}
        case inspect.CustomType(cls=cls) if cls is ResourceName:
            return {"type": "string", "pattern": _RESOURCE_NAME}
    return {"type": "string"}


if __name__ == "__main__":
    sys.stdout.write(schema_text())
