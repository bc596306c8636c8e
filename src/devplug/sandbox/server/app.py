"""The server as an ASGI application: it lets in who may ask, and has what is asked for answered.

Every request runs within a limit that can be set to now, by which the server ends all of them when it stops.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from devplug.sandbox.api.objects import text
from devplug.sandbox.api.statuses import StatusError, internal_error
from devplug.sandbox.registry import PODS
from devplug.sandbox.requests.bodies import decoded_json
from devplug.sandbox.requests.options import include_of, list_options
from devplug.sandbox.requests.podlogs import log_options, refuse_without_log
from devplug.sandbox.requests.routes import Verb, node_of_metrics, request_of
from devplug.sandbox.server.access import admitted_path, refuse_strangers
from devplug.sandbox.server.acting import Acts
from devplug.sandbox.server.answers import (
    Page,
    error_line,
    form_of,
    json_answer,
    object_told,
    page_told,
    refusal_answer,
    shown,
    text_answer,
    watch_lines,
)
from devplug.sandbox.server.documents import document_at, nothing_here
from devplug.sandbox.server.exchange import Exchange, GoneError
from devplug.sandbox.server.watching import BEAT_SECONDS, watched

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from devplug.sandbox.registry import Registry
    from devplug.sandbox.requests.routes import Request
    from devplug.sandbox.server.answers import Answer
    from devplug.sandbox.server.exchange import Receive, Scope, Send
    from devplug.sandbox.server.hooks import Hooks

__all__ = ["App"]

logger = logging.getLogger(__name__)

_GONE = 410


class App:
    """The application, for as long as the server lives; called once for each request."""

    def __init__(
        self, registry: Registry, hooks: Hooks, *, token: str, beat_seconds: float = BEAT_SECONDS
    ) -> None:
        self._registry = registry
        self._hooks = hooks
        self._token = token
        self._beat_seconds = beat_seconds
        self._acts = Acts(registry, hooks.field_report)
        self._limits: set[asyncio.Timeout] = set()
        self._is_ending = False

    def end(self) -> None:
        """End all requests at once: watches and followed logs as if they had come to their end."""
        self._is_ending = True
        for limit in self._limits:
            _end_now(limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. What goes wrong here is told as a Status, and its trace to the log alone."""
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
            told = "the devplug sandbox is going down"
            await self._refuse(exchange, StatusError(503, "ServiceUnavailable", told))
        except Exception as error:
            logger.exception("A request failed", extra={"method": exchange.method})
            await self._refuse(exchange, internal_error(f"{type(error).__name__} in the devplug sandbox"))

    async def _refuse(self, exchange: Exchange, refusal: StatusError) -> None:
        if exchange.has_begun:
            logger.warning("An answer broke off", extra={"reason": refusal.message})
            return
        pretty = shown(exchange.query, exchange.header("user-agent"))
        await exchange.answer(refusal_answer(refusal, pretty=pretty))

    async def _serve(self, exchange: Exchange) -> None:
        refuse_strangers(exchange.headers, exchange.scheme)
        path = admitted_path(exchange.path, exchange.header("authorization"), self._token)
        if path.startswith("/sandbox/"):
            async with self._limited():
                return await exchange.answer(await self._controlled(exchange, path))
        document = document_at(
            exchange.method,
            path,
            exchange.header("accept"),
            exchange.header("host"),
            self._hooks.documents,
            pretty=shown(exchange.query, exchange.header("user-agent")),
        )
        if document is not None:
            return await exchange.answer(document)
        node = node_of_metrics(exchange.method, path)
        if node and (counted := self._hooks.metrics(node)) is not None:
            return await exchange.answer(text_answer(counted))
        request = request_of(exchange.method, path, exchange.query)
        if request is None:
            return await exchange.answer(nothing_here())
        if request.verb is Verb.WATCH:
            return await self._watch(exchange, request)
        if request.part_name == "log":
            return await self._log(exchange, request)
        async with self._limited():
            return await exchange.answer(await self._acted(exchange, request))

    async def _controlled(self, exchange: Exchange, path: str) -> Answer:
        body = await exchange.body()
        told = decoded_json(body).value if body else None
        answer = await self._hooks.control(exchange.method, path, told)
        return nothing_here() if answer is None else json_answer(answer[1], answer[0])

    async def _acted(self, exchange: Exchange, request: Request) -> Answer:
        form, include = form_of(exchange.header("accept")), include_of(request.query)
        outcome = self._acts.perform(request, await exchange.body(), exchange.header("content-type"))
        now = self._registry.now
        if isinstance(outcome.value, Page):
            told = page_told(request.resource, outcome.value, form, now, include)
        else:
            told = object_told(request.resource, outcome.value, form, now, include)
        pretty = shown(request.query, exchange.header("user-agent"))
        return json_answer(told, outcome.code, pretty=pretty, warnings=outcome.warnings)

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
        return await self._stream(exchange, self._hooks.logs(pod, options), "text/plain", None)

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
