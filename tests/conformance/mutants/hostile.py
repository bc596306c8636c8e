"""Mutants that break, fill up or fall silent when something odd comes over the socket."""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from devplug.conformance.raw_clients import UNKNOWN_METHODS
from devplug.devices import ContainerResponse
from devplug.errors import RemoteError
from devplug.wire import deviceplugin
from devplug.wire.codecs import Codec, MalformedMessageError
from devplug.wire.deviceplugin import Method
from devplug.wire.sockets import Binding, Listener, socket_identity, unary
from devplug.wire.values import AdvertisedDevice
from tests.conformance.mutants import Mutant, fails
from tests.conformance.right import Ids

GREETING = b"PRI * HTTP/2.0"
DIED = 7


def decoding(method: Method[Any, Any], decode: Callable[[bytes, Codec[Any]], Any]) -> Method[Any, Any]:
    """Return the method with another way to decode requests."""
    right = method.request
    return replace(
        method, request=Codec(right.message, right.encode, lambda content, _: decode(content, right))
    )


def redone(
    bindings: Sequence[Binding], method: Method[Any, Any], other: Method[Any, Any]
) -> tuple[Binding, ...]:
    """Return the bindings with `other` in the place of `method`."""
    return tuple(Binding(other, one.handler) if one.method is method else one for one in bindings)


# ── requests ──


@fails("HOS01")
class TakesAnythingForARequest(Mutant):
    """Gives out its first device to a request that it cannot decode."""

    def bindings(self) -> tuple[Binding, ...]:
        def decode(content: bytes, right: Codec[Any]) -> Any:
            try:
                return right.decode(content)
            except MalformedMessageError:
                return (("dev-0",),)

        return redone(super().bindings(), deviceplugin.ALLOCATE, decoding(deviceplugin.ALLOCATE, decode))


@fails("HOS02")
class EndsAtAMalformedQuestion(Mutant):
    """Panics where a question for a preference cannot be decoded."""

    def bindings(self) -> tuple[Binding, ...]:
        def decode(content: bytes, right: Codec[Any]) -> Any:
            try:
                return right.decode(content)
            except MalformedMessageError:
                os._exit(DIED)

        asked = deviceplugin.GET_PREFERRED_ALLOCATION
        return redone(super().bindings(), asked, decoding(asked, decode))


@fails("HOS03")
class AnswersEverything(Mutant):
    """Has a handler for whatever call there may be."""

    def bindings(self) -> tuple[Binding, ...]:
        async def answer(_: bytes) -> bytes:
            return b""

        return (*super().bindings(), *(unary(method, answer) for method in UNKNOWN_METHODS))


@fails("HOS04")
class EndsAtALargeRequest(Mutant):
    """Has no room for a request of more than 2 MiB."""

    def bindings(self) -> tuple[Binding, ...]:
        def decode(content: bytes, right: Codec[Any]) -> Any:
            if len(content) > 2 * 2**20:
                os._exit(DIED)
            return right.decode(content)

        return redone(super().bindings(), deviceplugin.ALLOCATE, decoding(deviceplugin.ALLOCATE, decode))


@fails("HOS10")
class AnswersWithItsTraceback(Mutant):
    """Sends the text of an exception with the lines that it came through."""

    def bindings(self) -> tuple[Binding, ...]:
        def decode(content: bytes, right: Codec[Any]) -> Any:
            try:
                return right.decode(content)
            except MalformedMessageError as error:
                raise RemoteError("Unknown", traceback.format_exc()) from error

        return redone(super().bindings(), deviceplugin.ALLOCATE, decoding(deviceplugin.ALLOCATE, decode))


@fails("HOS11")
class RepeatsTheWholeRequest(Mutant):
    """Names the device that it does not know, however long the name."""

    def check_id(self, id_: str) -> None:
        if not self.health_of(id_):
            raise RemoteError("NotFound", f"device {id_} is not known")
        super().check_id(id_)


@fails("HOS13", also=("ALL11", "ALL31"), answer_seconds=20.0)
class LosesCallsThatComeTogether(Mutant):
    """Never answers a call of Allocate that comes while another one runs."""

    busy = False

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        if self.busy:
            await asyncio.Event().wait()
        self.busy = True
        await asyncio.sleep(0.05)
        self.busy = False
        return await super().allocate(containers)


# ── streams and descriptors ──


@fails("HOS09", also=("HOS15", "RES14"), change_seconds=20.0)
class KeepsAThreadPerStream(Mutant):
    """Starts watchers for each stream, and never ends them."""

    def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        for _ in range(4):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        return super().lists()


