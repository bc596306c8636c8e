"""The registrar of one plugin: it passes events to the registration's state, and talks to the kubelet."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from devplug.errors import RemoteError
from devplug.kubelet_dir import KUBELET_SOCKET
from devplug.linux.exhaustion import Shortage, is_exhausted, reason_of
from devplug.logs import AUDIT
from devplug.plugin.registration import SocketRegistration
from devplug.plugin.watcher_registration import WatcherRegistration
from devplug.wire.deviceplugin import DEVICE_PLUGIN_VERSION, REGISTER
from devplug.wire.sockets import unary
from devplug.wire.values import PluginInfo, RegisterRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug.plugin.environment import PluginEnvironment
    from devplug.plugin.inventory import Inventory
    from devplug.plugin.registration import RegistrationFacts, Step
    from devplug.plugin.service import PluginService
    from devplug.wire.sockets import Binding
    from devplug.wire.values import RegistrationStatus, SocketIdentity


logger = logging.getLogger(__name__)
audit = logging.getLogger(AUDIT)

REGISTER_TIMEOUT_SECONDS: Final = 16.0
"""More than the 10 s that the kubelet takes to dial back before it answers (client.go)."""

_CANNOT_CONNECT: Final = Shortage("cannot connect to the kubelet; trying again")
_UNASKED: Final = "no kubelet asks at the sockets in plugins_registry; making them again from time to time"
_UNREACHABLE: Final = "kubelet.sock refuses connections; waiting for a kubelet that listens there"


class Registrar(Struct):
    """The registrar of one plugin; lives as long as its lifecycle.

    `wake` is called when there may be something to do, `on_change` when `state.is_registered` may have
    changed.
    """

    inventory: Inventory
    service: PluginService
    environment: PluginEnvironment
    socket_name: str
    wake: Callable[[], None]
    on_change: Callable[[], None]
    refusal: str = ""
    """Why the last attempt to register failed; empty if it succeeded, or if there was none."""
    state: SocketRegistration | WatcherRegistration = SocketRegistration()

    @property
    def watched(self) -> tuple[Path, ...]:
        """Further paths whose changes matter: none where the kubelet calls the plugin."""
        return ()

    def bindings(self) -> tuple[Binding, ...]:
        """Return the further services of the plugin's socket: none where the plugin calls the kubelet."""
        return ()

    def next_step(self, facts: RegistrationFacts) -> tuple[Step, float]:
        """Return what to do now, and after how many seconds to check again."""
        return self.state.next_step(facts)

    def register(self, group: asyncio.TaskGroup, look: Callable[[], RegistrationFacts]) -> None:
        """Start a registration in `group`, as `next_step` asked for; `look` returns the current facts."""

    def leave(self) -> None:
        """Cancel the registration in flight, as `next_step` asked for."""

    def socket_made(self) -> None:
        """Record that the plugin's socket is being made; a kubelet may call it before this returns."""

    def socket_moved(self, socket_name: str) -> None:
        """Record that the plugin's socket was closed and gets another name, as `next_step` asked for."""
        self.socket_name = socket_name

    def stream_changed(self) -> None:
        """Record that a stream was opened or has ended."""
        was_listened = self.state.is_listened
        self._follow_stream()
        if was_listened and not self.state.is_listened:
            logger.info(
                "the kubelet's ListAndWatch stream ended",
                extra={"resource_name": self.service.resource_name},
            )
        self._changed()

    def _follow_stream(self) -> None:
        raise NotImplementedError

    def _changed(self) -> None:
        self.wake()
        self.on_change()

    def _note_accepted(self, seconds: float) -> None:
        self.inventory.counters.registrations.add("accepted")
        self.refusal = ""
        audit.info(
            "registered with the kubelet",
            extra={
                "resource_name": self.service.resource_name,
                "devices": len(self.inventory.snapshot.devices),
                "milliseconds": round(1000 * seconds, 1),
            },
        )

    def _log_refused(self, reason: str) -> None:
        audit.warning(
            "the kubelet refused the registration",
            extra={"resource_name": self.service.resource_name, "reason": reason},
        )


