"""Changes of devices, by event: the loop's one socket for the kernel's uevents, shared by all subscribers.

Events only say when to look: subscribers listen first, look, and look again at each event.
Where there are no events (no socket, or a pod with a user namespace of its own) they look more often instead.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import socket
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

logger = logging.getLogger(__name__)

DEAF_PERIOD_SECONDS: Final = 5.0
"""How often subscribers look for themselves while no uevent can be heard."""

# linux/netlink.h; Python names the protocol on no platform.
_NETLINK_KOBJECT_UEVENT: Final = 15
_FROM_KERNEL: Final = 1
"""The multicast group of the kernel's own events. Those of udev, group 2, do not cross network namespaces."""

_RECEIVE_BYTES: Final = 4 * 1024 * 1024
"""Room for some 6,000 events, as when a large NIC makes its virtual functions; the default holds 256."""

_MESSAGE_BYTES: Final = 16 * 1024
"""More than any event: the kernel ends them at 2048 bytes (UEVENT_BUFFER_SIZE) and a devpath."""
_MESSAGES_AT_ONCE: Final = 256
"""How many are read before the loop has its turn again."""

# systemd's struct udev_monitor_netlink_header (monitor-util of libsystemd): umockdev sends these in group 1.
_LIBUDEV: Final = b"libudev\0"
_LIBUDEV_MAGIC: Final = b"\xfe\xed\xca\xfe"
_LIBUDEV_HEADER_BYTES: Final = 24

# linux/nsfs.h: who owns a namespace, and the inode of the first user namespace.
_NS_GET_USERNS: Final = 0xB701
_FIRST_USER_NAMESPACE: Final = 0xEFFFFFFD

_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})


class Uevent(Struct, frozen=True):
    """An event of the kernel about one device. It may be outdated when it is delivered."""

    action: str
    """`add`, `remove`, `change`, `bind`, `unbind`, `move`, `online`, `offline`, or a later kernel's word."""
    devpath: str
    """The folder of the device below /sys, as in `/devices/virtual/mem/null`."""
    subsystem: str = ""
    properties: Mapping[str, str] = field(default_factory=lambda: _NO_PROPERTIES)
    """All that it carries, by the kernel's names: `ACTION`, `SEQNUM`, `DEVNAME`, …"""

    def __hash__(self) -> int:
        """Return the hash of what identifies it: mappings have none."""
        return hash(self.devpath)


def parse_uevent(message: bytes) -> Uevent | None:
    """Return what one message says, or None if it is no uevent.

    Takes the kernel's format (`action@devpath`, then `KEY=value`, each ended by a zero byte) and libudev's.
    """
    if message.startswith(_LIBUDEV):
        if len(message) < _LIBUDEV_HEADER_BYTES or message[8:12] != _LIBUDEV_MAGIC:
            return None
        start = int.from_bytes(message[16:20], "little")
        length = int.from_bytes(message[20:24], "little")
        if start < _LIBUDEV_HEADER_BYTES or start + length > len(message):
            return None
        properties = _properties(message[start : start + length])
        action, devpath = properties.get("ACTION", ""), properties.get("DEVPATH", "")
    else:
        header, _, rest = message.partition(b"\0")
        action, _, devpath = os.fsdecode(header).partition("@")
        properties = _properties(rest)
    if not action or not devpath.startswith("/"):
        return None
    return Uevent(action, devpath, properties.get("SUBSYSTEM", ""), MappingProxyType(properties))


def _properties(content: bytes) -> dict[str, str]:
    pairs = (os.fsdecode(text).partition("=") for text in content.split(b"\0"))
    return {key: value for key, separator, value in pairs if key and separator}


