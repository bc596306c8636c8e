"""The text of a ledger file: what was held of one resource, by ID, for the next process. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from devplug.holders.values import Remembered
from devplug.status.values import Holder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.holders.values import Identity, Memory

__all__ = ["memory_of", "text_of"]

_VERSION: Final = 2

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def text_of(resource_name: str, memory: Memory) -> str:
    """Return the text that `memory_of` reads; the same for the same memory."""
    kubelets = sorted({held.kubelet for held in memory.values() if held.kubelet is not None})
    places = {kubelet: place for place, kubelet in enumerate(kubelets)}
    # Entry by entry: one call for all of many thousands would let no other thread run meanwhile, and as
    # many dictionaries at a time would make the collector walk through all there is.
    held = ",".join(
        f"{_encode(device_id)}:{_encode(_entry(memory[device_id], places))}" for device_id in sorted(memory)
    )
    head = {"version": _VERSION, "resource": resource_name, "kubelets": kubelets}
    return f'{_encode(head)[:-1]},"held":{{{held}}}}}\n'


def memory_of(text: str, resource_name: str) -> Memory:
    """Read such a text; raises `ValueError` for anything that `text_of` has not written for this resource."""
    try:
        content = json.loads(text)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']} is not {_VERSION}")
        if content["resource"] != resource_name:
            raise ValueError(f"it is of the resource {content['resource']!r}, not of {resource_name}")
        kubelets = [_kubelet(one) for one in content["kubelets"]]
        return {
            _text(device_id): _remembered(entry, kubelets) for device_id, entry in content["held"].items()
        }
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"not a ledger: {error!r}") from error


def _entry(held: Remembered, places: Mapping[Identity, int]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "holders": [[holder.namespace, holder.pod, holder.container] for holder in held.holders],
    }
    if held.kubelet is not None:
        entry["kubelet"] = places[held.kubelet]
    return entry


def _remembered(entry: Any, kubelets: Sequence[Identity]) -> Remembered:  # noqa: ANN401 -- whatever the file has
    return Remembered(
        tuple(Holder(*(_text(part) for part in holder)) for holder in entry["holders"]),
        kubelets[entry["kubelet"]] if "kubelet" in entry else None,
    )


def _kubelet(value: Any) -> Identity:  # noqa: ANN401 -- whatever the file has
    device, inode, made_at = (int(part) for part in value)
    return device, inode, made_at


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
