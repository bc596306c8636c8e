"""The text of a ledger file: what was held of one resource, by ID, for the next process. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from devplug.exchange import PodName
from devplug.holders.values import Memory, Remembered
from devplug.status.values import Holder

if TYPE_CHECKING:
    from devplug.holders.values import Identity

__all__ = ["memory_of", "text_of"]

_VERSION: Final = 1

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def text_of(resource_name: str, memory: Memory) -> str:
    """Return the text that `memory_of` reads; the same for the same memory."""
    # Entry by entry: one call for all of many thousands would let no other thread run meanwhile, and as
    # many dictionaries at a time would make the collector walk through all there is.
    held = ",".join(
        f"{_encode(device_id)}:{_encode(_entry(memory.held[device_id]))}" for device_id in sorted(memory.held)
    )
    head = {"version": _VERSION, "resource": resource_name, "kubelet": memory.kubelet}
    return f'{_encode(head)[:-1]},"held":{{{held}}}}}\n'


def memory_of(text: str, resource_name: str) -> Memory:
    """Read such a text; raises `ValueError` for anything that `text_of` has not written for this resource."""
    try:
        content = json.loads(text)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']} is not {_VERSION}")
        if content["resource"] != resource_name:
            raise ValueError(f"it is of the resource {content['resource']!r}, not of {resource_name}")
        held = {_text(device_id): _remembered(entry) for device_id, entry in content["held"].items()}
        return Memory(_kubelet(content["kubelet"]), held)
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(f"not a ledger: {error!r}") from error


def _entry(held: Remembered) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "holders": [[holder.namespace, holder.pod, holder.container] for holder in held.holders],
    }
    if not held.is_listed:
        entry["unlisted"] = True
    if held.suspects is not None:
        entry["suspects"] = sorted([pod.namespace, pod.name] for pod in held.suspects)
    return entry


def _remembered(entry: Any) -> Remembered:  # noqa: ANN401 -- whatever the file has
    suspects = entry.get("suspects")
    return Remembered(
        tuple(Holder(*(_text(part) for part in holder)) for holder in entry["holders"]),
        not entry.get("unlisted", False),
        None
        if suspects is None
        else frozenset(PodName(_text(name), _text(space)) for space, name in suspects),
    )


def _kubelet(value: Any) -> Identity | None:  # noqa: ANN401 -- whatever the file has
    if value is None:
        return None
    device, inode, made_at = (int(part) for part in value)
    return device, inode, made_at


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
