"""The rules for names and labels, each as the sentences that the API server says of a text that breaks it.

The sentences are those of Kubernetes 1.36; an empty list means valid. It has two families of rules, which
call the same limit one of characters (apimachinery pkg/util/validation) and one of bytes
(pkg/api/validate/content); both count bytes.
"""

from __future__ import annotations

import re
from typing import Final

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_KEY})?"
_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"

_LOWER: Final = "must consist of lower case alphanumeric characters"
_ENDS: Final = "and must start and end with an alphanumeric character"
_CHARACTERS: Final = f"consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"

_LABEL_LIMIT_BYTES: Final = 63
_SUBDOMAIN_LIMIT_BYTES: Final = 253


def label_errors(name: str) -> list[str]:
    """Return what keeps `name` from being a DNS label, as namespaces and containers are called."""
    errors = _too_long(name, _LABEL_LIMIT_BYTES, "characters")
    if re.fullmatch(_LABEL, name):
        return errors
    if re.fullmatch(_SUBDOMAIN, name):
        return [*errors, "must not contain dots"]
    sentence = f"a lowercase RFC 1123 label {_LOWER} or '-', {_ENDS}"
    return [*errors, _by_expression(sentence, _LABEL, "my-name", "123-abc")]


def subdomain_errors(name: str) -> list[str]:
    """Return what keeps `name` from being a DNS subdomain, as most objects are called."""
    return _subdomain_errors(name, "characters")


def long_name_errors(name: str) -> list[str]:
    """Return what keeps `name` from being a DNS subdomain, by the rule of the newer kinds: DeviceClass."""
    return _subdomain_errors(name, "bytes")


def path_segment_errors(name: str) -> list[str]:
    """Return what keeps `name` from being one step of a path, as roles are called (path.go)."""
    if name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def identifier_errors(name: str) -> list[str]:
    """Return what keeps `name` from being an identifier as in C, as the attributes of devices are called."""
    if re.fullmatch(_IDENTIFIER, name):
        return []
    sentence = (
        "a valid C identifier must start with alphabetic character or '_', followed by a string of "
        "alphanumeric characters or '_'"
    )
    return [_by_expression(sentence, _IDENTIFIER, "my_name", "MY_NAME", "MyName")]


def _subdomain_errors(name: str, unit: str) -> list[str]:
    errors = _too_long(name, _SUBDOMAIN_LIMIT_BYTES, unit)
    if re.fullmatch(_SUBDOMAIN, name):
        return errors
    sentence = f"a lowercase RFC 1123 subdomain {_LOWER}, '-' or '.', {_ENDS}"
    return [*errors, _by_expression(sentence, _SUBDOMAIN, "example.com")]


def label_key_errors(key: str) -> list[str]:
    """Return what keeps `key` from being a label's key: a name, with a domain and `/` before it or not."""
    prefix, slash, name = key.rpartition("/")
    sentence = _by_expression(f"must {_CHARACTERS}", _KEY, "MyName", "my.name", "123-abc")
    if "/" in prefix:
        domain = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {sentence} {domain}"]
    errors = []
    if slash:
        parts = long_name_errors(prefix) if prefix else ["must be non-empty"]
        errors = [f"prefix part {fault}" for fault in parts]
    parts = _too_long(name, _LABEL_LIMIT_BYTES) if name else ["must be non-empty"]
    if not re.fullmatch(_KEY, name):
        parts.append(sentence)
    return [*errors, *(f"name part {fault}" for fault in parts)]


def label_value_errors(value: str) -> list[str]:
    """Return what keeps `value` from being a label's value."""
    errors = _too_long(value, _LABEL_LIMIT_BYTES)
    if re.fullmatch(_VALUE, value):
        return errors
    sentence = f"a valid label must be an empty string or {_CHARACTERS}"
    return [*errors, _by_expression(sentence, _VALUE, "MyValue", "my_value", "12345")]


def _too_long(name: str, limit_bytes: int, unit: str = "bytes") -> list[str]:
    return [f"must be no more than {limit_bytes} {unit}"] if len(name.encode()) > limit_bytes else []


def _by_expression(sentence: str, expression: str, *examples: str) -> str:
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{sentence} (e.g. {listed}regex used for validation is '{expression}')"
