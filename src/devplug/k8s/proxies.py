"""Which proxy leads to a server, by the variables that Go programs and kubectl go by. Pure."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping


def proxy_url(server: str, environment: Mapping[str, str]) -> str:
    """Return the URL of the proxy for a server's URL; empty for none (golang.org/x/net/http/httpproxy).

    HTTPS_PROXY or HTTP_PROXY names it, unless NO_PROXY has the server: `*`, a name with all below it, `.name`
    for what is below it alone, an address or a network in CIDR form, each but `*` also with a port. Names in
    lower case count too. What is on this machine is behind no proxy.
    """
    url = urlsplit(server)
    host = (url.hostname or "").rstrip(".")
    found = _variable(environment, f"{url.scheme}_proxy")
    if not found or _is_this_machine(host):
        return ""
    port = url.port or (443 if url.scheme == "https" else 80)
    exceptions = (one.strip().lower() for one in _variable(environment, "no_proxy").split(","))
    if any(_covers(one, host, port) for one in exceptions if one):
        return ""
    return found if "://" in found else f"http://{found}"


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper(), "") or environment.get(name, "")


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _covers(exception: str, host: str, port: int) -> bool:
    if exception == "*":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if address is not None and "/" in exception:
        try:
            return address in ip_network(exception, strict=False)
        except ValueError:
            return False
    name, wanted_port = _split(exception)
    if wanted_port and wanted_port != str(port):
        return False
    if address is not None:
        return name == str(address)
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _split(exception: str) -> tuple[str, str]:
    """Return the host and the port of `host`, `host:port`, `::1` or `[::1]:port`; empty without a port."""
    if exception.startswith("["):
        host, _, rest = exception[1:].partition("]")
        return host, rest.removeprefix(":")
    if exception.count(":") == 1:
        host, _, port = exception.partition(":")
        return host, port
    return exception, ""
