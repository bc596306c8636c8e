"""What the daemon tells of itself: status, metrics and readiness, made from what their owners know."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from devplug.daemon.describing import Knowledge, described, waits_for_devices
from devplug.metrics import catalogue
from devplug.metrics.devices import pod_resources_families
from devplug.metrics.families import Family
from devplug.plugin.pages import faults_of, process_status, serving_families
from devplug.probes import Probes
from devplug.status.text import text_of
from devplug.status.values import PodResourcesStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.daemon.configfile import ConfigFile
    from devplug.daemon.daemon import Daemon
    from devplug.holders.holders import Holders
    from devplug.plugin.serving import Serving
    from devplug.status.values import ConfigStatus, ProcessStatus, ResourceStatus

__all__ = ["Reporter", "pod_resources_status"]


def pod_resources_status(holders: Holders) -> PodResourcesStatus:
    """Return how it stands with the kubelet's PodResources."""
    age_seconds = holders.age_seconds
    return PodResourcesStatus(
        answered_at=None if age_seconds is None else time.time() - age_seconds,
        trouble=holders.last_error or "",
        errors={trouble.value: count for trouble, count in sorted(holders.errors.items())},
    )


class Reporter:
    """Says how the daemon is whenever somebody asks; lives as long as that, and changes nothing."""

    def __init__(
        self, serving: Serving, daemon: Daemon, holders: Holders | None, config_file: ConfigFile | None
    ) -> None:
        self._serving = serving
        self._daemon = daemon
        self._holders = holders
        self._config_file = config_file

    def probes(self) -> Probes:
        """Return the pages about the daemon."""
        return Probes(
            status=lambda: text_of(self.status()),
            faults=lambda: self.status().faults,
            notes=self._notes,
            families=self._families,
            pulse=self._serving.pulse,
        )

    def status(self) -> ProcessStatus:
        """Return how the daemon is at this moment."""
        status = process_status(self._serving)
        resources = tuple(self._resource(one, status.process) for one in status.resources)
        return replace(
            status,
            resources=resources,
            faults=faults_of(resources),
            config=self._config_status(),
            pod_resources=None if self._holders is None else pod_resources_status(self._holders),
        )

    def _resource(self, status: ResourceStatus, process: int) -> ResourceStatus:
        plugin = self._daemon.plugins.get(status.name)
        if plugin is None:  # between two steps of a reload
            return replace(status, process=process)
        holders, machine = self._holders, plugin.machine
        return described(
            status,
            Knowledge(
                plugin.resource,
                plugin.listing.known,
                plugin.custody.held_ids(),
                (lambda device_id: holders.holders_of(status.name, device_id)) if holders else lambda _: (),
                time.time() - machine.clock(),
                is_retired=plugin.is_retired,
                is_waiting=waits_for_devices(plugin.resource, status, plugin.looked),
                answered=plugin.answered,
            ),
            process,
        )

    def _config_status(self) -> ConfigStatus | None:
        if self._config_file is None:
            return None
        status = self._config_file.status
        unserved = tuple(f"{name}: {why}" for name, why in sorted(self._daemon.unserved.items()))
        return replace(status, problems=(*status.problems, *unserved))

    def _notes(self) -> tuple[str, ...]:
        config = self._config_status()
        return () if config is None else config.problems

    def _families(self) -> Iterator[Family]:
        status = self.status()
        yield from serving_families(self._serving, status)
        if self._config_file is not None:
            yield Family(catalogue.CONFIG_RELOADS, self._config_file.reloads.samples())
        if status.pod_resources is not None:
            yield from pod_resources_families(status.pod_resources, time.time())
