"""What all resources of one daemon share: the host, who has which hardware, who holds which device."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devplug.daemon.overlaps import Overlaps
from devplug.daemon.sources.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.daemon.cdifiles import CdiFolder
    from devplug.holders.holders import Holders

__all__ = ["Machine"]


@dataclass(slots=True)
class Machine:
    """One per daemon; lives as long as that."""

    host: Host = field(default_factory=Host)
    clock: Callable[[], float] = time.monotonic
    """Seconds of a clock that never goes back."""
    overlaps: Overlaps = field(default_factory=Overlaps)
    holders: Holders | None = None
    """Who tells which devices are held; None where nobody can, as without the kubelet's monitoring socket."""
    cdi: CdiFolder | None = None
    """Where specs of ours go; None if no resource has `strategy: cdi`."""
