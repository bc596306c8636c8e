"""The text of the ledger file: what was held, by resource name and ID, for the next process. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from devplug.exchange import PodName
from devplug.holders.values import Holder, Memory, Remembered

if TYPE_CHECKING:
    from devplug.holders.values import Identity

__all__ = ["memory_of", "text_of"]

_VERSION: Final = 1


def text_of(memory: Memory) -> str:
    """Return the text that `memory_of` reads; the same for the same memory."""
    resources: dict[str, dict[str, Any]] = {}
    for (resource_name, device_id), held in sorted(memory.held.items()):
        resources.setdefault(resource_name, {})[device_id] = _entry(held)
    content = {"version": _VERSION, "kubelet": memory.kubelet, "held": resources}
    return json.dumps(content, separators=(",", ":")) + "\n"


def memory_of(text: str) -> Memory:
    """Read such a text; raises `ValueError` for anything that `text_of` has not written."""
    try:
        content = json.loads(text)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']} is not {_VERSION}")
        held = {
            (_text(resource_name), _text(device_id)): _remembered(entry)
            for resource_name, entries in content["held"].items()
            for device_id, entry in entries.items()
        }
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
