"""A DRA driver that does everything right, in parts that a mutant can replace one at a time.

It shares no line with `devplug.driver`. Its devices are made up.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from devplug.conformance.dra.driver_program import DriverPlace
from devplug.errors import KubeletError
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
from tests.conformance.dra.http import Api, StatusError

NAME_LIMIT = 253


class ClaimError(Exception):
    """A claim cannot be prepared."""


class RightDriver:
    """Four devices, one that claims share, and one with a taint."""

    name = "mutant.example.com"
    type = "DRAPlugin"
    versions: tuple[str, ...] = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
    served: tuple[str, ...] = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
    retry_seconds = 0.1
    patience_seconds = 6.0
    """How long a prepare waits for the API server to be there."""
    answer_seconds = 6.0
    """How long it waits for an answer."""
    report_seconds = 0.3
    """After which time health is reported again."""

    def __init__(self, place: DriverPlace, api_version: str = "v1") -> None:
        """Speak this version of resource.k8s.io, and no other."""
        self.place = place
        self.api_version = api_version
        self.slices = f"/apis/resource.k8s.io/{api_version}/resourceslices"
        self.claims = f"/apis/resource.k8s.io/{api_version}/namespaces/{{}}/resourceclaims/{{}}"
        self.api = Api(place.kubeconfig)
        self.stopping = asyncio.Event()
        self.folder = place.root / "plugins" / self.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prepared: dict[str, list[dict[str, Any]]] = {}
        self.lock = asyncio.Lock()
        self.syncing = asyncio.Lock()
        self.published: list[dict[str, Any]] | None = None
        """The devices as they were when the slices were last put right."""
        self.taint_times: dict[str, str] = {}
        self.stored: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """What was written of slices, and what the server made of it."""
        self.load()
        self.service = Listener(self.service_socket(), self.service_bindings())
        self.registration = Listener(
            self.registration_socket(),
            (unary(GET_INFO, self.get_info), unary(NOTIFY_REGISTRATION_STATUS, self.take_status)),
        )

    # ── sockets ──

    def service_socket(self) -> Path:
        return self.folder / f"dra-{self.place.pod_uid}.sock"

    def registration_socket(self) -> Path:
        return self.place.registry / f"{self.name}-{self.place.pod_uid[:8]}-reg.sock"

    def endpoint(self) -> str:
        return str(self.service_socket())

    def service_bindings(self) -> tuple[Binding, ...]:
        return (
            *(unary(PREPARE[one], self.prepare) for one in self.served),
            *(unary(UNPREPARE[one], self.unprepare) for one in self.served),
            stream(WATCH_RESOURCES, self.watch_health),
        )

    async def get_info(self, _: None) -> PluginInfo:
        return PluginInfo(self.type, self.name, self.endpoint(), self.versions)

    async def take_status(self, _: RegistrationStatus) -> None:
        pass

    async def watch_health(self, _: None) -> AsyncIterator[Sequence[DeviceHealthReport]]:
        while True:
            yield self.reports()
            await asyncio.sleep(self.report_seconds)

    def reports(self) -> list[DeviceHealthReport]:
        return [
            DeviceHealthReport(self.pool(), one["name"], 2, message="the link is down")
            if "taints" in one
            else DeviceHealthReport(self.pool(), one["name"], 1)
            for one in self.devices()
        ]

    # ── slices ──

    def pool(self) -> str:
        return self.place.node_name

    def devices(self) -> list[dict[str, Any]]:
        broken = {"key": "example.com/broken", "effect": "NoSchedule", "timeAdded": self.time_of("broken")}
        return [
            *(
                {"name": f"dev-{number}", "attributes": {"index": {"int": number}}}
                for number in range(4)
                if self.is_there(number)
            ),
            {"name": "dev-shared", "allowMultipleAllocations": True},
            {"name": "dev-broken", "taints": [broken]},
        ]

    def is_there(self, number: int) -> bool:
        """Whether a device is plugged in; the judge's command makes a file that says it is not."""
        return not (self.place.work / f"gone-{number}").exists()

    def time_of(self, taint: str) -> str:
        """Return when a taint was added, for the first time."""
        if taint not in self.taint_times:
            self.taint_times[taint] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self.save()
        return self.taint_times[taint]

    def specs(self) -> list[dict[str, Any]]:
        """Return what the slices should say."""
        return [
            {
                "driver": self.name,
                "nodeName": self.place.node_name,
                "pool": {"name": self.pool(), "generation": 1, "resourceSliceCount": 1},
                "devices": [self.written(one) for one in self.devices()],
            }
        ]

    def written(self, device: dict[str, Any]) -> dict[str, Any]:
        if self.api_version != "v1beta1":
            return device
        return {"name": device["name"], "basic": {key: one for key, one in device.items() if key != "name"}}

    def selector(self) -> str:
        return f"fieldSelector=spec.nodeName%3D{self.place.node_name},spec.driver%3D{self.name}"

    async def owners(self) -> list[dict[str, Any]]:
        node = await self.api.request("GET", f"/api/v1/nodes/{self.place.node_name}")
        meta = node["metadata"]
        reference = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
        return [{**reference, "controller": True}]

    async def publish(self) -> None:
        """Keep the slices as they should be, for ever."""
        while True:
            try:
                version = await self.sync()
                query = f"{self.slices}?{self.selector()}&watch=1&resourceVersion={version}"
                async with self.api.watch(query) as events:
                    async for event in events:
                        if not await self.take_event(event):
                            break
            except (OSError, StatusError, ValueError) as error:
                self.say(f"slices: {error}")
            await asyncio.sleep(self.retry_seconds)

    async def take_event(self, event: Mapping[str, Any]) -> bool:
        """Put right what an event may be about; return whether to watch on."""
        if event["type"] == "ERROR":
            return False
        if event["type"] != "BOOKMARK":
            await self.sync()
        return True

    async def sync(self) -> str:
        """Write what differs; return the version of the list."""
        async with self.syncing:  # an event and a device that goes may come together
            listed = await self.api.request("GET", f"{self.slices}?{self.selector()}")
            left, devices = self.specs(), self.devices()
            for one in listed["items"]:
                wanted = [spec for spec in left if one["spec"] == spec or (spec, one["spec"]) in self.stored]
                if wanted:
                    left.remove(wanted[0])
                else:
                    with suppress(StatusError):
                        await self.api.request("DELETE", f"{self.slices}/{one['metadata']['name']}")
            for spec in left:
                await self.create(spec)
            self.published = devices
            return str(listed["metadata"]["resourceVersion"])

    async def create(self, spec: dict[str, Any]) -> None:
        meta = {"generateName": f"{self.place.node_name}-", "ownerReferences": await self.owners()}
        head = {"apiVersion": f"resource.k8s.io/{self.api_version}", "kind": "ResourceSlice"}
        answer = await self.api.request("POST", self.slices, {**head, "metadata": meta, "spec": spec})
        self.stored.append((spec, answer["spec"]))

    # ── claims ──

    async def prepare(self, claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        return {claim.uid: await self.answer(claim) for claim in claims}

    async def answer(self, claim: ClaimName) -> PreparedClaim:
        try:
            async with self.lock:
                if claim.uid not in self.prepared:
                    self.keep(claim.uid, await self.use(claim))
                return PreparedClaim(tuple(self.device(claim.uid, one) for one in self.prepared[claim.uid]))
        except ClaimError as error:
            return PreparedClaim(error=str(error))

    def device(self, uid: str, result: Mapping[str, Any]) -> PreparedDevice:
        return PreparedDevice(
            result["pool"],
            result["device"],
            (result["request"].partition("/")[0],),
            (f"k8s.{self.name}/claim={uid}-{result['device']}",),
            result.get("shareID"),
        )

    async def read(self, claim: ClaimName) -> dict[str, Any]:
        """Read a claim; wait for the API server as long as it makes sense."""
        path = self.path_of(claim)
        deadline = asyncio.get_running_loop().time() + self.patience_seconds
        while True:
            try:
                async with asyncio.timeout(self.answer_seconds):
                    return await self.api.request("GET", path)
            except (OSError, StatusError) as error:
                if isinstance(error, StatusError) and error.code < 429:
                    raise ClaimError(str(error)) from error
                if asyncio.get_running_loop().time() > deadline:
                    raise ClaimError(f"the API server does not answer: {error}") from error
            await asyncio.sleep(self.retry_seconds)

    def path_of(self, claim: ClaimName) -> str:
        if max(len(claim.namespace), len(claim.name)) > NAME_LIMIT:
            raise ClaimError("this can be no claim's name")
        return self.claims.format(quote(claim.namespace, safe=""), quote(claim.name, safe=""))

    async def use(self, claim: ClaimName) -> list[dict[str, Any]]:
        """Return the results of a claim's allocation that are ours."""
        found = await self.read(claim)
        self.check_uid(found, claim)
        results = found.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        ours = [one for one in results if one["driver"] == self.name]
        self.check_results(ours)
        return ours

    def check_uid(self, found: Mapping[str, Any], claim: ClaimName) -> None:
        if found["metadata"]["uid"] != claim.uid:
            raise ClaimError(f"{claim.name} is another claim now")

    def check_results(self, results: Sequence[Mapping[str, Any]]) -> None:
        if not results:
            raise ClaimError("the claim has no devices of this driver")
        names = {one["name"] for one in self.devices()}
        for one in results:
            if one["pool"] != self.pool() or one["device"] not in names:
                raise ClaimError(f"there is no device {one['device']} in pool {one['pool']}")

    async def unprepare(self, claims: Sequence[ClaimName]) -> Mapping[str, str]:
        return {claim.uid: await self.end_of(claim) for claim in claims}

    async def end_of(self, claim: ClaimName) -> str:
        async with self.lock:
            self.forget(claim.uid)
        return ""

    # ── what is kept of prepared claims ──

    def cdi_file(self, uid: str) -> Path:
        return self.place.cdi / f"k8s.{self.name}_{uid}.json"

    def spec_of(self, uid: str, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        devices = [
            {
                "name": f"{uid}-{one['device']}",
                "containerEdits": {"deviceNodes": [{"path": "/dev/null"}], "env": [f"D={one['device']}"]},
            }
            for one in results
        ]
        return {"cdiVersion": "0.5.0", "kind": f"k8s.{self.name}/claim", "devices": devices}

    def keep(self, uid: str, results: list[dict[str, Any]]) -> None:
        self.write(self.cdi_file(uid), self.spec_of(uid, results))
        self.prepared[uid] = results
        self.save()

    def forget(self, uid: str) -> None:
        if self.prepared.pop(uid, None) is not None:
            self.cdi_file(uid).unlink(missing_ok=True)
            self.save()

    def write(self, path: Path, content: object) -> None:
        """Write a file so that nobody sees half of it."""
        hidden = path.with_name(f".{path.name}.tmp")
        hidden.write_text(json.dumps(content))
        hidden.rename(path)

    def save(self) -> None:
        self.write(self.folder / "state.json", {"prepared": self.prepared, "taints": self.taint_times})

    def load(self) -> None:
        with suppress(FileNotFoundError):
            state = json.loads((self.folder / "state.json").read_text())
            self.prepared, self.taint_times = state["prepared"], state["taints"]

    # ── its life ──

    async def run(self) -> None:
        """Serve and publish until `stopping` is set."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in (self.serve(), self.publish(), self.look())]
            await self.stopping.wait()
            for task in tasks:
                task.cancel()
        await self.end()

    async def look(self) -> None:
        """Publish when a device came or went."""
        seen = self.devices()
        while True:
            await asyncio.sleep(0.05)
            now = self.devices()
            if now != seen or self.published not in (None, now):  # an event may have shown it first
                with suppress(OSError, StatusError):
                    await self.sync()
                    seen = now

    async def serve(self) -> None:
        """Have both sockets, and make them again when they are lost."""
        while True:
            with suppress(KubeletError):
                if not self.service.is_bound():
                    await self.service.bind()
                if not self.registration.is_bound():
                    await self.registration.bind()
            await asyncio.sleep(0.05)

    async def end(self) -> None:
        await self.registration.close()
        await self.service.close(0.2)

    async def die(self) -> None:
        """What the operating system does to a process that is killed: connections end, files stay."""
        await self.registration.close(keep_file=True)
        await self.service.close(keep_file=True)

    def say(self, text: str) -> None:
        with self.place.output_file.open("a") as output:
            output.write(f"{text}\n")

    def exit_code(self) -> int:
        return 0


def main() -> int:
    """Run the right driver as a program until SIGTERM, by the variables that the judge sets."""

    async def play() -> int:
        place = DriverPlace(
            Path(os.environ["KUBELET_ROOT"]),
            Path(os.environ["CDI_ROOT"]),
            Path(os.environ.get("WORK", "/nonexistent")),
            Path(os.environ["KUBECONFIG"]),
            os.environ["NODE_NAME"],
            os.environ["POD_UID"],
            Path("/dev/stderr"),
        )
        driver = RightDriver(place)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, driver.stopping.set)
        await driver.run()
        return driver.exit_code()

    return asyncio.run(play())


if __name__ == "__main__":
    sys.exit(main())
