"""Lists whose items are checked one by one: limits, duplicates, and texts that each stand there once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.sandbox.api.errors import duplicate_field, too_many_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from devplug.sandbox.api.errors import FieldError

_KEY_LIMIT: Final = 96
"""The longest right key: a domain, a slash and an identifier."""

Check: TypeAlias = "Callable[[object, str], Iterator[FieldError]]"
"""Yields what is wrong with an item at a place."""


def list_errors(items: Sequence[object], place: str, limit: int, check: Check) -> Iterator[FieldError]:
    """Yield what is wrong with a list; of one that is too long nothing else is told."""
    if len(items) > limit:
        yield too_many_field(place, len(items), limit)
        return
    for number, item in enumerate(items):
        yield from check(item, f"{place}[{number}]")


def set_errors(
    items: Sequence[object],
    place: str,
    limit: int,
    check: Check,
    key: Callable[[object], object],
) -> Iterator[FieldError]:
    """Yield what is wrong with a list in which no two items have the same key."""
    yield from list_errors(items, place, limit, check)
    if len(items) > limit:
        return
    seen: list[object] = []
    for number, item in enumerate(items):
        if (found := key(item)) in seen:
            yield duplicate_field(f"{place}[{number}]", found)
        else:
            seen.append(found)


def map_errors(
    items: Mapping[str, object],
    place: str,
    limit: int | None,
    check_key: Callable[[str, str], Iterator[FieldError]],
    check: Check,
) -> Iterator[FieldError]:
    """Yield what is wrong with a map, in the order of its keys; a key is told at the place of the map."""
    if limit is not None and len(items) > limit:
        yield too_many_field(place, len(items), limit)
        return
    for key in sorted(items):
        yield from check_key(key, place)
        yield from check(items[key], f"{place}[{_cut(key)}]")


def _cut(key: str) -> str:
    """Return a key without its middle if it is longer than any right one (truncateIfTooLong)."""
    if len(key) <= _KEY_LIMIT:
        return key
    left = _KEY_LIMIT - 3
    return f"{key[: (left + 1) // 2]}...{key[len(key) - left // 2 :]}"
