"""The slices that the API server has, as far as was heard: lists, changes and answers to writes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.driver.device_entries import RESOURCE_ATTRIBUTE
from devplug.driver.device_names import resource_value
from devplug.k8s.objects import text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from devplug.driver.slices import StoredSlice

__all__ = ["StoredSlices"]


class StoredSlices:
    """What the API server has, by what was heard of it: lists, changes, and answers to writes, in any order.

    A slice that was written has the devices that were written, whatever the API server kept of them.
    """

    def __init__(self) -> None:
        self._known: dict[str, StoredSlice] = {}
        self._gone: dict[str, str] = {}
        """The version at which a slice was deleted, by its name: an answer may come after that."""

    def __len__(self) -> int:
        return len(self._known)

    def all(self) -> Collection[StoredSlice]:
        """Return the slices."""
        return self._known.values()

    def names_of(self, resource_name: str) -> frozenset[str]:
        """Return the names of the devices of a resource."""
        value = resource_value(resource_name)
        return frozenset(
            text(one, "name")
            for stored in self._known.values()
            for one in stored.devices
            if text(one, "attributes", RESOURCE_ATTRIBUTE, "string") == value
        )

    def take_list(self, found: Iterable[StoredSlice]) -> None:
        """Take all that there are."""
        known, self._known, self._gone = self._known, {}, {}
        for one in found:
            old = known.get(one.name)
            is_same = old is not None and (old.uid, old.version) == (one.uid, one.version)
            self._known[one.name] = old if old is not None and is_same else one

    def take_change(self, one: StoredSlice, *, is_deleted: bool) -> bool:
        """Take one that was changed or deleted; return whether it was news."""
        known = self._known.get(one.name)
        if known is not None and not _is_newer(one.version, known.version):
            return False
        if not is_deleted:
            self._known[one.name] = one
            return True
        self._gone[one.name] = one.version
        return self._known.pop(one.name, None) is not None

    def take_written(self, one: StoredSlice) -> None:
        """Take the answer to a write."""
        known = self._known.get(one.name)
        heard = self._gone.get(one.name) if known is None else known.version
        if heard is None or _is_newer(one.version, heard) or not _is_newer(heard, one.version):
            self._known[one.name] = one

    def take_absence(self, name: str) -> None:
        """Take that there is none of this name."""
        self._known.pop(name, None)


def _is_newer(version: str, known: str) -> bool:
    """Whether one `resourceVersion` comes after another; both are numbers on all servers that there are."""
    if version.isdecimal() and known.isdecimal():
        return int(version) > int(known)
    return version != known


# ── in place ──
