"""Changes of the file system, by event: the one inotify descriptor of the process, shared by all watchers.

Events only say when to look: subscribers arm their watch first, look, and look again when they
are woken. Where the kernel gives no descriptor (128 per user by default) a subscriber is woken every second.
A glob is followed through folders that come and go.
"""

from __future__ import annotations

import asyncio
import ctypes
import enum
import errno
import fnmatch
import logging
import os
import struct
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakKeyDictionary

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Mapping

logger = logging.getLogger(__name__)

BLIND_PERIOD_SECONDS: Final = 1.0
"""How often subscribers look for themselves while the kernel gives us no inotify descriptor."""

# linux/inotify.h
_IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x40, 0x80, 0x100, 0x200
_IN_DELETE_SELF, _IN_MOVE_SELF = 0x400, 0x800
_IN_UNMOUNT, _IN_Q_OVERFLOW, _IN_IGNORED, _IN_CLOSE_WRITE = 0x2000, 0x4000, 0x8000, 0x8
_IN_ONLYDIR, _IN_MASK_ADD = 0x01000000, 0x20000000
_OF_THE_FOLDER: Final = _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_UNMOUNT | _IN_IGNORED
_MASK: Final = (
    _IN_CREATE | _IN_DELETE | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
)
_EVENT: Final = struct.Struct("iIII")
_READ_BYTES: Final = 16 * 1024
"""The bytes that are read in one turn of the loop, some hundred events, so that other tasks run in a
storm."""

_libc = ctypes.CDLL(None, use_errno=True)


class EventKind(enum.Enum):
    """The kind of a file event."""

    APPEARED = enum.auto()
    """It was made here, or renamed to here."""
    WRITTEN = enum.auto()
    """It was closed by a program that had it open for writing; reported only where this was asked for."""
    REMOVED = enum.auto()
    LEFT = enum.auto()
    """It was renamed away: it lives on under another name, perhaps elsewhere."""
    MISSED = enum.auto()
    """Anything may have happened to any file: events were lost, or there is no descriptor to read them."""


class FileEvent(Struct, frozen=True):
    """One event, in the order in which the kernel saw them. It may be outdated when it is delivered."""

    kind: EventKind
    path: str = ""
    """The file, below the folder as it was armed, or the armed folder itself; empty if events were missed."""


OnEvent: TypeAlias = "Callable[[FileEvent], None] | None"

_MISSED: Final = FileEvent(EventKind.MISSED)

_KINDS: Final = (
    (_IN_CLOSE_WRITE, EventKind.WRITTEN),
    (_IN_CREATE | _IN_MOVED_TO, EventKind.APPEARED),
    (_IN_DELETE | _IN_DELETE_SELF | _IN_UNMOUNT, EventKind.REMOVED),
    (_IN_MOVED_FROM | _IN_MOVE_SELF, EventKind.LEFT),
)


class Subscription:
    """One watcher's interest in some paths; lives as long as its `with` block.

    `on_change` is called on the loop, without arguments and never inside `arm`, once or more after a change.
    `on_event`, for those to whom a file that came and went matters too, is called before it with each event.
    """

    def __init__(self, watcher: Watcher, on_change: Callable[[], None], on_event: OnEvent = None) -> None:
        self._watcher = watcher
        self.wake = on_change
        """Called when the subscriber should look again."""
        self._on_event = on_event
        self.wants_events = on_event is not None
        """Whether the subscriber gets each event, and not only a call to look again."""

    def arm(self, patterns: Iterable[str], *, writes_in: str = "") -> None:
        """Watch these absolute globs from now on, and no others. Call it before every look.

        In the folder `writes_in` files that were written to are reported, too. Not for /dev, where programs
        do nothing else.
        """
        self._watcher.arm(self, folders_to_watch(patterns), writes_in=writes_in)

    def arm_folders(self, folders: Iterable[str]) -> None:
        """Watch everything that is directly in these folders from now on, and nothing else.

        Of two paths to the same folder, events have the first.
        """
        self._watcher.arm(self, {folder: {"*"} for folder in folders})

    def deliver(self, event: FileEvent) -> None:
        """Pass one event to the subscriber, if it wants events."""
        if self._on_event is not None:
            self._on_event(event)

    def wake_blind(self) -> None:
        """Tell the subscriber that it should look at everything again."""
        self.deliver(_MISSED)
        self.wake()


