"""The server as an ASGI application: it checks the token, and has each request answered.

Every request runs within a limit that can be set to now, by which the server ends all of them when it stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qs

from devplug.errors import DevplugError
from devplug.k8s.objects import Object, text
from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.errors import StatusError, bad_request, internal_error, too_large
from devplug.sandbox.api.options import include_of, list_options, log_options, refuse_without_log
from devplug.sandbox.authorization.authorizer import Authorizer, Rights
from devplug.sandbox.authorization.rbac import Access
from devplug.sandbox.registry import PODS
from devplug.sandbox.server.auth import admitted, impersonating, refuse_web_pages
from devplug.sandbox.server.bodies import BODY_LIMIT_BYTES, decoded_json
from devplug.sandbox.server.discovery import document_at, nothing_here
from devplug.sandbox.server.handlers import BEAT_SECONDS, RequestHandlers, watched
from devplug.sandbox.server.responses import (
    Page,
    error_line,
    form_of,
    json_answer,
    refusal_answer,
    rendered_object,
    rendered_page,
    text_answer,
    wants_pretty,
    watch_lines,
)
from devplug.sandbox.server.routes import Verb, node_of_metrics, request_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.options import LogOptions
    from devplug.sandbox.registry import Registry
    from devplug.sandbox.server.responses import Answer
    from devplug.sandbox.server.routes import Request

logger = logging.getLogger(__name__)

_GONE: Final = 410
_FIELD_LIMIT: Final = 100
"""How many parameters a query may have; no client sends a tenth of it."""


# ── One request and the way to its client (ASGI 3) ──

Message: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Scope: TypeAlias = Mapping[str, Any]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


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
        self.header_lines: list[tuple[str, str]] = [
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]
        ]
        """All headers as they came, their names in small letters."""
        self.headers: dict[str, str] = dict(self.header_lines)
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
            query = self._query.decode("ascii", "replace")
            return parse_qs(query, keep_blank_values=True, max_num_fields=_FIELD_LIMIT)
        except ValueError:
            return {}

    async def body(self) -> bytes:
        """Return what was sent; raises `StatusError` (413) for too much, and `GoneError`."""
        over = too_large(f"limit is {BODY_LIMIT_BYTES}")
        if self._length.isdigit() and int(self._length) > BODY_LIMIT_BYTES:
            raise over
        if coding := self.header("content-encoding"):
            raise bad_request(
                f"the content encoding {go_quoted(coding)} is not supported; send the body unencoded"
            )
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
        warnings = [(b"warning", _warning(text)) for text in answer.warnings]
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
        common = [
            (b"content-type", media_type.encode()),
            (b"cache-control", b"no-cache, private"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await self._send({"type": "http.response.start", "status": code, "headers": [*common, *headers]})


def _warning(text: str) -> bytes:
    """Return one warning as its header has it (RFC 7234 section 5.5; apimachinery util/net http.go)."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'.encode()


# ── The application ──

Logs: TypeAlias = "Callable[[Object, LogOptions], AsyncGenerator[bytes, None]]"
"""Yields the log of `options.container` of a pod, all options heeded; to follow, until the container ends."""

Metrics: TypeAlias = Callable[[str], str | None]
"""Returns the metrics of a node's kubelet in Prometheus' text format; None for no such node."""

Control: TypeAlias = "Callable[[str, str, object], Awaitable[tuple[int, Object] | None]]"
"""Does what a method and a path below `/sandbox/` ask, with the decoded body, or None without one.

Returns the HTTP status and the answer, None if nothing is there."""


