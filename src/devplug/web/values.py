"""What crosses between the server and the functions that answer: requests, answers, limits and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from devplug.errors import DevplugError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

__all__ = [
    "Answer",
    "Handler",
    "Limits",
    "ListenError",
    "Page",
    "Request",
    "Stream",
    "WebClientError",
    "not_found",
]


class ListenError(DevplugError):
    """An address cannot be listened on; the text says why and what to change."""


class WebClientError(DevplugError):
    """The other end of an address gave no answer that can be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Request:
    """A GET or a HEAD, which gets the same answer without its body."""

    path: str
    """Percent-decoded, from the first slash; without the query."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Decoded; the last value of a name that comes twice."""
    accept: str = ""
    """The header of this name as it came; empty without one."""
    is_local: bool = False
    """Whether it came over a Unix socket, so from someone who may open its file."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer that is there as a whole."""

    body: bytes | str
    """Text is sent as UTF-8."""
    media_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    """Beyond those that every answer has; the connection's own are the server's business."""


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that comes piece by piece, for as long as the iterator and the reader last.

    Each piece is sent at once. The iterator is closed when the reader goes or the server ends, also while
    it waits for its next piece; nothing else can be asked over the connection afterwards.
    """

    chunks: AsyncIterator[bytes]
    media_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Answer: TypeAlias = Page | Stream

Handler: TypeAlias = Callable[[Request], Awaitable[Answer]]
"""Answers one request. What it raises becomes a 500 with an incident number, and is told in the log only."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a server bears from those who connect, whoever they are."""

    connections: int = 64
    """Open at once. A further one takes the place of the one idle for longest, or gets a 503."""
    header_bytes: int = 16 * 1024
    """The request line and the headers."""
    header_seconds: float = 5
    """From a connection, or the first byte of a later request, to the end of its headers."""
    idle_seconds: float = 30
    """Between two requests."""
    write_seconds: float = 10
    """For 64 KiB of an answer; a reader that takes longer is dropped."""
    linger_seconds: float = 1
    """For the other end to read the last answer and close, before it is closed here."""
    closing_seconds: float = 0.3
    """For answers under way when the server ends."""


def not_found() -> Page:
    """Return the answer for a path that leads nowhere."""
    return Page("not found\n", status=404)
