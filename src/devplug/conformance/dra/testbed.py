"""The test bed of a DRA driver: a kubelet's folders, an API server, a kubelet, and the driver on them.

Claims are allocated here as a scheduler would, simply: these devices, in these words.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from devplug.conformance.dra.claims import claim_object, result_of
from devplug.conformance.dra.driver_program import CdiFolder, DriverPlace, watched_cdi_folder
from devplug.conformance.dra.scripted_kubelet import ScriptedDraKubelet, scripted_dra_kubelet
from devplug.conformance.dra.slice_rules import devices_of, is_of_node, slices_of
from devplug.conformance.testbed import StartError, run_command
from devplug.conformance.verdicts import FailedError, SkippedError
from devplug.errors import RemoteError
from devplug.k8s.objects import Object, text
from devplug.k8s.podaccount import PodAccess
from devplug.wire.dra import PREPARE, UNPREPARE, ClaimName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from devplug.conformance.dra.cluster_api import AnsweredRequest, ClusterApi, OpenClusterApi
    from devplug.conformance.dra.driver_program import DriverSubject, Launch, Running
    from devplug.conformance.dra.scripted_kubelet import Registration
    from devplug.conformance.dra.slice_rules import Device
    from devplug.conformance.times import Times
    from devplug.wire.dra import PreparedClaim

NODE: Final = "verify-node"
_NAMESPACE: Final = "default"
_WRITES: Final = ("POST", "PUT", "PATCH", "DELETE")
_RESTS: Final = 10
"""How many moments of rest are waited for until a driver is taken for one that always writes."""


@dataclass(eq=False, slots=True)
class DriverBed:
    """One node with the driver on it. Lives as long as its `DriverRun.bed` block."""

    test_run: DriverRun
    root: Path
    api: ClusterApi
    kubelet: ScriptedDraKubelet
    cdi: CdiFolder
    pod_uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    programs: list[Running] = field(default_factory=list)
    """All that were started, the newest last."""
    claims: dict[str, ClaimName] = field(default_factory=dict)
    """Those that a driver was asked to prepare, and not yet to unprepare, by UID."""
    republished_seconds: float | None = None
    """How long the driver took to publish deleted slices again; None before that was tried."""
    _count: int = 0

    @property
    def times(self) -> Times:
        """The times of this run."""
        return self.test_run.times

    # ── the process ──

    def _place(self, pod_uid: str) -> DriverPlace:
        work = self.root / "work"
        work.mkdir(exist_ok=True)
        return DriverPlace(
            self.root / "kubelet",
            self.cdi.path,
            work,
            self.root / "kubeconfig",
            NODE,
            pod_uid,
            self.root / f"output-{len(self.programs) + 1}",
            PodAccess.of(self.api.account, self.root / "serviceaccount"),
        )

    async def run(self, command: Sequence[str]) -> None:
        """Run one of the subject's commands that change its devices; raises `SkippedError` if it fails."""
        await run_command(command, self._place(self.pod_uid).placeholders)

    async def launch(self, pod_uid: str = "") -> Running:
        """Start the driver, by default as the container of the same pod."""
        place = self._place(pod_uid or self.pod_uid)
        place.kubeconfig.write_text(self.api.kubeconfig)
        program = await self.test_run.launch(place)
        self.programs.append(program)

        async def follow() -> None:
            while not await program.wait(3600.0):
                pass
            self.kubelet.notify()

        self.kubelet.task_of(follow())
        return program

    @property
    def program(self) -> Running:
        """The newest process."""
        return self.programs[-1]

    def is_alive(self) -> bool:
        """Whether the newest process runs."""
        return self.program.exit_code is None

    def fate(self) -> str:
        """Return what explains the absence of a driver, to be put after a sentence."""
        refusals = [one.failure for one in self.kubelet.registrations]
        reason = f" ({refusals[-1]})" if refusals and refusals[-1] and not self.kubelet.live() else ""
        if not self.is_alive():
            reason += f"; its process ended with {self.program.exit_code}: {self.program.last_words()}"
        return reason

    # ── the registration ──

    @property
    def names(self) -> Sequence[str]:
        """The names of the drivers that were found."""
        return tuple(dict.fromkeys(one.info.name for one in self.kubelet.registrations if one.info))

    @property
    def driver(self) -> str:
        """The driver's name. Raises `SkippedError` where none was found."""
        if not self.names:
            raise SkippedError("no driver was found (DRA01)")
        return self.names[0]

    @property
    def registration(self) -> Registration:
        """The newest registration of now. Raises `FailedError` if there is none."""
        live = self.kubelet.live(self.driver)
        if not live:
            raise FailedError(f"the driver is not registered any more{self.fate()}")
        return live[-1]

    async def wait_registered(self, moment: float, what: str, seconds: float = 0.0) -> Registration:
        """Wait for a registration from `moment` on. Raises `FailedError`."""
        seconds = seconds or self.times.return_seconds

        def is_there() -> bool:
            return any((one.registered_at or 0.0) >= moment for one in self.kubelet.live())

        begun = time.monotonic()
        await self.kubelet.until(lambda: is_there() or not self.is_alive(), seconds)
        if not is_there():
            raise FailedError(f"{what} within {time.monotonic() - begun:.1f} s{self.fate()}")
        return self.kubelet.live()[-1]

    async def wait_ready(self, seconds: float) -> None:
        """Wait until the driver is registered and has published its devices. Raises `StartError`."""
        begun = time.monotonic()
        await self.kubelet.until(
            lambda: bool(self.kubelet.live() and self.devices()) or not self.is_alive(),
            seconds,
        )
        waited = f"{time.monotonic() - begun:.1f} s"
        if not self.kubelet.live():
            raise StartError(f"no registration within {waited}{self.fate()}")
        if not self.devices():
            raise StartError(f"no devices were published within {waited}{self.fate()}")
        await self.wait_published()

    async def wait_published(self) -> None:
        """Wait until the driver has written no slice for a moment; nothing says how many pools it has."""
        rest = self.times.settle_seconds
        deadline = time.monotonic() + _RESTS * rest
        while (now := time.monotonic()) < deadline:
            before = len(self.slice_writes(now - rest))
            if not before:
                return
            await self.kubelet.until(lambda: len(self.slice_writes(now - rest)) > before, rest)  # noqa: B023

    async def is_settled(self) -> bool:
        """End what is left of the last check; returns whether the driver serves and publishes as before."""
        self.api.refuse_code, self.api.delay_seconds, self.api.dropped = 0, 0.0, ()
        for claim in list(self.claims.values()):
            try:
                await self.unprepare(claim)
            except (FailedError, SkippedError):
                return False
        settled = self.times.settle_seconds
        if not await self.kubelet.until(lambda: bool(self.kubelet.live() and self.devices()), settled):
            return False
        await self.wait_published()
        return self.is_alive()

    # ── slices and devices ──

    def slices(self) -> Sequence[Object]:
        """Return the driver's slices of the cluster."""
        return slices_of(self.api.slices(), self.driver)

    def slice_writes(self, moment: float) -> Sequence[AnsweredRequest]:
        """Return the writes of slices from `moment` on."""
        writes = (one for one in self.api.requests if one.method in _WRITES and "/resourceslices" in one.path)
        return [one for one in writes if one.at >= moment]

    def devices(self) -> Sequence[Device]:
        """Return the published devices; none before a driver was found."""
        return devices_of(self.slices()) if self.names else []

    def wipe(self, *, all_drivers: bool = False) -> float:
        """Delete the node's slices as the kubelet does (dra.md D11, D12); return when."""
        for one in self.api.slices() if all_drivers else self.slices():
            if is_of_node(one, NODE):
                self.api.delete("ResourceSlice", text(one, "metadata", "name"))
        return time.monotonic()

    @property
    def free_count(self) -> int:
        """How many devices claims could get."""
        return len(self._free())

    def _free(self) -> Sequence[Device]:
        free = [one for one in self.devices() if not one.is_tainted]
        return [one for one in free if not one.is_shared] or free

    def free(self, count: int = 1) -> Sequence[Device]:
        """Return so many devices for claims, as the scheduler may give them. Raises `SkippedError`."""
        found = self._free()
        if len(found) < count:
            raise SkippedError(
                f"{len(found)} devices are published that claims could get, {count} are needed"
            )
        return found[:count]

    # ── claims ──

    def allocate(
        self,
        *devices: Device,
        name: str = "",
        request: str = "req",
        share_id: str = "",
        more: Sequence[Object] = (),
    ) -> ClaimName:
        """Make a claim that has these devices, and the results `more`; without any it is not allocated."""
        self._count += 1
        results = self._results(devices, request, share_id)
        claim = claim_object(name or f"claim-{self._count}", [*results, *more], NODE)
        return self._name_of(self.api.create("ResourceClaim", claim))

    def _results(
        self, devices: Sequence[Device], request: str = "req", share_id: str = ""
    ) -> Sequence[Object]:
        new = (share_id or (str(uuid.uuid4()) if one.is_shared else "") for one in devices)
        return [result_of(one, self.driver, request, id_) for one, id_ in zip(devices, new, strict=True)]

    def _name_of(self, claim: Object) -> ClaimName:
        return ClaimName(_NAMESPACE, text(claim, "metadata", "uid"), text(claim, "metadata", "name"))

    def assign(self, claim: ClaimName, *devices: Device) -> None:
        """Allocate these devices to a claim that has none."""
        results = self._results(devices)
        status = claim_object(claim.name, results, NODE)["status"]
        self.api.replace("ResourceClaim", claim.name, lambda old: {**old, "status": status}, part="status")

    def release(self, claim: ClaimName) -> None:
        """Take away its allocation, as when its pods are done."""
        self.api.replace("ResourceClaim", claim.name, lambda old: {**old, "status": {}}, part="status")

    def delete(self, claim: ClaimName) -> None:
        """Delete it from the API server."""
        self.api.delete("ResourceClaim", claim.name)

    # ── calls ──

    def require_endpoint(self) -> None:
        """Raise `SkippedError` if no call can reach the driver."""
        if any(not one.endpoint.is_absolute() for one in self.kubelet.live(self.driver)):
            raise SkippedError("the endpoint is no path, so no call reaches the driver (DRA05)")

    async def call_prepare(self, *claims: ClaimName, seconds: float = 0.0) -> Mapping[str, PreparedClaim]:
        """Call NodePrepareResources. Raises `RemoteError`, also for what takes too long."""
        self.require_endpoint()
        self.claims.update({claim.uid: claim for claim in claims})
        seconds = seconds or self.times.claim_limit_seconds
        return await self.kubelet.call(PREPARE, self.driver, claims, seconds)

    async def call_unprepare(self, *claims: ClaimName) -> Mapping[str, str]:
        """Call NodeUnprepareResources. Raises `RemoteError`."""
        self.require_endpoint()
        seconds = self.times.claim_limit_seconds
        answer = await self.kubelet.call(UNPREPARE, self.driver, claims, seconds)
        for claim in claims:
            if not answer.get(claim.uid, "missing"):
                self.claims.pop(claim.uid, None)
        return answer

    async def prepare(self, claim: ClaimName, *, after: str = "") -> PreparedClaim:
        """Have one claim prepared. Raises `FailedError` unless it is, told `after` what."""
        words = f"{after}: " if after else ""
        try:
            answer = await self.call_prepare(claim)
        except RemoteError as error:
            raise FailedError(f"{words}NodePrepareResources is answered with {error}") from error
        if claim.uid not in answer:
            raise FailedError(f"{words}the answer has no entry for the claim")
        if answer[claim.uid].error:
            raise FailedError(f"{words}the claim is refused: {answer[claim.uid].error}")
        return answer[claim.uid]

    async def answers(self, *claims: ClaimName) -> Sequence[PreparedClaim]:
        """Return the answers for all claims of a call. Raises `SkippedError` unless there is one for each."""
        try:
            answer = await self.call_prepare(*claims)
        except RemoteError as error:
            raise SkippedError(f"the whole call is answered with {error} (DRA49)") from error
        if missing := [claim.name for claim in claims if claim.uid not in answer]:
            raise SkippedError(f"the answer has no entry for {missing[0]} (DRA50)")
        return [answer[claim.uid] for claim in claims]

    async def refusal(self, claim: ClaimName) -> str:
        """Return why a claim is not prepared; empty if it is."""
        try:
            answer = await self.call_prepare(claim)
        except RemoteError as error:
            return str(error)
        finally:
            self.claims.pop(claim.uid, None)
        if claim.uid not in answer:
            return "no entry for the claim"
        if not answer[claim.uid].error:
            self.claims[claim.uid] = claim
        return answer[claim.uid].error

    async def unprepare(self, claim: ClaimName, *, after: str = "") -> None:
        """Have one claim unprepared. Raises `FailedError` unless it is, told `after` what."""
        words = f"{after}: " if after else ""
        self.claims.pop(claim.uid, None)
        try:
            answer = await self.call_unprepare(claim)
        except RemoteError as error:
            raise FailedError(f"{words}NodeUnprepareResources is answered with {error}") from error
        if claim.uid not in answer:
            raise FailedError(f"{words}the answer of unprepare has no entry for the claim")
        if answer[claim.uid]:
            raise FailedError(f"{words}the claim cannot be unprepared: {answer[claim.uid]}")

    async def check_serves(self, what: str) -> None:
        """Raise `FailedError` unless, after `what`, a claim can be prepared and unprepared."""
        claim = self.allocate(*self.free())
        await self.prepare(claim, after=what)
        await self.unprepare(claim, after=what)
        if not self.is_alive():
            raise FailedError(f"{what}: the driver does not run any more{self.fate()}")


