"""The file `kubelet_internal_checkpoint`: values ⇄ bytes, with the real kubelet's checksum. Pure.

`null` and an empty list differ here as they do in the checksum, so the values say None where the file says
null. What reads and writes the file is `folder`; what the values mean is `manager`'s.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from devplug.errors import KubeletError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Checkpoint", "CheckpointEntry", "CheckpointError", "checksum", "decode", "encode", "rendering"]

Ids: TypeAlias = "tuple[str, ...] | None"


class CheckpointError(KubeletError):
    """A checkpoint that the kubelet does not take. It starts empty then, and overwrites the file later."""


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """What one container holds of one resource (checkpoint.go PodDevicesEntry)."""

    pod_uid: str
    container_name: str
    resource_name: str
    device_ids: Mapping[int, Ids] | None
    """NUMA node → device IDs; -1 for devices without topology."""
    alloc_resp: bytes | None
    """The ContainerAllocateResponse as protobuf."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything in the file but its checksum (checkpoint.go checkpointData)."""

    entries: tuple[CheckpointEntry, ...] | None
    registered: Mapping[str, Ids] | None
    """Resource name → healthy device IDs. Only the names matter to a reader."""


# ── checksum ──────────────────────────────────────────────────────────────────────────────────────

_FNV_OFFSET = 2166136261
_FNV_PRIME = 16777619


def checksum(checkpoint: Checkpoint) -> int:
    """Return the 32-bit FNV-1a hash of the rendering (checkpointmanager/checksum)."""
    value = _FNV_OFFSET
    for byte in rendering(checkpoint).encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value


def rendering(checkpoint: Checkpoint) -> str:
    """Return the text that the checksum is made of: go-spew's dump of the Go value.

    Nothing is quoted in it, so an ID with spaces or brackets can look like two; that is the real kubelet's.
    """
    entries = _list(checkpoint.entries, _entry)
    registered = _map(checkpoint.registered, str)
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} "
        f"RegisteredDevices:(map[string][]string){registered}}}"
    )


Item = TypeVar("Item")
Key = TypeVar("Key", str, int)


def _entry(entry: CheckpointEntry) -> str:
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
        f"ResourceName:(string){entry.resource_name} "
        f"DeviceIDs:(checkpoint.DevicesPerNUMA){_map(entry.device_ids, str)} "
        f"AllocResp:([]uint8){_list(entry.alloc_resp, str)}}}"
    )


def _list(items: tuple[Item, ...] | bytes | None, text: Callable[..., str]) -> str:
    return "<nil>" if items is None else f"[{' '.join(text(item) for item in items)}]"


def _map(items: Mapping[Key, Ids] | None, text: Callable[[Key], str]) -> str:
    """Render a map with its keys in order: numbers by value, names byte by byte."""
    if items is None:
        return "<nil>"
    return f"map[{' '.join(f'{text(key)}:{_list(items[key], str)}' for key in sorted(items))}]"


# ── writing ───────────────────────────────────────────────────────────────────────────────────────

_HTML: Final = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    },
)
"""What Go's encoding/json escapes beyond the JSON rules."""


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the file's bytes: one line of compact JSON, laid out as the real kubelet lays it out."""
    document = {
        "Data": {
            "PodDeviceEntries": None
            if checkpoint.entries is None
            else [
                {
                    "PodUID": entry.pod_uid,
                    "ContainerName": entry.container_name,
                    "ResourceName": entry.resource_name,
                    "DeviceIDs": _sorted_object(entry.device_ids),
                    "AllocResp": None
                    if entry.alloc_resp is None
                    else base64.b64encode(entry.alloc_resp).decode(),
                }
                for entry in checkpoint.entries
            ],
            "RegisteredDevices": _sorted_object(checkpoint.registered),
        },
        "Checksum": checksum(checkpoint),
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).translate(_HTML).encode()


def _sorted_object(items: Mapping[Key, Ids] | None) -> dict[str, Ids] | None:
    """Sort the keys as strings: Go's JSON puts node 10 before node 2, the checksum does not."""
    return None if items is None else dict(sorted((str(key), ids) for key, ids in items.items()))


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


class _Number(str):
    """A number as it stands in the file."""

    __slots__ = ()


_Pairs: TypeAlias = "list[tuple[str, object]]"


