"""A node whose pods have claims: a kubelet and an API server in this process, `devplug run` in its own.

Who schedules is played here: a pod gets the devices that a case says, in a claim of its own.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from devplug.conformance.dra.claims import claim_object, result_of
from devplug.conformance.dra.slice_rules import Device, count_faults, devices_of, duplicate_faults, slices_of
from devplug.driver.device_entries import device_name
from devplug.errors import KubeletError
from devplug.k8s.objects import text
from devplug.kubelet.claim_references import ContainerClaim, PodClaim
from devplug.kubelet.dra.claim_objects import ClaimError
from devplug.kubelet.pods import Container, Pod
from devplug.kubelet.settings import KubeletSettings
from devplug.sandbox.scripted_api_server import scripted_api_server
from torture.catalogue import PATIENCE, BrokenError
from torture.claims import DRIVER, MEMORY, NAMESPACE, NODE, NodeFiles, doubly
from torture.daemons import START_SECONDS, config_text, node, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from devplug.kubelet.kubelet import Kubelet
    from devplug.sandbox.scripted_api_server import ScriptedApiServer
    from torture.daemons import Daemon, Node

RESOURCE: Final = "example.com/a"


@dataclass(slots=True)
class ClusterClaims:
    """The claims and slices of the API server, as a kubelet reads and removes them."""

    api: ScriptedApiServer
    claims: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    wipes: list[float] = field(default_factory=list)
    """When slices were removed, by the monotonic clock."""

    async def get_claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        try:
            return self.claims[namespace, name]
        except KeyError:
            raise KubeletError(f'resourceclaims.resource.k8s.io "{name}" not found') from None

    async def remove_slices(self, driver: str | None) -> None:
        for one in self.api.slices():
            if driver in {None, DRIVER}:
                self.api.delete("ResourceSlice", text(one, "metadata", "name"))
        self.wipes.append(time.monotonic())


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod with the devices of its claim; where it is ended, so is the claim."""

    pod: Pod
    claim: str
    claim_uid: str
    device_ids: tuple[str, ...]


