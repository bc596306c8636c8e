"""What is wrong with a device's attributes and capacities, and how people read them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

AttributeValue: TypeAlias = "bool | int | str"
"""What an attribute may be; one of its strings is a `Version`."""

_INTEGERS: Final = range(-(2**63), 2**63)


def attribute_faults(attributes: Mapping[str, AttributeValue]) -> Iterator[str]:
    """Yield what is wrong with attributes; authors may not use a type checker."""
    for name, value in attributes.items():
        if not is_text(name):
            yield f"the attribute name {name!r} is not a string"
        elif not _is_attribute_value(value):
            yield f"attribute {quoted(name)} is {value!r}; it must be a bool, int, str or devplug.Version"
        elif isinstance(value, int) and value not in _INTEGERS:
            yield f"attribute {quoted(name)} is {value}; an integer of 64 bits fits"


def capacity_faults(capacity: Mapping[str, int]) -> Iterator[str]:
    """Yield what is wrong with capacities."""
    for name, value in capacity.items():
        if not is_text(name):
            yield f"the capacity name {name!r} is not a string"
        elif not _is_whole(value) or value < 0 or value not in _INTEGERS:
            yield f"capacity {quoted(name)} is {value!r}; it must be a whole number from 0 on, of 64 bits"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_attribute_value(value: object) -> bool:
    return isinstance(value, bool | int | str)


def is_text(value: object) -> bool:
    """Whether it is a string."""
    return isinstance(value, str)


def attribute_text(value: AttributeValue) -> str:
    """Return an attribute as people read it: `true` and `false` for a bool, else its digits or its text."""
    return str(value).lower() if isinstance(value, bool) else str(value)