class _Interest(Struct):
    """What one subscriber watches in one folder, and its path of that folder."""

    path: str
    names: set[str]
    writes: bool = False

    def includes(self, name: str) -> bool:
        # Only globs as globs: each is compiled and remembered, and no two of our sockets have one name.
        return name in self.names or any(
            fnmatch.fnmatchcase(name, wanted) for wanted in self.names if _is_glob(wanted)
        )

    def event(self, kind: EventKind | None, name: str) -> FileEvent | None:
        """Return the event about a name in the folder, or about the folder itself if the name is empty."""
        return None if kind is None else FileEvent(kind, str(Path(self.path, name)))


class _Folder:
    """The subscribers of one folder. An event costs only those whom it concerns."""

    def __init__(self) -> None:
        self.interests: dict[Subscription, _Interest] = {}
        self._by_name: dict[str, dict[Subscription, _Interest]] = {}  # under "/", who has a glob

    def put(self, subscription: Subscription, interest: _Interest) -> None:
        """Replace what a subscriber watches here."""
        self.remove(subscription)
        self.interests[subscription] = interest
        for name in _looked_up(interest):
            self._by_name.setdefault(name, {})[subscription] = interest

    def remove(self, subscription: Subscription) -> None:
        """Forget a subscriber, if it is known here."""
        if interest := self.interests.pop(subscription, None):
            for name in _looked_up(interest):
                del self._by_name[name][subscription]
                if not self._by_name[name]:
                    del self._by_name[name]

    def waiting_for(self, name: str) -> list[tuple[Subscription, _Interest]]:
        """Return the subscribers that a file of this name concerns."""
        globs = (one for one in self._by_name.get("/", {}).items() if one[1].includes(name))
        return [*self._by_name.get(name, {}).items(), *globs]


def _looked_up(interest: _Interest) -> set[str]:
    return {"/"} if any(map(_is_glob, interest.names)) else interest.names


class Watcher:
    """An inotify descriptor on the running loop, and its subscriptions. See `shared_watcher`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = -1
        self._folders: dict[int, _Folder] = {}
        self._blind: dict[Subscription, asyncio.TimerHandle] = {}
        self._warned = False
        self.users = 0  # of `shared_watcher`

    @contextmanager
    def subscribe(self, on_change: Callable[[], None], on_event: OnEvent = None) -> Iterator[Subscription]:
        """Open a subscription; nothing is watched before its first `arm`."""
        subscription = Subscription(self, on_change, on_event)
        try:
            yield subscription
        finally:
            self.arm(subscription, {})

    def arm(self, subscription: Subscription, plan: Mapping[str, set[str]], *, writes_in: str = "") -> None:
        """Make `plan`, folders with globs of names, the whole of what `subscription` watches."""
        if timer := self._blind.pop(subscription, None):
            timer.cancel()
        wanted: dict[int, _Interest] = {}
        sees_all = True
        for path, names in plan.items():
            try:
                watch = self._add(path, writes=path == writes_in)
            except FileNotFoundError:
                # Gone since it was listed; the watch of its parent, armed before, tells when it is back.
                continue
            except OSError as error:
                self._warn(error)
                sees_all = False
                continue
            # Two paths to one folder, one of them through a link, have one watch.
            interest = wanted.setdefault(watch, _Interest(path, set()))
            interest.names.update(names)
            interest.writes |= path == writes_in
        for watch, interest in wanted.items():
            self._folders.setdefault(watch, _Folder()).put(subscription, interest)
        for watch in [w for w, f in self._folders.items() if subscription in f.interests and w not in wanted]:
            folder = self._folders[watch]
            folder.remove(subscription)
            if not folder.interests:
                del self._folders[watch]
                _libc.inotify_rm_watch(self._fd, watch)
        if not sees_all:
            self._blind[subscription] = self._loop.call_later(BLIND_PERIOD_SECONDS, subscription.wake_blind)

    def close(self) -> None:
        """Give the descriptor back."""
        for timer in self._blind.values():
            timer.cancel()
        self._blind.clear()
        self._folders.clear()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _add(self, path: str, *, writes: bool) -> int:
        """Return the watch of a folder: the same as before if it is the same folder.

        The kinds of events of a folder are kept for as long as anything watches it.
        """
        if self._fd < 0:
            self._open()
        mask = _MASK | _IN_MASK_ADD | (_IN_CLOSE_WRITE if writes else 0)
        watch: int = _libc.inotify_add_watch(self._fd, os.fsencode(path), mask)
        if watch < 0:
            code = ctypes.get_errno()
            raise OSError(errno.ENOENT if code == errno.ENOTDIR else code, os.strerror(code), path)
        return watch

    def _open(self) -> None:
        descriptor: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), "inotify")
        self._fd = descriptor
        self._loop.add_reader(descriptor, self._read)
        self._warned = False

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "inotify is not available; looking for changes every second instead",
                extra={"reason": error.strerror, "path": error.filename},
            )

    def _read(self) -> None:
        woken: set[Subscription] = set()
        try:
            content = os.read(self._fd, _READ_BYTES)
        except OSError:
            return
        offset = 0
        while offset < len(content):
            watch, mask, _, length = _EVENT.unpack_from(content, offset)
            offset += _EVENT.size
            name = os.fsdecode(content[offset : offset + length].rstrip(b"\0"))
            offset += length
            for subscription, event in self._meant(watch, mask, name, woken):
                woken.add(subscription)
                if event is not None:
                    subscription.deliver(event)
        for subscription in woken:
            subscription.wake()

    def _meant(
        self, watch: int, mask: int, name: str, woken: Container[Subscription]
    ) -> list[tuple[Subscription, FileEvent | None]]:
        """Return the subscribers that one event concerns, each with its event; None if it is only woken."""
        if mask & _IN_Q_OVERFLOW:
            everybody = {one for folder in self._folders.values() for one in folder.interests}
            return [(subscription, _MISSED) for subscription in everybody]
        folder = self._folders.get(watch)
        if folder is None:
            return []
        if mask & _IN_IGNORED:
            del self._folders[watch]
        kind = next((kind for bits, kind in _KINDS if mask & bits), None)
        concerned = folder.interests.items() if mask & _OF_THE_FOLDER else folder.waiting_for(name)
        return [
            (subscription, interest.event(kind, name) if subscription.wants_events else None)
            for subscription, interest in concerned
            if (subscription.wants_events or subscription not in woken)
            and (interest.writes or not mask & _IN_CLOSE_WRITE)
        ]


_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, Watcher] = WeakKeyDictionary()


@asynccontextmanager
async def shared_watcher() -> AsyncIterator[Watcher]:
    """The running loop's one watcher: opened by the first who enters, closed when the last has left."""
    loop = asyncio.get_running_loop()
    watcher = _SHARED.get(loop)
    if watcher is None:
        watcher = _SHARED[loop] = Watcher()
    watcher.users += 1
    try:
        yield watcher
    finally:
        watcher.users -= 1
        if not watcher.users:
            del _SHARED[loop]
            watcher.close()


