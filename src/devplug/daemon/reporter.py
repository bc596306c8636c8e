"""The reporter: status, metrics and readiness of the daemon, made from what their owners know."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from devplug import __version__
from devplug.daemon.device_list import Knowledge, described, device_statuses, merged
from devplug.holds.claim_holders import claim_holds, with_claim_holders
from devplug.holds.decide import Face
from devplug.holds.holders import pod_resources_status
from devplug.metrics import catalogue
from devplug.metrics.devices import pod_resources_families
from devplug.metrics.families import Family
from devplug.metrics.probes import Probes
from devplug.plugin.probes import serving_families, status_of
from devplug.plugin.status import device_statuses as said_by_themselves
from devplug.status import grouped_faults, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.daemon.config_file import ConfigFile
    from devplug.daemon.daemon import Daemon
    from devplug.daemon.resource import ConfiguredPlugin
    from devplug.holds.holders import Holders
    from devplug.plugin.inventory import Inventory
    from devplug.plugin.serving import Serving
    from devplug.plugin.snapshot import Snapshot
    from devplug.plugin.status import Describe
    from devplug.status import ConfigStatus, DeviceStatus, ProcessStatus


class Reporter:
    """Says how the daemon is whenever somebody asks; lives as long as that, and changes nothing."""

    def __init__(
        self, serving: Serving, daemon: Daemon, holders: Holders | None, config_file: ConfigFile | None
    ) -> None:
        self._serving = serving
        self._daemon = daemon
        self._holders = holders
        self._config_file = config_file
        self._made: dict[Face, tuple[Snapshot, Knowledge, tuple[DeviceStatus, ...]]] = {}

    def probes(self) -> Probes:
        """Return the pages about the daemon."""
        return Probes(
            status=lambda: text_of(self.status()),
            faults=self._faults,
            notes=self._notes,
            families=self._families,
            notifier=self._serving.notifier,
        )

    def status(self) -> ProcessStatus:
        """Return how the daemon is at this moment."""
        plugins = self._daemon.faces
        known = {face: self._knowledge(plugin) for face, plugin in plugins.items()}
        self._made = {face: made for face, made in self._made.items() if face in known}

        def describe_of(face: Face) -> Describe:
            # Between two steps of a reload a plugin may be served that the daemon does not have.
            return partial(self._devices, plugins[face], known[face]) if face in known else said_by_themselves

        holds = [*claim_holds(self._holders.pods)] if self._holders else []
        resources = merged(
            with_claim_holders(described(one, known[face]) if face in known else one, holds)
            for one in self._serving.statuses(describe_of)
            for face in [Face(one.name, one.driver)]
        )
        return replace(
            status_of(resources, __version__, self._serving.drivers.statuses()),
            config=self._config_status(),
            pod_resources=None if self._holders is None else pod_resources_status(self._holders),
        )

    def _devices(
        self, plugin: ConfiguredPlugin, knowledge: Knowledge, inventory: Inventory
    ) -> tuple[DeviceStatus, ...]:
        """Return the statuses of a resource's devices: those of last time, if all is as it was."""
        face = plugin.face
        snapshot, made = inventory.snapshot, self._made.get(face)
        if made is None or made[0] is not snapshot or not made[1].is_same_as(knowledge):
            statuses = device_statuses(snapshot.devices.values(), inventory.since, knowledge)
            made = self._made[face] = snapshot, knowledge, statuses
        return made[2]

    def _knowledge(self, plugin: ConfiguredPlugin) -> Knowledge:
        holders, resource = self._holders, plugin.resource
        return Knowledge(
            resource,
            plugin.listing.known,
            {
                device_id: tuple(holders.ledger.holders_of(resource.name, device_id)) if holders else ()
                for device_id in plugin.held.held_ids()
            },
            time.time() - plugin.context.clock(),
            is_retired=plugin.is_retired,
            is_waiting=plugin.is_waiting,
            answered=plugin.answered,
        )

    def _faults(self) -> tuple[str, ...]:
        waiting = {face.resource_name for face, one in self._daemon.faces.items() if one.is_waiting}
        return grouped_faults(
            (name, fault) for name, fault in self._serving.faults().items() if name not in waiting
        )

    def _config_status(self) -> ConfigStatus | None:
        if self._config_file is None:
            return None
        status = self._config_file.status
        unserved = tuple(f"{name}: {why}" for name, why in sorted(self._daemon.unserved.items()))
        waiting = tuple(
            f"resource {name}: the new configuration is being checked; the old one answers"
            for name in self._daemon.checking
        )
        return replace(status, problems=(*status.problems, *unserved), waiting=waiting)

    def _notes(self) -> tuple[str, ...]:
        config = self._config_status()
        return () if config is None else (*config.problems, *config.waiting)

    def _families(self) -> Iterator[Family]:
        status = self.status()
        serving = self._serving
        yield from serving_families(status, serving.counters, serving.streams, serving.drivers.counters)
        if self._config_file is not None:
            yield Family(catalogue.CONFIG_RELOADS, self._config_file.reloads.samples())
        if (holders := self._holders) is not None:
            asked = pod_resources_status(holders)
            # While nobody needs to know, an old answer is nothing to be alarmed about.
            asked = asked if holders.is_asking else replace(asked, answered_at=None)
            yield from pod_resources_families(asked, time.time())
