"""Go's filepath.Match and the rule of squat's path.go once more: what translations are judged by."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

Token: TypeAlias = "str | tuple[bool, tuple[tuple[str, str], ...]]"
"""`*`, `?`, a literal as `=x`, or a class: whether it is negated, and its ranges."""

Node: TypeAlias = tuple[str, str, str]
"""Host path, container path, permissions."""


class BadPatternError(Exception):
    """Go's ErrBadPattern."""


def go_match(pattern: str, name: str) -> bool:
    """Whether one level of a pattern matches one file name."""
    return _matches(_tokens(pattern), name)


def go_glob(pattern: str, paths: Collection[str]) -> list[str]:
    """Return which of `paths` a pattern covers, level by level, sorted."""
    wanted = pattern.split("/")
    for part in wanted:
        _tokens(part)
    return sorted(
        path
        for path in paths
        if len(names := path.split("/")) == len(wanted)
        and all(go_match(part, name) for part, name in zip(wanted, names, strict=True))
    )


def _tokens(pattern: str) -> list[Token]:
    tokens: list[Token] = []
    rest = pattern
    while rest:
        character, rest = rest[0], rest[1:]
        if character in "*?":
            tokens.append(character)
        elif character == "\\":
            if not rest:
                raise BadPatternError
            tokens.append(f"={rest[0]}")
            rest = rest[1:]
        elif character == "[":
            negated = rest.startswith("^")
            rest = rest[negated:]
            ranges: list[tuple[str, str]] = []
            while not (ranges and rest.startswith("]")):
                low, rest = _escaped(rest)
                high = low
                if rest.startswith("-"):
                    high, rest = _escaped(rest[1:])
                ranges.append((low, high))
            rest = rest[1:]
            tokens.append((negated, tuple(ranges)))
        else:
            tokens.append(f"={character}")
    return tokens


def _escaped(rest: str) -> tuple[str, str]:
    if rest.startswith("\\"):
        rest = rest[1:]
    elif rest[:1] in {"-", "]"}:
        raise BadPatternError
    if len(rest) < 2:  # a class needs its end, too
        raise BadPatternError
    return rest[0], rest[1:]


def _matches(tokens: Sequence[Token], name: str) -> bool:
    if not tokens:
        return not name
    first, rest = tokens[0], tokens[1:]
    if first == "*":
        return any(_matches(rest, name[at:]) for at in range(len(name) + 1))
    if not name:
        return False
    if isinstance(first, tuple):
        negated, ranges = first
        fits = any(low <= name[0] <= high for low, high in ranges) != negated
    else:
        fits = first == "?" or first[1:] == name[0]
    return fits and _matches(rest, name[1:])


def squat_devices(
    groups: Sequence[Mapping[str, object]], paths: Collection[str], *, by_id: bool = True
) -> list[frozenset[Node]]:
    """Return what each device of one resource of squat's plugin gives to a container, in any order.

    With `by_id` devices of equal paths are one, the last of them, as their IDs are equal then.
    Where permissions are not given they are `rw` and not `mrw`: that difference is told, once for a file.
    """
    devices: dict[tuple[int, int, tuple[str, ...]], frozenset[Node]] = {}
    for place, group in enumerate(groups):
        members = group["paths"]
        assert isinstance(members, list)
        found = [go_glob(str(one["path"]), paths) for one in members]
        there = [
            bool(matches) or not one.get("optional") for one, matches in zip(members, found, strict=True)
        ]
        lists = [matches * int(one.get("limit", 1)) for one, matches in zip(members, found, strict=True)]
        known = [at for at, is_there in enumerate(there) if is_there]
        if not known:
            continue
        length = min(max(len(found[at]) for at in known), *(len(lists[at]) for at in known))
        for number in range(length):
            chosen = [lists[at][number] for at in known]
            nodes = frozenset(
                (path, _inside(path, str(members[at].get("mountPath", ""))), _letters(members[at]))
                for at, path in zip(known, chosen, strict=True)
            )
            for copy in range(int(str(group.get("count", 1)))):
                devices[0 if by_id else place, copy, tuple(chosen)] = nodes
    return list(devices.values())


def _inside(path: str, mount_path: str) -> str:
    mount_path = mount_path or path
    return mount_path + path.rpartition("/")[2] if mount_path.endswith("/") else mount_path


def _letters(member: Mapping[str, object]) -> str:
    given = str(member.get("permissions") or "rw")
    return "".join(letter for letter in "rwm" if letter in given)
