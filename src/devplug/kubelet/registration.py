"""The Registration service, with client, ListAndWatch stream and endpoint of each plugin (plugin/v1beta1).

The device manager has the devices; it gets lists through `PluginHandler`, and calls a plugin through its
`Endpoint` (endpoint.go).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from devplug.errors import AllocationError, KubeletError, RegistrationError, RemoteError
from devplug.k8s.resource_names import is_extended
from devplug.kubelet.changes import ChangeKind, Changes
from devplug.kubelet.gotext import go_quoted
from devplug.kubelet.pluginfolder import dialled_path
from devplug.kubelet.resources import grace_is_over
from devplug.wire.deviceplugin import (
    ALLOCATE,
    DEVICE_PLUGIN_VERSION,
    GET_OPTIONS,
    GET_PREFERRED_ALLOCATION,
    LIST_AND_WATCH,
    PRE_START_CONTAINER,
    REGISTER,
)
from devplug.wire.limits import KUBELET_CONNECTIONS_LIMIT
from devplug.wire.sockets import unary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.devices import ContainerResponse
    from devplug.kubelet.metrics import KubeletMetrics
    from devplug.kubelet.pluginfolder import PluginFolder
    from devplug.kubelet.settings import KubeletSettings
    from devplug.wire.sockets import Listener, Peer
    from devplug.wire.values import AdvertisedDevice, PluginOptions, PreferenceRequest, RegisterRequest

logger = logging.getLogger(__name__)

_RECEIVE_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""What the kubelet's servers take in one message: grpc-go's default."""

_STOP_TIMEOUT_SECONDS: Final = 5.0
"""How long a stopping kubelet waits for its own connections to close."""


class PluginHandler(Protocol):
    """The receiver of events about plugins (plugin/v1beta1/api.go ClientHandler). No method may wait."""

    def plugin_connected(self, resource_name: str, peer: Peer, options: PluginOptions) -> None:
        """A plugin was dialled and has answered with its options."""

    def plugin_listed(self, resource_name: str, devices: Sequence[AdvertisedDevice]) -> None:
        """A plugin sent a list."""

    def plugin_disconnected(self, resource_name: str) -> None:
        """The plugin that served this name is gone."""


