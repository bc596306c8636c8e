"""A process's status as the JSON that its status socket serves, and back."""

from __future__ import annotations

from typing import Final

import msgspec

from devplug.status.values import NodeStatus, ProcessStatus

__all__ = ["node_value", "process_of", "text_of"]

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(ProcessStatus).decode


def text_of(status: ProcessStatus | NodeStatus) -> bytes:
    """Return a status as one line of JSON, its keys named as the fields are."""
    return _encode(status)


def process_of(text: bytes) -> ProcessStatus:
    """Read what `text_of` wrote, of this version or a later one; raises `ValueError` for anything else."""
    return _decode(text)


def node_value(status: NodeStatus) -> dict[str, object]:
    """Return a status in values that JSON and YAML have, for programs that read it."""
    value: dict[str, object] = msgspec.to_builtins(status)
    return value
