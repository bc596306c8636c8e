"""Registering by calling the kubelet: Register at `kubelet.sock`, for each kubelet and each lost stream."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from devplug.errors import RemoteError
from devplug.exchange import RegisterRequest
from devplug.logs import AUDIT
from devplug.plugin.contract import options_of
from devplug.plugin.registration import (
    QUICK_CUT_SECONDS,
    Identity,
    Situation,
    Step,
    StreamState,
    cut_wait_seconds,
    next_step,
    retry_wait_seconds,
)
from devplug.wire import methods
from devplug.wire.sockets import Binding, connected, socket_identity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.inventory import Inventory
    from devplug.plugin.registration import Grounds
    from devplug.plugin.service import PluginService
    from devplug.plugin.surroundings import Surroundings
    from devplug.plugin.tally import Tally

__all__ = ["Caller"]

logger = logging.getLogger(__name__)
audit = logging.getLogger(AUDIT)

KUBELET_SOCKET: Final = "kubelet.sock"

REGISTER_TIMEOUT_SECONDS: Final = 16.0
"""More than the 10 s that the kubelet takes to dial back before it answers (client.go)."""

_UNREACHABLE: Final = "kubelet.sock refuses connections, waiting for its kubelet"


class Caller:
    """Knows the kubelet's socket and the stream that our last call brought; lives as long as its lifecycle.

    `wake` is called when there may be something to do, `on_change` when `is_registered` may have changed.
    """

    def __init__(
        self,
        plugin: DevicePlugin,
        inventory: Inventory,
        service: PluginService,
        tally: Tally,
        socket_name: str,
        surroundings: Surroundings,
        wake: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self._plugin = plugin
        self._inventory = inventory
        self._service = service
        self._tally = tally
        self.refusal = ""
        """Why the last call has not registered us; empty if it has."""
        self._socket_name = socket_name
        self._surroundings = surroundings
        self._wake = wake
        self._on_change = on_change
        self._kubelet_socket = surroundings.folder / KUBELET_SOCKET
        self._registered_with: Identity | None = None
        self._registered_at = 0.0
        self._is_registering = False
        self._streams_before = 0
        self._stream = StreamState.AWAITED
        self._stream_since = 0.0
        self._quick_cuts = 0
        self._cut_wait_seconds = 0.0
        self._failed_with: Identity | None = None
        self._failures = 0
        self._register_not_before = 0.0

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet accepted us and listens to our list."""
        return self._stream is StreamState.OPEN and self._registered_with is not None

    @property
    def is_settled(self) -> bool:
        """Whether no kubelet may be between two calls."""
        return not self._is_registering and self._stream is not StreamState.AWAITED

    @property
    def watched(self) -> tuple[Path, ...]:
        """What else to look at when it changes."""
        return (self._kubelet_socket,)

    def bindings(self) -> tuple[Binding, ...]:
        """Return what our socket has to serve besides the plugin: nothing."""
        return ()

    def next_step(self, grounds: Grounds) -> tuple[Step, float]:
        """Return what to do now, and after how many seconds to look again."""
        return next_step(
            Situation(
                now=grounds.now,
                folder=grounds.folder,
                has_list=grounds.has_list,
                has_claim=grounds.has_claim,
                is_bound=grounds.is_bound,
                claim_not_before=grounds.claim_not_before,
                bind_not_before=grounds.bind_not_before,
                kubelet=socket_identity(self._kubelet_socket),
                registered_with=self._registered_with,
                registered_at=self._registered_at,
                is_registering=self._is_registering,
                stream=self._stream,
                cut_at=self._stream_since,
                cut_wait_seconds=self._cut_wait_seconds,
                register_not_before=self._register_not_before,
                failed_with=self._failed_with,
            ),
        )

    def register(self, group: asyncio.TaskGroup) -> None:
        """Begin to call the kubelet, in `group`."""
        self._is_registering = True
        self._streams_before = self._service.streams_opened
        self._stream = StreamState.AWAITED
        self._on_change()
        group.create_task(self._register())

    def socket_made(self) -> None:
        """Do nothing, as the kubelet is told where our socket is when it is called."""

    async def _register(self) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        request = RegisterRequest(
            methods.DEVICE_PLUGIN_VERSION,
            self._socket_name,
            self._plugin.resource_name,
            options_of(self._plugin),
        )
        failure: RemoteError | None = None
        kubelet: Identity | None = None
        try:
            async with self._surroundings.registering:
                kubelet = socket_identity(self._kubelet_socket)
                async with connected(self._kubelet_socket) as peer:
                    await peer.call(methods.REGISTER, request, timeout_seconds=REGISTER_TIMEOUT_SECONDS)
        except RemoteError as error:
            failure = error
        finally:
            self._is_registering = False
            self._wake()
        # A stream tells more than the answer: a kubelet that listens has accepted us.
        if failure is None or self._stream is StreamState.OPEN:
            if kubelet != self._registered_with:
                self._quick_cuts = 0
            self._registered_with, self._registered_at = kubelet, loop.time()
            self._failed_with, self._failures = None, 0
            self._surroundings.unsay(_UNREACHABLE)
            self._tally.registrations.add("accepted")
            self.refusal = ""
            audit.info(
                "registered with the kubelet",
                extra={
                    "resource_name": self._plugin.resource_name,
                    "devices": len(self._inventory.snapshot.devices),
                    "milliseconds": round(1000 * (loop.time() - started), 1),
                },
            )
            self._on_change()
        else:
            self._note_failure(kubelet, failure)

    def _note_failure(self, kubelet: Identity | None, failure: RemoteError) -> None:
        self._failures = self._failures + 1 if kubelet == self._failed_with else 1
        self._failed_with = kubelet
        # Or the next attempt would wait for the stream of a registration that there is not.
        self._registered_with = None
        is_unreachable = failure.status == "Unavailable"
        self._tally.registrations.add("unreachable" if is_unreachable else "refused")
        self.refusal = _UNREACHABLE if is_unreachable else f"the kubelet refused the registration: {failure}"
        self._on_change()
        wait_seconds = retry_wait_seconds(
            self._failures,
            is_unreachable=is_unreachable,
            is_final=failure.status == "Unknown" and "is not supported by kubelet" in failure.text,
            jitter=random.random(),  # noqa: S311 -- spreads load, no secret
        )
        self._register_not_before = asyncio.get_running_loop().time() + wait_seconds
        if is_unreachable:
            self._surroundings.say_once(_UNREACHABLE, path=str(self._kubelet_socket))
        elif self._failures == 1:
            audit.warning(
                "the kubelet refused the registration",
                extra={"resource_name": self._plugin.resource_name, "reason": str(failure)},
            )

    def stream_changed(self) -> None:
        """Follow the stream that our last registration opened: the first one since it was sent."""
        now = asyncio.get_running_loop().time()
        number = self._streams_before + 1
        if number in self._service.streams:
            if self._stream is not StreamState.OPEN:
                self._stream, self._stream_since = StreamState.OPEN, now
        elif self._stream is StreamState.OPEN:
            lived_seconds = now - self._stream_since
            self._quick_cuts = self._quick_cuts + 1 if lived_seconds < QUICK_CUT_SECONDS else 0
            self._cut_wait_seconds = cut_wait_seconds(
                max(0, self._quick_cuts - 1),
                random.random(),  # noqa: S311 -- spreads load, no secret
            )
            self._stream, self._stream_since = StreamState.ENDED, now
            logger.info("the kubelet's stream ended", extra={"resource_name": self._plugin.resource_name})
        self._wake()
        self._on_change()