@dataclass(eq=False, slots=True)
class _Client:
    """One connection to a plugin; lives in its task, which holds the connection open (client.go)."""

    resource_name: str
    path: Path
    taken_on: asyncio.Future[None]
    is_connected: bool = False
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Registration:
    """The server at `kubelet.sock` with the table of its clients. Lives from `open` to `close`.

    Every client runs in the task group that it is given.
    """

    folder: PluginFolder
    handler: PluginHandler
    tasks: asyncio.TaskGroup
    changes: Changes
    metrics: KubeletMetrics
    settings: KubeletSettings
    _listener: Listener = field(init=False)
    _clients: dict[str, _Client] = field(default_factory=dict)
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._listener = self.folder.sockets.listener(
            self.folder.kubelet_socket,
            (unary(REGISTER, self._register),),
            receive_limit_bytes=_RECEIVE_LIMIT_BYTES,
            connections_limit=KUBELET_CONNECTIONS_LIMIT,
        )

    async def open(self) -> None:
        """Listen for plugins; raises `KubeletError` if the folder does not take the socket."""
        await self._listener.bind()

    async def close(self, *, orderly: bool) -> None:
        """Stop listening and close all connections.

        Only an orderly stop disconnects the resources and removes the socket (server.go Stop); the real
        kubelet never makes one, it ends as a process does.
        """
        if orderly:
            for resource_name in tuple(self._clients):
                self.disconnect(resource_name)
        await self._listener.close(keep_file=not orderly)
        self._clients.clear()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_STOP_TIMEOUT_SECONDS)

    def disconnect(self, resource_name: str, path: Path | None = None) -> None:
        """Close the connection of the plugin that serves this name, and mark the resource (handler.go).

        With `path` only if it is the plugin at that socket. Raises `KubeletError` if no plugin serves
        it. A client that is still being dialled only loses its entry.
        """
        client = self._clients.get(resource_name)
        if client is None or path not in (None, client.path):
            raise KubeletError(f"no plugin serves {resource_name}")
        del self._clients[resource_name]
        if client.is_connected and client.task is not asyncio.current_task():
            assert client.task is not None
            client.task.cancel()
        self.handler.plugin_disconnected(resource_name)

    async def _register(self, request: RegisterRequest) -> None:
        """Serve Register: count, check the version, then the name, then dial (server.go Register).

        The options in the request are not read.
        """
        logger.info(
            "Got registration request from device plugin with resource",
            extra={"resource_name": request.resource_name},
        )
        self.metrics.count_registration(request.resource_name)
        if request.version != DEVICE_PLUGIN_VERSION:
            raise RegistrationError(
                f"requested API version {go_quoted(request.version)} is not supported by kubelet. "
                f"Supported version is [{go_quoted(DEVICE_PLUGIN_VERSION)}]",
            )
        if not is_extended(request.resource_name):
            raise RegistrationError(f"the ResourceName {go_quoted(request.resource_name)} is invalid")
        path = self.folder.socket_path(request.endpoint)
        await self.connect(request.resource_name, path)

    async def connect(self, resource_name: str, path: Path) -> None:
        """Dial a plugin and register it; its ListAndWatch runs on after this returns.

        Raises `RegistrationError`. The plugin may get its ListAndWatch call before its Register call returns.
        """
        client = _Client(resource_name, path, asyncio.get_running_loop().create_future())
        if self.settings.compat:
            # The new client stands in the table before it is dialled, and if that fails nobody does
            # (handler.go connectClient); the end of the old one's stream then marks nothing.
            self._clients[resource_name] = client
        client.task = self.tasks.create_task(self._run(client), name=f"plugin of {resource_name}")
        self._running.add(client.task)
        try:
            await client.taken_on
        except BaseException:
            # Also when the plugin gives up waiting, which cancels this call; once taken on, it stays.
            if not client.is_connected:
                client.task.cancel()
                if self.settings.compat:
                    self._clients.pop(resource_name, None)
            raise

    async def _run(self, client: _Client) -> None:
        """Hold one plugin's connection from the dial on; cancelled when it has to be closed."""
        try:
            async with AsyncExitStack() as connection:
                peer = await self._dial(client, connection)
                options = await self._options(peer)
                if client.taken_on.cancelled():
                    return
                client.is_connected = True
                if not self.settings.compat:
                    self._clients[client.resource_name] = client
                self.handler.plugin_connected(client.resource_name, peer, options)
                self.changes.announce(ChangeKind.REGISTERED, resource_name=client.resource_name)
                client.taken_on.set_result(None)
                await self._watch(client, peer)
        except RegistrationError as error:
            # Who waited may be gone in the same moment, as a plugin is that was killed.
            if not client.taken_on.cancelled():
                client.taken_on.set_exception(error)
        except Exception as error:
            facts = {"resource_name": client.resource_name}
            logger.exception("the connection to a plugin ended because of a bug", extra=facts)
            if not client.taken_on.done():
                client.taken_on.set_exception(RegistrationError(f"internal error: {error}"))
        finally:
            assert client.task is not None
            self._running.discard(client.task)

    async def _dial(self, client: _Client, connection: AsyncExitStack) -> Peer:
        try:
            return await connection.enter_async_context(
                self.folder.sockets.connected(
                    dialled_path(client.path), ready_within_seconds=self.settings.dial_timeout_seconds
                ),
            )
        except RemoteError as error:
            raise RegistrationError(f"failed to dial device plugin: {error.text}") from error

    async def _options(self, peer: Peer) -> PluginOptions:
        try:
            return await peer.call(GET_OPTIONS, None)
        except RemoteError as error:
            raise RegistrationError(f"failed to get device plugin options: {error}") from error

    async def _watch(self, client: _Client, peer: Peer) -> None:
        """Read lists until the stream ends; it is never opened again (handler.go runClient)."""
        try:
            try:
                async with aclosing(peer.stream(LIST_AND_WATCH, None)) as lists:
                    async for devices in lists:
                        self.handler.plugin_listed(client.resource_name, devices)
                reason = "EOF"
            except RemoteError as error:
                reason = str(error)
            logger.warning(
                "ListAndWatch ended unexpectedly for device plugin",
                extra={"resource_name": client.resource_name, "reason": reason},
            )
            # 1.36 looks for the client by name and not for this one: so the end of an old stream disconnects
            # the newest client of its name.
            current = self._clients.get(client.resource_name)
            is_found = current is not None if self.settings.compat else current is client
            if is_found:
                self.disconnect(client.resource_name)
        finally:
            self.changes.announce(ChangeKind.STREAM_ENDED, resource_name=client.resource_name)
        if current is None:
            # Nobody closes this connection any more, and the endpoint may still use it, to the kubelet's end.
            await asyncio.get_running_loop().create_future()


