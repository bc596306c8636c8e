"""A small model of a node's device plugins: which devices count, after whatever happened."""

from __future__ import annotations

from dataclasses import dataclass, field

from devplug.devices import HEALTHY
from tests.kubelet.fakes import Devices

GRACE_SECONDS = 300.0

NOTHING: frozenset[str] = frozenset()


@dataclass(eq=False)
class Connection:
    """What one successful registration made: a stream of lists from one plugin."""

    plugin_name: str


@dataclass
class Resource:
    """One resource name since the kubelet's start."""

    healthy: frozenset[str] = NOTHING
    unhealthy: frozenset[str] = NOTHING
    streams: list[Connection] = field(default_factory=list)
    """The open ones, also of plugins that a newer one has replaced: their lists still count."""
    newest: Connection | None = None
    """Whose plugin the kubelet finds by the name."""
    lost_at: float | None = 0.0
    """When its plugin was lost; None as long as there is one."""
    is_forgotten: bool = False
    """Whether its grace period was over when the node's status was written, and no list came since."""


@dataclass
class Model:
    """All resource names that plugins have ever served on a node. With `compat`, as 1.36 has it."""

    compat: bool
    resources: dict[str, Resource] = field(default_factory=dict)

    # ── what happens ──

    def registered(self, resource_name: str, plugin_name: str) -> None:
        """A plugin was taken on; the streams of the plugins before it stay open."""
        resource = self.resources.setdefault(resource_name, Resource())
        resource.newest = Connection(plugin_name)
        resource.streams.append(resource.newest)
        resource.lost_at = None

    def refused(self, resource_name: str) -> None:
        """A plugin tried to register and could not be reached: 1.36 then knows nobody of that name."""
        if self.compat and resource_name in self.resources:
            self.resources[resource_name].newest = None

    def listed(self, resource_name: str, devices: Devices) -> None:
        """A list came, on whichever stream: it is the whole truth."""
        resource = self.resources[resource_name]
        resource.healthy = frozenset(device.id for device in devices if device.health == HEALTHY)
        resource.unhealthy = frozenset(device.id for device in devices if device.health != HEALTHY)
        resource.is_forgotten = False

    def ended(self, resource_name: str, plugin_name: str, now: float) -> int:
        """All streams of a plugin have ended; return how many ended, those that were cut included."""
        resource = self.resources[resource_name]
        before = len(resource.streams)
        mine = [stream for stream in resource.streams if stream.plugin_name == plugin_name]
        resource.streams = [stream for stream in resource.streams if stream not in mine]
        if mine and (self.compat or resource.newest in mine):
            self._lose(resource, now)
        return before - len(resource.streams)

    def cut(self, resource_name: str, now: float) -> int:
        """The kubelet has lost its connection to the newest plugin; return how many streams ended."""
        resource = self.resources[resource_name]
        before = len(resource.streams)
        self._lose(resource, now)
        return before - len(resource.streams)

    def restarted(self, now: float) -> None:
        """The kubelet has come back: it knows the names from its checkpoint, and no devices."""
        for name, resource in self.resources.items():
            self.resources[name] = Resource(lost_at=now, is_forgotten=resource.is_forgotten)

    def updated(self, now: float) -> list[str]:
        """The node's status was written; return the names that it forgot."""
        expired = [
            name
            for name, resource in self.resources.items()
            if not resource.is_forgotten and self._is_expired(resource, now)
        ]
        for name in expired:
            self.resources[name].is_forgotten = True
        return expired

    def _lose(self, resource: Resource, now: float) -> None:
        if resource.newest is not None:
            resource.streams = [stream for stream in resource.streams if stream is not resource.newest]
            resource.newest = None
            resource.unhealthy |= resource.healthy
            resource.healthy = NOTHING
            resource.lost_at = now

    # ── what follows ──

    def streams_of(self, plugin_name: str) -> int:
        return sum(
            stream.plugin_name == plugin_name
            for resource in self.resources.values()
            for stream in resource.streams
        )

    def capacity(self, now: float) -> dict[str, int]:
        return {
            name: len(resource.healthy) + len(resource.unhealthy) if self._is_here(resource, now) else 0
            for name, resource in sorted(self.resources.items())
        }

    def allocatable(self, now: float) -> dict[str, int]:
        return {
            name: len(resource.healthy) if self._is_here(resource, now) else 0
            for name, resource in sorted(self.resources.items())
        }

    def _is_here(self, resource: Resource, now: float) -> bool:
        return not resource.is_forgotten and not self._is_expired(resource, now)

    @staticmethod
    def _is_expired(resource: Resource, now: float) -> bool:
        return resource.lost_at is not None and now - resource.lost_at > GRACE_SECONDS
