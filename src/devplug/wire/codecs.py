"""What every message needs to cross a socket: its descriptor, and the ways between our value and its bytes.

Which messages there are stands in the modules of the APIs: `messages`, `pluginregistration`, `podresources`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from devplug.errors import DevplugError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Codec",
    "Fields",
    "MalformedMessageError",
    "codec",
    "empty_codec",
    "fill_topology",
    "topology_value",
]

Value = TypeVar("Value")

Fields = Any
"""A protobuf message, or one inside another: a class made at run time has no static type."""


class MalformedMessageError(DevplugError):
    """Bytes that are not the message they should be; says nothing about their content."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(f"malformed {message}")


@dataclass(frozen=True, slots=True)
class Codec(Generic[Value]):
    """One message of an API: its name, and the pair of functions between our value and its bytes."""

    message: str
    encode: Callable[[Value], bytes]
    decode: Callable[[bytes], Value]
    """Raises `MalformedMessageError` for bytes that are not this message."""


def _load_pool() -> descriptor_pool.DescriptorPool:
    """Load all .proto texts, compiled into one file, into a pool of our own.

    Nothing there clashes with another package's `v1`, nor depends on the protobuf release that generated
    code.
    """
    pool = descriptor_pool.DescriptorPool()
    compiled = resources.files("devplug.wire").joinpath("protos", "descriptors.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        pool.Add(file)
    return pool


_POOL = _load_pool()


def codec(
    name: str,
    fill: Callable[[Fields, Value], None],
    to_value: Callable[[Fields], Value],
) -> Codec[Value]:
    """Make the codec of the message `name`, with its package; its class is made here and never leaves.

    `fill` writes a value into an empty message.
    """
    message_class: Any = message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))
    short_name = name.rpartition(".")[2]

    def encode(value: Value) -> bytes:
        message = message_class()
        fill(message, value)
        content: bytes = message.SerializeToString(deterministic=True)
        return content

    def decode(content: bytes) -> Value:
        try:
            return to_value(message_class.FromString(content))
        except DecodeError as error:
            raise MalformedMessageError(short_name) from error

    return Codec(short_name, encode, decode)


def empty_codec(name: str) -> Codec[None]:
    """Make the codec of a message without fields."""
    return codec(name, lambda _message, _value: None, lambda _: None)


# ── TopologyInfo, the same in two APIs ────────────────────────────────────────────────────────────


def fill_topology(message: Fields, numa_nodes: tuple[int, ...] | None) -> None:
    """Write the `topology` of a message; None leaves it out, which the kubelet takes for something else."""
    if numa_nodes is not None:
        message.topology.SetInParent()
        for node in numa_nodes:
            message.topology.nodes.add(ID=node)


def topology_value(message: Fields) -> tuple[int, ...] | None:
    """Return the NUMA nodes in the `topology` of a message, None where it has none."""
    return tuple(node.ID for node in message.topology.nodes) if message.HasField("topology") else None