@dataclass(frozen=True, slots=True)
class _Object:
    """An object as it stands in the file: duplicate keys are kept, since Go merges them."""

    pairs: _Pairs

    def fields(self, *names: str) -> list[tuple[str, object]]:
        """Return the pairs that Go would store in a struct with these fields: keys in any case."""
        known = {name.casefold(): name for name in names}
        return [(known[key.casefold()], value) for key, value in self.pairs if key.casefold() in known]


def decode(content: bytes) -> Checkpoint:
    """Return what the file says; raises `CheckpointError`.

    Go's rules of reading JSON hold: keys in any case, unknown ones ignored, the last of two counts, null
    leaves a field empty. The checksum over what was read must match.
    """
    checkpoint, stated = _document(content)
    if checksum(checkpoint) != stated:
        raise CheckpointError("checkpoint is corrupted")
    return checkpoint


def _document(content: bytes) -> tuple[Checkpoint, int]:
    # Go reads each byte that is not UTF-8, and each half of a surrogate pair, as U+FFFD.
    text = content.decode("utf-8", "surrogateescape")
    try:
        document = json.loads(
            re.sub("[\ud800-\udfff]", "\ufffd", text),
            object_pairs_hook=_Object,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot read the checkpoint: {error}") from error
    # Both are empty where the key is missing, and nil only where the file says null: the real kubelet reads
    # into a value made by checkpoint.New.
    entries: tuple[CheckpointEntry, ...] | None = ()
    registered: dict[str, Ids] | None = {}
    stated = 0
    for name, value in _fields(document, "the document", "Data", "Checksum"):
        if name == "Checksum":
            stated = _unsigned(value)
            continue
        for field, content_of_field in _fields(value, "Data", "PodDeviceEntries", "RegisteredDevices"):
            if field == "PodDeviceEntries":
                entries = _items(content_of_field, field, _entry_value)
            else:
                registered = _ids_by_key(content_of_field, field, str, registered)
    return Checkpoint(entries, registered), stated


def _entry_value(value: object) -> CheckpointEntry:
    texts = {"PodUID": "", "ContainerName": "", "ResourceName": ""}
    device_ids: dict[int, Ids] | None = None
    alloc_resp: bytes | None = None
    for name, content in _fields(value, "an entry", *texts, "DeviceIDs", "AllocResp"):
        if name == "DeviceIDs":
            device_ids = _ids_by_key(content, name, _node, device_ids)
        elif name == "AllocResp":
            alloc_resp = _base64(content)
        elif content is not None:
            texts[name] = _text(content, name)
    return CheckpointEntry(
        texts["PodUID"],
        texts["ContainerName"],
        texts["ResourceName"],
        device_ids,
        alloc_resp,
    )


def _fields(value: object, what: str, *names: str) -> list[tuple[str, object]]:
    if value is None:
        return []
    if not isinstance(value, _Object):
        raise CheckpointError(f"cannot read the checkpoint: {what} is not an object")
    return value.fields(*names)


def _items(value: object, what: str, read: Callable[[object], Item]) -> tuple[Item, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise CheckpointError(f"cannot read the checkpoint: {what} is not a list")
    return tuple(read(item) for item in cast("list[object]", value))


def _ids_by_key(
    value: object,
    what: str,
    read_key: Callable[[str], Key],
    before: Mapping[Key, Ids] | None,
) -> dict[Key, Ids] | None:
    if value is None:
        return None
    if not isinstance(value, _Object):
        raise CheckpointError(f"cannot read the checkpoint: {what} is not an object")
    ids = dict(before or {})
    for key, content in value.pairs:
        ids[read_key(key)] = _items(content, what, lambda item: _text(item, "a device ID"))
    return ids


def _text(value: object, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, _Number):
        raise CheckpointError(f"cannot read the checkpoint: {what} is not a string")
    return re.sub("[\ud800-\udfff]", "\ufffd", value)


def _base64(value: object) -> bytes | None:
    if value is None:
        return None
    text = _text(value, "AllocResp").replace("\r", "").replace("\n", "")
    if len(text) % 4:
        raise CheckpointError("cannot read the checkpoint: AllocResp is not base64")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CheckpointError("cannot read the checkpoint: AllocResp is not base64") from error


def _node(key: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", key) or not -(2**63) <= int(key) < 2**63:
        raise CheckpointError(f"cannot read the checkpoint: NUMA node {key!r} is not a number")
    return int(key)


def _unsigned(value: object) -> int:
    if value is None:
        return 0
    if not isinstance(value, _Number) or not re.fullmatch(r"[0-9]+", value) or int(value) >= 2**64:
        raise CheckpointError("cannot read the checkpoint: Checksum is not an unsigned number")
    return int(value)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
