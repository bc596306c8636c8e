"""The probes of a container's program: startup, readiness and liveness, as the kubelet's prober runs them.

Source: pkg/kubelet/prober (worker.go, prober.go). A container in name only has no program and no probes.
"""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote, urljoin, urlsplit

from devplug.errors import DevplugError, RemoteError, one_line
from devplug.k8s.objects import Object, entries, fields, part, text, whole
from devplug.linux.notifier import within
from devplug.web.addresses import TcpAddress
from devplug.web.client_connection import ClientRequest, connect
from devplug.wire.health import SERVING, health_client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from ssl import SSLContext

    from devplug.web.client_connection import AnswerHead

_KINDS: Final = {"startupProbe": "Startup", "readinessProbe": "Readiness", "livenessProbe": "Liveness"}
_OK: Final = range(200, 400)
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_REDIRECTS_LIMIT: Final = 10
_EMPTIED: Final = frozenset({"accept", "user-agent"})
_BODY_LIMIT_BYTES: Final = 10 * 1024


class _ProbeFailedError(DevplugError):
    """One probe failed; the text is the kubelet's."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe of a container, with the defaults of the API (core/v1 defaults.go)."""

    kind: str
    """`Startup`, `Readiness` or `Liveness`."""
    exec: tuple[str, ...] = ()
    http_path: str | None = None
    is_tls: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    grpc_service: str | None = None
    """The service whose health is asked for; empty for the whole server."""
    host: str = ""
    """Empty for the pod's address."""
    port: int = 0
    delay_seconds: float = 0
    period_seconds: float = 10
    timeout_seconds: float = 1
    successes: int = 1
    failures: int = 3
    grace_seconds: int | None = None
    """Instead of the pod's grace period, when its failure ends the container."""


class Observer(Protocol):
    """What is told about the probes of one container."""

    def started(self) -> None:
        """Note that the startup probe has succeeded."""

    def ready(self, is_ready: bool) -> None:  # noqa: FBT001 -- its one argument
        """Note what the readiness probe says now."""

    def failed(self, kind: str, message: str) -> None:
        """Note that one probe failed."""

    async def end(self, kind: str, grace_seconds: int | None) -> None:
        """End the container: its startup or liveness probe has failed too often."""


def probes_of(container: Object) -> dict[str, Probe]:
    """Return the probes of a container, by kind."""
    return {kind: probe_of(container, key) for key, kind in _KINDS.items() if fields(container, key)}


def probe_of(container: Object, key: str) -> Probe:
    """Return one probe of a container."""
    found = fields(container, key)
    grace = part(found, "terminationGracePeriodSeconds")
    http, grpc = fields(found, "httpGet"), fields(found, "grpc")
    action = http or fields(found, "tcpSocket") or grpc
    return Probe(
        _KINDS[key],
        tuple(str(word) for word in entries(found, "exec", "command")),
        (text(http, "path") or "/") if http else None,
        text(http, "scheme") == "HTTPS",
        tuple((text(one, "name"), text(one, "value")) for one in entries(http, "httpHeaders")),
        text(grpc, "service") if grpc else None,
        text(action, "host"),
        _port(container, part(action, "port")),
        whole(found, "initialDelaySeconds"),
        whole(found, "periodSeconds") or 10,
        whole(found, "timeoutSeconds") or 1,
        whole(found, "successThreshold") or 1,
        whole(found, "failureThreshold") or 3,
        grace if isinstance(grace, int) else None,
    )


def _port(container: Object, port: object) -> int:
    """Return the number of a port, which may be the name of one of the container's; 0 for none."""
    if isinstance(port, int):
        return port
    if isinstance(port, str) and port.isdecimal():
        return int(port)
    named = (one for one in entries(container, "ports") if text(one, "name") == port)
    return next((whole(one, "containerPort") for one in named), 0)


