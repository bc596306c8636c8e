"""Where code is while nobody gets an answer of it: what a test that hangs is told."""

from __future__ import annotations

import gc
import sys
import traceback
from types import AsyncGeneratorType, CoroutineType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["thread_stack", "waiting_code"]

_NOT_THE_AUTHORS: Final = ("asyncio", "contextlib", "devplug", "grpc")
_FRAMES_SHOWN: Final = 4


def thread_stack(thread_id: int) -> str:
    """Return the innermost of what a thread executes at this moment; empty if it has ended."""
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 -- documented, for debuggers
    return "".join(traceback.format_stack(frame)[-_FRAMES_SHOWN:]).rstrip() if frame else ""


def waiting_code() -> list[str]:
    """Return the places at which async code of authors waits: `FILE:LINE, in NAME`."""
    return sorted(set(_places()))


def _places() -> Iterator[str]:
    # Not by way of the tasks: gRPC's, in which handlers run, do not show what they wait for.
    for waiting in gc.get_objects():
        if isinstance(waiting, CoroutineType):
            frame = waiting.cr_frame if waiting.cr_suspended else None
        elif isinstance(waiting, AsyncGeneratorType):
            frame = waiting.ag_frame
        else:
            continue
        if (
            frame is not None
            and frame.f_globals.get("__name__", "").partition(".")[0] not in _NOT_THE_AUTHORS
        ):
            yield f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_qualname}"
