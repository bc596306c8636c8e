"""What the guest says to the host and hears from it: JSON lines on the second serial port."""

from __future__ import annotations

import asyncio
import json
import os
import tty
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Talk"]

PORT: Final = "/dev/ttyS1"


class Talk:
    """The guest's end of the conversation; lives as long as `opened`'s block."""

    def __init__(self, port: int, reader: asyncio.StreamReader) -> None:
        self._port = port
        self._reader = reader

    @classmethod
    @asynccontextmanager
    async def opened(cls, path: str = PORT) -> AsyncIterator[Talk]:
        """Open the port, without echo and line editing."""
        port = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        tty.setraw(port)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(port, "rb", buffering=0, closefd=False)
        )
        try:
            yield cls(port, reader)
        finally:
            transport.close()
            os.close(port)

    async def ask(self, **message: str) -> str | None:
        """Ask the host for something; return what stands against it, or None when it is done."""
        self._say(message)
        answer: dict[str, str | None] = json.loads(await self._reader.readline())
        return answer["fault"]

    def tell(self, text: str) -> None:
        """Say what happens now, for people."""
        self._say({"tell": text})

    def row(self, row: dict[str, Any]) -> None:
        """Report how one device fared: the fields of `report.Row`."""
        self._say({"row": row})

    def fault(self, text: str) -> None:
        """Report a claim that does not hold."""
        self._say({"fault": text})

    def end(self) -> None:
        """Say that all stories were played."""
        self._say({"end": True})

    def _say(self, message: dict[str, Any]) -> None:
        # The port does not block: it takes some KiB at once, and QEMU reads as fast as we write.
        content = json.dumps(message).encode() + b"\n"
        while content:
            try:
                content = content[os.write(self._port, content) :]
            except BlockingIOError:
                continue
