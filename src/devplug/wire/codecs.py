"""The codecs of messages: each has a layout, and functions from our value to its bytes and back. Pure.

The messages stand in the modules of the APIs: `deviceplugin`, `pluginregistration`, `podresources`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec import Struct

from devplug.errors import DevplugError
from devplug.wire import protobuf
from devplug.wire.limits import ELEMENTS_LIMIT
from devplug.wire.protobuf import Field, Kind, Layout
from devplug.wire.wireformat import MalformedError, TooManyElementsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Value = TypeVar("Value")


class MessageTooLargeError(DevplugError):
    """A message with more elements than its reader accepts."""

    def __init__(self, message: str, limit: int) -> None:
        super().__init__(f"{message} has more than {limit} elements, which is the limit")


class MalformedMessageError(DevplugError):
    """The bytes are not a message of this type; the text has nothing of their content."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(f"malformed {message}")


class Codec(Struct, Generic[Value], frozen=True):
    """One message of an API: its name, and the pair of functions between our value and its bytes."""

    message: str
    encode: Callable[[Value], bytes]
    read: Callable[[bytes, int], Value]
    """Takes the bytes and the most elements."""

    def decode(self, content: bytes, elements: int = ELEMENTS_LIMIT) -> Value:
        """Return the value of a message with at most so many elements.

        Raises `MalformedMessageError` and `MessageTooLargeError`.
        """
        try:
            return self.read(content, elements)
        except MalformedError as error:
            raise MalformedMessageError(self.message) from error
        except TooManyElementsError:
            failure = MessageTooLargeError(self.message, elements)
        # Not where it was caught: its traceback would keep all that was read.
        raise failure


class Encoded(Struct, frozen=True):
    """An answer that is encoded already, because encoding it at once may take too long."""

    content: bytes


def codec(
    layout: Layout[Value],
    encode: Callable[[Value], bytes] | None = None,
    read: Callable[[bytes, int], Value] | None = None,
) -> Codec[Value]:
    """Make the codec of a layout; `encode` and `read` are faster functions with the same results."""
    return Codec(
        layout.name,
        encode or partial(protobuf.encode, layout),
        read or partial(protobuf.decode, layout),
    )


def empty_codec(name: str) -> Codec[None]:
    """Make the codec of a message without fields."""
    return codec(Layout(name, (), lambda _: (), lambda: None))


# ── fields, in the words of .proto ────────────────────────────────────────────────────────────────


def text(number: int, name: str, *, is_optional: bool = False) -> Field:
    """Return a `string`."""
    return Field(number, name, is_optional=is_optional)


def texts(number: int, name: str) -> Field:
    """Return a `repeated string`."""
    return Field(number, name, is_repeated=True)


def flag(number: int, name: str) -> Field:
    """Return a `bool`."""
    return Field(number, name, Kind.BOOL)


def number(number: int, name: str, kind: Kind, *, is_repeated: bool = False) -> Field:
    """Return a number of some kind."""
    return Field(number, name, kind, is_repeated=is_repeated)


def one(number: int, name: str, layout: Layout[Any]) -> Field:
    """Return a message inside another."""
    return Field(number, name, Kind.MESSAGE, layout)


def many(number: int, name: str, layout: Layout[Any]) -> Field:
    """Return a `repeated` message."""
    return Field(number, name, Kind.MESSAGE, layout, is_repeated=True)


def pairs(number: int, name: str) -> Field:
    """Return a `map<string, string>`."""
    return Field(number, name, Kind.MAP)


# ── messages that are the same in two APIs ────────────────────────────────────────────────────────


def names(layout: str, field: Field) -> Layout[str]:
    """Return a message of one text, which is a text to us."""
    return Layout(layout, (field,), lambda name: (name,), lambda name: name)


_NUMA_NODE: Final[Layout[int]] = Layout(
    "NUMANode", (number(1, "ID", Kind.INT64),), lambda node: (node,), lambda node: node
)

TOPOLOGY: Final[Layout[Sequence[int]]] = Layout(
    "TopologyInfo", (many(1, "nodes", _NUMA_NODE),), lambda nodes: (nodes,), tuple
)
"""The NUMA nodes of a device; None if the message is missing, which for the kubelet differs from an empty
one."""
