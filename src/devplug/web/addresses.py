"""The addresses of servers, as values and as text; nothing here looks a name up or opens anything. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, TypeAlias

from msgspec import Struct

from devplug.errors import quoted

_FORMS: Final = "write 127.0.0.1:9410, [::1]:9410, :9410 for all interfaces, or unix:/path/of/a.sock"
_UNIX: Final = "unix:"
_PORT_LIMIT: Final = 65535
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,253}(?<!-)")


class TcpAddress(Struct, frozen=True):
    """A port of this machine's network; port 0 lets the system choose one."""

    host: str
    """A name or an IP address without brackets; empty for all interfaces, IPv4 and IPv6."""
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine reach it."""
        if self.host == "localhost":
            return True
        return is_ip(self.host) and ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        """Return the text that `parse_address` takes."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UnixAddress(Struct, frozen=True):
    """A socket file; only who may open the file reaches it."""

    path: str

    def __str__(self) -> str:
        """Return the text that `parse_address` takes."""
        return f"{_UNIX}{self.path}"


Address: TypeAlias = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """Return the address that a person wrote; raises `ValueError` that says what to write instead."""
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX)
        if not path or "\0" in path or path.endswith("/"):
            raise ValueError(f"{quoted(text)} names no socket file; {_FORMS}")
        return UnixAddress(path)
    if "/" in text:
        raise ValueError(f"{quoted(text)} is not HOST:PORT; {_FORMS}")
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f"{quoted(text)} has no port; {_FORMS}")
    if not (port.isascii() and port.isdigit() and int(port[:6]) <= _PORT_LIMIT):
        raise ValueError(f"{quoted(text)} has no port from 0 to {_PORT_LIMIT} after its last colon; {_FORMS}")
    return TcpAddress(_host(host, text), int(port[:6]))


def is_ip(host: str) -> bool:
    """Whether `host` is an IP address, without brackets."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _host(host: str, text: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        inside = host[1:-1]
        if ":" in inside and is_ip(inside):
            return inside
        raise ValueError(f"{quoted(text)} has no IPv6 address in its brackets; {_FORMS}")
    if ":" in host:
        raise ValueError(f"{quoted(text)} has an IPv6 address without brackets; {_FORMS}")
    if host and not _HOST_NAME.fullmatch(host):
        raise ValueError(f"{quoted(text)} has no host name before its port; {_FORMS}")
    return host
