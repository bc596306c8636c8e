"""The decoder of the configuration: tree to typed values, with every problem and not just the first. Pure.

Types, ranges and unknown keys are checked here. It knows nothing of what the keys mean: it walks what
msgspec says of the types, as the JSON Schema and the page of keys do. (`msgspec.convert` does the same walk,
but stops at the first mistake and knows no lines.) What several keys must be together is in `rules`.
"""

from __future__ import annotations

import functools
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from msgspec import Struct, inspect

from devplug.daemon.config.suggestions import nearest
from devplug.daemon.config.tree import (
    Keys,
    ListNode,
    MapNode,
    Node,
    RefusedNode,
    ScalarNode,
    not_a_boolean,
    not_a_list,
    not_a_map,
    not_a_text,
    not_a_whole_number,
    not_the_number,
    read_as_a_map,
    shown,
)
from devplug.daemon.config.types import parse_duration
from devplug.errors import Problem, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from devplug.daemon.config.selectors import Section
    from devplug.daemon.config.tree import Document
    from devplug.daemon.config.types import DurationRange

type_info = functools.cache(inspect.type_info)
"""What msgspec knows of a type; cached, because it takes 10 ms for the whole configuration."""

_Extra: TypeAlias = "Mapping[str, object]"
_NO_EXTRA: Final[_Extra] = MappingProxyType({})


# ── what the types are made of ────────────────────────────────────────────────────────────────────


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
def _places_of(wanted: type) -> Mapping[str, str]:
    """Return the first place of each key, shortest first, as `expose.env`."""
    places: dict[str, str] = {}
    found = sorted(sections_of(wanted), key=lambda section: (section[0].count("."), len(section[0])))
    for place, section in found:
        short = place.removeprefix("resources[]").removeprefix(".")
        for one in section.fields:
            places.setdefault(one.encode_name, f"{short}.{one.encode_name}" if short else one.encode_name)
    return places


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────


class Leaf(Struct, frozen=True):
    """The reader of a type that is written as a text."""

    read: Callable[[str], object]
    """Returns the value, or raises ValueError with what is wrong and what to write."""
    placeholder: object
    """What stands for a value that cannot be read."""


class Decoded(Struct, frozen=True):
    """The result of decoding: a value with placeholders where `unusable` says so."""

    value: object
    problems: tuple[Problem, ...]
    unusable: frozenset[Keys]
    """The keys that lead to each value that could not be read; everything below it is a placeholder."""


def decode(
    document: Document, wanted: type, leaves: Mapping[type, Leaf], suggestions: Mapping[str, str]
) -> Decoded:
    """Return `document` as a `wanted`, with every problem in it.

    `leaves` are the types that are read from a text, with how; `suggestions` say what to write instead of
    keys of other device plugins' files.
    """
    decoder = _Decoder(document, leaves, suggestions, wanted)
    root = document.root or RefusedNode(0, 0)
    value = decoder.value(type_info(wanted), root, ())
    return Decoded(value, tuple(decoder.problems), frozenset(decoder.unusable))


