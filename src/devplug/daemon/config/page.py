"""The reference page of the configuration's keys, from the types that decode it.

Print it with `python -m devplug.daemon.config.page`. What stands here is how a key is shown; what it says
is in `types` and `selectors`, which the JSON Schema is made of, too.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, cast

from msgspec import inspect

from devplug.daemon.config.decoder import sections_of
from devplug.daemon.config.templates import Template
from devplug.daemon.config.types import Config
from devplug.k8s.resource_names import ResourceName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.daemon.config.selectors import Section

_INTRODUCTION: Final = """\
# Every key of the configuration file

The keys by their place in the file, as devplug checks them. [The configuration file](configuration.md)
explains them, with examples. A `[]` in a place stands for each entry of a list.
"""


def page() -> str:
    """Return the whole page as Markdown."""
    places: dict[type, list[str]] = {}
    kinds: dict[type, inspect.StructType] = {}
    for place, kind in sections_of(Config):
        places.setdefault(kind.cls, []).append(place)
        kinds[kind.cls] = kind
    return _INTRODUCTION + "".join(_section(kinds[cls], where) for cls, where in places.items())


def _section(kind: inspect.StructType, places: Iterable[str]) -> str:
    section = cast("type[Section]", kind.cls)
    key_of = {one.name: one.encode_name for one in kind.fields}
    heading = ", ".join(dict.fromkeys(map(_short, places)))
    rules = [] if section is Config else [(section.__doc__ or "").split("\n", 1)[0]]
    if section.shorthand:
        rules.append(f"A plain text stands for its `{key_of[section.shorthand]}`.")
    if section.alternatives:
        rules.append(f"Exactly one of {_keys(key_of[name] for name in section.alternatives)}.")
    if section.at_least_one:
        rules.append(f"At least one of {_keys(key_of[name] for name in section.at_least_one)}.")
    optional = {*section.alternatives, *section.at_least_one}
    rows = "".join(_row(one, is_choice=one.name in optional) for one in kind.fields)
    head = "| Key | What it is | Value | Default |\n|---|---|---|---|\n"
    return "\n\n".join(filter(None, (f"\n## {heading}", " ".join(rules), f"{head}{rows}")))


def _short(place: str) -> str:
    """Return a place without the list that all resources stand in."""
    return f"`{place.removeprefix('resources[].')}`" if place else "The whole file"


def _keys(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _row(one: inspect.Field, *, is_choice: bool) -> str:
    schema = one.type.extra_json_schema if isinstance(one.type, inspect.Metadata) else None
    described = cast("str", (schema or {})["description"])
    what, _, default = described.partition(" Default: ")
    default = "required" if one.required else default.removesuffix(".") or ("" if is_choice else "none")
    cells = (f"`{one.encode_name}`", what, _value(one.type, {}), default)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |\n"


def _value(kind: inspect.Type, extra: Mapping[str, object]) -> str:
    """Return in words what may stand for a type."""
    match kind:
        case inspect.Metadata(type=inner):
            return _value(inner, {**extra, **(kind.extra or {})})
        case inspect.UnionType(types=kinds):
            return _value(next(one for one in kinds if not isinstance(one, inspect.NoneType)), extra)
        case inspect.VarTupleType(item_type=item, max_length=most):
            if "or_one" in extra:
                return f"{_value(item, {})}, or a list"
            return f"list of {f'1 to {most:,}: ' if most else ''}{_value(item, {})}"
        case inspect.DictType(key_type=key, value_type=inner):
            return f"map of {_value(key, {})} to {_value(inner, {})}"
        case inspect.StructType(cls=cls):
            section = cast("type[Section]", cls)
            return "text or map" if section.shorthand else "map"
    return _scalar(kind, extra)


def _scalar(kind: inspect.Type, extra: Mapping[str, object]) -> str:
    if words := extra.get("words"):
        return str(words).partition(", as in ")[0]
    match kind:
        case inspect.LiteralType(values=values):
            return " or ".join(f"`{value}`" for value in values)
        case inspect.FloatType() if "duration" in extra:
            return f"duration, {extra['duration']}"
        case inspect.IntType(ge=least, le=most):
            ends = (
                ""
                if least is None
                else f", {least:,} or more"
                if most is None
                else f", {least:,} to {most:,}"
            )
            return f"whole number{ends}"
        case inspect.BoolType():
            return "`true` or `false`"
        case inspect.FloatType():
            return "number"
        case inspect.CustomType(cls=cls):
            return {Template: "template", ResourceName: "resource name"}[cls]
    return "text"


if __name__ == "__main__":
    sys.stdout.write(page())
