"""One request with the way to its client: what came in, and how an answer goes out (ASGI 3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qs

from devplug.errors import DevplugError
from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.statuses import bad_request, too_large
from devplug.sandbox.requests.bodies import BODY_LIMIT_BYTES

if TYPE_CHECKING:
    from devplug.sandbox.server.answers import Answer

__all__ = ["Exchange", "GoneError", "Receive", "Scope", "Send"]

Message: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Scope: TypeAlias = Mapping[str, Any]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

_FIELD_LIMIT: Final = 100
"""How many parameters a query may have; no client sends a tenth of it."""


class GoneError(DevplugError):
    """The client went away before it had sent its request."""


class Exchange:
    """One request and its answer; lives as long as both."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.method: str = scope["method"]
        self.scheme: str = scope["scheme"]
        self.path: str = scope["raw_path"].decode("ascii", "replace")
        """The path as it came, escapes and all."""
        self.headers: dict[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        self._query: bytes = scope["query_string"]
        self._length = self.header("content-length")
        self.has_begun = False
        """Whether something of the answer has been sent."""
        self.is_gone = False
        """Whether nobody reads any longer."""

    def header(self, name: str) -> str:
        """Return a header, by its name in small letters; empty if it is not there."""
        return self.headers.get(name, "")

    @property
    def query(self) -> Mapping[str, list[str]]:
        """The parameters; none if they cannot be read."""
        try:
            told = self._query.decode("ascii", "replace")
            return parse_qs(told, keep_blank_values=True, max_num_fields=_FIELD_LIMIT)
        except ValueError:
            return {}

    async def body(self) -> bytes:
        """Return what was sent; raises `StatusError` (413) for too much, and `GoneError`."""
        over = too_large(f"limit is {BODY_LIMIT_BYTES}")
        if self._length.isdigit() and int(self._length) > BODY_LIMIT_BYTES:
            raise over
        if coding := self.header("content-encoding"):
            raise bad_request(f"the content encoding {go_quoted(coding)} is not read here; send it as it is")
        body = bytearray()
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise GoneError("the client went away")
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > BODY_LIMIT_BYTES:
                raise over
        return bytes(body)

    async def until_gone(self) -> None:
        """Wait until the client goes away. What it still sends is not looked at."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True

    async def answer(self, answer: Answer) -> None:
        """Send a whole answer."""
        warnings = [(b"warning", _warning(told)) for told in answer.warnings]
        length = (b"content-length", str(len(answer.body)).encode())
        await self._begin(answer.code, answer.media_type, [length, *warnings])
        await self._send({"type": "http.response.body", "body": answer.body})

    async def send_piece(self, piece: bytes, media_type: str) -> None:
        """Send a piece of an answer; an empty one lets it begin."""
        if not self.has_begun:
            await self._begin(200, media_type, [])
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end_pieces(self, media_type: str) -> None:
        """End an answer that was sent in pieces, or that had none."""
        if not self.has_begun:
            await self._begin(200, media_type, [])
        await self._send({"type": "http.response.body", "body": b""})

    async def _begin(self, code: int, media_type: str, headers: list[tuple[bytes, bytes]]) -> None:
        self.has_begun = True
        told = [
            (b"content-type", media_type.encode()),
            (b"cache-control", b"no-cache, private"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await self._send({"type": "http.response.start", "status": code, "headers": [*told, *headers]})


def _warning(told: str) -> bytes:
    """Return one warning as its header has it (RFC 7234 section 5.5; apimachinery util/net http.go)."""
    plain = "".join(character if character.isprintable() else " " for character in told)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'.encode()
