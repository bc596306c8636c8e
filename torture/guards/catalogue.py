"""All guards, by what they guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torture.guards import daemon, kubelet, plugin, wire

if TYPE_CHECKING:
    from torture.guards.guard import Guard

__all__ = ["GUARDS"]

GUARDS: Final[tuple[Guard, ...]] = (*plugin.GUARDS, *wire.GUARDS, *kubelet.GUARDS, *daemon.GUARDS)
