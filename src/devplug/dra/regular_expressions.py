r"""Regular expressions for `find` and `findAll` whose time is bounded, as RE2's is in Kubernetes. Pure.

Python's own matcher tries all ways: `(a+)+$` takes hours for forty characters, and nothing can interrupt it.
Here all ways advance together, character by character (Pike's algorithm, swtch.com/~rsc/regexp/regexp2.html).
Python parses patterns, with the meanings of RE2: `\d`, `\w` and `\s` are ASCII, `$` is the end of the text.
References, lookarounds and possessive repeats are refused, as by RE2.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _compiler as compiler  # type: ignore[attr-defined]  # no stubs
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_INSTRUCTIONS_A_CHARACTER: Final = 32
"""Most instructions for each character of a pattern: `a{1000}` in itself has a million."""

_STEPS_LIMIT: Final = 2_000_000
"""Most instructions that one call carries out: a second."""

_REFUSED: Final = (re.error, RecursionError, OverflowError)


class _Character(NamedTuple):
    """Take a character."""

    fits: Callable[[str], object]


class _Split(NamedTuple):
    """Go on at each of the places, the first one preferred."""

    places: list[int]


class _Assertion(NamedTuple):
    """Go on if the position is one of this kind."""

    holds: Callable[[str, int], bool]


def is_pattern(pattern: str) -> bool:
    """Whether a pattern can be read."""
    try:
        re.compile(pattern)
    except _REFUSED:
        return False
    return True


def found_all(text: str, pattern: str) -> Iterator[str]:
    """Yield what matches, from left to right, without overlaps. Raises `ValueError`."""
    program = _program(pattern)
    at = steps = 0
    before = -1
    while at <= len(text):
        match, steps = _search(program, text, at, steps)
        if match is None:
            return
        start, end = match
        if end > start or start != before:
            yield text[start:end]
        before, at = end, end if end > start else end + 1


# ── matching ──


def _search(program: list[Any], text: str, start: int, steps: int) -> tuple[tuple[int, int] | None, int]:
    """Return the leftmost match from `start` on, by the preferences of the pattern, and the steps so far."""
    found: tuple[int, int] | None = None
    threads: dict[int, int] = {}
    for at in range(start, len(text) + 1):
        if found is None:
            _follow(program, 0, at, text, at, threads)
        following: dict[int, int] = {}
        steps += len(threads) + 1
        if steps > _STEPS_LIMIT:
            raise ValueError("actual cost limit exceeded")
        for place, begun in threads.items():
            instruction = program[place]
            if instruction is None:
                found = begun, at
                break
            if isinstance(instruction, _Character) and at < len(text) and instruction.fits(text[at]):
                _follow(program, place + 1, begun, text, at + 1, following)
        threads = following
        if found is not None and not threads:
            break
    return found, steps


def _follow(program: list[Any], place: int, begun: int, text: str, at: int, threads: dict[int, int]) -> None:
    """Add the places that are reached from one without a character, in the order of preference."""
    rest = [place]
    while rest:
        place = rest.pop()
        if place in threads:
            continue
        threads[place] = begun
        instruction = program[place]
        if isinstance(instruction, _Split):
            rest += reversed(instruction.places)
        elif isinstance(instruction, _Assertion) and instruction.holds(text, at):
            rest.append(place + 1)


# ── compiling ──


@lru_cache(maxsize=256)
def _program(pattern: str) -> list[Any]:
    try:
        parsed = parser.parse(pattern, re.ASCII)
        made = _Program(_INSTRUCTIONS_A_CHARACTER * (len(pattern) + 1))
        made.add_all(parsed, parsed.state.flags)
    except _REFUSED as error:
        raise ValueError(f"Illegal regex: {error}") from error
    return [*made.instructions, None]


class _Program:
    """The instructions of a pattern while they are made; None is the end."""

    def __init__(self, limit: int) -> None:
        self.instructions: list[Any] = []
        self._limit = limit

    def add_all(self, nodes: Any, flags: int) -> None:  # noqa: ANN401 -- the library has no types
        for kind, argument in nodes:
            self._add(kind, argument, flags)

    def _put(self, instruction: _Character | _Split | _Assertion) -> None:
        self.instructions.append(instruction)
        if len(self.instructions) > self._limit:
            raise re.error("the pattern is too large")

    def _add(self, kind: Any, argument: Any, flags: int) -> None:  # noqa: ANN401
        if kind in {constants.LITERAL, constants.NOT_LITERAL, constants.ANY, constants.IN}:
            self._put(_Character(_one_character(kind, argument, flags)))
        elif kind is constants.AT:
            self._put(_Assertion(_assertion(argument, flags)))
        elif kind is constants.SUBPATTERN:
            _, added, removed, nodes = argument
            self.add_all(nodes, (flags | added) & ~removed)
        elif kind is constants.BRANCH:
            self._add_branches(argument[1], flags)
        elif kind in {constants.MAX_REPEAT, constants.MIN_REPEAT}:
            least, most, nodes = argument
            self._add_repeat(least, most, nodes, flags, is_lazy=kind is constants.MIN_REPEAT)
        else:
            raise re.error("invalid or unsupported Perl syntax")

    def _add_branches(self, branches: list[Any], flags: int) -> None:
        starts: list[int] = []
        ends: list[_Split] = []
        self._put(_Split(starts))
        for nodes in branches:
            starts.append(len(self.instructions))
            self.add_all(nodes, flags)
            ends.append(_Split([]))
            self._put(ends[-1])
        for end in ends:
            end.places.append(len(self.instructions))

    def _add_repeat(self, least: int, most: int, nodes: Any, flags: int, *, is_lazy: bool) -> None:  # noqa: ANN401
        for _ in range(least):
            self.add_all(nodes, flags)
        exits: list[_Split] = []
        is_endless = most is constants.MAXREPEAT
        for _ in range(1 if is_endless else most - least):
            split = _Split([])
            place = len(self.instructions)
            self._put(split)
            exits.append(split)
            split.places.append(len(self.instructions))
            self.add_all(nodes, flags)
            if is_endless:
                self._put(_Split([place]))
        for split in exits:
            split.places.append(len(self.instructions))
            if is_lazy:
                split.places.reverse()


def _one_character(kind: Any, argument: Any, flags: int) -> Callable[[str], object]:  # noqa: ANN401
    state = parser.State()
    state.flags = flags
    matches: Callable[[str], object] = compiler.compile(parser.SubPattern(state, [(kind, argument)])).match
    return matches


def _assertion(kind: Any, flags: int) -> Callable[[str, int], bool]:  # noqa: ANN401
    is_by_line = bool(flags & re.MULTILINE)
    match kind:
        case constants.AT_BEGINNING_STRING:
            return lambda _, at: at == 0
        case constants.AT_BEGINNING:
            return lambda text, at: at == 0 or (is_by_line and text[at - 1] == "\n")
        case constants.AT_END_STRING:
            return lambda text, at: at == len(text)
        case constants.AT_END:
            return lambda text, at: at == len(text) or (is_by_line and text[at] == "\n")
        case constants.AT_BOUNDARY:
            return _is_boundary
    return lambda text, at: not _is_boundary(text, at)


def _is_boundary(text: str, at: int) -> bool:
    before, after = text[max(0, at - 1) : at], text[at : at + 1]
    return _is_word(before) != _is_word(after)


def _is_word(character: str) -> bool:
    return character == "_" or (character.isascii() and character.isalnum())
