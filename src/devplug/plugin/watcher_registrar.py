"""The registrar that answers the kubelet, which has found our socket in `plugins_registry` and asks there."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from devplug.logs import AUDIT
from devplug.plugin.watcher_registration import SocketHistory, Standing, next_watched_step
from devplug.wire.deviceplugin import DEVICE_PLUGIN_VERSION
from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS
from devplug.wire.sockets import Binding, unary
from devplug.wire.values import PluginInfo, RegistrationStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.counters import PluginCounters
    from devplug.plugin.environment import PluginEnvironment
    from devplug.plugin.inventory import Inventory
    from devplug.plugin.service import PluginService
    from devplug.plugin.socket_registration import RegistrationFacts, Step

__all__ = ["WatcherRegistrar"]

logger = logging.getLogger(__name__)
audit = logging.getLogger(AUDIT)

_UNASKED: Final = "no kubelet asks at the sockets in plugins_registry, making them anew now and then"


class WatcherRegistrar:
    """Knows what our socket has gone through; lives as long as its lifecycle.

    `wake` is called when there may be something to do, `on_change` when `is_registered` may have changed.
    """

    def __init__(
        self,
        plugin: DevicePlugin,
        inventory: Inventory,
        service: PluginService,
        counters: PluginCounters,
        environment: PluginEnvironment,
        wake: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self._inventory = inventory
        self._service = service
        self._counters = counters
        self._environment = environment
        self._wake = wake
        self._on_change = on_change
        self._history = SocketHistory()
        self.refusal = ""
        """Why the kubelet has not registered us; empty if it has, or has not asked."""
        # No endpoint: then it is the socket at which the kubelet asks. Our own path of it may be another than
        # the kubelet's, as that of a mounted folder in a container is.
        self._info = PluginInfo("DevicePlugin", plugin.resource_name, "", (DEVICE_PLUGIN_VERSION,))

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet accepted us and listens to our list."""
        return self._history.is_registered

    @property
    def listened_since(self) -> float | None:
        """Since when the kubelet listens to our list, by the loop's clock; None if it does not."""
        return self._history.since if self.is_registered else None

    @property
    def cuts(self) -> tuple[float, ...]:
        """Nothing: a kubelet that comes to us and ends a stream cannot be told from one that ends itself."""
        return ()

    @property
    def is_settled(self) -> bool:
        """Whether no kubelet may be between two calls."""
        return self._history.standing is Standing.LISTENED and not self._history.awaited_stream

    @property
    def watched(self) -> tuple[Path, ...]:
        """What else to look at when it changes: nothing."""
        return ()

    def bindings(self) -> tuple[Binding, ...]:
        """Return what our socket has to serve besides the plugin."""
        return (
            unary(GET_INFO, self._get_info),
            unary(NOTIFY_REGISTRATION_STATUS, self._take_status),
        )

    def next_step(self, facts: RegistrationFacts) -> tuple[Step, float]:
        """Return what to do now, and after how many seconds to look again."""
        return next_watched_step(facts, self._history)

    def register(self, group: asyncio.TaskGroup, look: Callable[[], RegistrationFacts]) -> None:
        """Do nothing, as it is the kubelet that comes to us."""

    def leave(self) -> None:
        """Do nothing, as we call nobody."""

    def socket_made(self) -> None:
        """Note that our socket is being made; a kubelet may ask at it before that has ended."""
        self._history = self._history.made(_now(), _jitter())
        if self._history.fruitless:
            self._environment.say_once(_UNASKED, folder=str(self._environment.folder))

    def socket_moved(self, socket_name: str) -> None:
        """Do nothing, as it never is: the kubelet remembers us by the path."""

    def stream_changed(self) -> None:
        """Follow the stream that belongs to the kubelet's last question: the first one after it."""
        before = self._history.standing
        self._history = self._history.streamed(_now(), self._service.streams.open, _jitter())
        if before is Standing.LISTENED and self._history.standing is not before:
            logger.info("the kubelet's ListAndWatch stream ended", extra={"resource_name": self._info.name})
        self._wake()
        self._on_change()

    async def _get_info(self, _: None) -> PluginInfo:
        """Answer GetInfo: a constant, as the kubelet waits for one second."""
        self._history = self._history.asked(_now(), self._service.streams.opened, _jitter())
        self._environment.unsay(_UNASKED)
        self._wake()
        self._on_change()
        return self._info

    async def _take_status(self, status: RegistrationStatus) -> None:
        """Take note of what NotifyRegistrationStatus says."""
        if status.plugin_registered:
            self._history = self._history.accepted()
            self._counters.registrations.add("accepted")
            self.refusal = ""
            audit.info(
                "registered with the kubelet",
                extra={
                    "resource_name": self._info.name,
                    "devices": len(self._inventory.snapshot.devices),
                    "milliseconds": round(1000 * (_now() - self._history.asked_at), 1),
                },
            )
        else:
            self._history = self._history.refused(_now(), _jitter())
            self._counters.registrations.add("refused")
            refusal = f"the kubelet refused the registration: {status.error}"
            # The kubelet repeats itself for as long as our socket is there.
            if refusal != self.refusal:
                self.refusal = refusal
                audit.warning(
                    "the kubelet refused the registration",
                    extra={"resource_name": self._info.name, "reason": status.error},
                )
        self._wake()
        self._on_change()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _jitter() -> float:
    return random.random()  # noqa: S311 -- spreads load, no secret
