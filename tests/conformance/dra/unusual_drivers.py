"""Drivers that do correct things in unusual ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from devplug.wire.dra import ClaimName, DeviceHealthReport, HealthWord, PreparedClaim, PreparedDevice
from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS
from devplug.wire.sockets import Binding, Listener, unary
from devplug.wire.values import RegistrationStatus
from tests.conformance.dra.right_driver import RightDriver


class WritesFilesOfOneClaim(RightDriver):
    """Writes the CDI file of each claim in place, as upstream's helper does for metadata."""

    def write(self, path: Path, content: object) -> None:
        path.write_text(json.dumps(content))


class UsesNoCdi(RightDriver):
    """Answers without CDI devices, as drivers of networks do, whose NRI plugin changes the container."""

    def device(self, uid: str, result: Mapping[str, Any]) -> PreparedDevice:
        found = super().device(uid, result)
        return PreparedDevice(found.pool_name, found.device_name, found.request_names, (), found.share_id)

    def keep(self, uid: str, results: list[dict[str, Any]]) -> None:
        self.prepared[uid] = results
        self.save()


class HasCdiDevicesFromTheStart(RightDriver):
    """Defines a CDI device for each device when it starts, and none for claims."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        devices = [
            {"name": one["name"], "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}}
            for one in self.devices()
        ]
        self.write(
            self.place.cdi / "mutant.json",
            {"cdiVersion": "0.5.0", "kind": "mutant.example.com/dev", "devices": devices},
        )

    def device(self, uid: str, result: Mapping[str, Any]) -> PreparedDevice:
        found = super().device(uid, result)
        names = (f"mutant.example.com/dev={result['device']}",)
        return PreparedDevice(found.pool_name, found.device_name, found.request_names, names, found.share_id)

    def keep(self, uid: str, results: list[dict[str, Any]]) -> None:
        self.prepared[uid] = results
        self.save()


class ServesTheNewestVersionOnly(RightDriver):
    """Is built against the newest API alone."""

    versions = served = ("v1.DRAPlugin",)


class ServesTheOldVersionOnly(RightDriver):
    """Was built for Kubernetes 1.33."""

    versions = served = ("v1beta1.DRAPlugin",)


class HasOneSocket(RightDriver):
    """Serves registration and claims on one socket, and names it with an empty endpoint."""

    def endpoint(self) -> str:
        return ""

    def service_socket(self) -> Path:
        return self.folder / "unused.sock"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        registration: tuple[Binding, ...] = (
            unary(GET_INFO, self.get_info),
            unary(NOTIFY_REGISTRATION_STATUS, self.take_status),
        )
        self.registration = Listener(self.registration_socket(), (*registration, *self.service_bindings()))


class HasASocketFolder(RightDriver):
    """Has its registration socket in a folder of its own in plugins_registry."""

    def registration_socket(self) -> Path:
        folder = self.place.registry / self.name
        folder.mkdir(exist_ok=True)
        return folder / "reg.sock"


class PublishesWhenItIsRegistered(RightDriver):
    """Publishes slices once the kubelet has registered it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.registered = asyncio.Event()

    async def take_status(self, status: RegistrationStatus) -> None:
        if status.plugin_registered:
            self.registered.set()

    async def publish(self) -> None:
        await self.registered.wait()
        await super().publish()


class HasAPoolForEachDevice(RightDriver):
    """Publishes each device in a pool of its own, whose name is not the node's."""

    def pool_of(self, device: str) -> str:
        return f"{self.place.node_name}/{device}"

    def specs(self) -> list[dict[str, Any]]:
        return [
            {
                "driver": self.name,
                "nodeName": self.place.node_name,
                "pool": {"name": self.pool_of(one["name"]), "generation": 1, "resourceSliceCount": 1},
                "devices": [self.written(one)],
            }
            for one in self.devices()
        ]

    def check_results(self, results: Sequence[Mapping[str, Any]]) -> None:
        super().check_results(
            [
                {**one, "pool": self.pool() if one["pool"] == self.pool_of(one["device"]) else ""}
                for one in results
            ]
        )

    def reports(self) -> Any:
        return [
            type(one)(self.pool_of(one.device_name), one.device_name, one.health, message=one.message)
            for one in super().reports()
        ]


class AnswersBackwards(RightDriver):
    """Answers claims and devices in another order, with a CDI device for all of a claim at its last."""

    async def prepare(self, claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        found = await super().prepare(claims[::-1])
        return {uid: PreparedClaim(one.devices[::-1], error=one.error) for uid, one in found.items()}


class AnswersSlowly(RightDriver):
    """Needs a while for each claim, one after another."""

    async def answer(self, claim: ClaimName) -> PreparedClaim:
        await asyncio.sleep(0.3)
        return await super().answer(claim)


class StartsSlowly(RightDriver):
    """Looks for its devices before it makes its sockets."""

    async def run(self) -> None:
        await asyncio.sleep(2)
        await super().run()


class KnowsNoHealth(RightDriver):
    """Reports once that it does not know the health of its devices, as with its monitoring turned off."""

    async def watch_health(self, _: None) -> AsyncIterator[Sequence[DeviceHealthReport]]:
        yield [DeviceHealthReport(self.pool(), one["name"], HealthWord.UNKNOWN) for one in self.devices()]
        await asyncio.Event().wait()
