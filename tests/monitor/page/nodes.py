"""Statuses of nodes that the tests of the page make up."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from devplug.linux.notifier import Notifier
from devplug.status import DeviceStatus, Holder, NodeStatus, ResourceStatus

NOW = 1_800_000_000.0
RESOURCE = "example.com/port"
READER = Holder("lab", "meter-0", "reader")
EVIL = "</noscript><script>alert(1)</script><img src=x onerror='alert(2)'>\"&"


def device(name: str, **about: Any) -> DeviceStatus:
    return DeviceStatus(**({"id": name, "health": "Healthy"} | about))


def sick(name: str, reason: str = "link down", **about: Any) -> DeviceStatus:
    return device(name, health="Unhealthy", reason=reason, **about)


def held(name: str, *holders: Holder, **about: Any) -> DeviceStatus:
    return device(name, is_held=True, holders=holders or (READER,), **about)


def resource(*devices: DeviceStatus, name: str = RESOURCE, **about: Any) -> ResourceStatus:
    usual: dict[str, Any] = {"is_registered": True, "process": 1}
    return ResourceStatus(name=name, devices=devices, **(usual | about))


def node(*resources: ResourceStatus, at: float = NOW, name: str = "worker-0", **about: Any) -> NodeStatus:
    return NodeStatus(name=name, at=at, resources=resources, **about)


class Source:
    """A node that is as the test says, where a collector would be."""

    def __init__(self, status: NodeStatus) -> None:
        self.node_name = status.name
        self.notifier = Notifier()
        self._status = status

    def status(self) -> NodeStatus:
        return self._status

    def become(self, *resources: ResourceStatus) -> None:
        self.be(replace(self._status, resources=resources, at=self._status.at + 1))

    def be(self, status: NodeStatus) -> None:
        self._status = status
        self.notifier.notify()

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def wait_first(self) -> None:
        pass