class UeventListener:
    """A socket for uevents on the running loop, and its subscribers. See `shared_uevents`."""

    def __init__(self, receive_bytes: int = _RECEIVE_BYTES) -> None:
        self._loop = asyncio.get_running_loop()
        self._receive_bytes = receive_bytes
        self._socket: socket.socket | None = None
        self._subscribers: dict[object, Callable[[Uevent | None], None]] = {}
        self._has_overrun = False
        self._has_warned = False
        self.listen()

    @property
    def is_listening(self) -> bool:
        """Whether events can be heard. If not, subscribers look every `DEAF_PERIOD_SECONDS`."""
        return self._socket is not None

    def listen(self) -> bool:
        """Try to listen if that failed before, and return whether events can be heard now.

        Cheap enough for every resync. After a gap all subscribers learn that they missed events.
        """
        if self._socket is not None:
            return True
        try:
            self._socket = _opened(self._receive_bytes)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "cannot receive kernel uevents; looking for devices every 5 s instead",
                    extra={"reason": error.strerror},
                )
            return False
        self._has_overrun = self._has_warned = False
        self._loop.add_reader(self._socket, self._read)
        self._deliver(None)
        return True

    @contextmanager
    def subscribe(self, on_event: Callable[[Uevent | None], None]) -> Iterator[None]:
        """Call `on_event` on the loop with each event from now on; None says that some were missed."""
        token = object()
        self._subscribers[token] = on_event
        try:
            yield
        finally:
            del self._subscribers[token]

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        for _ in range(_MESSAGES_AT_ONCE):
            if self._socket is None:
                return
            try:
                message, _, flags, sender = self._socket.recvmsg(_MESSAGE_BYTES)
            except BlockingIOError:
                # The kernel drops all between an overrun and the moment when the queue is empty, and says so
                # only at the beginning: the look that counts is the one after this.
                if self._has_overrun:
                    self._has_overrun = False
                    self._deliver(None)
                return
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    self._has_overrun = True
                else:
                    self.close()
                self._deliver(None)
                continue
            # Root in our network namespace may send to this group as well. A stand-in for the kernel in tests
            # has no such address.
            if isinstance(sender, tuple) and sender[0] != 0:
                continue
            self._deliver(None if flags & socket.MSG_TRUNC else parse_uevent(message))

    def _deliver(self, event: Uevent | None) -> None:
        for on_event in list(self._subscribers.values()):
            on_event(event)


def _opened(receive_bytes: int) -> socket.socket:
    """Return a socket that hears the kernel; raises OSError if there is none, or nothing to hear."""
    if not _is_in_earshot():
        raise OSError(
            errno.ENOMSG, "they do not reach pods with a user namespace of their own; set hostUsers: true"
        )
    opened = socket.socket(
        socket.AF_NETLINK,
        socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
        _NETLINK_KOBJECT_UEVENT,
    )
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        opened.bind((0, _FROM_KERNEL))
    except OSError:
        opened.close()
        raise
    return opened


def _is_in_earshot() -> bool:
    """Whether the kernel sends events to our network namespace: those of the first user namespace get them.

    This holds since Linux 4.18 (lib/kobject_uevent.c, uevent_net_init). In others a socket opens and gets no
    events.
    """
    try:
        network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        # Refused if the owner is above our own user namespace: then it may well be the first one.
        owner: int = fcntl.ioctl(network, _NS_GET_USERNS)
    except OSError:
        return True
    finally:
        os.close(network)
    try:
        return os.fstat(owner).st_ino == _FIRST_USER_NAMESPACE
    finally:
        os.close(owner)


class _Shared(Struct):
    listener: UeventListener
    users: int = 0


_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


@asynccontextmanager
async def shared_uevents() -> AsyncIterator[UeventListener]:
    """The running loop's one listener: opened by the first who enters, closed when the last has left."""
    loop = asyncio.get_running_loop()
    shared = _SHARED.get(loop)
    if shared is None:
        shared = _SHARED[loop] = _Shared(UeventListener())
    shared.users += 1
    try:
        yield shared.listener
    finally:
        shared.users -= 1
        if not shared.users:
            del _SHARED[loop]
            shared.listener.close()