class App:
    """The application, for as long as the server lives; called once for each request."""

    def __init__(
        self,
        registry: Registry,
        *,
        logs: Logs,
        metrics: Metrics,
        control: Control,
        token: str,
        rbac: bool = False,
        beat_seconds: float = BEAT_SECONDS,
        betas: Sequence[Resource] = (),
    ) -> None:
        """Serve `registry`; with `rbac` each user may do what roles allow, and else everything.

        `betas` are versions of kinds that are served besides `kinds.SERVED`.
        """
        self._authorizer = Authorizer(registry) if rbac else None
        self._registry = registry
        self._logs = logs
        self._metrics = metrics
        self._control = control
        self._token = token
        self._beat_seconds = beat_seconds
        self._betas = betas
        self._handlers = RequestHandlers(registry, token)
        self._limits: set[asyncio.Timeout] = set()
        self._is_ending = False

    def end(self) -> None:
        """End all requests at once: watches and followed logs as if they had come to their end."""
        self._is_ending = True
        for limit in self._limits:
            _end_now(limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. A fault of ours is answered with a Status; its traceback is only logged."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        try:
            await self._serve(exchange)
        except GoneError:
            return
        except StatusError as refusal:
            await self._refuse(exchange, refusal)
        except TimeoutError:
            message = "the devplug sandbox is going down"
            await self._refuse(exchange, StatusError(503, "ServiceUnavailable", message))
        except Exception as error:
            logger.exception("the API server failed on a request", extra={"method": exchange.method})
            await self._refuse(exchange, internal_error(f"{type(error).__name__} in the devplug sandbox"))

    async def _refuse(self, exchange: Exchange, refusal: StatusError) -> None:
        if exchange.has_begun:
            logger.warning("the API server ended a response early", extra={"reason": refusal.message})
            return
        pretty = wants_pretty(exchange.query, exchange.header("user-agent"))
        await exchange.answer(refusal_answer(refusal, pretty=pretty))

    async def _serve(self, exchange: Exchange) -> None:
        refuse_web_pages(exchange.headers, exchange.scheme)
        authorization = exchange.header("authorization")
        path, user = admitted(exchange.path, authorization, self._token, self._registry.now)
        rights = impersonating(Rights(user, self._authorizer), exchange.header_lines)
        of_path = Access(verb=exchange.method.lower(), path=path)
        if path.startswith("/sandbox/"):
            rights.require(of_path)
            async with self._limited():
                return await exchange.answer(await self._controlled(exchange, path))
        document = document_at(
            exchange.method,
            path,
            exchange.header("accept"),
            exchange.header("host"),
            pretty=wants_pretty(exchange.query, exchange.header("user-agent")),
            betas=self._betas,
        )
        if document is not None:
            rights.require(of_path)
            return await exchange.answer(document)
        node = node_of_metrics(exchange.method, path)
        if node:
            rights.require(Access(verb="get", resource="nodes", part_name="proxy", name=node))
        if node and (counted := self._metrics(node)) is not None:
            return await exchange.answer(text_answer(counted))
        request = request_of(exchange.method, path, exchange.query, self._betas)
        if request is None:
            return await exchange.answer(nothing_here())
        rights.require(request.access)
        if request.verb is Verb.WATCH:
            return await self._watch(exchange, request)
        if request.part_name == "log":
            return await self._log(exchange, request)
        async with self._limited():
            return await exchange.answer(await self._acted(exchange, request, rights))

    async def _controlled(self, exchange: Exchange, path: str) -> Answer:
        body = await exchange.body()
        document = decoded_json(body).value if body else None
        answer = await self._control(exchange.method, path, document)
        return nothing_here() if answer is None else json_answer(answer[1], answer[0])

    async def _acted(self, exchange: Exchange, request: Request, rights: Rights) -> Answer:
        form, include = form_of(exchange.header("accept")), include_of(request.query)
        content_type = exchange.header("content-type")
        outcome = self._handlers.perform(request, await exchange.body(), content_type, rights)
        now = self._registry.now
        if isinstance(outcome.value, Page):
            document = rendered_page(request.resource, outcome.value, form, now, include)
        else:
            document = rendered_object(request.resource, outcome.value, form, now, include)
        pretty = wants_pretty(request.query, exchange.header("user-agent"))
        return json_answer(document, outcome.code, pretty=pretty, warnings=outcome.warnings)

    async def _watch(self, exchange: Exchange, request: Request) -> None:
        seconds = list_options(request.query, request.resource, watches=True).timeout_seconds
        lines = self._watch_lines(exchange, request)
        await self._stream(exchange, lines, "application/json", float(seconds) if seconds else None)

    async def _watch_lines(self, exchange: Exchange, request: Request) -> AsyncGenerator[bytes, None]:
        options = list_options(request.query, request.resource, watches=True)
        form, include = form_of(exchange.header("accept")), include_of(request.query)
        is_first = True
        async with aclosing(watched(self._registry, request, options, self._beat_seconds)) as events:
            try:
                async for some in events:
                    now = self._registry.now
                    yield watch_lines(request.resource, some, form, now, include, with_columns=is_first)
                    is_first = is_first and not some
            except StatusError as refusal:
                if refusal.code != _GONE:
                    raise
                yield error_line(refusal)

    async def _log(self, exchange: Exchange, request: Request) -> None:
        pod = self._registry.get(PODS, request.namespace, request.name)
        options = log_options(request.query, pod, self._registry.now)
        if not text(pod, "spec", "nodeName"):
            return await exchange.answer(text_answer(""))
        refuse_without_log(pod, options)
        return await self._stream(exchange, self._logs(pod, options), "text/plain", None)

    async def _stream(
        self, exchange: Exchange, chunks: AsyncGenerator[bytes, None], media_type: str, seconds: float | None
    ) -> None:
        """Answer piece by piece until there is no more, the time is over, or nobody reads any longer."""
        failure: Exception | None = None
        async with asyncio.TaskGroup() as tasks, aclosing(chunks):
            try:
                async with self._limited(seconds) as limit:
                    listener = tasks.create_task(_end_when_gone(exchange, limit))
                    try:
                        async for chunk in chunks:
                            await exchange.send_piece(chunk, media_type)
                    finally:
                        listener.cancel()
            except TimeoutError:
                pass
            except Exception as error:  # noqa: BLE001 -- raised below, outside of the group: it wraps errors
                failure = error
        if failure is not None:
            raise failure
        if not exchange.is_gone:
            await exchange.end_pieces(media_type)

    @asynccontextmanager
    async def _limited(self, seconds: float | None = None) -> AsyncIterator[asyncio.Timeout]:
        """Run within a limit; raises `TimeoutError` when the time is over, or the server ends."""
        async with asyncio.timeout(0 if self._is_ending else seconds) as limit:
            self._limits.add(limit)
            try:
                yield limit
            finally:
                self._limits.discard(limit)


def _end_now(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())


async def _end_when_gone(exchange: Exchange, limit: asyncio.Timeout) -> None:
    await exchange.until_gone()
    _end_now(limit)
