"""A socket in front of another one, where what passes is cut or left unread; and a clock that leaps."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

PIECE_BYTES: Final = 16 * 1024


class Leaps:
    """The running loop's clock, put forward at will from now on: what is due then is done at once.

    It never goes back, so it stays with the loop. What gRPC measures by itself does not leap.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        real = loop.time
        self._ahead = 0.0
        loop.time = lambda: real() + self._ahead  # type: ignore[method-assign]

    def forward(self, seconds: float) -> None:
        """Let so many seconds have passed."""
        self._ahead += seconds


class Relay:
    """A listening socket whose connections end at another one; lives from `open` to `close`, again and again.

    `cut_after_bytes` aborts a new connection once so much of its caller has passed; of new ones that are
    `is_deaf`, nothing is read; while `passes_back` is not set, nothing of the answers is.
    """

    def __init__(self, path: Path, target: Path, group: asyncio.TaskGroup) -> None:
        self.cut_after_bytes: int | None = None
        self.is_deaf = False
        self.passes_back = asyncio.Event()
        self.passes_back.set()
        self.accepted = 0
        self._path = path
        self.target = target
        self._group = group
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Listen at the path, in place of what is there."""
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(str(self._path))
        self._listener.listen(128)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def close(self, *, keeps_connections: bool = False) -> None:
        """Listen no more; the file stays, as after a process that was killed. Safe to repeat."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        if not keeps_connections:
            self.cut()

    def cut(self) -> None:
        """Let go of all connections."""
        for task in self._tasks:
            task.cancel()

    def _accept(self) -> None:
        assert self._listener is not None
        with suppress(BlockingIOError):
            accepted, _ = self._listener.accept()
            accepted.settimeout(0)
            self.accepted += 1
            task = self._group.create_task(self._serve(accepted))
            self._tasks.add(task)

    async def _serve(self, accepted: socket.socket) -> None:
        try:
            # Refused and lost connections are what this is for.
            with suppress(OSError):
                if self.is_deaf:
                    with accepted:
                        await asyncio.Event().wait()
                await self._join(accepted)
        finally:
            accepted.close()
            task = asyncio.current_task()
            assert task is not None
            self._tasks.discard(task)

    async def _join(self, accepted: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=accepted, limit=PIECE_BYTES)
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(self.target, limit=PIECE_BYTES)
            try:
                async with asyncio.TaskGroup() as both:
                    there = both.create_task(_pump(reader, far_writer, None, self.cut_after_bytes))
                    back = both.create_task(_pump(far_reader, writer, self.passes_back))
                    await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
                    there.cancel()
                    back.cancel()
            finally:
                far_writer.transport.abort()
        finally:
            writer.transport.abort()


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    gate: asyncio.Event | None,
    most_bytes: int | None = None,
) -> None:
    """Pass on what comes until the end, or until so much has passed."""
    passed = 0
    with suppress(OSError):
        while most_bytes is None or passed < most_bytes:
            if gate is not None:
                await gate.wait()
            if not (content := await reader.read(PIECE_BYTES)):
                return
            writer.write(content if most_bytes is None else content[: most_bytes - passed])
            passed += len(content)
            await writer.drain()