async def until_present(path: Path) -> None:
    """Wait until something is at an absolute path."""
    await _until(path, is_there=True)


async def until_absent(path: Path) -> None:
    """Wait until nothing is at an absolute path."""
    await _until(path, is_there=False)


async def _until(path: Path, *, is_there: bool) -> None:
    changed = asyncio.Event()
    async with shared_watcher() as watcher:
        with watcher.subscribe(changed.set) as subscription:
            while True:
                changed.clear()
                subscription.arm([str(path)])
                if os.path.lexists(path) is is_there:  # noqa: ASYNC240 -- a look that never waits
                    return
                await changed.wait()


# ── the folders to watch for what a glob matches ──


def folders_to_watch(patterns: Iterable[str]) -> dict[str, set[str]]:
    """Return the existing folders on the way to each absolute glob, with the names that matter in each.

    The last folder tells of what the glob matches; the ones before it tell when a missing folder is made, or
    a present one is removed and made again, as udev does with /dev/serial/by-id.
    """
    plan: dict[str, set[str]] = {}
    for pattern in patterns:
        folders = ["/"]
        names = pattern.strip("/").split("/")
        for depth, name in enumerate(names):
            for folder in folders:
                plan.setdefault(folder, set()).add(name)
            if depth < len(names) - 1:
                folders = [inner for folder in folders for inner in _subfolders(folder, name)]
    return plan


def _subfolders(folder: str, name: str) -> Iterator[str]:
    if not _is_glob(name):
        path = f"{folder.rstrip('/')}/{name}"
        # What nobody lets us see is not there for us. No Path: this is asked a hundred times at each start.
        if os.path.isdir(path):  # noqa: PTH112
            yield path
        return
    with suppress(OSError), os.scandir(folder) as entries:
        yield from sorted(e.path for e in entries if fnmatch.fnmatchcase(e.name, name) and e.is_dir())


def _is_glob(name: str) -> bool:
    """Whether a name of one level may match more than itself."""
    return any(character in name for character in "*?[")
