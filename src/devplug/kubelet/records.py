"""The device manager's books as a checkpoint, and back. Pure; how a response becomes bytes is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.kubelet.allocation import Assignment, Claim
from devplug.kubelet.checkpoint import Checkpoint, CheckpointEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devplug.devices import ContainerResponse
    from devplug.kubelet.allocation import Ledger

__all__ = ["assignments_of", "checkpoint_of"]


def checkpoint_of(ledger: Ledger, encode: Callable[[ContainerResponse], bytes]) -> Checkpoint:
    """Return what the real kubelet writes at this moment (manager.go writeCheckpoint).

    Without assignments the list is null. A resource is registered once it has a list, with its healthy IDs.
    """
    entries = tuple(
        CheckpointEntry(*held.key, held.devices_per_numa, encode(held.allocation.container_response))
        for held in ledger.assignments
    )
    registered = {
        name: tuple(sorted(state.healthy))
        for name, state in ledger.resources.items()
        if state.healthy is not None
    }
    return Checkpoint(entries or None, registered)


def assignments_of(
    checkpoint: Checkpoint,
    decode: Callable[[bytes], ContainerResponse | None],
) -> Iterator[Assignment]:
    """Yield the assignments in a checkpoint; one whose response cannot be decoded is left out."""
    for entry in checkpoint.entries or ():
        response = decode(entry.alloc_resp or b"")
        if response is not None:
            claim = Claim(entry.pod_uid, entry.container_name, entry.resource_name, 0)
            grouped = {node: ids or () for node, ids in (entry.device_ids or {}).items()}
            yield Assignment.of(claim, grouped, response)
