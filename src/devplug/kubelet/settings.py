"""What of a kubelet can be set, handed on as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KubeletSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """Settings of one emulated kubelet; `Kubelet` declares the defaults, which are the real one's."""

    clock: Callable[[], float]
    """Returns seconds and never goes back; the grace period and the times of changes are read from it."""
    compat: bool
    """Whether the flaws of 1.36 that plugins meet are there: the end of an old stream disconnects a newer
    plugin, and what crashes the real kubelet raises `KubeletCrashError` and stops this one."""
    dial_timeout_seconds: float
    """How long a plugin that registers may take to be reachable, really 10 s (client.go dial)."""
    pre_start_timeout_seconds: float
    """How long PreStartContainer may take, really 30 s (deviceplugin/v1beta1/constants.go)."""
