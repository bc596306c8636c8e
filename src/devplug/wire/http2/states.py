"""The life of a stream as a table: all states and all steps between them, and nothing else (5.1).

This file does not know which end it is at. Nobody pushes, so there are no reserved streams.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from devplug.wire.http2.faults import ConnectionFaultError, ErrorCode, MisuseError, StreamFaultError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["STEPS", "WRONG", "State", "Step", "after"]


class State(Enum):
    """Where a stream is in its life."""

    IDLE = auto()
    OPEN = auto()
    HALF_CLOSED_LOCAL = auto()
    """We have said all, the other end has not."""
    HALF_CLOSED_REMOTE = auto()
    """The other end has said all, we have not."""
    CLOSED = auto()

    # Else each look-up in the table below goes through `Enum.__hash__`, written in Python.
    __hash__ = object.__hash__


class Step(Enum):
    """What may happen to a stream; an END is the flag on a frame, after the frame itself."""

    SEND_HEADERS = auto()
    SEND_DATA = auto()
    SEND_END = auto()
    SEND_RESET = auto()
    RECEIVE_HEADERS = auto()
    RECEIVE_DATA = auto()
    RECEIVE_END = auto()
    RECEIVE_RESET = auto()
    RECEIVE_WINDOW = auto()

    __hash__ = object.__hash__


STEPS: Final[Mapping[tuple[State, Step], State]] = {
    (State.IDLE, Step.SEND_HEADERS): State.OPEN,
    (State.IDLE, Step.RECEIVE_HEADERS): State.OPEN,
    (State.OPEN, Step.SEND_HEADERS): State.OPEN,
    (State.OPEN, Step.SEND_DATA): State.OPEN,
    (State.OPEN, Step.SEND_END): State.HALF_CLOSED_LOCAL,
    (State.OPEN, Step.SEND_RESET): State.CLOSED,
    (State.OPEN, Step.RECEIVE_HEADERS): State.OPEN,
    (State.OPEN, Step.RECEIVE_DATA): State.OPEN,
    (State.OPEN, Step.RECEIVE_END): State.HALF_CLOSED_REMOTE,
    (State.OPEN, Step.RECEIVE_RESET): State.CLOSED,
    (State.OPEN, Step.RECEIVE_WINDOW): State.OPEN,
    (State.HALF_CLOSED_LOCAL, Step.SEND_RESET): State.CLOSED,
    (State.HALF_CLOSED_LOCAL, Step.RECEIVE_HEADERS): State.HALF_CLOSED_LOCAL,
    (State.HALF_CLOSED_LOCAL, Step.RECEIVE_DATA): State.HALF_CLOSED_LOCAL,
    (State.HALF_CLOSED_LOCAL, Step.RECEIVE_END): State.CLOSED,
    (State.HALF_CLOSED_LOCAL, Step.RECEIVE_RESET): State.CLOSED,
    (State.HALF_CLOSED_LOCAL, Step.RECEIVE_WINDOW): State.HALF_CLOSED_LOCAL,
    (State.HALF_CLOSED_REMOTE, Step.SEND_HEADERS): State.HALF_CLOSED_REMOTE,
    (State.HALF_CLOSED_REMOTE, Step.SEND_DATA): State.HALF_CLOSED_REMOTE,
    (State.HALF_CLOSED_REMOTE, Step.SEND_END): State.CLOSED,
    (State.HALF_CLOSED_REMOTE, Step.SEND_RESET): State.CLOSED,
    (State.HALF_CLOSED_REMOTE, Step.RECEIVE_RESET): State.CLOSED,
    (State.HALF_CLOSED_REMOTE, Step.RECEIVE_WINDOW): State.HALF_CLOSED_REMOTE,
    # These two may have been under way when the stream ended here.
    (State.CLOSED, Step.RECEIVE_RESET): State.CLOSED,
    (State.CLOSED, Step.RECEIVE_WINDOW): State.CLOSED,
    (State.CLOSED, Step.SEND_RESET): State.CLOSED,
}
"""Every step that may be."""


class _Wrong(NamedTuple):
    code: ErrorCode
    ends_connection: bool


_NEVER_BEGUN: Final = _Wrong(ErrorCode.PROTOCOL_ERROR, ends_connection=True)
_SAID_ALL: Final = _Wrong(ErrorCode.STREAM_CLOSED, ends_connection=False)
_IS_OVER: Final = _Wrong(ErrorCode.STREAM_CLOSED, ends_connection=True)

WRONG: Final[Mapping[tuple[State, Step], _Wrong]] = {
    (State.IDLE, Step.RECEIVE_DATA): _NEVER_BEGUN,
    (State.IDLE, Step.RECEIVE_END): _NEVER_BEGUN,
    (State.IDLE, Step.RECEIVE_RESET): _NEVER_BEGUN,
    (State.IDLE, Step.RECEIVE_WINDOW): _NEVER_BEGUN,
    (State.HALF_CLOSED_REMOTE, Step.RECEIVE_HEADERS): _SAID_ALL,
    (State.HALF_CLOSED_REMOTE, Step.RECEIVE_DATA): _SAID_ALL,
    (State.HALF_CLOSED_REMOTE, Step.RECEIVE_END): _SAID_ALL,
    (State.CLOSED, Step.RECEIVE_HEADERS): _IS_OVER,
    (State.CLOSED, Step.RECEIVE_DATA): _IS_OVER,
    (State.CLOSED, Step.RECEIVE_END): _IS_OVER,
}
"""Every step of the other end that may not be, and what fault it is. The rest of them are ours."""


def after(state: State, step: Step, stream_id: int) -> State:
    """Return the state after a step; raises the fault, or `MisuseError` if it is ours."""
    following = STEPS.get((state, step))
    if following is not None:
        return following
    wrong = WRONG.get((state, step))
    told = f"{step.name} on a stream that is {state.name}"
    if wrong is None:
        raise MisuseError(f"stream {stream_id}: {told}")
    if wrong.ends_connection:
        raise ConnectionFaultError(wrong.code, told)
    raise StreamFaultError(stream_id, wrong.code, told)
