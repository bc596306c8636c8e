"""The plugin watcher: plugins found by their sockets in `plugins_registry` (pkg/kubelet/pluginmanager).

`reconciler` decides what to do about a socket. What a plugin is registered with depends on its type; CSI
drivers get the answer that no handler is registered for theirs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from devplug.errors import RegistrationError, RemoteError
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.pluginfolder import dialled_path, endpoint_path
from devplug.kubelet.reconciler import StateOfWorld, WatchedPlugin
from devplug.linux.inotify import EventKind, shared_watcher
from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS
from devplug.wire.sockets import authority_of, connected, socket_identity
from devplug.wire.values import RegistrationStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from devplug.kubelet.changes import Changes
    from devplug.kubelet.metrics import KubeletMetrics
    from devplug.kubelet.settings import KubeletSettings
    from devplug.linux.inotify import FileEvent, Subscription
    from devplug.wire.sockets import Peer
    from devplug.wire.values import PluginInfo

logger = logging.getLogger(__name__)

_STOP_TIMEOUT_SECONDS: Final = 5.0
"""How long a stopping kubelet waits for its own connections to close."""


class PluginTypeHandler(Protocol):
    """What plugins of one type are registered with (pluginmanager/cache PluginHandler)."""

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raise `RegistrationError` for a plugin that cannot be registered whatever it serves."""

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Register what serves the socket at `endpoint`; raises `RegistrationError`."""

    def deregister(self, name: str, endpoint: str) -> None:
        """Forget it; its registration socket is gone."""


@dataclass(eq=False, slots=True)
class RegistrationRecord:
    """Facts about one registration socket from its creation to its removal, by the kubelet's clock."""

    path: Path
    found_at: float
    attempts: int = 0
    """Number of attempts to register, each with a dial of its own."""
    info: PluginInfo | None = None
    """The last answer of GetInfo."""
    endpoint: Path = field(default_factory=Path)
    """The service socket, where the kubelet finds it; known from the first GetInfo on."""
    info_seconds: float | None = None
    """Duration of the first GetInfo that was answered."""
    failure: str = ""
    """Reason why the last attempt failed; empty before, and after a success."""
    notify_error: str = ""
    """Error of the last NotifyRegistrationStatus."""
    registered_at: float | None = None
    """Time of the newest registration, also of one that NotifyRegistrationStatus ended; None without any."""
    gone_at: float | None = None
    """Time when the socket was removed or replaced, or the kubelet ended."""


# ── the folder ────────────────────────────────────────────────────────────────────────────────────


class _RegistryFolder:
    """`plugins_registry` and the folders below it, as far as they have been seen. Lives from `open` on.

    A file whose name begins with a dot is no plugin's socket, and neither is anything but a socket. A folder
    with a dot is passed over when it appears, and watched when it was there before, as in the real kubelet
    (pluginwatcher/plugin_watcher.go).
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.sockets: dict[str, tuple[int, int, int] | None] = {}
        """The sockets that were seen and not yet lost, with what told each file from another."""
        self._folders: dict[str, None] = {}
        self._subscription: Subscription | None = None

    def make(self) -> None:
        """Make the folder if it is missing; raises `OSError`."""
        Path(self.path).mkdir(mode=0o755, parents=True, exist_ok=True)

    def open(self, subscription: Subscription) -> list[str]:
        """Watch it all by `subscription` from now on, and return the sockets that are there."""
        self._subscription = subscription
        return self._take_in(self.path)

    def look_again(self) -> list[str]:
        """Take everything in anew, and return the sockets that are there."""
        self.sockets.clear()
        self._folders.clear()
        return self._take_in(self.path)

    def appeared(self, path: str) -> list[str]:
        """Return the sockets that came with a new file: itself, or those below it."""
        if _is_hidden(path):
            return []
        try:
            mode = Path(path).stat().st_mode
        except OSError as error:
            logger.warning(
                "cannot examine a file in plugins_registry; it is ignored",
                extra={"path": path, "reason": error.strerror},
            )
            return []
        if stat.S_ISDIR(mode):
            return self._take_in(path)
        if not stat.S_ISSOCK(mode):
            return []
        self.sockets[path] = socket_identity(Path(path))
        return [path]

    def gone(self, path: str) -> None:
        """Forget a file, and watch a folder no longer, with those below it."""
        self.sockets.pop(path, None)
        lost = [folder for folder in self._folders if folder == path or folder.startswith(f"{path}/")]
        for folder in lost:
            del self._folders[folder]
        if lost:
            self._arm()

    def _take_in(self, folder: str) -> list[str]:
        """Watch a folder and those below it, each before it is read, and return the sockets in them."""
        found: list[str] = []
        level = [folder]
        while level:
            self._folders.update(dict.fromkeys(level))
            self._arm()
            below: list[str] = []
            for each in level:
                for entry in _entries(each):
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    elif not _is_hidden(entry.path) and Path(entry.path).is_socket():
                        self.sockets[entry.path] = socket_identity(Path(entry.path))
                        found.append(entry.path)
            level = below
        return found

    def _arm(self) -> None:
        assert self._subscription is not None
        self._subscription.arm_folders(self._folders)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Return what is in a folder. In a link to one nothing is found, as filepath.Walk in Go follows none."""
    path = Path(folder)
    if path.is_symlink():
        return []
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        logger.warning("cannot read a folder", extra={"path": folder, "reason": error.strerror})
        return []


