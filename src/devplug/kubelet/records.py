"""The device manager's books as a checkpoint, and back. Pure; how a response becomes bytes is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.kubelet.allocation import Assignment, Need
from devplug.kubelet.checkpoint import CheckpointEntry, Part, assembled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devplug.devices import ContainerResponse
    from devplug.kubelet.allocation import Ledger
    from devplug.kubelet.checkpoint import Checkpoint

__all__ = ["Recorder", "assignments_of"]


class Recorder:
    """Makes the checkpoint file of one ledger, again and again. Lives as long as that.

    It keeps the parts of the last file: an admission changes one entry among all those of a node, and no IDs.
    """

    def __init__(self, encode: Callable[[ContainerResponse], bytes]) -> None:
        self._encode = encode
        self._entries: dict[tuple[str, str, str], tuple[Assignment, Part]] = {}
        self._registered: dict[str, tuple[frozenset[str], Part]] = {}

    def content(self, ledger: Ledger) -> bytes:
        """Return what the real kubelet writes at this moment (manager.go writeCheckpoint).

        Without assignments the list is null. A resource is registered once it has a list, with its healthy
        IDs.
        """
        self._entries = {held.key: (held, self._entry(held)) for held in ledger.assignments}
        self._registered = {
            name: (state.healthy, self._ids(name, state.healthy))
            for name, state in sorted(ledger.resources.items())
            if state.healthy is not None
        }
        return assembled(
            [part for _, part in self._entries.values()] or None,
            [part for _, part in self._registered.values()],
        )

    def _entry(self, held: Assignment) -> Part:
        match self._entries.get(held.key):
            case before, part if before is held:
                return part
        response = self._encode(held.allocation.container_response)
        return Part.of_entry(CheckpointEntry(*held.key, held.devices_per_numa, response))

    def _ids(self, resource_name: str, healthy: frozenset[str]) -> Part:
        match self._registered.get(resource_name):
            case before, part if before is healthy:
                return part
        return Part.of_ids(resource_name, tuple(sorted(healthy)))


def assignments_of(
    checkpoint: Checkpoint,
    decode: Callable[[bytes], ContainerResponse | None],
) -> Iterator[Assignment]:
    """Yield the assignments in a checkpoint; one whose response cannot be decoded is left out."""
    for entry in checkpoint.entries or ():
        response = decode(entry.alloc_resp or b"")
        if response is not None:
            need = Need(entry.pod_uid, entry.container_name, entry.resource_name, 0)
            grouped = {node: ids or () for node, ids in (entry.device_ids or {}).items()}
            yield Assignment.of(need, grouped, response)