class _Decoder:
    """Walks one document. Each method returns a value of the kind asked for, or a placeholder."""

    def __init__(
        self,
        document: Document,
        leaves: Mapping[type, Leaf],
        suggestions: Mapping[str, str],
        wanted: type,
    ) -> None:
        self.problems: list[Problem] = []
        self.unusable: set[Keys] = set()
        self._document = document
        self._leaves = leaves
        self._suggestions = suggestions
        self._wanted = wanted

    def value(self, kind: inspect.Type, node: Node, keys: Keys, extra: _Extra = _NO_EXTRA) -> object:
        """Return `node` as a value of `kind`."""
        if isinstance(node, RefusedNode):
            self.unusable.add(keys)
            return self._placeholder(kind)
        match kind:
            case inspect.Metadata(type=inner):
                return self.value(inner, node, keys, {**extra, **(kind.extra or {})})
            case inspect.UnionType(types=kinds):
                inner = next(one for one in kinds if not isinstance(one, inspect.NoneType))
                return self.value(inner, node, keys, extra)
            case inspect.StructType():
                return self._section(kind, node, keys)
            case inspect.VarTupleType():
                return self._list(kind, node, keys, or_one=bool(extra.get("or_one")))
            case inspect.DictType():
                return self._map(kind, node, keys)
        return self._scalar(kind, node, keys, extra)

    # ── what has parts ────────────────────────────────────────────────────────────────────────────

    def _section(self, kind: inspect.StructType, node: Node, keys: Keys) -> object:
        section = cast("type[Section]", kind.cls)
        fields = {one.encode_name: one for one in kind.fields}
        if section.shorthand and isinstance(node, ScalarNode) and node.kind != "null":
            short = next(one for one in kind.fields if one.name == section.shorthand)
            return self._made(kind, {short.name: self.value(short.type, node, (*keys, short.encode_name))})
        if not isinstance(node, MapNode):
            return self._refuse(kind, node, keys, not_a_map(node, list(fields)))
        if node.template and node.template.strip("{}") not in fields and section.shorthand:
            return self._refuse(kind, node, keys, read_as_a_map(node))
        values: dict[str, object] = {}
        unknown: list[str] = []
        for name, inner in node.items:
            if one := fields.get(name.text):
                values[one.name] = self.value(one.type, inner, (*keys, name.text))
            else:
                unknown.append(name.text)
                self._report((*keys, name.text), name, self._unknown_key(name.text, fields))
        for message in _missing(kind, values, unknown):
            self._report(keys, node, message)
        self.unusable.update(
            (*keys, one.encode_name) for one in kind.fields if one.required and one.name not in values
        )
        return self._made(kind, values)

    def _unknown_key(self, key: str, fields: Mapping[str, inspect.Field]) -> str:
        if suggestion := self._suggestions.get(key):
            return f"unknown key; {suggestion}"
        if meant := nearest(key, fields):
            return f"unknown key; did you mean {meant}?"
        places = _places_of(self._wanted)
        if (meant := nearest(key, places)) and places[meant] != key:
            return f"unknown key; did you mean {places[meant]}?"
        return f"unknown key; known here: {', '.join(fields)}"

    def _list(self, kind: inspect.VarTupleType, node: Node, keys: Keys, *, or_one: bool) -> object:
        if not isinstance(node, ListNode):
            if not or_one:
                return self._refuse(kind, node, keys, not_a_list(node))
            return (self.value(kind.item_type, node, (*keys, 0)),)
        if len(node.items) < max(kind.min_length or 0, 1 if or_one else 0):
            return self._refuse(kind, node, keys, "is an empty list; write at least one item")
        if kind.max_length is not None and len(node.items) > kind.max_length:
            message = f"has {len(node.items)} items; at most {kind.max_length:,} are possible"
            return self._refuse(kind, node, keys, message)
        return tuple(
            self.value(kind.item_type, inner, (*keys, index)) for index, inner in enumerate(node.items)
        )

    def _map(self, kind: inspect.DictType, node: Node, keys: Keys) -> object:
        if not isinstance(node, MapNode):
            return self._refuse(kind, node, keys, not_a_map(node, ["NAME: value"]))
        pairs: dict[object, object] = {}
        for name, inner in node.items:
            own = (*keys, name.text)
            before = len(self.problems)
            key = self._read_text(kind.key_type, name, own, name.text, _NO_EXTRA)
            value = self.value(kind.value_type, inner, own)
            if len(self.problems) == before:
                pairs[key] = value
        return MappingProxyType(pairs)

    # ── what has none ─────────────────────────────────────────────────────────────────────────────

    def _scalar(self, kind: inspect.Type, node: Node, keys: Keys, extra: _Extra) -> object:
        match kind:
            case inspect.BoolType():
                return self._bool(kind, node, keys)
            case inspect.IntType():
                return self._int(kind, node, keys)
            case inspect.FloatType() if "duration" in extra:
                return self._duration(kind, node, keys, cast("DurationRange", extra["duration"]))
            case inspect.FloatType():
                return self._float(kind, node, keys)
            case inspect.LiteralType(values=(int() as only,)):
                if isinstance(node, ScalarNode) and not node.quoted and node.text == str(only):
                    return only
                return self._refuse(kind, node, keys, not_the_number(node, only))
        if fault := not_a_text(node):
            return self._refuse(kind, node, keys, fault)
        return self._read_text(kind, node, keys, cast("ScalarNode", node).text, extra)

    def _read_text(self, kind: inspect.Type, node: Node, keys: Keys, text: str, extra: _Extra) -> object:
        match kind:
            case inspect.LiteralType(values=words):
                if text in words:
                    return text
                known = [str(word) for word in words]
                same_letters = [word for word in known if sorted(word) == sorted(text)]
                meant = same_letters[0] if same_letters else nearest(text, known)
                advice = f"did you mean {meant}?" if meant else f"write one of {', '.join(known)}"
                return self._refuse(kind, node, keys, f"{quoted(text)} is not possible; {advice}")
            case inspect.StrType(min_length=least):
                if least and len(text) < least:
                    return self._refuse(kind, node, keys, "is empty")
                pattern = cast("str", extra.get("pattern", ""))
                if not re.search(pattern.replace("$", r"\Z"), text):
                    return self._refuse(
                        kind, node, keys, f"{quoted(text)} is not possible; write {extra['words']}"
                    )
                return text
            case inspect.CustomType(cls=cls):
                try:
                    return self._leaves[cls].read(text)
                except ValueError as error:
                    return self._refuse(kind, node, keys, str(error))
        raise TypeError(f"the configuration's types have a {kind} that nothing here reads")

    def _bool(self, kind: inspect.Type, node: Node, keys: Keys) -> object:
        if isinstance(node, ScalarNode) and not node.quoted and node.text in {"true", "false"}:
            return node.text == "true"
        return self._refuse(kind, node, keys, not_a_boolean(node))

    def _int(self, kind: inspect.IntType, node: Node, keys: Keys) -> object:
        if fault := not_a_whole_number(node):
            return self._refuse(kind, node, keys, fault)
        text = cast("ScalarNode", node).text
        number = int(text) if len(text) < 19 else (-(10**18) if text.startswith("-") else 10**18)
        least, most = kind.ge, kind.le
        if (least is not None and number < least) or (most is not None and number > most):
            ends = f"{least} to {most}" if most is not None else f"{least} or more"
            return self._refuse(kind, node, keys, f"{shown(node)} is out of range; write {ends}")
        return number

    def _float(self, kind: inspect.Type, node: Node, keys: Keys) -> object:
        if isinstance(node, ScalarNode) and node.is_decimal and len(node.text) <= 32:
            return float(node.text)
        return self._refuse(kind, node, keys, f"{shown(node)} is not a plain number such as 85 or 0.5")

    def _duration(self, kind: inspect.Type, node: Node, keys: Keys, range_: DurationRange) -> object:
        if isinstance(node, ScalarNode) and (node.kind == "text" or node.is_decimal):
            try:
                seconds = parse_duration(node.text)
            except ValueError as error:
                return self._refuse(kind, node, keys, str(error))
            if fault := range_.fault(seconds):
                return self._refuse(kind, node, keys, fault)
            return seconds
        return self._refuse(kind, node, keys, f"{shown(node)} is not a duration; write one such as 30s")

    # ── what went wrong ───────────────────────────────────────────────────────────────────────────

    def _report(self, keys: Keys, node: Node, message: str) -> None:
        path = self._document.problem(keys, message).path
        whole = "" if keys or not message.startswith("is ") else "the file "
        self.problems.append(Problem(node.line, node.column, path, whole + message))

    def _refuse(self, kind: inspect.Type, node: Node, keys: Keys, message: str) -> object:
        self._report(keys, node, message)
        self.unusable.add(keys)
        return self._placeholder(kind)

    def _placeholder(self, kind: inspect.Type) -> object:
        match kind:
            case inspect.Metadata(type=inner):
                return self._placeholder(inner)
            case inspect.UnionType():
                return None
            case inspect.StructType():
                return self._made(kind, {})
            case inspect.VarTupleType():
                return ()
            case inspect.DictType():
                return MappingProxyType({})
            case inspect.CustomType(cls=cls):
                return self._leaves[cls].placeholder
            case inspect.LiteralType(values=(first, *_)):
                return first
            case inspect.BoolType():
                return False
            case inspect.IntType() | inspect.FloatType():
                return 1
        return ""

    def _made(self, kind: inspect.StructType, values: dict[str, object]) -> object:
        """Return the section with `values`, and placeholders for required ones that are not among them."""
        made_up = {
            one.name: self._placeholder(one.type)
            for one in kind.fields
            if one.required and one.name not in values
        }
        return kind.cls(**made_up, **values)


def _missing(kind: inspect.StructType, values: Mapping[str, object], unknown: list[str]) -> Iterator[str]:
    """Yield what a section lacks, or has too much of. An unknown key may be the one that is missed."""
    section = cast("type[Section]", kind.cls)
    key_of = {one.name: one.encode_name for one in kind.fields}
    for one in kind.fields:
        if (
            one.required
            and one.name not in values
            and not any(nearest(key, [one.encode_name]) for key in unknown)
        ):
            yield f"{one.encode_name} is missing{_described(one)}"
    given = [key_of[name] for name in section.alternatives if name in values]
    if len(given) > 1:
        yield f"has {' and '.join(given)}; write only one of them"
    if unknown:
        return
    if section.alternatives and not given:
        yield f"needs one of {', '.join(key_of[name] for name in section.alternatives)}"
    if section.at_least_one and not any(name in values for name in section.at_least_one):
        yield f"needs at least one of {', '.join(key_of[name] for name in section.at_least_one)}"


def _described(one: inspect.Field) -> str:
    schema = one.type.extra_json_schema if isinstance(one.type, inspect.Metadata) else None
    words = str((schema or {}).get("description", "")).rstrip(".")
    return f": {words[0].lower()}{words[1:]}" if words else ""