@dataclass(slots=True)
class ClaimsNode:
    """The node; lives as long as its `claims_node` block."""

    stage: Node
    api: ScriptedApiServer
    devices: Path
    """The folder of devices: each name in it is a device ID."""
    cluster: ClusterClaims
    released: Path
    """The file into which `onRelease` writes device IDs."""
    pods: list[RunningPod] = field(default_factory=list)
    """Those whose claims are prepared, or are to be."""
    uses_ended: Counter[str] = field(default_factory=Counter)
    """How many uses of each device are over."""
    _count: int = 0

    @property
    def kubelet(self) -> Kubelet:
        """The kubelet."""
        return self.stage.kubelet

    @property
    def files(self) -> NodeFiles:
        """The files of the driver."""
        return NodeFiles(self.stage.root / "plugins" / DRIVER, self.stage.root / "cdi")

    # ── the daemon ──

    def start(self) -> Daemon:
        """Start one more daemon."""
        file = self.stage.root / "kubeconfig"
        file.write_text(self.api.kubeconfig)
        variables = {"KUBECONFIG": str(file), "NODE_NAME": NODE}
        return self.stage.start("--cdi-dir", str(self.files.cdi), variables=variables)

    async def until_registered(self, daemon: Daemon) -> float:
        """Wait until the kubelet can call the driver; return the seconds. Raises `BrokenError`."""
        return await until(
            lambda: self.kubelet.dra.has_driver(DRIVER) or daemon.exit_code is not None,
            START_SECONDS,
            lambda: f"I2: the driver is not registered within {START_SECONDS:g} s: {daemon.last_words()}",
        )

    # ── devices ──

    def plug(self, device_id: str) -> None:
        """Make a device, unless it is there."""
        path = self.devices / device_id
        if not path.is_symlink():
            path.symlink_to("/dev/null")

    def unplug(self, device_id: str) -> None:
        """Take a device away, if it is there."""
        (self.devices / device_id).unlink(missing_ok=True)

    def present(self) -> Sequence[str]:
        """Return the devices that there are now, in order."""
        return sorted(path.name for path in self.devices.iterdir())

    def wanted(self) -> dict[str, bool]:
        """Return the names of the devices that slices must have now, each with whether it is tainted."""
        present = {*self.present()}
        held = {id_ for one in self.pods for id_ in one.device_ids}
        return {device_name(RESOURCE, id_): id_ not in present for id_ in present | held}

    def slices_fault(self) -> str:
        """Return how the slices differ from the machine; empty if they do not."""
        slices = slices_of(self.api.slices(), DRIVER)
        if wrong := [*count_faults(slices), *duplicate_faults(slices)]:
            return "; ".join(wrong)
        published = {one.name: one.is_tainted for one in devices_of(slices)}
        wanted = self.wanted()
        missing, surplus = sorted(wanted.keys() - published.keys()), sorted(published.keys() - wanted.keys())
        other = sorted(name for name in wanted.keys() & published.keys() if wanted[name] != published[name])
        words = (("missing", missing), ("too many", surplus), ("with a wrong taint", other))
        return "; ".join(f"{len(found)} {what}, as {found[:3]}" for what, found in words if found)

    async def until_published(self, seconds: float, after: str = "") -> float:
        """Wait until the slices are right; return the seconds. Raises `BrokenError`."""
        begun = time.monotonic()
        while True:
            looked = time.monotonic()
            fault = self.slices_fault()
            if not fault:
                return looked - begun
            if looked - begun > seconds * PATIENCE.get():
                words = self.stage.started[-1].last_words()
                raise BrokenError(f"I15: {after}: not right within {seconds:g} s: {fault}: {words}")
            # The API server needs this processor, too.
            await asyncio.sleep(0.002 + 3 * (time.monotonic() - looked))

    # ── pods ──

    def allocate(self, *device_ids: str) -> RunningPod:
        """Make a pod with a claim of these devices, on this node; nothing was prepared for it yet."""
        self._count += 1
        name, pod_uid = f"claim-{self._count}", f"pod-{self._count}"
        results = [result_of(Device(NODE, device_name(RESOURCE, id_)), DRIVER) for id_ in device_ids]
        content: dict[str, Any] = dict(claim_object(name, results, NODE))
        content["status"]["reservedFor"] = [{"resource": "pods", "name": pod_uid, "uid": pod_uid}]
        made: dict[str, Any] = dict(self.api.create("ResourceClaim", content))
        self.cluster.claims[NAMESPACE, name] = made
        container = Container("c", claims=(ContainerClaim("devices"),))
        claims = (PodClaim("devices", name),)
        pod = Pod(pod_uid, pod_uid, NAMESPACE, containers=(container,), resource_claims=claims)
        self.pods.append(RunningPod(pod, name, made["metadata"]["uid"], device_ids))
        return self.pods[-1]

    async def run(self, one: RunningPod) -> str:
        """Run a pod, or try again to; return why it does not run, empty if it does."""
        before = len(self.kubelet.events)
        try:
            self.kubelet.pod(one.pod.uid)
        except KubeletError:
            status = await self.kubelet.run_pod(one.pod)
        else:
            if await self.kubelet.dra.try_prepare(one.pod):
                await self.kubelet.start_container(one.pod.uid, "c")
            status = self.kubelet.pod(one.pod.uid)
        if status.phase == "Running":
            return ""
        return "; ".join(event.message for event in self.kubelet.events[before:]) or status.phase

    async def end(self, one: RunningPod) -> str:
        """End a pod, its claim too; return why it cannot be ended, empty if it is gone."""
        try:
            await self.kubelet.dra.unprepare(one.pod)
        except ClaimError as error:
            return str(error)
        self.kubelet.remove_pod(one.pod.uid)
        self.forget(one)
        self.uses_ended.update(one.device_ids)
        self.pods.remove(one)
        return ""

    def forget(self, one: RunningPod) -> None:
        """Delete the claim of a pod from the API server. Safe to repeat."""
        self.api.delete("ResourceClaim", one.claim)
        self.cluster.claims.pop((NAMESPACE, one.claim), None)

    async def settle(self, pods: Sequence[RunningPod], ending: Sequence[RunningPod]) -> list[str]:
        """Have these pods run and those end, as soon as a kubelet can; return what keeps them from it."""
        async with asyncio.TaskGroup() as group:
            work = [*map(self.run, pods), *map(self.end, ending)]
            tasks = [group.create_task(one) for one in work]
        return [fault for task in tasks if (fault := task.result())]

    # ── what must hold ──

    def claim_faults(self) -> list[str]:
        """Return what is wrong with files and claims while nothing is going on."""
        prepared, in_use = self.files.prepared(), self.files.in_use()
        wanted = {one.claim_uid: sorted(one.device_ids) for one in self.pods}
        found = [f"I1: {one}" for one in doubly(prepared.values())]
        if {uid: sorted(ids) for uid, ids in in_use.items()} != wanted:
            found.append(f"I13: in use are {in_use}, and should be {wanted}")
        if prepared.keys() != wanted.keys():
            found.append(f"I13: CDI files are for {sorted(prepared)}, and should be for {sorted(wanted)}")
        defined = {name for use in prepared.values() for one in use.devices for name in one.cdi_names}
        for one in self.pods:
            given = self.kubelet.dra.cdi_devices(one.pod, one.pod.containers[0])
            if not given or not defined.issuperset(given):
                found.append(f"I13: {one.pod.uid} has the CDI names {given}, of {sorted(defined)}")
        return found

    def release_faults(self, repeats: Counter[str]) -> list[str]:
        """Return the devices for which `onRelease` did not run once a use, `repeats` of each set aside."""
        runs = Counter(self.released.read_text().split() if self.released.exists() else ())
        return [
            f"I14: {runs[id_]} × onRelease for {id_}, after {uses} uses and {repeats[id_]} kills in it"
            for id_ in runs | self.uses_ended
            if not (uses := self.uses_ended[id_]) <= runs[id_] <= uses + repeats[id_]
        ]


@asynccontextmanager
async def claims_node(root: Path, *device_ids: str) -> AsyncIterator[ClaimsNode]:
    """Have such a node, with these devices and no daemon yet; all daemons are dead when it is left."""
    (root / "cdi").mkdir()
    # Some of these are many, and the disk has other things to do.
    with tempfile.TemporaryDirectory(prefix="tt-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        devices = Path(name)
        released = root / "released"
        config = f"driver: {DRIVER}\n" + config_text(
            f'{{name: {RESOURCE}, serve: dra, discover: {{path: "{devices}/*"}}, '
            "whenUnplugged: {keepUnhealthyFor: 0s}, onRelease: {exec: {command: "
            f"[/bin/sh, -c, 'echo \"$DEVPLUG_DEVICE_ID\" >> {released}']}}}}}}"
        )
        async with scripted_api_server(NODE, lambda: None) as api:
            claims = ClusterClaims(api)
            async with node(root, config, KubeletSettings(claims=claims, slices=claims)) as stage:
                made = ClaimsNode(stage, api, devices, claims, released)
                for one in device_ids:
                    made.plug(one)
                yield made
