"""The lifecycle of one plugin: serve, register, watch, repeat; the I/O around the decisions."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletError, PluginFolderLostError
from devplug.linux.notifier import Event, within
from devplug.linux.supervision import borne
from devplug.plugin.registrar import Registrar, SocketRegistrar, WatcherRegistrar
from devplug.plugin.registration import Folder, RegistrationFacts, RegistrationMode, Step
from devplug.plugin.resource_lock import ResourceLock, remove_stale_sockets
from devplug.plugin.service import PluginService
from devplug.plugin.takeover import TakeoverDetector

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug.linux.inotify import Subscription
    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.environment import PluginEnvironment
    from devplug.plugin.holds import Holding
    from devplug.plugin.inventory import Inventory
    from devplug.status import DeviceStatus
    from devplug.wire.sockets import Listener


logger = logging.getLogger(__name__)

LOCK_RETRY_SECONDS: Final = 1.0
FIRST_BIND_RETRY_SECONDS: Final = 0.01
"""A kubelet that starts removes every socket of the folder, one that is just being made there too."""

BIND_RETRY_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 0.5
"""How long open streams may take to end at the close, after all calls."""

_CANNOT_LOCK: Final = "cannot lock the resource in the plugin folder"
_CANNOT_BIND: Final = "cannot make a socket in the plugin folder"


class Lifecycle:
    """Keeps one plugin registered; lives as long as the plugin is served, and owns its socket and its lock.

    `on_change` is called whenever `registered_at` or `fault` may have changed, and `on_turn` when no other
    process serves the name any more. `on_wanted` is called while another process waits to serve it.
    """

    driver = ""
    """There is no DRA driver: pods get the devices as an extended resource."""

    def __init__(
        self,
        plugin: DevicePlugin,
        inventory: Inventory,
        environment: PluginEnvironment,
        on_change: Callable[[], None],
        holding: Holding | None = None,
        on_turn: Callable[[], None] = lambda: None,
        on_wanted: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_turn = on_turn
        self._on_wanted = on_wanted
        self._holding = holding
        self._inventory = inventory
        self._environment = environment
        self._on_change = on_change
        self._wake = Event()
        self._obstacle = ""
        self._absence = f"{environment.folder} does not exist: no kubelet here"
        self.registered_at: float | None = None
        """Since when the plugin is registered, as a Unix time in seconds; None if it is not."""
        self.service = PluginService(
            plugin,
            inventory,
            lambda: self._registrar.stream_changed(),  # noqa: PLW0108 -- it is made below
            holding,
        )
        folder = environment.folder
        self._lock = ResourceLock(folder, plugin.resource_name)
        path = self._new_path()
        self.guard = TakeoverDetector(plugin.resource_name, inventory, folder, on_change, self._wake.set)
        """The signs of other plugins with the same resource name."""
        self._registrar = self._new_registrar(path.name)
        self._listener = self._new_listener(path)
        self._lock_not_before = 0.0
        self._bind_not_before = 0.0
        self._bind_wait_seconds = FIRST_BIND_RETRY_SECONDS
        self._has_been_bound = False
        self._is_moving = False
        self._watched = self._paths()

    def _paths(self) -> list[str]:
        own = self._listener.path, self._lock.path, self._lock.wanted_path
        return [str(path) for path in (*self._registrar.watched, *own)]

    def _new_path(self) -> Path:
        environment = self._environment
        return environment.folder / environment.name_socket(self._inventory.resource_name)

    def _new_listener(self, path: Path) -> Listener:
        bindings = (*self.service.bindings(), *self._registrar.bindings())
        return self._environment.sockets.listener(path, bindings)

    def _new_registrar(self, socket_name: str) -> Registrar:
        is_found = self._environment.mode is RegistrationMode.WATCHER
        way: type[Registrar] = WatcherRegistrar if is_found else SocketRegistrar
        common = self._inventory, self.service, self._environment
        return way(*common, socket_name, self._wake.set, self._registrar_changed)

    def described(self, devices: tuple[DeviceStatus, ...]) -> tuple[DeviceStatus, ...]:
        """Return the devices' statuses with the pods that hold them, for a plugin in code."""
        return devices if self._holding is None else self._holding.described(devices)

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet accepted us and listens to our list."""
        return self._registrar.state.is_registered

    @property
    def streams(self) -> int:
        """How many ListAndWatch streams are open."""
        return len(self.service.streams.open)

    @property
    def fault(self) -> str:
        """What keeps the plugin from being ready; empty if nothing does."""
        if self._inventory.failure:
            return self._inventory.failure
        if self.is_registered:
            return self.guard.fault or self.service.fault
        if not self._inventory.is_ready:
            return "there is no list of devices yet"
        return self._obstacle or self._registrar.refusal or "no kubelet is connected"

    def _registrar_changed(self) -> None:
        if not self.is_registered:
            self.registered_at = None
        elif self.registered_at is None:
            self.registered_at = time.time()
        self._on_change()

    def _obstruct(self, obstacle: str) -> None:
        if obstacle != self._obstacle:
            self._obstacle = obstacle
            self._on_change()

    async def run(self) -> None:
        """Keep the plugin registered until cancelled; then finish calls in flight, and end the streams.

        Raises `PluginFolderLostError` if the folder was deleted under its mount, and `KubeletError` if this
        process has no right to the folder at the start.
        """
        try:
            async with self._environment.watching() as watcher, asyncio.TaskGroup() as group:
                group.create_task(self._wake_at_first_list())
                group.create_task(self._inventory.drop_leaving())
                with watcher.subscribe(self._wake.set) as subscription:
                    await borne(lambda: self._follow(subscription, group))
        finally:
            await self._close()

    async def _follow(self, subscription: Subscription, group: asyncio.TaskGroup) -> None:
        """Do what is due, and wait for the next change, until cancelled."""
        while True:
            self._wake.clear()
            subscription.arm(self._watched)
            if self._registrar.state.is_settled:
                await self._listener.tidy()
            self._review()
            if self._lock.is_held() and self._lock.is_wanted():
                self._on_wanted()
            if self.guard.take_renewal() or self._has_other_options():
                self.service.streams.end()
            step, look_again_seconds = self._registrar.next_step(self._look())
            if step is Step.WAIT:
                await within(look_again_seconds, self._wake.wait())
            elif step is Step.REGISTER:
                self._registrar.register(group, self._look)
            elif step is Step.LEAVE:
                self._registrar.leave()
            else:
                await self._act(step)

    def _has_other_options(self) -> bool:
        """Whether the kubelet has to be given other options, for which it takes a new registration."""
        streams = self.service.streams
        is_ended = streams.ended == streams.opened
        if is_ended or not (self.is_registered and self.service.has_other_options):
            return False
        logger.info(
            "the new plugin offers other calls (pre_start) than before; it is registered again",
            extra={"resource_name": self.service.resource_name},
        )
        return True

    def _look(self) -> RegistrationFacts:
        return RegistrationFacts(
            now=asyncio.get_running_loop().time(),
            folder=self._folder(),
            has_list=self._inventory.is_ready,
            has_lock=self._lock.is_held(),
            is_bound=self._listener.is_bound(),
            lock_not_before=self._lock_not_before,
            bind_not_before=self._bind_not_before,
        )

    def _review(self) -> None:
        state = self._registrar.state
        self.guard.review(
            registered_at=state.stream_since if state.is_registered else None,
            cuts=state.cuts,
        )

    def _folder(self) -> Folder:
        absent = "no kubelet here, waiting for its folder; without a cluster: devplug sandbox run -- COMMAND"
        folder = self._environment.folder
        try:
            links = folder.stat().st_nlink
        except OSError as error:
            if isinstance(error, PermissionError) and not self._has_been_bound:
                raise KubeletError(
                    f"no right to look for {folder}: run as uid 0, or let this user enter its parents",
                ) from error
            self._environment.say_once(absent, folder=str(folder))
            self._obstruct(self._absence)
            return Folder.ABSENT
        self._environment.unsay(absent)
        if self._obstacle == self._absence:  # a folder that was only moved away brings all back with it
            self._obstruct("")
        return Folder.PRESENT if links else Folder.LOST

    async def _wake_at_first_list(self) -> None:
        await self._inventory.changed_since(0)
        self._wake.set()

    async def _act(self, step: Step) -> None:
        if step is Step.GIVE_UP:
            raise PluginFolderLostError(str(self._environment.folder))
        if step is Step.LOCK:
            await self._take_lock()
        if step in {Step.BIND, Step.RENEW}:
            await self._bind()
        if step is Step.MOVE:
            await self._move()

    async def _take_lock(self) -> None:
        folder = self._environment.folder
        now = asyncio.get_running_loop().time()
        if no_place := self._environment.take_place(self):
            self._lock_not_before = now + LOCK_RETRY_SECONDS
            self._environment.say_once(no_place)
            self._obstruct(no_place)
            return
        try:
            holder = self._lock.take()
        except OSError as error:
            self._refuse_without_right()
            self._lock_not_before = now + LOCK_RETRY_SECONDS
            self._environment.say_once(_CANNOT_LOCK, folder=str(folder), reason=str(error))
            self._obstruct(f"{_CANNOT_LOCK}: {error}")
            return
        self._environment.unsay(_CANNOT_LOCK)
        if holder is None:
            self._on_turn()
            self._obstruct("")
            name, sockets = self._inventory.resource_name, self._environment.sockets
            if removed := remove_stale_sockets(folder, name, sockets):
                logger.info("removed the sockets of processes that have ended", extra={"sockets": removed})
        else:
            self._lock_not_before = now + LOCK_RETRY_SECONDS
            self._obstruct(f"it is served by {holder} on this node")
            self._environment.say_once(
                f"{self._inventory.resource_name} is served by {holder} on this node; waiting until it ends",
                resource_name=self._inventory.resource_name,
            )
            if self._listener.is_bound() or self.service.streams.open:
                # Somebody removed our lock, and another was quicker. The kubelet believes both streams.
                await self._move()

    async def _bind(self) -> None:
        was_lost = self._has_been_bound and not self._is_moving and not self._listener.is_bound()
        self._registrar.socket_made()
        try:
            await self._listener.bind()
        except KubeletError as error:
            self._refuse_without_right()
            self._bind_not_before = asyncio.get_running_loop().time() + self._bind_wait_seconds
            self._bind_wait_seconds = min(2 * self._bind_wait_seconds, BIND_RETRY_SECONDS)
            self._environment.say_once(_CANNOT_BIND, reason=str(error))
            self._obstruct(f"{_CANNOT_BIND}: {error}")
            return
        self._bind_wait_seconds = FIRST_BIND_RETRY_SECONDS
        self._environment.unsay(_CANNOT_BIND)
        self._obstruct("")
        if was_lost:
            logger.info(
                "the plugin's socket was removed; it was made again",
                extra={"resource_name": self._inventory.resource_name},
            )
        self._has_been_bound, self._is_moving = True, False

    async def _move(self) -> None:
        """Close our socket with the streams that came by it; the next step makes another."""
        self.service.streams.end()
        await self._listener.close(CLOSE_SECONDS if self.service.calls_in_flight else 0)
        self._listener = self._new_listener(self._new_path())
        self._watched = self._paths()
        self._is_moving = True
        self._registrar.socket_moved(self._listener.path.name)

    def _refuse_without_right(self) -> None:
        """Raise if this process has no right to write to the folder and never had; later it retries."""
        folder = self._environment.folder
        if not self._has_been_bound and folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            raise KubeletError(
                f"no right to create a socket in {folder}: run as uid 0, or let this user write there",
            )

    async def _close(self) -> None:
        try:
            # Cancelled once more, it waits for no calls; its socket is closed all the same.
            try:
                await self.service.drain()
            finally:
                await self._listener.close(CLOSE_SECONDS)
        finally:
            self.service.close()
            self._lock.release()
            self._environment.leave_place(self)
