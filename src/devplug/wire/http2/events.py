"""The events of a connection: values that say what the other end did."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

Field: TypeAlias = tuple[bytes, bytes]
"""The name and value of a header."""


class SettingsReceived(Struct, frozen=True):
    """The other end has sent SETTINGS: its first, or others."""


class HeadersReceived(Struct, frozen=True):
    """For a server, the header fields of a request; for a client, those of the final response."""

    stream_id: int
    fields: tuple[Field, ...]


class DataReceived(Struct, frozen=True):
    """A piece of content. Its reader has to call `Connection.give_back(stream_id, size)`."""

    stream_id: int
    content: bytes
    size: int


class TrailersReceived(Struct, frozen=True):
    """The header fields after the content, with which the stream ends."""

    stream_id: int
    fields: tuple[Field, ...]


class StreamEnded(Struct, frozen=True):
    """The other end has ended its side of a stream."""

    stream_id: int


class StreamReset(Struct, frozen=True):
    """A stream was reset, by the other end or here because of an error of the other end."""

    stream_id: int
    code: int
    why: str
    """The error that was found here; empty if the other end reset the stream."""


class GoAwayReceived(Struct, frozen=True):
    """The other end accepts no more streams, and has ignored those after `last_stream_id`."""

    last_stream_id: int
    code: int
    text: str


class ConnectionEnded(Struct, frozen=True):
    """The connection ends because of an error of the other end; a GOAWAY that says so is still to be sent."""

    code: int
    why: str


Event: TypeAlias = (
    SettingsReceived
    | HeadersReceived
    | DataReceived
    | TrailersReceived
    | StreamEnded
    | StreamReset
    | GoAwayReceived
    | ConnectionEnded
)
