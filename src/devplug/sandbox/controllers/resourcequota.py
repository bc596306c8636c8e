"""The ResourceQuota controller: it writes how much of each quota is in use; admission refuses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import text
from devplug.sandbox.admission import quota_status, used_by_claims, used_by_pods
from devplug.sandbox.api.kinds import SERVED
from devplug.sandbox.api.watchlog import Selection
from devplug.sandbox.controllers.workqueue import WorkQueue, run_loop
from devplug.sandbox.registry import DEVICE_CLASSES, PODS, QUOTAS, RESOURCE_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.sandbox.api.watchlog import WatchEvent
    from devplug.sandbox.registry import Registry

_COUNTED: Final = tuple(
    one for one in SERVED if one.namespaced and "list" in one.verbs and one.kind != "Event"
)
"""What quotas count here, by the piece or by what it asks for."""


class ResourceQuotaController:
    """The resource quota controller of one sandbox; lives as long as `run`."""

    def __init__(self, registry: Registry, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._work = WorkQueue(seconds)

    async def run(self) -> None:
        """Keep the statuses of all quotas until cancelled."""
        await run_loop(self._registry, dict.fromkeys(_COUNTED, self._note), self._work, self._look)

    def _note(self, event: WatchEvent) -> None:
        self._work.add(text(event.object, "metadata", "namespace"))

    def _look(self, namespace: str) -> None:
        selection = Selection(namespace)
        quotas = self._registry.all(QUOTAS, selection)
        if not quotas:
            return
        pods = self._registry.all(PODS, selection)
        claims = self._registry.all(RESOURCE_CLAIMS, selection)
        used = used_by_pods(pods, self._registry.now)
        for key, count in used_by_claims(claims, pods, self._registry.all(DEVICE_CLASSES)).items():
            used[key] = str(int(used.get(key, "0")) + count)
        counts = {one.qualified: len(self._registry.all(one, selection)) for one in _COUNTED}
        for quota in quotas:
            status = quota_status(quota, used, counts)
            self._registry.set_status(QUOTAS, namespace, text(quota, "metadata", "name"), status)
