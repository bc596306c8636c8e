"""The rules of one request and its answer: what is refused and in which words, and every answer's headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

from devplug.web.addresses import is_ip
from devplug.web.values import Page, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.web.values import Answer

__all__ = ["body_of", "head_of", "http_date", "reason_of", "refusal", "request_of"]

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
    501: "requests with a body are not taken, in this form neither",
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