@dataclass(frozen=True, slots=True)
class WatchedPlugins:
    """What the watcher registers plugins of type `DevicePlugin` with (handler.go)."""

    registration: Registration

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:  # noqa: ARG002
        """Refuse what `check_watched_plugin` refuses."""
        check_watched_plugin(name, versions)

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:  # noqa: ARG002
        """Connect to a plugin; raises `RegistrationError`."""
        await self.registration.connect(name, Path(endpoint))

    def deregister(self, name: str, endpoint: str) -> None:
        """Disconnect a plugin (handler.go DeRegisterPlugin).

        1.36 looks for the client by name only, and so may take a newer plugin down that has another socket.
        """
        try:
            if self.registration.settings.compat:
                self.registration.disconnect(name)
            else:
                self.registration.disconnect(name, Path(endpoint))
        except KubeletError:
            logger.debug("no plugin serves the resource name any more", extra={"resource_name": name})


def check_watched_plugin(resource_name: str, versions: Sequence[str]) -> None:
    """Refuse what a plugin in `plugins_registry` may not be (handler.go ValidatePlugin).

    Raises `RegistrationError`. Here the version comes first, and any one of several will do.
    """
    if DEVICE_PLUGIN_VERSION not in versions:
        raise RegistrationError(
            f"manager version, {DEVICE_PLUGIN_VERSION}, is not among plugin supported versions "
            f"[{' '.join(versions)}]",
        )
    if not is_extended(resource_name):
        raise RegistrationError(
            f"invalid name of device plugin socket: the ResourceName {go_quoted(resource_name)} is invalid",
        )


@dataclass(slots=True)
class Endpoint:
    """One registered plugin. Lives until the next registration of its name, or the end of the grace period.

    It uses a connection that `Registration` owns. One that was restored from the checkpoint has none: it is
    stopped from the start, and its options are unknown.
    """

    resource_name: str
    peer: Peer | None
    options: PluginOptions | None
    stopped_at_seconds: float | None = None
    """When the plugin was lost; None as long as it is there."""

    def is_expired(self, now_seconds: float) -> bool:
        """Whether the plugin has been gone for longer than the grace period."""
        return grace_is_over(self.stopped_at_seconds, now_seconds)

    @property
    def wants_pre_start(self) -> bool:
        """Whether PreStartContainer has to be called; not while the options are unknown."""
        return self.options is not None and self.options.pre_start_required

    async def allocate(self, device_ids: Sequence[str]) -> Sequence[ContainerResponse]:
        """Call Allocate for one container, without a deadline, as the kubelet does.

        Raises `AllocationError` if the plugin is stopped, `RemoteError` if it refuses.
        """
        return await self._connection().call(ALLOCATE, [tuple(device_ids)])

    async def prefer(self, request: PreferenceRequest) -> Sequence[str]:
        """Return what the plugin prefers; nothing if it does not offer that. There is no deadline.

        Raises `AllocationError` in the words of manager.go callGetPreferredAllocationIfAvailable.
        """
        if self.options is None or not self.options.preferred_allocation_available:
            return ()
        try:
            containers = await self._connection().call(GET_PREFERRED_ALLOCATION, [request])
        except (AllocationError, RemoteError) as error:
            raise AllocationError(
                f"device plugin GetPreferredAllocation rpc failed with err: {error}",
            ) from error
        return containers[0] if containers else ()

    async def pre_start(self, device_ids: Sequence[str], timeout_seconds: float) -> None:
        """Call PreStartContainer; raises `AllocationError`, also when the time is over."""
        try:
            await self._connection().call(
                PRE_START_CONTAINER,
                tuple(device_ids),
                timeout_seconds=timeout_seconds,
            )
        except (AllocationError, RemoteError) as error:
            raise AllocationError(f"device plugin PreStartContainer rpc failed with err: {error}") from error

    def _connection(self) -> Peer:
        if self.peer is None or self.stopped_at_seconds is not None:
            # Go prints the whole struct here; programs can only match the end of the text.
            raise AllocationError(f"endpoint &{{{self.resource_name}}} has been stopped")
        return self.peer