@dataclass(eq=False, slots=True)
class DriverRun:
    """One run, which starts drivers for its checks, each time on a new node."""

    __test__: ClassVar[bool] = False
    launch: Launch
    times: Times
    open_api: OpenClusterApi
    subject: DriverSubject
    """Of which the commands are used that change its devices."""
    driver: str = ""
    """The name that the first driver told, for checks that act before one is started."""

    @asynccontextmanager
    async def bed(self, *, launch: bool = True) -> AsyncIterator[DriverBed]:
        """Open a node, and start the driver. Raises `PluginError` if the command cannot be run."""
        with tempfile.TemporaryDirectory(prefix="verify-", dir="/tmp") as name:
            root = Path(name)
            registry = root / "kubelet" / "plugins_registry"
            for folder in (registry, root / "kubelet" / "plugins", root / "cdi"):
                folder.mkdir(parents=True)
            async with (
                scripted_dra_kubelet(registry, self.times.dial_seconds) as kubelet,
                self.open_api(NODE, kubelet.notify) as api,
                watched_cdi_folder(root / "cdi") as cdi,
            ):
                bed = DriverBed(self, root, api, kubelet, cdi)
                try:
                    await kubelet.start()
                    if launch:
                        await bed.launch()
                    yield bed
                finally:
                    self.driver = self.driver or next(iter(bed.names), "")
                    async with AsyncExitStack() as ends:  # each of them, even if the run is over meanwhile
                        for program in bed.programs:
                            ends.push_async_callback(program.stop, self.times.end_seconds)
