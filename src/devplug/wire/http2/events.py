"""The events of a connection: what the other end did, as values, and all that a user needs to know of it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = [
    "ConnectionEnded",
    "DataReceived",
    "Event",
    "Field",
    "GoAwayReceived",
    "HeadersReceived",
    "SettingsReceived",
    "StreamEnded",
    "StreamReset",
    "TrailersReceived",
]

Field: TypeAlias = tuple[bytes, bytes]
"""The name and value of a header."""


class SettingsReceived(NamedTuple):
    """The other end has spoken HTTP/2, or changed what it takes."""


class HeadersReceived(NamedTuple):
    """A request for a server, the final head of an answer for a client."""

    stream_id: int
    fields: tuple[Field, ...]


class DataReceived(NamedTuple):
    """A piece of content. Whoever has read it says so with `Connection.give_back(stream_id, size)`."""

    stream_id: int
    content: bytes
    size: int


class TrailersReceived(NamedTuple):
    """Fields after the content; the stream ends with them."""

    stream_id: int
    fields: tuple[Field, ...]


class StreamEnded(NamedTuple):
    """The other end has said all that it has to say on a stream."""

    stream_id: int


class StreamReset(NamedTuple):
    """A stream is over before its end, by the other end or for a fault of it."""

    stream_id: int
    code: int
    why: str
    """What was wrong, if it was found here; empty if the other end reset it."""


class GoAwayReceived(NamedTuple):
    """The other end takes no more streams, and has done nothing for those after `last_stream_id`."""

    last_stream_id: int
    code: int
    text: str


class ConnectionEnded(NamedTuple):
    """The connection is over for a fault of the other end; what is still to be sent tells it so."""

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
