"""How it stands with asking the kubelet, as the value that people and monitors see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.status.values import PodResourcesStatus

if TYPE_CHECKING:
    from devplug.holders.holders import Holders

__all__ = ["pod_resources_status"]


def pod_resources_status(holders: Holders) -> PodResourcesStatus:
    """Return what became of asking the kubelet who holds what."""
    return PodResourcesStatus(
        answered_at=holders.answered_at,
        trouble=holders.last_error or "",
        errors={trouble.value: count for trouble, count in sorted(holders.errors.items())},
    )
