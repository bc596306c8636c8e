"""The probes of a container's program: startup, readiness and liveness, as the kubelet's prober runs them.

Source: pkg/kubelet/prober (worker.go, prober.go). A container in name only has no program and no probes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from devplug.errors import DevplugError, one_line
from devplug.k8s.objects import Object, entries, fields, part, text, whole
from devplug.linux.notifier import within
from devplug.web.addresses import TcpAddress
from devplug.web.client import get

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["ContainerProbes", "Observer", "Probe", "probe_of", "probes_of"]

_KINDS: Final = {"startupProbe": "Startup", "readinessProbe": "Readiness", "livenessProbe": "Liveness"}
_OK: Final = range(200, 400)


class _ProbeFailedError(DevplugError):
    """One probe failed; the text is the kubelet's."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe of a container, with the defaults of the API (core/v1 defaults.go)."""

    kind: str
    """`Startup`, `Readiness` or `Liveness`."""
    exec: tuple[str, ...] = ()
    http_path: str | None = None
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
    """Return one probe of a container; a gRPC probe and one over HTTPS only connect."""
    found = fields(container, key)
    grace = part(found, "terminationGracePeriodSeconds")
    http = fields(found, "httpGet")
    action = http or fields(found, "tcpSocket") or fields(found, "grpc")
    is_plain = bool(http) and text(http, "scheme") != "HTTPS"
    return Probe(
        _KINDS[key],
        tuple(str(word) for word in entries(found, "exec", "command")),
        (text(http, "path") or "/") if is_plain else None,
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
            async with asyncio.timeout(probe.timeout_seconds):
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
        address = TcpAddress(probe.host or self._address, probe.port)
        if probe.http_path is None:
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            with suppress(OSError):
                await within(probe.timeout_seconds, writer.wait_closed())
            return
        answer = await get(address, probe.http_path)
        if answer.status not in _OK:
            raise _ProbeFailedError(f"HTTP probe failed with statuscode: {answer.status}")
