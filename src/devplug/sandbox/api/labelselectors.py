"""Label selectors: `app=fpga,tier notin (a, b),!old` as clients send them, and as objects have them.

The language and the sentences for what is no selector are apimachinery's (pkg/labels/selector.go).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.errors import DevplugError
from devplug.k8s.objects import entries, fields, text
from devplug.sandbox.api.errors import FieldError, invalid_field
from devplug.sandbox.api.names import label_key_errors, label_value_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class SelectorError(DevplugError):
    """A text is no selector; the sentence is the API server's, which answers it as a bad request."""


class Operator(enum.Enum):
    """The operator of a requirement; the value is its sign or word."""

    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    IN = "in"
    NOT_IN = "notin"
    GREATER = ">"
    LESS = "<"
    EXISTS = "exists"
    NOT_EXISTS = "!"


_BINARY: Final = "in, notin, =, ==, !=, gt, lt"
_WHOLE: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that is asked of an object's labels."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, object]) -> bool:
        """Whether the labels meet it; a missing label meets `!=`, `notin` and `!`."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.EXISTS:
                return self.key in labels
            case Operator.NOT_EXISTS:
                return self.key not in labels
            case Operator.EQUALS | Operator.DOUBLE_EQUALS | Operator.IN:
                return value in self.values
            case Operator.NOT_EQUALS | Operator.NOT_IN:
                return value not in self.values
        if not isinstance(value, str) or not _WHOLE.fullmatch(value):
            return False
        limit = int(self.values[0])
        return int(value) > limit if self.operator is Operator.GREATER else int(value) < limit

    def __str__(self) -> str:
        """Return it as it is written."""
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.NOT_EXISTS:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator.value} ({','.join(sorted(self.values))})"
        return f"{self.key}{self.operator.value}{self.values[0]}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that must all be met; without any, everything meets them. Ordered by key."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, object]) -> bool:
        """Whether the labels meet all requirements."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        """Return it as it is written, in one line without blanks between requirements."""
        return ",".join(map(str, self.requirements))


def label_selector(written: str) -> LabelSelector:
    """Read a selector; raises `SelectorError`."""
    parser = _Parser(_scanned(written))
    return LabelSelector(tuple(sorted(parser.requirements(), key=lambda one: one.key)))


def selector_of_object(selector: object) -> LabelSelector:
    """Return what a `metav1.LabelSelector` asks, `matchLabels` and `matchExpressions`.

    Raises `SelectorError`.
    """
    labels = fields(selector, "matchLabels")
    asked = [_checked(key, Operator.EQUALS, [str(value)]) for key, value in sorted(labels.items())]
    words = {
        "In": Operator.IN,
        "NotIn": Operator.NOT_IN,
        "Exists": Operator.EXISTS,
        "DoesNotExist": Operator.NOT_EXISTS,
    }
    for expression in entries(selector, "matchExpressions"):
        word = text(expression, "operator")
        if word not in words:
            raise SelectorError(f'"{word}" is not a valid label selector operator')
        values = [str(value) for value in entries(expression, "values")]
        asked.append(_checked(text(expression, "key"), words[word], values))
    return LabelSelector(tuple(sorted(asked, key=lambda one: one.key)))


def _checked(key: str, operator: Operator, values: Iterable[str]) -> Requirement:
    """Return a requirement; raises `SelectorError` for a key or for values that it cannot have."""
    listed = tuple(sorted(set(values)))
    errors: list[FieldError] = []
    if wrong := label_key_errors(key):
        errors.append(invalid_field("key", key, "; ".join(wrong)))
    if operator in {Operator.IN, Operator.NOT_IN} and not listed:
        errors.append(invalid_field("values", [], "for 'in', 'notin' operators, values set can't be empty"))
    if operator in {Operator.EXISTS, Operator.NOT_EXISTS} and listed:
        sentence = "values set must be empty for exists and does not exist"
        errors.append(invalid_field("values", list(listed), sentence))
    for place, value in enumerate(listed):
        if operator in {Operator.GREATER, Operator.LESS} and not _WHOLE.fullmatch(value):
            sentence = "for 'Gt', 'Lt' operators, the value must be an integer"
            errors.append(invalid_field(f"values[{place}]", value, sentence))
        if wrong := label_value_errors(value):
            errors.append(invalid_field(f"values[{place}][{key}]", value, "; ".join(wrong)))
    if errors:
        sentences = list(dict.fromkeys(map(str, errors)))
        raise SelectorError(sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]")
    return Requirement(key, operator, listed)


# ── the language ──


class _Token(enum.Enum):
    END = enum.auto()
    NAME = enum.auto()
    CLOSE = ")"
    COMMA = ","
    NOT = "!"
    DOUBLE_EQUALS = "=="
    EQUALS = "="
    GREATER = ">"
    IN = "in"
    LESS = "<"
    NOT_EQUALS = "!="
    NOT_IN = "notin"
    OPEN = "("


_SIGNS: Final = "=!(),><"
_BLANKS: Final = " \t\r\n"
_LITERALS: Final = {token.value: token for token in _Token if isinstance(token.value, str)}
_OPERATORS: Final = {
    _Token.IN: Operator.IN,
    _Token.NOT_IN: Operator.NOT_IN,
    _Token.EQUALS: Operator.EQUALS,
    _Token.DOUBLE_EQUALS: Operator.DOUBLE_EQUALS,
    _Token.NOT_EQUALS: Operator.NOT_EQUALS,
    _Token.GREATER: Operator.GREATER,
    _Token.LESS: Operator.LESS,
}


def _scanned(written: str) -> list[tuple[_Token, str]]:
    """Return the tokens with their texts; the last one is `END`."""
    tokens: list[tuple[_Token, str]] = []
    rest = written.lstrip(_BLANKS)
    while rest:
        length = next((at for at, one in enumerate(rest) if one in _SIGNS + _BLANKS), len(rest))
        if length:
            word = rest[:length]
            tokens.append((_LITERALS.get(word, _Token.NAME), word))
        else:
            length = 2 if rest[:2] in _LITERALS else 1
            tokens.append((_LITERALS[rest[:length]], rest[:length]))
        rest = rest[length:].lstrip(_BLANKS)
    return [*tokens, (_Token.END, "")]


class _Parser:
    """Reads one list of tokens once."""

    def __init__(self, tokens: list[tuple[_Token, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        while True:
            token, word = self._ahead()
            if token is _Token.END:
                return found
            if token not in {_Token.NAME, _Token.NOT}:
                raise SelectorError(f"found '{word}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from error
            token, word = self._next()
            if token is _Token.END:
                return found
            if token is not _Token.COMMA:
                raise SelectorError(f"found '{word}', expected: ',' or 'end of string'")
            token, word = self._ahead()
            if token not in {_Token.NAME, _Token.NOT}:
                raise SelectorError(f"found '{word}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        token, key = self._next()
        negated = token is _Token.NOT
        if negated:
            token, key = self._next()
        if token is not _Token.NAME:
            raise SelectorError(f"found '{key}', expected: identifier")
        if wrong := label_key_errors(key):
            raise SelectorError(str(invalid_field("<nil>", key, "; ".join(wrong))))
        if negated:
            return _checked(key, Operator.NOT_EXISTS, ())
        if self._ahead()[0] in {_Token.END, _Token.COMMA}:
            return _checked(key, Operator.EXISTS, ())
        token, word = self._next(values=False)
        operator = _OPERATORS.get(token)
        if operator is None:
            raise SelectorError(f"found '{word}', expected: {_BINARY}")
        read: Callable[[], list[str]] = (
            self._several if operator in {Operator.IN, Operator.NOT_IN} else self._one
        )
        return _checked(key, operator, read())

    def _one(self) -> list[str]:
        if self._ahead()[0] in {_Token.END, _Token.COMMA}:
            return [""]
        token, word = self._next()
        if token is not _Token.NAME:
            raise SelectorError(f"found '{word}', expected: identifier")
        return [word]

    def _several(self) -> list[str]:
        """Read `(a, b)`; nothing between two commas is the empty value."""
        token, word = self._next()
        if token is not _Token.OPEN:
            raise SelectorError(f"found '{word}' expected: '('")
        token, word = self._next()
        if token is _Token.CLOSE:
            return [""]
        if token not in {_Token.NAME, _Token.COMMA}:
            raise SelectorError(f"found '{word}', expected: ',', ')' or identifier")
        values = [word] if token is _Token.NAME else [""]
        after_comma = token is _Token.COMMA
        while True:
            token, word = self._next()
            if token is _Token.CLOSE:
                return [*values, ""] if after_comma else values
            if token is _Token.COMMA:
                values += [""] if after_comma else []
                after_comma = True
            elif token is _Token.NAME and after_comma:
                values.append(word)
                after_comma = False
            else:
                wanted = "',', or identifier" if after_comma else "',' or ')'"
                raise SelectorError(f"found '{word}', expected: {wanted}")

    def _ahead(self) -> tuple[_Token, str]:
        token, word = self._tokens[self._at]
        return (_Token.NAME if token in {_Token.IN, _Token.NOT_IN} else token), word

    def _next(self, *, values: bool = True) -> tuple[_Token, str]:
        """Return the next token; `in` and `notin` are words like others where a value may stand."""
        token, word = self._ahead() if values else self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token, word
