"""The guards: the lines that the invariants stand on, by the part that they guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torture.guards import daemon, driver, kubelet, plugin, registration, wire

if TYPE_CHECKING:
    from torture.guards.guard import Guard

__all__ = ["GUARDS"]

GUARDS: Final[tuple[Guard, ...]] = (
    *registration.GUARDS,
    *plugin.GUARDS,
    *wire.GUARDS,
    *kubelet.GUARDS,
    *daemon.GUARDS,
    *driver.GUARDS,
)