class SocketRegistrar(Registrar):
    """The registrar that calls Register at `kubelet.sock`, for each kubelet and each lost stream."""

    state: SocketRegistration = SocketRegistration()
    _patience: asyncio.Timeout | None = None
    """Ends the call in flight before its time."""

    @property
    def watched(self) -> tuple[Path, ...]:
        """Further paths whose changes matter: the kubelet's socket."""
        return (self._kubelet_socket,)

    @property
    def _kubelet_socket(self) -> Path:
        return self.environment.folder / KUBELET_SOCKET

    def next_step(self, facts: RegistrationFacts) -> tuple[Step, float]:
        """Return what to do now, and after how many seconds to check again."""
        return self.state.next_step(self._with_kubelet(facts))

    def _with_kubelet(self, facts: RegistrationFacts) -> RegistrationFacts:
        """Return the facts, completed by the kubelet's socket and the streams at the plugin's."""
        streams = self.service.streams
        return replace(
            facts,
            kubelet=self.environment.sockets.identity(self._kubelet_socket),
            has_leftovers=self.state.has_leftovers(
                streams.open, streams_opened=streams.opened, options_answered=self.service.options_answered
            ),
        )

    def register(self, group: asyncio.TaskGroup, look: Callable[[], RegistrationFacts]) -> None:
        """Start to call the kubelet, in `group`; `look` is called again once it is connected."""
        self.state = self.state.called(self.service.streams.opened)
        self.on_change()
        group.create_task(self._register(look))

    def leave(self) -> None:
        """Cancel the call in flight: its kubelet may hang for long, and another kubelet waits."""
        self.state = self.state.dialled(None)
        if self._patience is not None:
            self._patience.reschedule(now())

    def socket_moved(self, socket_name: str) -> None:
        """Forget the streams of the old socket: no stream can be opened there any more."""
        super().socket_moved(socket_name)
        self.state = self.state.moved(
            now(),
            streams_opened=self.service.streams.opened,
            options_answered=self.service.options_answered,
        )
        self.on_change()

    async def _register(self, look: Callable[[], RegistrationFacts]) -> None:
        started = now()
        request = RegisterRequest(
            DEVICE_PLUGIN_VERSION, self.socket_name, self.service.resource_name, self.service.announce()
        )
        sockets = self.environment.sockets
        failure: RemoteError | None = None
        is_sent = is_left = False
        async with self.environment.registering:
            kubelet = sockets.identity(self._kubelet_socket)
            self.state = self.state.dialled(kubelet)
            try:
                async with (
                    asyncio.timeout(None) as self._patience,
                    sockets.connected(
                        self._kubelet_socket, connect_within_seconds=REGISTER_TIMEOUT_SECONDS
                    ) as peer,
                ):
                    self.state = self.state.connected(kubelet)
                    if self.state.may_send(self._with_kubelet(look())):
                        is_sent = True
                        await peer.call(REGISTER, request, timeout_seconds=REGISTER_TIMEOUT_SECONDS)
            except RemoteError as error:
                failure = error
            except TimeoutError:
                is_left = True
            finally:
                self._patience = None
        if failure is None and not is_sent:
            self.state = self.state.withdrawn()
        elif is_left:
            self._note_left(kubelet)
        # A stream tells more than the answer: a kubelet that listens has accepted us.
        elif failure is None or self.state.is_listened:
            self.state = self.state.accepted(now(), kubelet)
            self.environment.unsay(_UNREACHABLE)
            self._note_accepted(now() - started)
        else:
            self._note_failure(kubelet, failure)
        self._changed()

    def _note_left(self, kubelet: SocketIdentity | None) -> None:
        """Record that a call was cancelled; the kubelet may have read it, and still open a stream."""
        self.state = self.state.failed(now(), kubelet, RemoteError("Canceled", ""), jitter())
        self.inventory.counters.registrations.add("unreachable")
        logger.info(
            "a kubelet made a new kubelet.sock; the registration at the old one was cancelled",
            extra={"resource_name": self.service.resource_name},
        )

    def _note_failure(self, kubelet: SocketIdentity | None, failure: RemoteError) -> None:
        self.state = self.state.failed(now(), kubelet, failure, jitter())
        is_unreachable = failure.status == "Unavailable"
        self.inventory.counters.registrations.add("unreachable" if is_unreachable else "refused")
        self.refusal = _UNREACHABLE if is_unreachable else f"the kubelet refused the registration: {failure}"
        if is_exhausted(failure):
            self.refusal = f"cannot connect to the kubelet: {reason_of(failure)}"
            _CANNOT_CONNECT.report(failure, path=str(self._kubelet_socket))
        elif is_unreachable:
            self.environment.say_once(_UNREACHABLE, path=str(self._kubelet_socket))
        elif self.state.failures == 1:
            self._log_refused(str(failure))

    def _follow_stream(self) -> None:
        streams = self.service.streams
        self.state = self.state.streamed(now(), streams.open, jitter(), ended_by_us=streams.ended)


class WatcherRegistrar(Registrar):
    """The registrar that answers a kubelet which has found the plugin's socket."""

    state: WatcherRegistration = WatcherRegistration()

    def bindings(self) -> tuple[Binding, ...]:
        """Return the further services of the plugin's socket: the calls of the plugin watcher."""
        from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS  # for few

        return unary(GET_INFO, self._get_info), unary(NOTIFY_REGISTRATION_STATUS, self._take_status)

    def socket_made(self) -> None:
        """Record that the plugin's socket is being made; a kubelet may call it before this returns."""
        self.state = self.state.made(now(), jitter())
        if self.state.fruitless:
            self.environment.say_once(_UNASKED, folder=str(self.environment.folder))

    def _follow_stream(self) -> None:
        self.state = self.state.streamed(now(), self.service.streams.open, jitter())

    async def _get_info(self, _: None) -> PluginInfo:
        """Answer GetInfo: a constant, as the kubelet waits for one second."""
        self.state = self.state.asked(now(), self.service.streams.opened, jitter())
        self.environment.unsay(_UNASKED)
        self._changed()
        # No endpoint: then it is the socket at which the kubelet asks. Our own path of it may be another than
        # the kubelet's, as that of a mounted folder in a container is.
        return PluginInfo("DevicePlugin", self.service.resource_name, "", (DEVICE_PLUGIN_VERSION,))

    async def _take_status(self, status: RegistrationStatus) -> None:
        """Record the result that NotifyRegistrationStatus reports."""
        if status.plugin_registered:
            self.state = self.state.accepted()
            self._note_accepted(now() - self.state.asked_at)
        else:
            self.state = self.state.refused(now(), jitter())
            self.inventory.counters.registrations.add("refused")
            refusal = f"the kubelet refused the registration: {status.error}"
            # The kubelet repeats itself for as long as our socket is there.
            if refusal != self.refusal:
                self.refusal = refusal
                self._log_refused(status.error)
        self._changed()


def now() -> float:
    """Return the time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()


def jitter() -> float:
    """Return a random share of its bound by which a wait is made longer, from 0 to 1."""
    return random.random()  # noqa: S311 -- spreads load, no secret
