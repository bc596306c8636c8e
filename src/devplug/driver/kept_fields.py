"""Which fields of devices the API server keeps: those of gates that are off vanish silently (dra.md D49)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.driver.device_entries import QUESTIONS
from devplug.driver.device_names import slice_name
from devplug.driver.slices import StoredSlice, Write, content_of, lost_fields
from devplug.k8s.client import resource_slices
from devplug.k8s.errors import InvalidError

if TYPE_CHECKING:
    from devplug.driver.pool_entries import LogOnce
    from devplug.driver.slices import Pool
    from devplug.k8s.client import ApiServer

__all__ = ["KeptFields"]

NEVER_STORED: Final = 0xFFFF
"""The number of the slice by which the API server is asked what it knows: more than any pool has."""


class KeptFields:
    """The fields that were asked for since the connection, by slices that are looked at and not stored.

    `rights` names those that this needs, in errors.
    """

    def __init__(self, rights: str, log_once: LogOnce) -> None:
        self._rights = rights
        self._log_once = log_once
        self._are_kept: dict[str, bool] = {}

    def are_known_to_have(self, field: str) -> bool:
        """Whether the API server was asked for a field, and keeps it."""
        return self._are_kept.get(field, False)

    def forget(self) -> None:
        """Ask anew: it is another connection."""
        self._are_kept.clear()

    async def have(self, server: ApiServer, version: str, pool: Pool, field: str) -> bool:
        """Ask for a field, once a connection. Raises `ClusterError`.

        Stored without the field, a device with shares would be one that the first claim has alone.
        """
        if field not in self._are_kept:
            example, feature, consequence = QUESTIONS[field]
            name = slice_name(pool.driver, pool.node_name, NEVER_STORED)
            content = content_of(Write("create", name, 1, 1, (example,)), pool, version)
            try:
                made = await server.create_dry_run(resource_slices(version), content, rights=self._rights)
                self._are_kept[field] = not lost_fields([example], StoredSlice.of(made, version).devices)
            except InvalidError:  # before 1.35 counter sets were in the slice of their devices
                self._are_kept[field] = False
            if not self._are_kept[field]:
                message = "the API server does not keep a field of devices; " + consequence
                self._log_once(message, field=field, feature_gate=feature)
        return self._are_kept[field]
