"""The registrar that calls the kubelet: Register at `kubelet.sock`, for each kubelet and each lost stream."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from devplug.errors import RemoteError
from devplug.k8s.kubelet_dir import KUBELET_SOCKET
from devplug.logs import AUDIT
from devplug.plugin.contract import options_of
from devplug.plugin.socket_registration import (
    CallHistory,
    RegistrationFacts,
    StreamState,
    may_send,
    next_step,
)
from devplug.wire import deviceplugin
from devplug.wire.values import RegisterRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.counters import PluginCounters
    from devplug.plugin.environment import PluginEnvironment
    from devplug.plugin.inventory import Inventory
    from devplug.plugin.service import PluginService
    from devplug.plugin.socket_registration import Step
    from devplug.wire.sockets import Binding
    from devplug.wire.values import SocketIdentity

__all__ = ["SocketRegistrar"]

logger = logging.getLogger(__name__)
audit = logging.getLogger(AUDIT)

REGISTER_TIMEOUT_SECONDS: Final = 16.0
"""More than the 10 s that the kubelet takes to dial back before it answers (client.go)."""

_UNREACHABLE: Final = "kubelet.sock refuses connections, waiting for its kubelet"


class SocketRegistrar:
    """Knows the kubelet's socket and the stream that our last call brought; lives as long as its lifecycle.

    `wake` is called when there may be something to do, `on_change` when `is_registered` may have changed.
    """

    def __init__(
        self,
        plugin: DevicePlugin,
        inventory: Inventory,
        service: PluginService,
        counters: PluginCounters,
        socket_name: str,
        environment: PluginEnvironment,
        wake: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self._plugin = plugin
        self._inventory = inventory
        self._service = service
        self._counters = counters
        self.refusal = ""
        """Why the last call has not registered us; empty if it has."""
        self._socket_name = socket_name
        self._environment = environment
        self._wake = wake
        self._on_change = on_change
        self._kubelet_socket = environment.folder / KUBELET_SOCKET
        self._history = CallHistory()
        self._calling: SocketIdentity | None = None
        """The kubelet.sock that the call in flight goes to, unless it was given up."""
        self._patience: asyncio.Timeout | None = None
        """Ends that call before its time."""

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet accepted us and listens to our list."""
        return self._history.is_registered

    @property
    def listened_since(self) -> float | None:
        """Since when the kubelet listens to our list, by the loop's clock; None if it does not."""
        return self._history.stream_since if self.is_registered else None

    @property
    def cuts(self) -> tuple[float, ...]:
        """When the kubelet that is there now has ended streams of ours, the last few times; it lives on."""
        return self._history.cuts

    @property
    def is_settled(self) -> bool:
        """Whether no kubelet may be between two calls."""
        return not self._history.is_registering and self._history.stream is not StreamState.AWAITED

    @property
    def watched(self) -> tuple[Path, ...]:
        """What else to look at when it changes."""
        return (self._kubelet_socket,)

    def bindings(self) -> tuple[Binding, ...]:
        """Return what our socket has to serve besides the plugin: nothing."""
        return ()

    def next_step(self, facts: RegistrationFacts) -> tuple[Step, float]:
        """Return what to do now, and after how many seconds to look again."""
        return next_step(self._with_calls(facts))

    def _with_calls(self, facts: RegistrationFacts) -> RegistrationFacts:
        """Return the facts with what is known of our calls."""
        history, service = self._history, self._service
        return replace(
            facts,
            kubelet=self._environment.sockets.identity(self._kubelet_socket),
            registered_with=history.registered_with,
            registered_at=history.registered_at,
            is_registering=history.is_registering,
            stream=history.stream,
            cut_at=history.stream_since,
            cut_wait_seconds=history.cut_wait_seconds,
            has_leftovers=history.has_leftovers(
                service.streams.open,
                streams_opened=service.streams.opened,
                options_told=service.options_told,
            ),
            register_not_before=history.register_not_before,
            failed_with=history.failed_with,
            calling=self._calling,
        )

    def register(self, group: asyncio.TaskGroup, look: Callable[[], RegistrationFacts]) -> None:
        """Begin to call the kubelet, in `group`; `look` tells whether that is still right when it has us."""
        self._history = self._history.called(self._service.streams.opened)
        self._on_change()
        group.create_task(self._register(look))

    def leave(self) -> None:
        """Give up the call in flight: who has it may hang for long, and another kubelet waits."""
        self._calling = None
        if self._patience is not None:
            self._patience.reschedule(_now())

    def socket_made(self) -> None:
        """Do nothing, as the kubelet is told where our socket is when it is called."""

    def socket_moved(self, socket_name: str) -> None:
        """Forget all that came by the old socket: no stream can come there any more."""
        self._socket_name = socket_name
        self._history = self._history.moved(
            _now(), streams_opened=self._service.streams.opened, options_told=self._service.options_told
        )
        self._on_change()

    async def _register(self, look: Callable[[], RegistrationFacts]) -> None:
        started = _now()
        request = RegisterRequest(
            deviceplugin.DEVICE_PLUGIN_VERSION,
            self._socket_name,
            self._plugin.resource_name,
            options_of(self._plugin),
        )
        sockets = self._environment.sockets
        failure: RemoteError | None = None
        is_sent = is_left = False
        async with self._environment.registering:
            kubelet = self._calling = sockets.identity(self._kubelet_socket)
            try:
                async with (
                    asyncio.timeout(None) as self._patience,
                    sockets.connected(
                        self._kubelet_socket, connect_within_seconds=REGISTER_TIMEOUT_SECONDS
                    ) as peer,
                ):
                    self._history = self._history.connected(kubelet)
                    if may_send(self._with_calls(look())):
                        is_sent = True
                        await peer.call(
                            deviceplugin.REGISTER, request, timeout_seconds=REGISTER_TIMEOUT_SECONDS
                        )
            except RemoteError as error:
                failure = error
            except TimeoutError:
                is_left = True
            finally:
                self._calling = self._patience = None
        if failure is None and not is_sent:
            self._history = self._history.withdrawn()
        elif is_left:
            self._note_left(kubelet)
        # A stream tells more than the answer: a kubelet that listens has accepted us.
        elif failure is None or self._history.stream is StreamState.OPEN:
            self._note_success(kubelet, _now() - started)
        else:
            self._note_failure(kubelet, failure)
        self._wake()
        self._on_change()

    def _note_success(self, kubelet: SocketIdentity | None, seconds: float) -> None:
        self._history = self._history.accepted(_now(), kubelet)
        self._environment.unsay(_UNREACHABLE)
        self._counters.registrations.add("accepted")
        self.refusal = ""
        audit.info(
            "registered with the kubelet",
            extra={
                "resource_name": self._plugin.resource_name,
                "devices": len(self._inventory.snapshot.devices),
                "milliseconds": round(1000 * seconds, 1),
            },
        )

    def _note_left(self, kubelet: SocketIdentity | None) -> None:
        """Note that a call was given up; it may have been heard, and still bring a stream."""
        self._history = self._history.failed(
            _now(), kubelet, "Canceled", "", is_unsent=False, jitter=_jitter()
        )
        self._counters.registrations.add("unreachable")
        logger.info(
            "another kubelet.sock was made; the registration at the last one was cancelled",
            extra={"resource_name": self._plugin.resource_name},
        )

    def _note_failure(self, kubelet: SocketIdentity | None, failure: RemoteError) -> None:
        self._history = self._history.failed(
            _now(), kubelet, failure.status, failure.text, is_unsent=failure.is_unsent, jitter=_jitter()
        )
        is_unreachable = failure.status == "Unavailable"
        self._counters.registrations.add("unreachable" if is_unreachable else "refused")
        self.refusal = _UNREACHABLE if is_unreachable else f"the kubelet refused the registration: {failure}"
        if is_unreachable:
            self._environment.say_once(_UNREACHABLE, path=str(self._kubelet_socket))
        elif self._history.failures == 1:
            audit.warning(
                "the kubelet refused the registration",
                extra={"resource_name": self._plugin.resource_name, "reason": str(failure)},
            )

    def stream_changed(self) -> None:
        """Follow the stream that our last call brought."""
        before = self._history.stream
        self._history = self._history.streamed(
            _now(), self._service.streams.open, _jitter(), ended_by_us=self._service.streams.ended
        )
        if before is StreamState.OPEN and self._history.stream is not before:
            logger.info(
                "the kubelet's ListAndWatch stream ended", extra={"resource_name": self._plugin.resource_name}
            )
        self._wake()
        self._on_change()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _jitter() -> float:
    return random.random()  # noqa: S311 -- spreads load, no secret
