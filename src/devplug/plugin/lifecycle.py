"""Serve, register, watch, again, for ever: the shell around `registration.next_step` for one plugin."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletError, PluginFolderLostError, RemoteError
from devplug.exchange import RegisterRequest
from devplug.plugin.contract import options_of
from devplug.plugin.ownership import Claim, new_socket_name, remove_stale_sockets
from devplug.plugin.registration import (
    Folder,
    Identity,
    Situation,
    Step,
    StreamState,
    cut_wait_seconds,
    next_step,
    retry_wait_seconds,
)
from devplug.plugin.service import PluginService
from devplug.watching import shared_watcher
from devplug.wire import methods
from devplug.wire.sockets import Listener, connected, socket_identity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.inventory import Inventory

__all__ = ["KUBELET_SOCKET", "Lifecycle", "Surroundings"]

logger = logging.getLogger(__name__)

KUBELET_SOCKET: Final = "kubelet.sock"

REGISTER_TIMEOUT_SECONDS: Final = 16.0
"""More than the 10 s that the kubelet takes to dial back before it answers (client.go)."""

REGISTRATIONS_AT_ONCE: Final = 16
CLAIM_RETRY_SECONDS: Final = 1.0
BIND_RETRY_SECONDS: Final = 1.0
QUICK_CUT_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 0.5
"""How long open streams may take to end at the close, after all calls."""

_CANNOT_LOCK: Final = "cannot lock in the plugin folder"
_CANNOT_BIND: Final = "cannot make a socket in the plugin folder"
_UNREACHABLE: Final = "kubelet.sock refuses connections, waiting for its kubelet"


@dataclass(slots=True)
class Surroundings:
    """What all plugins of a program share: the folder, and how many of them register at once."""

    plugin_dir: Path
    registering: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REGISTRATIONS_AT_ONCE))
    _said: set[str] = field(default_factory=set)

    def say_once(self, message: str, **facts: object) -> None:
        """Log a warning about the node, once for all plugins until `unsay`."""
        if message not in self._said:
            self._said.add(message)
            logger.warning(message, extra=facts)

    def unsay(self, message: str) -> None:
        """Let a warning be given again, because its reason went away."""
        self._said.discard(message)


class Lifecycle:
    """Keeps one plugin registered; lives as long as the plugin is served, and owns its socket and its lock.

    `on_change` is called whenever `is_registered` may have changed.
    """

    def __init__(
        self,
        plugin: DevicePlugin,
        inventory: Inventory,
        surroundings: Surroundings,
        on_change: Callable[[], None],
    ) -> None:
        self._plugin = plugin
        self._inventory = inventory
        self._surroundings = surroundings
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._service = PluginService(plugin, inventory, self._stream_changed)
        folder = surroundings.plugin_dir
        self._claim = Claim(folder, plugin.resource_name)
        self._listener = Listener(folder / new_socket_name(plugin.resource_name), self._service.bindings())
        self._kubelet_socket = folder / KUBELET_SOCKET
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
        self._claim_not_before = 0.0
        self._bind_not_before = 0.0
        self._has_been_bound = False

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet accepted us and listens to our list."""
        return self._stream is StreamState.OPEN and self._registered_with is not None

    async def run(self) -> None:
        """Keep the plugin registered until cancelled; then let calls in flight end, and end the streams.

        Raises `PluginFolderLostError` if the folder cannot be healed from inside, and `KubeletError` if there
        is no right to it at the start.
        """
        watched = [str(self._kubelet_socket), str(self._listener.path), str(self._claim.path)]
        try:
            async with shared_watcher() as watcher, asyncio.TaskGroup() as group:
                group.create_task(self._wake_at_first_list())
                with watcher.subscribe(self._wake.set) as subscription:
                    while True:
                        self._wake.clear()
                        subscription.arm(watched)
                        if not self._is_registering and self._stream is not StreamState.AWAITED:
                            await self._listener.tidy()
                        step, look_again_seconds = next_step(self._look())
                        if step is Step.WAIT:
                            await self._wait(look_again_seconds)
                        elif step is Step.REGISTER:
                            self._begin_registering()
                            group.create_task(self._register())
                        else:
                            await self._act(step)
        finally:
            await self._close()

    def _look(self) -> Situation:
        now = asyncio.get_running_loop().time()
        return Situation(
            now=now,
            folder=self._folder(),
            has_list=self._inventory.is_ready,
            has_claim=self._claim.is_held(),
            is_bound=self._listener.is_bound(),
            kubelet=socket_identity(self._kubelet_socket),
            registered_with=self._registered_with,
            registered_at=self._registered_at,
            is_registering=self._is_registering,
            stream=self._stream,
            cut_at=self._stream_since,
            cut_wait_seconds=self._cut_wait_seconds,
            claim_not_before=self._claim_not_before,
            bind_not_before=self._bind_not_before,
            register_not_before=self._register_not_before,
            failed_with=self._failed_with,
        )

    def _folder(self) -> Folder:
        absent = "no kubelet here, waiting for its folder; without a cluster: devplug demo"
        folder = self._surroundings.plugin_dir
        try:
            links = folder.stat().st_nlink
        except OSError:
            self._surroundings.say_once(absent, folder=str(folder))
            return Folder.ABSENT
        self._surroundings.unsay(absent)
        return Folder.PRESENT if links else Folder.LOST

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _wake_at_first_list(self) -> None:
        await self._inventory.changed_since(0)
        self._wake.set()

    async def _act(self, step: Step) -> None:
        if step is Step.GIVE_UP:
            raise PluginFolderLostError(str(self._surroundings.plugin_dir))
        if step is Step.CLAIM:
            self._take_claim()
        if step is Step.BIND:
            await self._bind()

    def _take_claim(self) -> None:
        folder = self._surroundings.plugin_dir
        now = asyncio.get_running_loop().time()
        try:
            holder = self._claim.take()
        except OSError as error:
            self._refuse_without_right()
            self._claim_not_before = now + CLAIM_RETRY_SECONDS
            self._surroundings.say_once(_CANNOT_LOCK, folder=str(folder), reason=str(error))
            return
        self._surroundings.unsay(_CANNOT_LOCK)
        if holder is None:
            if removed := remove_stale_sockets(folder, self._plugin.resource_name):
                logger.info("removed sockets of dead processes", extra={"sockets": removed})
        else:
            self._claim_not_before = now + CLAIM_RETRY_SECONDS
            self._surroundings.say_once(
                f"{self._plugin.resource_name} is served by {holder} here, waiting until it ends",
                resource_name=self._plugin.resource_name,
            )

    async def _bind(self) -> None:
        try:
            await self._listener.bind()
        except KubeletError as error:
            self._refuse_without_right()
            self._bind_not_before = asyncio.get_running_loop().time() + BIND_RETRY_SECONDS
            self._surroundings.say_once(_CANNOT_BIND, reason=str(error))
            return
        self._surroundings.unsay(_CANNOT_BIND)
        if self._has_been_bound:
            logger.info("socket was removed, made again", extra={"resource_name": self._plugin.resource_name})
        self._has_been_bound = True

    def _refuse_without_right(self) -> None:
        """Raise if this process may not write to the folder and never could; later it may pass."""
        folder = self._surroundings.plugin_dir
        if not self._has_been_bound and folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            raise KubeletError(
                f"no right to create a socket in {folder}: run as uid 0, or let this user write there",
            )

    def _begin_registering(self) -> None:
        self._is_registering = True
        self._streams_before = self._service.streams_opened
        self._stream = StreamState.AWAITED

    async def _register(self) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        request = RegisterRequest(
            methods.DEVICE_PLUGIN_VERSION,
            self._listener.path.name,
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
            self._wake.set()
        # A stream tells more than the answer: a kubelet that listens has accepted us.
        if failure is None or self._stream is StreamState.OPEN:
            if kubelet != self._registered_with:
                self._quick_cuts = 0
            self._registered_with, self._registered_at = kubelet, loop.time()
            self._failed_with, self._failures = None, 0
            self._surroundings.unsay(_UNREACHABLE)
            logger.info(
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
            logger.warning(
                "the kubelet refused the registration",
                extra={"resource_name": self._plugin.resource_name, "reason": str(failure)},
            )

    def _stream_changed(self) -> None:
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
        self._wake.set()
        self._on_change()

    async def _close(self) -> None:
        try:
            await self._service.drain()
            await self._listener.close(CLOSE_SECONDS)
        finally:
            self._service.close()
            self._claim.release()
