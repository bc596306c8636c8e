"""HTTP messages: requests, answers, limits and errors, and the rules of one request and its answer. Pure.

What is refused, and in which words; and the headers that every answer has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import parse_qsl, unquote

from msgspec import Struct, field

from devplug.errors import DevplugError
from devplug.web.addresses import is_ip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

# ── between the server and the functions that answer ──


class ListenError(DevplugError):
    """An address cannot be listened on; the text says why and what to change."""


class WebClientError(DevplugError):
    """The other end of an address gave no answer that can be used; the text says why."""


class TooLargeError(WebClientError):
    """An answer that is larger than its reader accepts."""


class Request(Struct, frozen=True):
    """A GET or a HEAD, which gets the same answer without its body."""

    path: str
    """Percent-decoded, from the first slash; without the query."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Decoded; the last value of a name that comes twice."""
    accept: str = ""
    """The header of this name as it came; empty without one."""
    is_local: bool = False
    """Whether it came over a Unix socket, so from someone who may open its file."""


class Page(Struct, frozen=True):
    """An answer that is there as a whole."""

    body: bytes | str
    """Text is sent as UTF-8."""
    media_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    """Beyond those that every answer has; the connection's own are the server's business."""


class Stream(Struct, frozen=True):
    """An answer that comes piece by piece, for as long as the iterator and the reader last.

    Each piece is sent at once. The iterator is closed when the reader goes or the server ends, also while
    it waits for its next piece; nothing else can be asked over the connection afterwards.
    """

    chunks: AsyncIterator[bytes]
    media_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Answer: TypeAlias = Page | Stream

Handler: TypeAlias = Callable[[Request], Awaitable[Answer]]
"""Answers one request. What it raises becomes a 500 with an incident number, and is only logged."""


class Limits(Struct, frozen=True):
    """The limits of a server, which hold for every client."""

    connections: int = 64
    """Open at once. For another one, a connection of the address or process that has most makes room: first
    one without a whole request, then an idle one, then the oldest answer."""
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
    streams: int = 32
    """Answers without an end at once; a further one gets a 503. Half of the connections stay for the rest."""


def not_found() -> Page:
    """Return the answer for a path that leads nowhere."""
    return Page("not found\n", status=404)


# ── rules ──

_METHODS: Final = ("GET", "HEAD")
_VERSIONS: Final = ("1.0", "1.1")
_QUERY_FIELDS_LIMIT: Final = 64

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}
"""The phrases of RFC 9110 and RFC 6585; a status without one goes without."""

_WORDS: Final = {
    400: "this is not a request in HTTP/1.1 or HTTP/1.0",
    405: "this server is read-only: use GET or HEAD",
    408: "the request took too long to arrive",
    413: "requests with a body are not taken",
    421: "on loopback this server answers to IP addresses and to localhost, and to no other host name",
    431: "the request's headers are too large",
    501: "requests with a body are not taken, whatever its encoding",
    503: "too many connections; try again later",
}

_EVERYWHERE: Final = (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"))

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def request_of(
    method: str,
    target: str,
    version: str,
    headers: Mapping[str, str],
    *,
    is_local: bool,
    is_loopback: bool,
) -> Request | Page:
    """Return what is asked, or the answer that refuses it.

    `headers` have names in lower case; `is_loopback` says whether the server's address is one.
    """
    if version not in _VERSIONS:
        return refusal(400)
    if method not in _METHODS:
        return refusal(405, {"Allow": ", ".join(_METHODS)})
    if "transfer-encoding" in headers or headers.get("content-length", "0").strip("0"):
        return refusal(413)
    authority = headers.get("host", "")
    if target.startswith("http://"):
        # What a proxy is asked; its authority overrules the header (RFC 9112, 3.2.2).
        authority, slash, rest = target.removeprefix("http://").partition("/")
        target = slash + rest or "/"
    # A page from elsewhere whose name its owner makes lead to 127.0.0.1 (DNS rebinding) could read this one
    # through the browser of somebody on this machine. The browser then still sends that name.
    if is_loopback and authority and not _is_no_name(authority):
        return refusal(421)
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        return refusal(400)
    try:
        fields = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_LIMIT)
        return Request(unquote(path, errors="strict"), dict(fields), headers.get("accept", ""), is_local)
    except ValueError:
        return refusal(400)


def refusal(status: int, headers: Mapping[str, str] | None = None) -> Page:
    """Return the answer to a request that no handler gets to see; the connection ends with it."""
    return Page(f"{_WORDS.get(status, _WORDS[400])}\n", status=status, headers=headers or {})


def body_of(answer: Answer) -> bytes:
    """Return what stands in an answer as a whole; of a stream, nothing."""
    if isinstance(answer, Page):
        return answer.body.encode() if isinstance(answer.body, str) else answer.body
    return b""


def head_of(answer: Answer, length: int, date: str, *, is_last: bool) -> list[tuple[str, str]]:
    """Return the headers of an answer whose body has `length` bytes; `is_last` on its connection."""
    return [
        ("Date", date),
        ("Content-Type", answer.media_type),
        *([("Content-Length", str(length))] if isinstance(answer, Page) else []),
        *_EVERYWHERE,
        *answer.headers.items(),
        *([("Connection", "close")] if is_last else []),
    ]


def http_date(moment: Sequence[int]) -> str:
    """Return the time as HTTP writes it (RFC 9110, 5.6.7), from what `time.gmtime` gives, in any locale."""
    year, month, day, hour, minute, second, weekday = moment[:7]
    return f"{_DAYS[weekday]}, {day:02} {_MONTHS[month - 1]} {year:04} {hour:02}:{minute:02}:{second:02} GMT"


def reason_of(status: int) -> str:
    """Return the phrase beside a status; empty for one without."""
    return _REASONS.get(status, "")


def _is_no_name(authority: str) -> bool:
    """Whether a browser cannot have been led here by a name that someone else owns."""
    if authority.startswith("["):
        return is_ip(authority[1:].partition("]")[0])
    host = authority.partition(":")[0]
    return host.lower() == "localhost" or is_ip(host)