@fails("HOS15", burst_streams=300)
class KeepsTheBuffersOfStreams(Mutant):
    """Keeps what it has made for each stream, as a handler in Go that does not return does."""

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.buffers: list[bytes] = []

    def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        self.buffers.append(os.urandom(16 * 1024))
        return super().lists()


@fails("HOS14", settle_seconds=3.0)
class EndsWithoutDescriptors(Mutant):
    """Opens its device again and again, and panics when that fails once."""

    async def live(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.look())
            await super().live()

    async def look(self) -> None:
        while True:
            try:
                os.close(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                os._exit(DIED)
            await asyncio.sleep(self.poll_seconds)


# ── connections ──


class Front(Listener):
    """A socket of asyncio's before the right one, so that a mutant has its connections in hand."""

    def __init__(self, plugin: HasAFront) -> None:
        super().__init__(plugin.folder / plugin.endpoint, plugin.bindings())
        self.accept = plugin.accept
        self.inner = Listener(plugin.inner, self.bindings)
        self.server: asyncio.Server | None = None

    async def bind(self) -> None:
        if not self.inner.is_bound():
            await self.inner.bind()
        self.path.unlink(missing_ok=True)
        self.server = await asyncio.start_unix_server(self.accept, self.path)
        self._identity = socket_identity(self.path)

    async def close(self, grace_seconds: float = 0, *, keep_file: bool = False) -> None:
        await super().close(grace_seconds, keep_file=keep_file)
        if self.server is not None:
            self.server.close()
        await self.inner.close(grace_seconds)


class HasAFront(Mutant):
    """Sees the bytes of every connection before gRPC does; nothing is wrong with it yet."""

    def make_listener(self) -> Listener:
        self.inner = self.work / "inner.sock"
        return Front(self)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        heard = bytearray()
        try:
            heard += await self.first_words(reader)
            behind, before = await asyncio.open_unix_connection(self.inner)
            before.write(heard)
            async with asyncio.TaskGroup() as group:
                back = group.create_task(carry(behind, writer, bytearray()))
                await carry(reader, before, heard)
                back.cancel()
            before.close()
        finally:
            writer.close()
            self.ended(bytes(heard))

    async def first_words(self, reader: asyncio.StreamReader) -> bytes:
        """Wait for what a caller says first."""
        return await reader.read(2**16)

    def ended(self, heard: bytes) -> None:
        """Take notice of all that a caller has said when it has closed the connection."""


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: bytearray) -> None:
    """Pass on what comes until it ends."""
    with suppress(OSError):
        while part := await reader.read(2**16):
            heard += part
            writer.write(part)
            await writer.drain()


def frames(heard: bytes) -> tuple[list[int], bool]:
    """Return the kinds of the HTTP/2 frames that came whole, and whether the last one is cut off."""
    kinds = []
    rest = heard[24:]
    while len(rest) >= 9:
        size = 9 + int.from_bytes(rest[:3], "big")
        if len(rest) < size:
            break
        kinds.append(rest[3])
        rest = rest[size:]
    return kinds, bool(rest)


@fails("HOS05", also=("RES12", "RES20", "END06", "END09"))
class EndsAtAStranger(HasAFront):
    """Panics at a connection that does not begin as HTTP/2 does."""

    def ended(self, heard: bytes) -> None:
        if heard and not heard.startswith(GREETING):
            os._exit(DIED)


@fails("HOS06", return_limit_seconds=10.0)
class WaitsForTheFirstWord(HasAFront):
    """Hears one newcomer at a time."""

    async def first_words(self, reader: asyncio.StreamReader) -> bytes:
        async with self.hearing:
            return await super().first_words(reader)

    def make_listener(self) -> Listener:
        self.hearing = asyncio.Lock()
        return super().make_listener()


@fails("HOS07", also=("RES12", "HOS12", "END09"), change_seconds=20.0, check_seconds=30.0)
class KeepsEveryConnection(HasAFront):
    """Leaves its end of a connection open."""

    def make_listener(self) -> Listener:
        self.kept: list[int] = []
        return super().make_listener()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.kept.append(os.dup(writer.get_extra_info("socket").fileno()))
        await super().accept(reader, writer)


@fails("HOS08", also=("RES12", "HOS12", "END06", "END09"))
class EndsWithACutRequest(HasAFront):
    """Panics where the last frame of a connection is not whole."""

    def ended(self, heard: bytes) -> None:
        if heard.startswith(GREETING) and frames(heard)[1]:
            os._exit(DIED)


@fails("HOS12", also=("RES12", "END09"))
class EndsAtHugeHeaders(HasAFront):
    """Panics at headers that go on in a second frame."""

    def ended(self, heard: bytes) -> None:
        if 9 in frames(heard)[0]:
            os._exit(DIED)
