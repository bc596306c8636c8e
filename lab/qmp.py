"""How hardware is plugged and unplugged from outside: QEMU's machine protocol, one command after another.

The messages are those of QEMU's docs/interop/qmp-spec.rst.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Mapping

__all__ = ["Qmp", "QmpError"]


class QmpError(Exception):
    """QEMU refused a command; the text is QEMU's."""


class Qmp:
    """A conversation with one QEMU; lives as long as the connection, which its opener closes.

    One caller at a time.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._events: list[dict[str, Any]] = []

    @classmethod
    @asynccontextmanager
    async def on(cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[Qmp]:
        """Open the conversation on a connection that QEMU made."""
        qmp = cls(reader, writer)
        try:
            await qmp._read()
            await qmp.execute("qmp_capabilities")
            yield qmp
        finally:
            writer.close()

    async def execute(self, command: str, arguments: Mapping[str, Any] | None = None) -> object:
        """Run a command and return its result. Raises `QmpError`, and `EOFError` if QEMU ends."""
        self._writer.write(
            json.dumps({"execute": command, "arguments": dict(arguments or {})}).encode() + b"\n"
        )
        await self._writer.drain()
        while True:
            answer = await self._read()
            if "event" in answer:
                self._events.append(answer)
            elif "error" in answer:
                raise QmpError(str(answer["error"]["desc"]))
            else:
                result: object = answer["return"]
                return result

    async def wait_deleted(self, device_id: str) -> None:
        """Return when a device is gone that was to be removed. Raises `QmpError` if the guest refuses."""
        while True:
            event = self._events.pop(0) if self._events else await self._read()
            # Of a device with parts, those are told of by path alone.
            if event.get("data", {}).get("device") != device_id:
                continue
            if event["event"] == "DEVICE_DELETED":
                return
            if event["event"] in {"DEVICE_UNPLUG_GUEST_ERROR", "MEM_UNPLUG_ERROR"}:
                raise QmpError(f"the guest does not let go of {device_id}")

    async def _read(self) -> dict[str, Any]:
        line = await self._reader.readline()
        if not line:
            raise EOFError("QEMU has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer
