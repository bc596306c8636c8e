"""One kubelet process: the managers and servers that start and end together.

Pods and the node's numbers outlive it and are `kubelet`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.kubelet.admission import TopologyManager, allocatable_for, check_pod
from devplug.kubelet.devicemanager import DeviceManager
from devplug.kubelet.dra.manager import DraManager
from devplug.kubelet.metrics import KubeletMetrics
from devplug.kubelet.podresources import PodResourcesServer
from devplug.kubelet.registration import WatchedPlugins
from devplug.kubelet.topology import Policy, TopologyRules
from devplug.kubelet.watcher import PluginWatcher

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection, Iterable, Mapping

    from devplug.kubelet.changes import Changes
    from devplug.kubelet.pluginfolder import PluginFolder
    from devplug.kubelet.pods import Pod, Rejection
    from devplug.kubelet.podtable import PodTable
    from devplug.kubelet.settings import KubeletSettings


class KubeletProcess:
    """One life of a kubelet, from `start` to `stop`; can be read after that, and is never started again.

    Raises `KubeletError` if the settings are some with which the real kubelet ends at once.
    """

    def __init__(
        self,
        folder: PluginFolder,
        pods: PodTable,
        changes: Changes,
        settings: KubeletSettings,
    ) -> None:
        rules = TopologyRules.of(settings.topology, settings.machine, compat=settings.compat)
        self.metrics = KubeletMetrics()
        if rules.policy is not Policy.NONE:
            self.metrics.count_topology_scopes()
        self.topology = TopologyManager(rules, self.metrics)
        self.devices = DeviceManager(
            folder,
            pods.active_uids,
            self.topology.affinity,
            changes,
            self.metrics,
            settings,
        )
        self.dra = DraManager(pods, lambda: self.devices.sources_ready, changes, self.metrics, settings)
        self._pods = pods
        self._changes = changes
        self._settings = settings
        self._watcher: PluginWatcher | None = None
        self._pod_resources: PodResourcesServer | None = None

    @property
    def is_running(self) -> bool:
        """Whether plugins can register."""
        return self.devices.registration is not None

    async def start(
        self,
        tasks: asyncio.TaskGroup,
        running_containers: Collection[tuple[str, str]] = (),
    ) -> None:
        """Start everything in the real one's order. Raises `KubeletError`, and then nothing runs."""
        settings = self._settings
        try:
            await self.devices.start(tasks, running_containers)
            await self.dra.start(tasks)
            if settings.pod_resources_socket is not None:
                self._pod_resources = PodResourcesServer(
                    settings.pod_resources_socket,
                    self._pods,
                    self.devices,
                    self.dra.dynamic_resources,
                    self.metrics,
                    settings,
                )
                await self._pod_resources.open()
            if settings.plugins_registry is not None:
                assert self.devices.registration is not None
                assert self.dra.drivers is not None
                self._watcher = PluginWatcher(
                    settings.plugins_registry,
                    {
                        "DevicePlugin": WatchedPlugins(self.devices.registration),
                        "DRAPlugin": self.dra.drivers,
                    },
                    tasks,
                    self._changes,
                    self.metrics,
                    settings,
                )
                await self._watcher.open()
        except BaseException:
            await self.stop()
            raise

    async def stop(self, *, orderly: bool = False) -> None:
        """End everything. The sockets stay and refuse connections, unless it is `orderly`. Safe to repeat."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            await watcher.close()
        pod_resources, self._pod_resources = self._pod_resources, None
        if pod_resources is not None:
            await pod_resources.close(orderly=orderly)
        await self.dra.stop()
        await self.devices.stop(orderly=orderly)

    async def admit(
        self,
        pod: Pod,
        others: Iterable[Pod],
        allocatable: Mapping[str, int],
    ) -> Rejection | None:
        """Place and allocate for a pod, then check that it fits into `allocatable` beside `others`.

        Returns the refusal, or None. Raises `KubeletCrashError`.
        """
        rejection = await self.topology.admit(pod, self.devices)
        if rejection is None:
            rejection = check_pod(pod, others, allocatable_for(pod, allocatable, self.devices.allocations))
        if rejection is not None:
            self.metrics.count_rejection(rejection.reason)
        return rejection

    def forget(self, pod: Pod) -> None:
        """Forget what is kept of a pod that goes: its place, and the health of its devices."""
        for container in pod.in_start_order():
            self.topology.forget(pod.uid, container.name)
        self.dra.forget(pod.uid)
