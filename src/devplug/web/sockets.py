"""Sockets of the web server and its client: made, bound, and written to within a time.

With a Unix socket that listens goes a file, which is made and removed here.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from devplug.linux.unix_sockets import within_reach
from devplug.web.addresses import UnixAddress, is_ip
from devplug.web.messages import ListenError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from devplug.web.addresses import Address, TcpAddress

# ── listening ──

_BACKLOG: Final = 1024
"""Connections that wait to be accepted. Over TCP a client beyond it tries again after a second: with 128 a
flood of connections delayed probes by that."""
_PRIVATE: Final = 0o600
_TRIES: Final = 3

_TCP_REASONS: Final = {
    errno.EADDRINUSE: "another program listens there; end it, or name another port",
    errno.EACCES: "no right to use this port; name one above 1023",
    errno.EPERM: "no right to use this port; name one above 1023",
    errno.EADDRNOTAVAIL: "this machine has no such address; name one that it has, or none for all",
    errno.EAFNOSUPPORT: "this machine has no IPv6; name an IPv4 address",
}

_UNIX_REASONS: Final = {
    errno.ENOENT: "its folder does not exist; make it, or name another path",
    errno.ENOTDIR: "what should be its folder is a file; name another path",
    errno.EACCES: "no right to write in its folder; name another path",
    errno.EPERM: "no right to write in its folder; name another path",
    errno.EROFS: "its folder is read-only; name another path",
    errno.ENAMETOOLONG: "its name is too long; name a shorter path",
}


@asynccontextmanager
async def listening(address: Address) -> AsyncIterator[tuple[socket.socket, Address]]:
    """Yield a socket that listens and its address with the port resolved; closed when the block is left.

    A Unix socket has mode 0600 from its first moment, takes the place of one that a dead process left, and
    its file is removed at the end if it is still the one made here. Raises `ListenError`.
    """
    with ExitStack() as stack:
        if isinstance(address, UnixAddress):
            listener = stack.enter_context(_unix_listener(Path(address.path)))
        else:
            listener = stack.enter_context(await _tcp_listener(address))
            address = replace(address, port=listener.getsockname()[1])
        yield listener, address


# ── TCP ──


async def _tcp_listener(address: TcpAddress) -> socket.socket:
    failure: OSError | None = None
    for family, host in await _places(address):
        try:
            return _bound(family, host, address.port)
        except OSError as error:
            failure = failure or error
    why = _reason(failure, _TCP_REASONS) if failure else "the name leads nowhere"
    raise ListenError(f"cannot listen on {address}: {why}") from failure


async def _places(address: TcpAddress) -> list[tuple[socket.AddressFamily, str]]:
    """Return where to try to listen, in this order."""
    host = address.host
    if not host:
        return [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")]  # noqa: S104 -- it is what was asked
    if host == "localhost":  # never looked up elsewhere (RFC 6761, 6.3)
        return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    if is_ip(host):
        return [(socket.AF_INET6 if ":" in host else socket.AF_INET, host)]
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(
            f"cannot listen on {address}: the name {host} is not known; name an IP address"
        ) from error
    return [(family, str(place[0])) for family, _, _, _, place in found]


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    with ExitStack() as stack:
        listener = stack.enter_context(_made(family))
        # Else a server that was just ended keeps the port for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        stack.pop_all()
        return listener


def _made(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.settimeout(0)
    return made


# ── Unix ──


@contextmanager
def _unix_listener(path: Path) -> Iterator[socket.socket]:
    with _made(socket.AF_UNIX) as listener:
        try:
            identity = _made_at(path, listener)
        except OSError as error:
            raise ListenError(f"cannot listen on unix:{path}: {_reason(error, _UNIX_REASONS)}") from error
        try:
            yield listener
        finally:
            if _identity(path) == identity:
                with suppress(OSError):
                    path.unlink()


def _made_at(path: Path, listener: socket.socket) -> tuple[int, int, int] | None:
    """Bind beside the path, and link the socket there when it is private and listens."""
    hidden = path.with_name(f".{os.urandom(4).hex()}")
    with within_reach(hidden) as name:
        listener.bind(name)
    try:
        hidden.chmod(_PRIVATE)
        listener.listen(_BACKLOG)
        identity = _identity(hidden)
        _link(hidden, path)
    finally:
        hidden.unlink()
    return identity


def _link(hidden: Path, path: Path) -> None:
    """Link, and never over the socket of a process that lives: a rename would take it without a word."""
    for _ in range(_TRIES):
        try:
            path.hardlink_to(hidden)
        except FileExistsError:
            _remove_stale(path)
        else:
            return
    raise ListenError(f"cannot listen on unix:{path}: another program keeps making it; name another path")


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenError(
            f"cannot listen on unix:{path}: something that is not a socket is there; name another path"
        )
    with _made(socket.AF_UNIX) as probe, within_reach(path) as name:
        try:
            probe.connect(name)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
        except (BlockingIOError, PermissionError):
            pass  # its queue is full, or it is somebody else's: it may well live
    raise ListenError(f"cannot listen on unix:{path}: another program listens there; name another path")


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Device, inode and time of making: an inode number alone comes back at once on most file systems."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _reason(error: OSError, reasons: dict[int, str]) -> str:
    if "too long" in str(error):  # Python's own check of a socket's path has no number
        return reasons.get(errno.ENAMETOOLONG, str(error))
    return reasons.get(error.errno or 0) or error.strerror or str(error) or os.strerror(error.errno or 0)


# ── bytes ──

_PIECE_BYTES: Final = 64 * 1024
_DRAIN_BYTES: Final = 4096


async def send(connected: socket.socket, parts: Sequence[bytes], *, seconds: float) -> None:
    """Send all parts, each 64 KiB of them within `seconds`; raises `TimeoutError` and other `OSError`."""
    loop = asyncio.get_running_loop()
    if sum(map(len, parts)) <= _PIECE_BYTES:
        parts = [b"".join(parts)]
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _PIECE_BYTES):
            async with asyncio.timeout(seconds):
                await loop.sock_sendall(connected, view[start : start + _PIECE_BYTES])


async def linger(connected: socket.socket, *, seconds: float) -> None:
    """Say that no more will be sent, and wait until the other end closes too.

    What it sent and nobody read would make the kernel reset the connection when it is closed, and the last
    answer may be lost with that (RFC 9112, 9.6).
    """
    loop = asyncio.get_running_loop()
    with suppress(OSError):  # a TimeoutError is one
        connected.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(seconds):
            while await loop.sock_recv(connected, _DRAIN_BYTES):  # noqa: ASYNC110 -- nothing is polled
                await asyncio.sleep(0)  # else a fast sender has the loop for itself
