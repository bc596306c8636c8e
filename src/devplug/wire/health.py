"""The health service of gRPC servers, `grpc.health.v1`: its one call that probes make, over TCP.

Source: the gRPC health checking protocol, and the kubelet's pkg/probe/grpc.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from devplug.errors import RemoteError
from devplug.wire.channel import TcpChannel
from devplug.wire.codecs import codec, number, text
from devplug.wire.deviceplugin import Method
from devplug.wire.limits import KUBELET_RECEIVE_LIMIT_BYTES
from devplug.wire.protobuf import Kind, Layout
from devplug.wire.statuses import RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVING: Final = "SERVING"

_STATUSES: Final = ("UNKNOWN", SERVING, "NOT_SERVING", "SERVICE_UNKNOWN")

CHECK: Final[Method[tuple[str], tuple[int]]] = Method(
    "grpc.health.v1.Health",
    "Check",
    codec(Layout("HealthCheckRequest", (text(1, "service"),), lambda value: value, lambda name: (name,))),
    codec(
        Layout(
            "HealthCheckResponse",
            (number(1, "status", Kind.INT64),),
            lambda value: value,
            lambda status: (status,),
        )
    ),
)


class HealthClient:
    """A connection to a gRPC server that is asked for its health."""

    def __init__(self, channel: TcpChannel) -> None:
        self._channel = channel

    async def ready(self) -> None:
        """Wait until the server speaks HTTP/2, however often that has to be tried."""
        await self._channel.ready()

    async def check(self, service: str) -> str:
        """Return the status of a service; empty stands for the whole server. Raises `RemoteError`."""
        try:
            answer = await self._channel.call(CHECK.path, CHECK.request.encode((service,)), None)
        except RpcError as error:
            raise RemoteError(error.status, error.text) from error
        (status,) = CHECK.response.decode(answer)
        return _STATUSES[status] if 0 <= status < len(_STATUSES) else str(status)


@asynccontextmanager
async def health_client(host: str, port: int) -> AsyncIterator[HealthClient]:
    """Yield a client of the server at an IP address; its connection is closed when the block is left."""
    channel = TcpChannel(host, port, KUBELET_RECEIVE_LIMIT_BYTES)
    try:
        yield HealthClient(channel)
    finally:
        await channel.close()
