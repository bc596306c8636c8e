"""The file `kubelet_internal_checkpoint`: values ⇄ bytes, with the real kubelet's checksum. Pure.

`null` and an empty list differ here as they do in the checksum, so the values say None where the file says
null. `pluginfolder` reads and writes the file; `allocation` defines what the values mean.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from devplug.errors import KubeletError
from devplug.kubelet.gotext import go_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

Ids: TypeAlias = "tuple[str, ...] | None"

Item = TypeVar("Item")
Key = TypeVar("Key", str, int)


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

_FNV_OFFSET: Final = 2166136261
_FNV_PRIME: Final = 16777619
_FNV_RANGE: Final = 2**32


@dataclass(frozen=True, slots=True)
class _Text:
    """A piece of the rendering, which remembers what it does to a checksum."""

    content: bytes
    _known: dict[int, int] = field(default_factory=dict, repr=False)
    """Checksum below 256 → the one that follows it."""

    def follow(self, value: int) -> int:
        """Return the 32-bit FNV-1a checksum that goes on from `value` with this text."""
        # XOR with a byte changes no more than the lowest byte, and nothing carries down to that: so it alone
        # decides what the text adds, and all above it is only multiplied, once for each byte of the text.
        low = value % 256
        if low not in self._known:
            known = low
            for byte in self.content:
                # Numbers, since names take twice as long, and files are long.
                known = (known ^ byte) * 16777619 & 0xFFFFFFFF
            self._known[low] = known
        return (
            self._known[low] + (value - low) * pow(_FNV_PRIME, len(self.content), _FNV_RANGE)
        ) % _FNV_RANGE


@dataclass(frozen=True, slots=True)
class Part:
    """One entry, or one resource name with its IDs: as it stands in the file, and in the rendering.

    A writer of many checkpoints keeps unchanged parts: making them is most of the work.
    """

    json: str
    text: _Text

    @classmethod
    def of_entry(cls, entry: CheckpointEntry) -> Part:
        """Return the part for one entry."""
        alloc_resp = entry.alloc_resp
        return cls(
            go_json(
                {
                    "PodUID": entry.pod_uid,
                    "ContainerName": entry.container_name,
                    "ResourceName": entry.resource_name,
                    # As text: Go's JSON puts node 10 before node 2, the rendering does not.
                    "DeviceIDs": None
                    if entry.device_ids is None
                    else dict(sorted((str(node), ids) for node, ids in entry.device_ids.items())),
                    "AllocResp": None if alloc_resp is None else base64.b64encode(alloc_resp).decode(),
                },
            ),
            _Text(
                (
                    f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
                    f"ResourceName:(string){entry.resource_name} "
                    f"DeviceIDs:(checkpoint.DevicesPerNUMA){_map(entry.device_ids)} "
                    f"AllocResp:([]uint8){_list(None if alloc_resp is None else map(str, alloc_resp))}}}"
                ).encode(),
            ),
        )

    @classmethod
    def of_ids(cls, name: str, ids: Ids) -> Part:
        """Return the part for one registered name."""
        return cls(f"{go_json(name)}:{go_json(ids)}", _Text(f"{name}:{_list(ids)}".encode()))


def _list(items: Iterable[str] | None) -> str:
    return "<nil>" if items is None else f"[{' '.join(items)}]"


def _map(items: Mapping[int, Ids] | None) -> str:
    return (
        "<nil>"
        if items is None
        else f"map[{' '.join(f'{key}:{_list(items[key])}' for key in sorted(items))}]"
    )


Parts: TypeAlias = "Collection[Part] | None"
"""Entries, or registered names in order; None where the file says null."""


def _parts(checkpoint: Checkpoint) -> tuple[Parts, Parts]:
    entries, registered = checkpoint.entries, checkpoint.registered
    return (
        None if entries is None else [Part.of_entry(entry) for entry in entries],
        None if registered is None else [Part.of_ids(name, registered[name]) for name in sorted(registered)],
    )


_OPENING: Final = _Text(b"(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)")
_MIDDLE: Final = _Text(b" RegisteredDevices:(map[string][]string)")
_CLOSING: Final = _Text(b"}")
_NIL: Final = _Text(b"<nil>")
_LIST: Final = _Text(b"[")
_MAP: Final = _Text(b"map[")
_SPACE: Final = _Text(b" ")
_END: Final = _Text(b"]")


def _texts(entries: Parts, registered: Parts) -> Iterator[_Text]:
    """Yield the rendering in pieces."""
    yield _OPENING
    yield from _spaced(_LIST, entries)
    yield _MIDDLE
    yield from _spaced(_MAP, registered)
    yield _CLOSING


def _spaced(opening: _Text, parts: Parts) -> Iterator[_Text]:
    if parts is None:
        yield _NIL
        return
    yield opening
    for number, part in enumerate(parts):
        if number:
            yield _SPACE
        yield part.text
    yield _END


def _checksum(entries: Parts, registered: Parts) -> int:
    value = _FNV_OFFSET
    for text in _texts(entries, registered):
        value = text.follow(value)
    return value


def checksum(checkpoint: Checkpoint) -> int:
    """Return the 32-bit FNV-1a hash of the rendering (checkpointmanager/checksum)."""
    return _checksum(*_parts(checkpoint))


def rendering(checkpoint: Checkpoint) -> str:
    """Return the text that the checksum is made of: go-spew's dump of the Go value.

    Nothing is quoted in it, so an ID with spaces or brackets can look like two; that is the real kubelet's.
    """
    return b"".join(text.content for text in _texts(*_parts(checkpoint))).decode()


# ── writing ───────────────────────────────────────────────────────────────────────────────────────


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the file's bytes: one line of compact JSON, laid out as the real kubelet lays it out."""
    return assembled(*_parts(checkpoint))


def assembled(entries: Parts, registered: Parts) -> bytes:
    """Return the file's bytes, made of parts."""
    entry_list = "null" if entries is None else f"[{','.join(part.json for part in entries)}]"
    name_map = "null" if registered is None else f"{{{','.join(part.json for part in registered)}}}"
    return (
        f'{{"Data":{{"PodDeviceEntries":{entry_list},"RegisteredDevices":{name_map}}},'
        f'"Checksum":{_checksum(entries, registered)}}}'
    ).encode()


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
    """Return the checkpoint in the file's bytes; raises `CheckpointError`.

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
        for part, content_of_part in _fields(value, "Data", "PodDeviceEntries", "RegisteredDevices"):
            if part == "PodDeviceEntries":
                entries = _items(content_of_part, part, _entry_value)
            else:
                registered = _ids_by_key(content_of_part, part, lambda key: _text(key, "a name"), registered)
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
    if not re.fullmatch(r"[+-]?[0-9]{1,999}", key) or not -(2**63) <= int(key) < 2**63:
        raise CheckpointError(f"cannot read the checkpoint: NUMA node {key!r} is not a number")
    return int(key)


def _unsigned(value: object) -> int:
    if value is None:
        return 0
    if not isinstance(value, _Number) or not re.fullmatch(r"[0-9]{1,20}", value) or int(value) >= 2**64:
        raise CheckpointError("cannot read the checkpoint: Checksum is not an unsigned number")
    return int(value)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