class ContainerProbes:
    """The probes of one start of one container; they last as long as `run`.

    `execute` runs a command beside the container's program and returns its exit code and output. `address`
    is where its program listens.
    """

    def __init__(
        self,
        probes: dict[str, Probe],
        address: str,
        execute: Callable[[Sequence[str]], Awaitable[tuple[int, str]]],
        observer: Observer,
    ) -> None:
        self._probes = probes
        self._address = address
        self._execute = execute
        self._observer = observer

    async def run(self) -> None:
        """Probe until cancelled, or until a failure has ended the container."""
        if (startup := self._probes.get("Startup")) is not None:
            await asyncio.sleep(startup.delay_seconds)
            if not await self._until_started(startup):
                return
        self._observer.started()
        async with asyncio.TaskGroup() as tasks:
            for kind in ("Readiness", "Liveness"):
                if (probe := self._probes.get(kind)) is not None:
                    tasks.create_task(self._follow(probe))

    async def _until_started(self, probe: Probe) -> bool:
        failures = 0
        while not await self._succeeds(probe):
            failures += 1
            if failures >= probe.failures:
                await self._observer.end(probe.kind, probe.grace_seconds)
                return False
            await asyncio.sleep(probe.period_seconds)
        return True

    async def _follow(self, probe: Probe) -> None:
        """Probe once in each period; a result counts when it came often enough in a row."""
        await asyncio.sleep(probe.delay_seconds)
        last, in_a_row = None, 0
        while True:
            result = await self._succeeds(probe)
            in_a_row = in_a_row + 1 if result == last else 1
            last = result
            if in_a_row >= (probe.successes if result else probe.failures):
                if probe.kind == "Readiness":
                    self._observer.ready(result)
                elif not result:
                    await self._observer.end(probe.kind, probe.grace_seconds)
                    return
            await asyncio.sleep(probe.period_seconds)

    async def _succeeds(self, probe: Probe) -> bool:
        try:
            # gRPC has a timeout and words of its own.
            async with asyncio.timeout(probe.timeout_seconds + (probe.grpc_service is not None)):
                await self._probe(probe)
        except TimeoutError:
            self._observer.failed(probe.kind, f"timed out after {probe.timeout_seconds:g}s")
        except _ProbeFailedError as error:
            self._observer.failed(probe.kind, str(error))
        except (DevplugError, OSError) as error:
            self._observer.failed(probe.kind, one_line(str(error)))
        else:
            return True
        return False

    async def _probe(self, probe: Probe) -> None:
        if probe.exec:
            code, output = await self._execute(probe.exec)
            if code:
                raise _ProbeFailedError(one_line(output) or f"command ended with exit code {code}")
            return
        host = probe.host or self._address
        if probe.http_path is not None:
            if (status := await _http_status(probe, host, probe.http_path)) not in _OK:
                raise _ProbeFailedError(f"HTTP probe failed with statuscode: {status}")
        elif probe.grpc_service is not None:
            await _check_grpc(probe, host, probe.grpc_service)
        else:
            _, writer = await asyncio.open_connection(host, probe.port)
            writer.close()
            with suppress(OSError):
                await within(probe.timeout_seconds, writer.wait_closed())


# ── HTTP ──


async def _http_status(probe: Probe, host: str, path: str) -> int:
    """Return the status of the answer to a GET, as pkg/probe/http asks.

    No certificate is verified. A redirect is followed if it leads to the same host; else it is the answer.
    Raises `WebClientError`.
    """
    first = f"{'https' if probe.is_tls else 'http'}://{TcpAddress(host, probe.port)}"
    url = urljoin(first, path if path.startswith("/") else f"/{path}")
    for _ in range(_REDIRECTS_LIMIT + 1):
        head = await _asked(url, _headers(probe, url))
        location = head.headers.get("location", "")
        if head.status not in _REDIRECTS or not location:
            return head.status
        url = urljoin(url, location)
        if urlsplit(url).hostname != urlsplit(first).hostname:
            return head.status
    raise _ProbeFailedError(f"stopped after {_REDIRECTS_LIMIT} redirects")


def _headers(probe: Probe, url: str) -> list[tuple[str, str]]:
    """Return the headers of a request: those of the probe in place of the usual ones of that name."""
    usual = {"Host": urlsplit(url).netloc, "User-Agent": "kube-probe/1.36", "Accept": "*/*"}
    named = {name.lower() for name, _ in probe.headers}
    kept = [(name, value) for name, value in usual.items() if name.lower() not in named]
    # An empty one takes the usual one away (pkg/probe/http/request.go).
    given = [(name, value) for name, value in probe.headers if value or name.lower() not in _EMPTIED]
    return [*kept, *given, ("Connection", "close")]


async def _asked(url: str, headers: list[tuple[str, str]]) -> AnswerHead:
    """Ask once, and read at most 10 KiB of the answer's body."""
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    address = TcpAddress(parts.hostname or "", parts.port or (443 if is_tls else 80))
    target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{parts.query}" if parts.query else "")
    with closing(await connect(address, url, tls=_unverified() if is_tls else None)) as connection:
        head = await connection.ask(ClientRequest("GET", target, headers))
        size = 0
        while size < _BODY_LIMIT_BYTES and (piece := await connection.piece()) is not None:
            size += len(piece)
    return head


def _unverified() -> SSLContext:
    """Return what speaks TLS with any certificate."""
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


# ── gRPC ──


async def _check_grpc(probe: Probe, host: str, service: str) -> None:
    """Ask a gRPC server for the health of a service, as pkg/probe/grpc; raises `_ProbeFailedError`."""
    what = "connect"
    try:
        async with asyncio.timeout(probe.timeout_seconds), health_client(host, probe.port) as client:
            await client.ready()
            what = "check"
            status = await client.check(service)
    except TimeoutError:
        seconds = f"{probe.timeout_seconds:g}s"
        raise _ProbeFailedError(
            f'timeout: failed to connect service "{TcpAddress(host, probe.port)}" within {seconds}: '
            "context deadline exceeded"
            if what == "connect"
            else f"timeout: health rpc did not complete within {seconds}"
        ) from None
    except RemoteError as error:
        why = "health rpc probe failed"
        if error.status == "Unimplemented":
            why = "this server does not implement the grpc health protocol (grpc.health.v1.Health)"
        raise _ProbeFailedError(one_line(f"error: {why}: {error.text}")) from error
    if status != SERVING:
        raise _ProbeFailedError(f'service unhealthy (responded with "{status}")')
