"""Plugins that wait in `plugins_registry` for the kubelet to find them, and a kubelet that looks often."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.settings import KubeletSettings
from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS
from devplug.wire.sockets import Binding, unary
from devplug.wire.values import PluginInfo, RegistrationStatus
from tests.kubelet.fakes import LONG_SECONDS, RESOURCE, Call, Devices, FakePlugin, healthy

ONE_DEVICE = healthy("a")
INFO = PluginInfo("DevicePlugin", RESOURCE, "", ("v1beta1",))
ACCEPTED = RegistrationStatus(plugin_registered=True)
PERIOD_SECONDS = 0.01

DESIRED = "desired_state_of_world"
ACTUAL = "actual_state_of_world"


def refused(text: str) -> RegistrationStatus:
    return RegistrationStatus(plugin_registered=False, error=f"RegisterPlugin error -- {text}")


@asynccontextmanager
async def watching(
    root: Path,
    *,
    clock: Callable[[], float] = time.monotonic,
    compat: bool = True,
    dial_timeout_seconds: float = 30,
    reconcile_period_seconds: float = PERIOD_SECONDS,
) -> AsyncIterator[Kubelet]:
    """A kubelet that watches `plugins_registry` below `root`, for a time that only a hang outlasts."""
    settings = KubeletSettings(
        clock=clock,
        compat=compat,
        dial_timeout_seconds=dial_timeout_seconds,
        reconcile_period_seconds=reconcile_period_seconds,
    )
    kubelet = Kubelet.under(root, settings)
    async with asyncio.timeout(LONG_SECONDS), kubelet.running():
        yield kubelet


def registry(root: Path) -> Path:
    folder = root / "plugins_registry"
    folder.mkdir(exist_ok=True)
    return folder


def in_state(kubelet: Kubelet, path: Path, state: str = ACTUAL) -> bool:
    """Whether a socket is in this state of world, by the kubelet's metrics."""
    value = kubelet.metrics.value("plugin_manager_total_plugins", socket_path=str(path), state=state)
    return value == 1


@dataclass
class WatchedPlugin(FakePlugin):
    """A plugin whose one socket answers the kubelet's questions and its calls, as its fields say."""

    devices: Devices = ONE_DEVICE
    info: PluginInfo = INFO
    on_info: Callable[[], Awaitable[None]] | None = None
    on_status: Callable[[RegistrationStatus], Awaitable[None]] | None = None
    statuses: list[RegistrationStatus] = field(default_factory=list)

    def bindings(self) -> tuple[Binding, ...]:
        return (
            *super().bindings(),
            unary(GET_INFO, self._info),
            unary(NOTIFY_REGISTRATION_STATUS, self._status),
        )

    async def told(self, count: int = 1) -> RegistrationStatus:
        """Wait until the kubelet has told how so many attempts ended; return how the last one did."""
        while len(self.statuses) < count:
            await self._turn.wait()
        return self.statuses[-1]

    async def asked(self, count: int = 1) -> None:
        """Wait until the kubelet has begun so many attempts."""
        while len(self.called("GetInfo")) < count:
            await self._turn.wait()

    async def _info(self, _: None) -> PluginInfo:
        self.calls.append(Call("GetInfo"))
        self._streams_changed()
        if self.on_info is not None:
            await self.on_info()
        return self.info

    async def _status(self, status: RegistrationStatus) -> None:
        self.statuses.append(status)
        self._streams_changed()
        if self.on_status is not None:
            await self.on_status(status)


WITNESSES = itertools.count()


async def listed(kubelet: Kubelet, count: int = 1, resource_name: str = RESOURCE) -> None:
    await kubelet.wait(lambda: kubelet.allocatable().get(resource_name, 0) == count)


async def looked(root: Path) -> None:
    """Wait until the kubelet has looked at its state once more, as the registration of a new socket shows."""
    info = replace(INFO, name="vendor.io/witness")
    async with WatchedPlugin(registry(root), f"witness{next(WITNESSES)}", info=info).serving() as witness:
        await witness.told()


def failures(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.message == "cannot register a plugin" for record in caplog.records)
