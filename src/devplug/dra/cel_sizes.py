"""Upper bounds on the work of a CEL expression: the texts and lists that it makes and goes through. Pure.

The library has no limit of memory and cannot be interrupted: three `replace` of a text of 9,000 characters
make 9 GB. So an expression is estimated before its first evaluation, as Kubernetes does (cel-go
checker/cost.go, apiserver pkg/cel/library/cost.go). The estimate reads the checked form of the library: the
protobuf message `cel.expr.CheckedExpr` (cel-spec checked.proto, syntax.proto).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

WORK_LIMIT: Final = 10_000_000
"""The limit on the characters that an expression may make and read: a million of cost at 0.1 each, as in
Kubernetes."""

_ELEMENT: Final = 16
"""The cost of an element of a list, without its content."""


class _Bound(NamedTuple):
    """The most that a value can be."""

    length: int
    """Characters of a text, elements of a list or map; 1 for a number."""
    total: int
    """Characters and elements, with those inside."""
    item: _Bound | None = None
    """An element of a list, or a value of a map; None for a text or number."""
    key: _Bound | None = None
    """A key of a map."""

    @property
    def inside(self) -> _Bound:
        """Result of a lookup in the value."""
        return self.item or self

    @property
    def element(self) -> _Bound:
        """Value of the variable in a loop through it."""
        return self.key or self.inside


def _text(length: int) -> _Bound:
    return _Bound(length, length)


def _list(length: int, item: _Bound, content: int | None = None) -> _Bound:
    total = length * _ELEMENT + (length * item.total if content is None else content)
    return _Bound(length, total, item)


_SCALAR: Final = _text(1)
_NAME: Final = _text(64)
"""A domain, an identifier, or the value of an attribute (resource/v1 DeviceAttribute)."""
_VALUE: Final = _Bound(64, 128, _NAME)
_DOMAIN: Final = _list(32, _VALUE)._replace(key=_NAME)
_DOMAINS: Final = _list(32, _DOMAIN)._replace(key=_NAME)
_VARIABLES: Final = {
    "device.driver": _NAME,
    "device.allowMultipleAllocations": _SCALAR,
    "device.attributes": _DOMAINS,
    "device.capacity": _DOMAINS,
}


def _either(one: _Bound | None, other: _Bound | None) -> _Bound | None:
    if one is None or other is None:
        return one or other
    return _Bound(
        max(one.length, other.length),
        max(one.total, other.total),
        _either(one.item, other.item),
        _either(one.key, other.key),
    )


def _any_of(bounds: list[_Bound]) -> _Bound:
    found: _Bound | None = None
    for one in bounds:
        found = _either(found, one)
    return found or _SCALAR


def _sum(bounds: list[_Bound]) -> _Bound:
    """Bound what is put together of all, which is the default for a function."""
    items = [one.item for one in bounds if one.item is not None]
    length, total = sum(one.length for one in bounds), sum(one.total for one in bounds)
    return _Bound(length + 1, total + 1, _any_of(items) if items else None)


# ── functions ──


def _replaced(bounds: list[_Bound], sought: int) -> _Bound:
    """Bound a text in which each piece of at least `sought` characters is replaced; a piece may be empty."""
    text, by = bounds[0].length, bounds[2].length
    if sought == 0:
        return _text(text + (text + 1) * by)
    return _text(text + text // sought * max(0, by - sought))


def _joined(bounds: list[_Bound]) -> _Bound:
    return _text(bounds[0].total + bounds[0].length * (bounds[1].length if len(bounds) > 1 else 0))


def _pieces(bounds: list[_Bound]) -> _Bound:
    return _list(bounds[0].length + 1, _text(bounds[0].length), bounds[0].length)


def _scalar(_: list[_Bound]) -> _Bound:
    return _SCALAR


def _inside(bounds: list[_Bound]) -> _Bound:
    return bounds[0].inside


_COMPARING: Final = frozenset(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"))
"""What goes through the shorter argument."""

_RESULTS: Final[Mapping[str, Callable[[list[_Bound]], _Bound]]] = {
    "join": _joined,
    "split": _pieces,
    "findAll": _pieces,
    "getQuery": _pieces,
    "strings.quote": lambda bounds: _text(6 * bounds[0].length + 2),
    "bytes": lambda bounds: _text(4 * bounds[0].length + 64),
    "string": lambda bounds: _text(bounds[0].length + 64),
    "_?_:_": lambda bounds: _any_of(bounds[1:]),
    **dict.fromkeys(("_[_]", "_[?_]", "_?._"), _inside),
    **dict.fromkeys(("_&&_", "_||_", "!_", "@in", "@not_strictly_false", *_COMPARING), _scalar),
    **dict.fromkeys(("_-_", "_*_", "_/_", "_%_", "-_", "size", "int", "uint", "double", "type"), _scalar),
}
"""What functions make of their arguments; all others make at most what their arguments have together."""

_FREE: Final = frozenset(
    ("_&&_", "_||_", "!_", "_?_:_", "_[_]", "_[?_]", "_?._", "size", "@not_strictly_false")
)
"""What goes through none of its arguments."""
_PAIRING: Final = {
    "matches": 1,
    **dict.fromkeys(("sets.contains", "sets.equivalent", "sets.intersects"), 1),
    **dict.fromkeys(("find", "findAll"), 64),
}
"""What looks at each part of the first argument for each part of the second, and how slow that is."""
_SUMS_OF_NUMBERS: Final = frozenset(("add_int64", "add_uint64", "add_double"))


# ── the checked form ──


def exceeds_limit(checked: bytes) -> bool:
    """Whether a compiled expression, serialised, may make or go through more than `WORK_LIMIT`."""
    try:
        return Estimate(checked).work > WORK_LIMIT
    except RecursionError:
        return True


class Estimate:
    """Estimate for one compiled expression; checked.proto and syntax.proto have the field numbers."""

    def __init__(self, checked: bytes) -> None:
        expression = _last(_last(checked, 2), 4)  # an Any with a CheckedExpr
        self._overloads: dict[int, list[bytes]] = {}
        for number, entry in _fields(_last(checked, 2)):
            if number == 2:
                self._overloads[_number(entry, 1)] = _all(_last(entry, 2), 3)
        self.work = 0
        self.result = self._bound(expression, _VARIABLES, 1)

    def _bound(self, node: bytes, names: Mapping[str, _Bound], times: int) -> _Bound:
        """Bound the value of a node, and add its work, done so many times."""
        for kind, body in _fields(node):
            if kind == 3:
                return self._constant(body)
            if kind == 4:
                return names.get(_last(body, 1).decode(), _SCALAR)
            if kind == 5:
                owner = self._bound(_last(body, 1), names, times)
                return _SCALAR if _number(body, 3) else owner.inside
            if kind == 6:
                return self._call(body, _number(node, 2), names, times)
            if kind == 7:
                items = [self._bound(one, names, times) for one in _all(body, 1)]
                return self._made(_list(len(items), _any_of(items), sum(one.total for one in items)), times)
            if kind == 8:
                keys, values = (
                    [self._bound(_last(entry, field), names, times) for entry in _all(body, 2)]
                    for field in (3, 4)
                )
                content = sum(one.total for one in (*keys, *values))
                made = _list(len(keys), _any_of(values), content)._replace(key=_any_of(keys))
                return self._made(made, times)
            if kind == 9:
                return self._loop(body, names, times)
        return _SCALAR

    def _constant(self, body: bytes) -> _Bound:
        return next((_text(len(value)) for number, value in _fields(body) if number in {6, 7}), _SCALAR)

    def _call(self, body: bytes, id_: int, names: Mapping[str, _Bound], times: int) -> _Bound:
        function = _last(body, 2).decode()
        nodes = [*_all(body, 1), *_all(body, 3)]
        bounds = [self._bound(node, names, times) for node in nodes]
        totals = [one.total for one in bounds] or [0]
        if function in _PAIRING and len(totals) > 1:
            self.work += times * totals[0] * totals[1] * _PAIRING[function]
        elif function not in _FREE and function != "_+_":
            self.work += times * (min(totals) if function in _COMPARING else sum(totals))
        overloads = self._overloads.get(id_, [])
        if function == "_+_" and overloads and all(one.decode() in _SUMS_OF_NUMBERS for one in overloads):
            return _SCALAR
        if function == "replace" and len(bounds) > 2:
            return self._made(_replaced(bounds, len(_last(_last(nodes[1], 3), 6))), times)
        result = _RESULTS.get(function)
        return self._made(result(bounds) if result and bounds else _sum(bounds), times)

    def _loop(self, body: bytes, names: Mapping[str, _Bound], times: int) -> _Bound:
        """Bound a macro: its accumulator starts at one value and grows as much with each round."""
        element, accumulator = _last(body, 1).decode(), _last(body, 3).decode()
        among = self._bound(_last(body, 2), names, times)
        start = self._bound(_last(body, 4), names, times)
        rounds = among.length
        inner = {**names, accumulator: start, element: among.element}
        self._bound(_last(body, 5), inner, times * rounds)
        after = self._bound(_last(body, 6), inner, times * rounds)
        grown = self._made(
            _Bound(
                start.length + rounds * max(0, after.length - start.length),
                start.total + rounds * max(0, after.total - start.total),
                _either(start.item, after.item),
            ),
            times,
        )
        return self._bound(_last(body, 7), {**inner, accumulator: grown}, times)

    def _made(self, bound: _Bound, times: int) -> _Bound:
        """Count a value that is made: a list shares its elements with what they come from."""
        self.work += times * bound.length * (_ELEMENT if bound.item else 1)
        return bound


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers and contents of the fields of a message; a number's content is its varint."""
    at = 0
    while at < len(message):
        tag, start = _varint(message, at)
        match tag & 7:
            case 0:
                at = _varint(message, start)[1]
            case 1:
                at = start + 8
            case 2:
                length, start = _varint(message, start)
                at = start + length
            case _:
                at = start + 4
        yield tag >> 3, message[start:at]


def _varint(content: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        number, shift, at = number | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return number, at


def _all(message: bytes, field: int) -> list[bytes]:
    return [value for number, value in _fields(message) if number == field]


def _last(message: bytes, field: int) -> bytes:
    return (_all(message, field) or [b""])[-1]


def _number(message: bytes, field: int) -> int:
    found = _last(message, field)
    return _varint(found, 0)[0] if found else 0
