"""An echo server in plain Python: it answers so many bytes for each so many that come, and does no more.

`python -m bench.echo SOCKET REQUEST_BYTES ANSWER_BYTES`; it says when it listens. It imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import sys


class Echo(asyncio.Protocol):
    """One connection to it."""

    def __init__(self, request_bytes: int, answer: bytes) -> None:
        self._request_bytes = request_bytes
        self._answer = answer
        self._held = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, content: bytes) -> None:
        count, self._held = divmod(self._held + len(content), self._request_bytes)
        if count and self._transport is not None:
            self._transport.write(self._answer * count)


async def main(path: str, request_bytes: int, answer_bytes: int) -> None:
    """Answer until killed."""
    answer = bytes(answer_bytes)
    server = await asyncio.get_running_loop().create_unix_server(lambda: Echo(request_bytes, answer), path)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
