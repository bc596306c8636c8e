"""The life of a pod with claims as the kubelet's worker of that pod leads it, on a virtual clock."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from devplug.errors import KubeletError
from devplug.kubelet.dra.manager import UNPREPARE_AGAIN_SECONDS
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import ContainerState, Pod, PodPhase
from tests.virtualtime import passes

PREPARE_AGAIN_SECONDS = 80.0
"""Of the 60 to 90 s that the real kubelet may take: it took 69 s once, and more than 74 s another time."""


@dataclass(frozen=True)
class PodWorker:
    """One pod's worker."""

    kubelet: Kubelet
    pod: Pod
    deleted: asyncio.Event
    """Set once the pod is to end."""

    async def run(self) -> None:
        """Lead the pod from its admission until it is gone."""
        await self.kubelet.run_pod(self.pod)
        while self._is_waiting() and not self.deleted.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self.deleted.wait(), PREPARE_AGAIN_SECONDS)
            if not self.deleted.is_set() and await self.kubelet.dra.try_prepare(self.pod):
                for container in self.pod.containers:
                    await self.kubelet.start_container(self.pod.uid, container.name)
        await self.deleted.wait()
        await self.kubelet.wait(lambda: self.kubelet.is_running)
        if not self.kubelet.pod(self.pod.uid).is_terminal:
            await self._unprepare()
        self.kubelet.remove_pod(self.pod.uid)

    async def complete(self) -> None:
        """End the pod, all containers of which have ended by themselves."""
        await self._unprepare()
        self.kubelet.end_pod(self.pod.uid, PodPhase.SUCCEEDED)

    def _is_waiting(self) -> bool:
        return self.kubelet.pod(self.pod.uid).containers[0].state is ContainerState.WAITING

    async def _unprepare(self) -> None:
        while True:
            try:
                await self.kubelet.dra.unprepare(self.pod)
            except KubeletError:
                await passes(UNPREPARE_AGAIN_SECONDS)
            else:
                return
