"""Questions of GetPreferredAllocation as a kubelet asks them, and what is wrong with an answer. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from devplug.exchange import PreferenceRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Ids",
    "completing_questions",
    "foreign_fault",
    "fresh_questions",
    "missing_fault",
    "repeat_fault",
    "size_fault",
    "total_question",
]

Ids = tuple[str, ...]

_SHOWN = 3


def fresh_questions(ids: Sequence[str]) -> list[PreferenceRequest]:
    """Return questions for a container that has no device yet, each of a size of its own.

    The first device is not available, as if a pod held it, unless it is the only one.
    """
    available = tuple(reversed(ids[1:] or ids))
    most = len(available)
    sizes = sorted({1, 2, most - 1, most} & set(range(1, most + 1)))
    return [PreferenceRequest(available, (), size) for size in sizes]


def completing_questions(ids: Sequence[str]) -> list[PreferenceRequest]:
    """Return questions for a container that has some of its devices already; none for fewer than two devices.

    The kubelet never asks where nothing is left to choose, so `must_include` is always shorter than the size.
    """
    available = tuple(reversed(ids))
    most = len(available)
    questions: dict[PreferenceRequest, None] = {}
    for size in sorted({2, most - 1, most} & set(range(2, most + 1))):
        for held in (available[:1], available[-1:], available[: size - 1]):
            questions[PreferenceRequest(available, held, size)] = None
    return list(questions)


def total_question(ids: Sequence[str]) -> PreferenceRequest:
    """Return the question of a pod that is the first to come and wants one device."""
    return PreferenceRequest(tuple(reversed(ids)), (), 1)


def size_fault(question: PreferenceRequest, answer: Ids) -> str:
    """Return what is wrong with the number of devices, empty if nothing is; no devices are no preference."""
    if len(answer) in (0, question.size):
        return ""
    return f"of {len(question.available)} devices {question.size} were asked for, and {len(answer)} came"


def missing_fault(question: PreferenceRequest, answer: Ids) -> str:
    """Return which devices that had to be included are not, empty if none."""
    missing = sorted(set(question.must_include) - set(answer))
    if not answer or not missing:
        return ""
    return f"{_named(missing)} had to be included, and {_named(answer)} came"


def foreign_fault(question: PreferenceRequest, answer: Ids) -> str:
    """Return which devices were not available, empty if none."""
    foreign = sorted(set(answer) - set(question.available))
    return f"{_named(foreign)} came, and was not available" if foreign else ""


def repeat_fault(_: PreferenceRequest, answer: Ids) -> str:
    """Return which devices come more than once, empty if none."""
    repeated = sorted(id_ for id_, count in Counter(answer).items() if count > 1)
    return f"{_named(repeated)} came more than once in one answer" if repeated else ""


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more
