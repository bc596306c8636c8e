"""A DRA driver to try the kubelet with: small, on real sockets, and obedient unless it is told otherwise."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from devplug.errors import KubeletError
from devplug.kubelet.claim_references import ContainerClaim, PodClaim
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod
from devplug.kubelet.settings import KubeletSettings
from devplug.wire.dra import (
    PREPARE,
    UNPREPARE,
    WATCH_RESOURCES,
    ClaimName,
    DeviceHealthReport,
    PreparedClaim,
    PreparedDevice,
)
from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS
from devplug.wire.sockets import Binding, Listener, stream, unary
from devplug.wire.values import PluginInfo, RegistrationStatus

Reports = Sequence[DeviceHealthReport]

DRIVER = "gpu.example.com"
NAMESPACE = "ns"


@dataclass(frozen=True)
class Call:
    """One call that a driver has got."""

    method: str
    """As `v1.NodePrepareResources`."""
    uids: tuple[str, ...] = ()


@dataclass
class FakeDriver:
    """A driver below a kubelet's root, as its fields say; change them at any time."""

    root: Path
    name: str = DRIVER
    instance: str = ""
    versions: tuple[str, ...] = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
    on_prepare: Callable[[Sequence[ClaimName]], Awaitable[Mapping[str, PreparedClaim]]] | None = None
    on_unprepare: Callable[[Sequence[ClaimName]], Awaitable[Mapping[str, str]]] | None = None
    has_health: bool = False
    calls: list[Call] = field(default_factory=list)
    statuses: list[RegistrationStatus] = field(default_factory=list)
    _streams: set[asyncio.Queue[Reports | None]] = field(default_factory=set)
    _service: Listener | None = None
    _registration: Listener | None = None
    _turn: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def endpoint(self) -> Path:
        """Where the driver serves the kubelet."""
        suffix = f"-{self.instance}" if self.instance else ""
        return self.root / "plugins" / self.name / f"dra{suffix}.sock"

    @property
    def registration_socket(self) -> Path:
        suffix = f"-{self.instance}" if self.instance else ""
        return self.root / "plugins_registry" / f"{self.name}{suffix}-reg.sock"

    @property
    def info(self) -> PluginInfo:
        return PluginInfo("DRAPlugin", self.name, str(self.endpoint), self.versions)

    # ── its life ──

    async def serve(self) -> None:
        """Listen for the kubelet's calls."""
        self.endpoint.parent.mkdir(parents=True, exist_ok=True)
        self._service = Listener(self.endpoint, tuple(self.bindings()))
        await self._service.bind()

    async def register(self) -> None:
        """Let the kubelet find the driver."""
        self.registration_socket.parent.mkdir(parents=True, exist_ok=True)
        bindings = (unary(GET_INFO, self._info), unary(NOTIFY_REGISTRATION_STATUS, self._status))
        self._registration = Listener(self.registration_socket, bindings)
        await self._registration.bind()

    async def stop(self, *, registration: bool = True, service: bool = True) -> None:
        """Stop listening, and remove the sockets."""
        if registration and self._registration is not None:
            await self._registration.close()
            self._registration = None
        if service and self._service is not None:
            self.end_streams()
            await self._service.close()
            self._service = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Serve until the block is left."""
        await self.serve()
        try:
            yield self
        finally:
            await self.stop()

    @asynccontextmanager
    async def registered(self) -> AsyncIterator[Self]:
        """Serve and be registered, until the block is left."""
        async with self.serving():
            await self.register()
            await self.told()
            yield self

    async def told(self, count: int = 1) -> RegistrationStatus:
        """Wait until the kubelet has told how so many registrations ended; return how the last one did."""
        await self.wait(lambda: len(self.statuses) >= count)
        return self.statuses[-1]

    async def wait(self, condition: Callable[[], object]) -> None:
        """Wait until something is true of the calls that came."""
        while not condition():
            await self._turn.wait()

    def called(self, method: str) -> list[tuple[str, ...]]:
        """The claims' UIDs of each call of a method, in any version."""
        return [call.uids for call in self.calls if call.method.endswith(f".{method}")]

    # ── health ──

    def report(self, reports: Reports) -> None:
        """Send a message on all open streams."""
        for queue in self._streams:
            queue.put_nowait(reports)

    def end_streams(self) -> None:
        """End all streams in good order."""
        for queue in self._streams:
            queue.put_nowait(None)

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    # ── its calls ──

    def bindings(self) -> list[Binding]:
        found: list[Binding] = []
        for version in ("v1", "v1beta1"):
            service = f"{version}.DRAPlugin"
            if service in self.versions:
                found += (
                    unary(PREPARE[service], self._answer(version, "NodePrepareResources", self._prepare)),
                    unary(
                        UNPREPARE[service], self._answer(version, "NodeUnprepareResources", self._unprepare)
                    ),
                )
        return [*found, *([stream(WATCH_RESOURCES, self._watch)] if self.has_health else [])]

    def _answer(
        self, version: str, method: str, serve: Callable[[Sequence[ClaimName]], Awaitable[Any]]
    ) -> Callable[[Sequence[ClaimName]], Awaitable[Any]]:
        async def answer(claims: Sequence[ClaimName]) -> Any:
            self.note(Call(f"{version}.{method}", tuple(claim.uid for claim in claims)))
            return await serve(claims)

        return answer

    def note(self, call: Call) -> None:
        self.calls.append(call)
        self._turn.set()
        self._turn = asyncio.Event()

    async def _prepare(self, claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        if self.on_prepare is not None:
            return await self.on_prepare(claims)
        return {claim.uid: PreparedClaim((self.device(claim),)) for claim in claims}

    def device(self, claim: ClaimName, name: str = "gpu-0", request: str = "gpu") -> PreparedDevice:
        """A device as it is prepared by default."""
        return PreparedDevice("pool", name, (request,), (f"example.com/claim={claim.uid}-{name}",))

    async def _unprepare(self, claims: Sequence[ClaimName]) -> Mapping[str, str]:
        if self.on_unprepare is not None:
            return await self.on_unprepare(claims)
        return dict.fromkeys((claim.uid for claim in claims), "")

    async def _watch(self, _: None) -> AsyncIterator[Reports]:
        queue: asyncio.Queue[Reports | None] = asyncio.Queue()
        self._streams.add(queue)
        self.note(Call("v1alpha1.NodeWatchResources"))
        try:
            while (reports := await queue.get()) is not None:
                yield reports
        finally:
            self._streams.discard(queue)

    async def _info(self, _: None) -> PluginInfo:
        self.note(Call("v1.GetInfo"))
        return self.info

    async def _status(self, status: RegistrationStatus) -> None:
        self.statuses.append(status)
        self.note(Call("v1.NotifyRegistrationStatus"))


@dataclass
class FakeCluster:
    """The claims and slices of a cluster, as far as a kubelet reads and removes them."""

    claims: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    removed: list[str | None] = field(default_factory=list)
    """The drivers whose slices were removed, None for those of the whole node."""
    failures: list[KubeletError] = field(default_factory=list)
    """What the next removals raise."""

    def add(
        self,
        name: str,
        *pods: str,
        uid: str = "",
        drivers: Sequence[str] = (DRIVER,),
        namespace: str = NAMESPACE,
    ) -> dict[str, Any]:
        """Add a claim that is allocated, and reserved for these pods' UIDs."""
        results = [
            {"request": "gpu", "driver": driver, "pool": "pool", "device": "gpu-0"} for driver in drivers
        ]
        claim: dict[str, Any] = {
            "metadata": {"namespace": namespace, "name": name, "uid": uid or f"uid-{name}"},
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods],
            },
        }
        self.claims[namespace, name] = claim
        return claim

    async def get_claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        if (namespace, name) not in self.claims:
            raise KubeletError(f'resourceclaims.resource.k8s.io "{name}" not found')
        return self.claims[namespace, name]

    async def remove_slices(self, driver: str | None) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.removed.append(driver)


@asynccontextmanager
async def running(
    root: Path, cluster: FakeCluster, *, compat: bool = True, limit_seconds: float = 1000
) -> AsyncIterator[Kubelet]:
    """A kubelet below `root`, by the clock of the loop."""
    clock = asyncio.get_running_loop().time
    settings = KubeletSettings(clock=clock, claims=cluster, slices=cluster, compat=compat)
    kubelet = Kubelet.under(root, settings)
    async with asyncio.timeout(limit_seconds), kubelet.running():
        yield kubelet


def pod(uid: str, *claims: str, requests: Sequence[str] = ("",)) -> Pod:
    """A pod of one container that uses these claims."""
    used = tuple(ContainerClaim(name, request) for name in claims for request in requests)
    return Pod(
        uid,
        uid,
        NAMESPACE,
        containers=(Container("c", claims=used),),
        resource_claims=tuple(PodClaim(name, name) for name in claims),
    )


def state_of(root: Path) -> list[dict[str, object]]:
    """The claims in the checkpoint below `root`."""
    data = json.loads((root / "dra_manager_state").read_text())["Data"]
    found: list[dict[str, object]] = json.loads(data)["ClaimInfoStateList"]
    return found