def _is_hidden(path: str) -> bool:
    return Path(path).name.startswith(".")


# ── the plugins ───────────────────────────────────────────────────────────────────────────────────


class PluginWatcher:
    """Finds sockets in a folder and registers what serves them. Lives from `open` to `close`.

    The folder's sub-folders are watched too. A look at what has changed is taken at the start, and then once
    in each period; a plugin that is removed and made again between two looks is unregistered and registered.
    """

    def __init__(
        self,
        folder: Path,
        handlers: Mapping[str, PluginTypeHandler],
        tasks: asyncio.TaskGroup,
        changes: Changes,
        metrics: KubeletMetrics,
        settings: KubeletSettings,
        record: Callable[[Path, float], RegistrationRecord] = RegistrationRecord,
    ) -> None:
        """Create a watcher; `record` makes the record of each socket that is found."""
        self._record = record
        self._records: dict[str, RegistrationRecord] = {}
        self._handlers = handlers
        self._tasks = tasks
        self._changes = changes
        self._metrics = metrics
        self._settings = settings
        self._state = StateOfWorld()
        self._folder = _RegistryFolder(str(folder.absolute()))
        self._running: set[asyncio.Task[None]] = set()
        self._held = AsyncExitStack()

    async def open(self) -> None:
        """Make the folder if need be, and watch it.

        A folder that cannot be used is logged and left at that: the real kubelet runs on without it.
        """
        try:
            self._folder.make()
        except OSError as error:
            logger.error(  # noqa: TRY400 -- its text says all
                "cannot watch for plugins",
                extra={"path": self._folder.path, "reason": str(error)},
            )
            return
        watcher = await self._held.enter_async_context(shared_watcher())
        subscription = self._held.enter_context(watcher.subscribe(self._show, self._follow))
        self._create(self._folder.open(subscription))
        self._show()
        self._running.add(self._tasks.create_task(self._reconcile(), name="plugin watcher"))

    async def close(self) -> None:
        """Stop watching and break off what is under way; safe to repeat."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_STOP_TIMEOUT_SECONDS)
        await self._held.aclose()
        for path in list(self._records):
            self._close_record(path)

    # ── what the folder tells ──

    def _follow(self, event: FileEvent) -> None:
        """Count one event (plugin_watcher.go handleCreateEvent, handleDeleteEvent)."""
        match event.kind:
            case EventKind.APPEARED:
                self._create(self._folder.appeared(event.path))
            case EventKind.REMOVED:
                self._folder.gone(event.path)
                self._remove(event.path)
            case EventKind.LEFT:
                # A socket that is renamed away stays wanted: only its removal is noticed.
                self._folder.gone(event.path)
            case EventKind.MISSED:
                self._look_at_all()

    def _look_at_all(self) -> None:
        """Find out without events what has changed; the real kubelet would not."""
        before = dict(self._folder.sockets)
        found = self._folder.look_again()
        for path in self._state.desired.keys() - found:
            self._remove(path)
        self._create(path for path in found if self._folder.sockets[path] != before.get(path))

    def _create(self, paths: Iterable[str]) -> None:
        for path in paths:
            logger.info("found the socket of a plugin", extra={"path": _shown(path)})
            self._state = self._state.created(path)
            self._close_record(path)
            self._records[path] = self._record(Path(path), self._settings.clock())

    def _remove(self, path: str) -> None:
        self._state = self._state.removed(path)
        self._close_record(path)

    def _close_record(self, path: str) -> None:
        record = self._records.pop(path, None)
        if record is not None:
            record.gone_at = self._settings.clock()

    def _show(self) -> None:
        """Let metrics and waiters see the state."""
        states = (
            ("actual_state_of_world", self._state.actual),
            ("desired_state_of_world", self._state.desired),
        )
        self._metrics.show_plugins((_shown(path), state) for state, paths in states for path in paths)
        self._changes.announce(ChangeKind.SOCKET)

    # ── what is done about it ──

    async def _reconcile(self) -> None:
        """Look at the state in each period, for ever (reconciler.go reconcile)."""
        while True:
            plan = self._state.plan(self._settings.clock())
            for path in plan.unregister:
                self._unregister(path)
            for path in plan.register:
                self._state = self._state.began(path)
                attempt = self._attempt(path, self._state.desired[path])
                self._running.add(self._tasks.create_task(attempt, name=f"registration at {path}"))
            await asyncio.sleep(self._settings.reconcile_period_seconds)

    def _unregister(self, path: str) -> None:
        plugin = self._state.actual[path]
        logger.info(
            "the socket of a plugin is gone or was made again",
            extra={"plugin": plugin.name, "path": _shown(path)},
        )
        self._state = self._state.unregistered(path)
        self._handlers[plugin.type].deregister(plugin.name, plugin.endpoint)
        self._show()

    async def _attempt(self, path: str, identity: int) -> None:
        """Try once to register what serves a socket, and note how it went."""
        record = self._records.get(path) or self._record(Path(path), self._settings.clock())
        record.attempts += 1
        try:
            async with AsyncExitStack() as connection:
                peer = await self._dial(path, connection)
                await self._register(path, identity, peer, record)
        except Exception as error:
            if not isinstance(error, RegistrationError):
                logger.exception("a plugin was not registered because of a bug", extra={"path": _shown(path)})
            record.failure = str(error)
            self._state = self._state.failed(path, self._settings.clock())
            retry_seconds = self._state.backoffs[path].wait_seconds
            logger.warning(
                "cannot register a plugin",
                extra={"path": _shown(path), "reason": str(error), "retry_seconds": retry_seconds},
            )
        else:
            record.failure = ""
            self._state = self._state.succeeded(path)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._running.discard(task)
        self._show()

    async def _register(self, path: str, identity: int, peer: Peer, record: RegistrationRecord) -> None:
        """Ask, check, connect, tell (operation_generator.go GenerateRegisterPluginFunc).

        Raises `RegistrationError` with the text that the plugin is told, or the real kubelet logs.
        """
        info = await self._info(path, peer, record)
        endpoint = str(record.endpoint)
        handler = self._handlers.get(info.type)
        if handler is None:
            text = f"no handler registered for plugin type: {info.type} at socket {_shown(path)}"
            await self._refuse(peer, path, text, record)
        try:
            handler.validate(info.name, endpoint, info.supported_versions)
        except RegistrationError as error:
            await self._refuse(peer, path, f"plugin validation failed with err: {error}", record)
        plugin = WatchedPlugin(identity, info.name, endpoint, info.type)
        # Before it is connected, so that a removal meanwhile is seen as one of a registered plugin.
        self._state = self._state.added(path, plugin)
        self._show()
        try:
            await handler.register(info.name, endpoint, info.supported_versions)
        except RegistrationError as error:
            self._state = self._state.taken_out(path)
            await self._refuse(peer, path, f"plugin registration failed with err: {error}", record)
        try:
            await self._notify(peer, RegistrationStatus(plugin_registered=True), record)
        except RemoteError as error:
            self._state = self._state.taken_out(path)
            handler.deregister(info.name, endpoint)
            raise _failure(
                f"failed to send registration status at socket {_shown(path)}, err: : {error}",
            ) from error
        finally:
            record.registered_at = self._settings.clock()

    async def _dial(self, path: str, connection: AsyncExitStack) -> Peer:
        try:
            dialled = dialled_path(Path(path))
            return await connection.enter_async_context(
                connected(
                    dialled,
                    ready_within_seconds=self._settings.dial_timeout_seconds,
                    authority=authority_of(dialled),
                ),
            )
        except (RegistrationError, RemoteError) as error:
            reason = error.text if isinstance(error, RemoteError) else str(error).partition(": ")[2]
            where = f"socket {_shown(path)}"
            raise _failure(f"dial failed at {where}, err: failed to dial {where}, err: {reason}") from error

    async def _info(self, path: str, peer: Peer, record: RegistrationRecord) -> PluginInfo:
        begun = self._settings.clock()
        try:
            record.info = await peer.call(GET_INFO, None, timeout_seconds=self._settings.info_timeout_seconds)
        except RemoteError as error:
            raise _failure(
                f"failed to get plugin info using RPC GetInfo at socket {_shown(path)}, err: {error}",
            ) from error
        record.endpoint = endpoint_path(record.info.endpoint or path, Path(self._folder.path).parent)
        if record.info_seconds is None:
            record.info_seconds = self._settings.clock() - begun
        return record.info

    async def _refuse(self, peer: Peer, path: str, text: str, record: RegistrationRecord) -> NoReturn:
        """Tell the plugin why not, and fail with that."""
        refusal = _failure(text)
        try:
            await self._notify(peer, RegistrationStatus(plugin_registered=False, error=str(refusal)), record)
        except RemoteError as error:
            raise _failure(
                f"failed to send error at socket {_shown(path)}, err: {refusal}: {error}",
            ) from error
        raise refusal

    async def _notify(self, peer: Peer, status: RegistrationStatus, record: RegistrationRecord) -> None:
        seconds = self._settings.notify_timeout_seconds
        try:
            await peer.call(NOTIFY_REGISTRATION_STATUS, status, timeout_seconds=seconds)
        except RemoteError as error:
            record.notify_error = str(error)
            raise
        record.notify_error = ""


def _failure(text: str) -> RegistrationError:
    return RegistrationError(f"RegisterPlugin error -- {text}")


def _shown(path: str) -> str:
    """Return a path as text that a message, a metric and a log can hold."""
    return os.fsencode(path).decode(errors="replace")
