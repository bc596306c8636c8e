"""The settings of one kubelet, as one value."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from devplug.kubelet.topology import NodeHardware, TopologySettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["FIRST_PODS_SECONDS", "ClaimSource", "KubeletSettings", "SliceRemover"]

FIRST_PODS_SECONDS: Final = 0.47
"""The shortest time from the start of a kubelet 1.36.2 to its first admission of pods; 0.91 s was the longest
(11 restarts on a live node)."""


class ClaimSource(Protocol):
    """What has the ResourceClaims of the cluster."""

    async def get_claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return an object of resource.k8s.io/v1; raises `KubeletError` with the API server's text."""


class SliceRemover(Protocol):
    """What removes the ResourceSlices of this node."""

    async def remove_slices(self, driver: str | None) -> None:
        """Remove those of one driver, or all; raises `KubeletError` if that has to be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """Settings of one emulated kubelet; the defaults are the real one's."""

    clock: Callable[[], float] = time.monotonic
    """Returns seconds and never goes back. All that the kubelet measures is read from it: grace period,
    backoff, rate limit, the times of changes; what it waits for on a socket is not."""
    compat: bool = True
    """Whether the flaws of 1.36 that plugins meet are there: the end of an old stream disconnects a newer
    plugin, and what crashes the real kubelet raises `KubeletCrashError` and stops this one."""
    machine: NodeHardware = field(default_factory=NodeHardware)
    topology: TopologySettings = field(default_factory=TopologySettings)
    dial_timeout_seconds: float = 10.0
    """How long a plugin that registers may take to be reachable (client.go dial)."""
    info_timeout_seconds: float = 1.0
    """How long GetInfo of a plugin in `plugins_registry` may take (operation_generator.go)."""
    notify_timeout_seconds: float = 5.0
    """How long NotifyRegistrationStatus may take (operation_generator.go)."""
    pre_start_timeout_seconds: float = 30.0
    """How long PreStartContainer may take (deviceplugin/v1beta1/constants.go)."""
    plugins_registry: Path | None = None
    """Folder in which plugins are found by their sockets, `plugins_registry` beside the plugin folder on a
    node; None: not watched."""
    reconcile_period_seconds: float = 1.0
    """How often that folder's changes are acted upon (plugin_manager.go)."""
    pod_resources_socket: Path | None = None
    """The socket for monitors, `pod-resources/kubelet.sock` on a node; None: not served."""
    pod_resources_without: frozenset[Literal["get", "allocatable"]] = frozenset()
    """Calls that older kubelets do not have: `get`, `allocatable`."""
    claims: ClaimSource | None = None
    """Where the claims of pods are read before their drivers prepare them; None: there are no claims."""
    slices: SliceRemover | None = None
    """What removes the slices of DRA drivers that are away; None: nobody does."""
