"""The machine that our code is given in memory: the sockets, the file events and the kubelet's folder."""

from __future__ import annotations

import asyncio
import fnmatch
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from devplug.errors import KubeletError
from devplug.kubelet.pluginfolder import PluginFolder
from devplug.kubelet_dir import KUBELET_SOCKET
from devplug.linux.inotify import BLIND_PERIOD_SECONDS, Subscription, Watcher
from devplug.wire.listener import Listener
from torture.schedules.connections import MemoryPeer
from torture.schedules.network import MemoryTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from pathlib import Path

    from devplug.linux.inotify import FileEvent
    from devplug.wire.sockets import Binding
    from torture.schedules.network import Network, Owner


class MemorySockets:
    """The sockets of one folder, as one process has them. Those of Go are seen before they listen."""

    def __init__(self, network: Network, owner: Owner, *, is_go: bool = False) -> None:
        self.network = network
        self.owner = owner
        self.is_go = is_go

    def listener(self, path: Path, bindings: tuple[Binding, ...], **_: int) -> Listener:
        """Return a listener in memory; sizes are not looked at."""
        listener = MemoryListener(path, bindings)
        listener.sockets = self
        return listener

    @asynccontextmanager
    async def connected(
        self,
        path: Path,
        *,
        ready_within_seconds: float | None = None,
        connect_within_seconds: float | None = None,
    ) -> AsyncIterator[MemoryPeer]:
        """Connect as `Sockets` says."""
        peer = MemoryPeer(self.network, self.owner, path.name)
        try:
            if ready_within_seconds is not None:
                await peer.ready(ready_within_seconds)
            if connect_within_seconds is not None:
                await peer.connect()
            yield peer
        finally:
            peer.close()

    def identity(self, path: Path) -> tuple[int, int, int] | None:
        """Return what tells the file from others."""
        node = self.network.nodes.get(path.name)
        return None if node is None else node.identity

    def refusing(self, folder: Path, pattern: str) -> Iterator[Path]:
        """Yield the sockets that refuse connections."""
        for name, node in tuple(self.network.nodes.items()):
            if (
                node.is_socket
                and fnmatch.fnmatchcase(name, pattern)
                and self.network.listening_at(name) is None
            ):
                yield folder / name

    def remove(self, path: Path) -> None:
        """Remove a file."""
        if self.network.remove(path.name) is None:
            raise FileNotFoundError(path)


class MemoryListener(Listener):
    """Our own listener, with its four hands on a network in memory."""

    sockets: MemorySockets

    async def _start(self, path: Path) -> MemoryTransport:
        network, owner = self.sockets.network, self.sockets.owner
        transport = MemoryTransport(network, owner, self.bindings)
        node = network.new_node()
        node.transport = transport
        if not owner.is_dead:
            network.put(path.name, node)
        try:
            await asyncio.sleep(network.chance.work())
        except BaseException:
            # As gRPC does with the path that it has bound itself.
            await transport.stop(0)
            if not owner.is_dead:
                network.remove(path.name)
            raise
        return transport

    def _identity_at(self, path: Path) -> tuple[int, int, int] | None:
        return self.sockets.identity(path)

    def _move_in(self, hidden: Path) -> None:
        network = self.sockets.network
        if self.sockets.owner.is_dead:
            return
        network.remove(self.path.name)
        if hidden.name not in network.nodes:
            # A kubelet that starts removes every socket that it sees, and this one just now.
            raise FileNotFoundError(2, "No such file or directory", str(hidden))
        node = network.nodes[hidden.name]
        if self.sockets.is_go and node.transport is not None:
            network.listens_late(node.transport)
        network.put(self.path.name, node)
        network.remove(hidden.name)

    def _remove(self) -> None:
        if not self.sockets.owner.is_dead:
            self.sockets.network.remove(self.path.name)


class MemoryWatcher(Watcher):
    """File events in memory, each with a delay of its own; `is_blind` has no descriptor to read them from."""

    def __init__(self, network: Network, *, is_blind: bool) -> None:
        self.network = network
        self.is_blind = is_blind

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[Watcher]:
        """Return itself, in the place of `shared_watcher`."""
        yield self

    @contextmanager
    def subscribe(
        self,
        on_change: Callable[[], None],
        on_event: Callable[[FileEvent], None] | None = None,  # noqa: ARG002 -- nobody here wants single events
    ) -> Iterator[Subscription]:
        """Open a subscription."""
        subscription = _MemorySubscription(self, on_change)
        self.network.watchers.append(subscription.hear)
        try:
            yield subscription
        finally:
            self.network.watchers.remove(subscription.hear)
            subscription.end()


class _MemorySubscription(Subscription):
    def __init__(self, watcher: MemoryWatcher, on_change: Callable[[], None]) -> None:
        super().__init__(watcher, on_change)
        self._network = watcher.network
        self._is_blind = watcher.is_blind
        self._wake = on_change
        self._patterns: list[str] = []
        self._names: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def arm(self, patterns: Iterable[str], *, writes_in: str = "") -> None:  # noqa: ARG002 -- nobody writes
        """Listen to these names from now on."""
        if patterns != self._patterns:
            self._patterns = [*patterns]
            self._names = [pattern.rpartition("/")[2] for pattern in self._patterns]
        if self._is_blind:
            self.end()
            self._timer = self._network.loop.call_later(BLIND_PERIOD_SECONDS, self._wake)

    def hear(self, name: str) -> None:
        """Hear of a change, after a while."""
        if name in self._names and not self._is_blind:
            seconds = self._network.chance.event()
            if seconds is not None:
                self._network.loop.call_at(self._network.loop.time() + seconds, self._tell)

    def _tell(self) -> None:
        if not self._is_over:
            self._wake()

    def end(self) -> None:
        """Hear no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class MemoryFolder(PluginFolder):
    """The kubelet's folder, its checkpoint file included; outlives the kubelets."""

    def __init__(self, path: Path, network: Network) -> None:
        super().__init__(path)
        self._network = network
        self._checkpoint: bytes | None = None

    def prepare(self) -> None:
        """Remove every socket."""
        for name, node in tuple(self._network.nodes.items()):
            if node.is_socket:
                self._network.remove(name)
        if KUBELET_SOCKET in self._network.nodes:
            raise KubeletError("bind: address already in use")

    def read_checkpoint(self) -> bytes | None:
        """Return the file's content."""
        return self._checkpoint

    def write_checkpoint(self, content: bytes) -> None:
        """Replace the file."""
        self._checkpoint = content
