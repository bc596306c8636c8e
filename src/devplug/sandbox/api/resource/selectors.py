"""Selectors of devices in classes and requests: CEL expressions about `device` (dra.md D67–D71)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import entries, part, text
from devplug.sandbox.api.errors import forbidden_field, invalid_field, required_field, too_long_field
from devplug.sandbox.api.resource.lists import list_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.api.errors import FieldError

__all__ = ["compile_error", "selector_errors"]

_SELECTORS: Final = 32
_EXPRESSION_LIMIT_BYTES: Final = 10 * 1024
_TOO_COMPLEX: Final = "too complex, exceeds cost limit"


def compile_error(expression: str) -> str | None:
    """Return why the API server refuses an expression, in its words; None for a right one.

    Without the extra `dra` there is no CEL, and every expression is taken.
    """
    from devplug.dra.selectors import MissingCelError, is_too_complex, problem_of

    try:
        problem = problem_of(expression)
    except MissingCelError:
        return None
    return problem or (_TOO_COMPLEX if is_too_complex(expression) else None)


def selector_errors(owner: object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with the `selectors` of a class or a request at `place`."""
    return list_errors(entries(owner, "selectors"), f"{place}.selectors", _SELECTORS, _errors)


def _errors(selector: object, place: str) -> Iterator[FieldError]:
    if part(selector, "cel") is None:
        yield required_field(f"{place}.cel")
        return
    expression, place = text(selector, "cel", "expression"), f"{place}.cel.expression"
    if len(expression.encode()) > _EXPRESSION_LIMIT_BYTES:
        yield too_long_field(place, _EXPRESSION_LIMIT_BYTES)
    elif fault := compile_error(expression):
        is_refused = fault == _TOO_COMPLEX
        yield forbidden_field(place, fault) if is_refused else invalid_field(place, expression, fault)
