"""Plays timelines of the real kubelet's DRA manager (v1.36.2) against ours, on a virtual clock.

What was done is done again, at the times of the recording: sockets, pods, messages, the kubelet's ends. The
driver answers each call as it was recorded. Compared are the calls with their bytes and order, the
checkpoint, PodResources, events about claims, the pods' phases and containers, the health in their status,
and the wipes of slices. Not compared is what the scheduler and the controllers did, and when exactly a call
was made: the real kubelet spreads its retries by chance.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from devplug.errors import KubeletError
from devplug.kubelet.dra import claim_cache
from devplug.kubelet.dra.claim_cache import ClaimCache
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.settings import KubeletSettings
from devplug.wire.podresources import GET
from devplug.wire.sockets import connected
from devplug.wire.values import PodName
from tests.golden.dra_notation import NAMESPACE, ROOT, Cast, status_of
from tests.golden.dra_pods import PodWorker
from tests.golden.dra_recorded import RecordedDriver
from tests.kubelet.dra_driver import FakeCluster
from tests.virtualtime import passes

Json = Any
"""What stands in a recording."""

PATIENCE_SECONDS = 200.0
"""How much later than in the recording something may happen, by the virtual clock."""


async def differences(lines: list[Json], folder: Path, player_of: type[Player]) -> tuple[int, list[str]]:
    """Play a timeline; return how many of its lines were compared, and one text for each that differs."""
    async with asyncio.TaskGroup() as tasks, AsyncExitStack() as machine:
        player = player_of(lines, folder, tasks, machine)
        try:
            for number, line in enumerate(lines):
                await player.play(number, line)
            player.find_more_calls()
        finally:
            await player.close()
    return player.compared, player.found


class Player:
    """One timeline on a machine of its own."""

    def __init__(
        self, lines: list[Json], folder: Path, tasks: asyncio.TaskGroup, machine: AsyncExitStack
    ) -> None:
        self.cast = Cast.of(lines)
        self.lines = lines
        self.folder = folder
        self.tasks = tasks
        self.machine = machine
        self.found: list[str] = []
        self.compared = 0
        self.drivers: dict[tuple[str, str], RecordedDriver] = {}
        self.cluster = FakeCluster()
        self.slices: list[str] = []
        self.pods: dict[str, asyncio.Task[None]] = {}
        self.deleted: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.running: AsyncExitStack | None = None
        self.stopped_at = 0.0
        self.is_forced = False
        """Whether the next pod is deleted by force as soon as the kubelet is down."""
        loop = asyncio.get_running_loop()
        self.begin = loop.time()
        settings = KubeletSettings(clock=loop.time, claims=self.cluster, slices=self.cluster)
        self.kubelet = Kubelet.under(folder, settings)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time() - self.begin

    async def close(self) -> None:
        for task in self.pods.values():
            task.cancel()
        for driver in self.drivers.values():
            await driver.stop()
        await self._stop_kubelet()

    # ── lines ──

    async def play(self, number: int, line: Json) -> None:
        if number == 0:
            # The kubelet looks once in a second: at the same tenths of it as the recorded one.
            await self._at(self.cast.first_call % 1.0)
            await self._start_kubelet()
        await self._at(line["t"])
        kinds = [key for key in line if hasattr(self, f"_on_{key}")]
        kind = next((key for key in line if key.startswith(("checkpoint", "slices", "status_"))), None)
        for name in kinds:
            await getattr(self, f"_on_{name}")(line)
        if kind is not None:
            name = kind.partition("_")[0]
            await getattr(self, f"_about_{name}")(kind, line[kind])

    async def _at(self, seconds: float) -> None:
        if seconds > self.now:
            await passes(seconds - self.now)

    def compare(self, line: Json, got: object, want: object) -> None:
        self.compared += 1
        if got != want:
            self.found.append(f"{line}\n  want {want}\n  got  {got}")

    async def soon(self, line: Json, look: Callable[[], object], want: object) -> None:
        """Compare once it is as it should be, or never."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while look() != want:
                    await passes(0.05)
        except TimeoutError:
            pass
        self.compare(line, look(), want)

    # ── drivers ──

    def _driver(self, line: Json) -> RecordedDriver:
        key = line["driver"], line.get("instance", "")
        if key not in self.drivers:
            script = [one for one in self.lines if (one.get("driver"), one.get("instance", "")) == key]
            self.drivers[key] = RecordedDriver(self.folder, *key, script)
        return self.drivers[key]

    async def _on_call(self, line: Json) -> None:
        for pod in self.cast.pods_of(line):
            self._begin_pod(pod)
        driver = self._driver(line)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                got = await driver.next_call(line["call"])
        except TimeoutError:
            got = None
        self.compare(line, got, (line["call"], line.get("request_hex", "")))

    def find_more_calls(self) -> None:
        """Report calls that the recording does not have."""
        for driver in self.drivers.values():
            for call in driver.more_calls():
                self.found.append(f"{driver.name}: more than was recorded: {call}")

    async def _on_stream(self, line: Json) -> None:
        self._driver(line).send(line["message_hex"])

    async def _on_stream_end(self, line: Json) -> None:
        self._driver(line).end_streams()

    async def _on_case(self, line: Json) -> None:
        self.is_forced = "force-deleted while the kubelet is down" in line["case"]

    def _force_delete(self, name: str) -> None:
        self.pods[name].cancel()
        self.kubelet.remove_pod(self.cast.pods[name].uid)

    async def _on_note(self, line: Json) -> None:
        note = line["note"]
        if note == "registration socket created":
            await self._driver(line).begin()
        elif note == "stopped":
            self.stopped_at = self.now
            await self._driver(line).stop(
                registration=line["registration_socket_removed"], service=line["service_socket_removed"]
            )
        elif note.startswith("driver saw the call cancelled after"):
            driver = next(iter(self.drivers.values()))
            await self.soon(line, lambda: driver.cancelled_after, float(note.split()[-2]))
        elif note.startswith("slices wiped"):
            wiped = None if "kubelet" in note else next(iter(self.drivers.values())).name
            await self.soon(line, lambda: wiped in self.cluster.removed, want=True)
            if wiped is not None:
                self.compare(line, round((self.now - self.stopped_at) / 2), 15)
            self.slices = []
        elif note == "kubelet stopped":
            await self._stop_kubelet()
            if self.is_forced:
                self._force_delete(self.cast.pod_before(line))
        elif note == "kubelet started":
            self.cluster.removed.clear()
            await self._start_kubelet()
        elif "pod" in note:
            await self._about_pod(line, note.split())

    # ── pods ──

    async def _about_pod(self, line: Json, words: list[str]) -> None:
        match words:
            case ["delete", "pod", name]:
                self.deleted[name].set()
            case ["pod", "deleted", *_]:
                self.deleted[self.cast.pod_before(line)].set()
            case ["pod", "gone:", _]:
                await self.soon(line, lambda: self._is_there(self.cast.pod_before(line)), want=False)
            case ["pod", name, "gone"]:
                await self.soon(line, lambda: self._is_there(name), want=False)
            case ["pod", name, "still", "there", *_]:
                self.compare(line, self._is_there(name), want=True)
            case ["pod", "still"]:
                self.compare(line, self._phase(self.cast.pod_before(line)), line["phase"])

    def _is_there(self, name: str) -> bool:
        try:
            self.kubelet.pod(self.cast.pods[name].uid)
        except KubeletError:
            return False
        return True

    def _phase(self, name: str) -> str:
        return self.kubelet.pod(self.cast.pods[name].uid).phase.value

    def _begin_pod(self, name: str) -> None:
        if name not in self.pods and name in self.cast.pods:
            pod = self.cast.pods[name]
            for claim in self.cast.claims_of(pod):
                known: Json = self.cluster.claims.get((NAMESPACE, claim["metadata"]["name"]), claim)
                known["status"]["reservedFor"].append({"resource": "pods", "name": name, "uid": pod.uid})
                self.cluster.claims[NAMESPACE, claim["metadata"]["name"]] = known
            worker = PodWorker(self.kubelet, pod, self.deleted[name])
            self.pods[name] = self.tasks.create_task(worker.run())

    async def _on_pod(self, line: Json) -> None:
        name = line["pod"]
        self._begin_pod(name)
        pod = self.cast.pods[name]
        if any(one["state"] == "terminated" for one in line["containers"]) and line["phase"] == "Running":
            self.kubelet.end_container(pod.uid, line["containers"][0]["name"])
            self.tasks.create_task(PodWorker(self.kubelet, pod, self.deleted[name]).complete())
            return
        if not line["containers"]:
            return  # before the kubelet has seen the pod
        if line["phase"] == "Pending" and self.cast.runs_at_once(line):
            return
        await self.soon(line, lambda: status_of(self.kubelet.pod(pod.uid), pod), _comparable(line))

    async def _on_pod_status(self, line: Json) -> None:
        status = line["pod_status"]
        name = self.cast.pod_before(line)
        states = status.get("containerStatuses")
        if states is None:
            self.compare(line, self._phase(name), status["phase"])
            return
        want = {
            "phase": status["phase"],
            "containers": [
                (one["name"], next(iter(one["state"])), _reason(next(iter(one["state"].values()))))
                for one in states
            ],
        }
        pod = self.cast.pods[name]
        await self.soon(line, lambda: status_of(self.kubelet.pod(pod.uid), pod), want)

    async def _on_restarts(self, line: Json) -> None:
        pod = self.cast.pods[self.cast.pod_before(line)]
        name = pod.containers[0].name
        self.kubelet.end_container(pod.uid, name)
        restarted = await self.kubelet.start_container(pod.uid, name)
        self.compare(line, [restarted.restart_count], line["restarts"])

    async def _events(self, line: Json, key: str) -> None:
        want = [
            (one["type"], one["reason"], one["message"])
            for one in line[key]
            if one["reason"] == "FailedPrepareDynamicResources"
        ]
        name = line["object"]
        if any(one["from"] == "kubelet" for one in line[key]):
            self._begin_pod(name)
        if name not in self.pods:
            return  # it was never bound
        uid = self.cast.pods[name].uid

        def seen() -> object:
            events = (one for one in self.kubelet.events if one.pod_uid == uid)
            texts = ((one.type, one.reason, one.message.replace(str(self.folder), ROOT)) for one in events)
            return list(dict.fromkeys(texts))

        await self.soon(line, seen, want)

    async def _on_events(self, line: Json) -> None:
        await self._events(line, "events")

    async def _on_events_after_recovery(self, line: Json) -> None:
        await self._events(line, "events_after_recovery")

    async def _on_events_after_return(self, line: Json) -> None:
        await self._events(line, "events_after_return")

    # ── files, sockets, slices ──

    async def _on_podresources_get(self, line: Json) -> None:
        async with connected(self.folder / "pod-resources" / "kubelet.sock") as kubelet:
            answer = await kubelet.call(GET, PodName(line["podresources_get"], NAMESPACE))
        self.compare(line, GET.response.encode(answer).hex(), line["response_hex"])

    async def _about_checkpoint(self, kind: str, text: str) -> None:
        mine = {name for name, _ in self.drivers}
        whole = claim_cache.decode(text.encode())
        # Other timelines ran at the same time, with drivers of their own.
        rest = ClaimCache.of(claim for claim in whole if mine & claim.devices.keys())
        want = text if rest == whole else claim_cache.encode(rest).decode()
        await self.soon({kind: ...}, (self.folder / "dra_manager_state").read_text, want)

    async def _about_slices(self, kind: str, names: list[str]) -> None:
        if kind in {"slices", "slices_republished"}:
            self.slices = names
            self.cluster.removed.clear()
        else:
            driver = next(iter(self.drivers))[0]
            self.compare({kind: names}, [] if driver in self.cluster.removed else self.slices, names)

    async def _about_status(self, kind: str, want: Json) -> None:
        pod = next(iter(self.cast.pods.values()))
        got = [
            {
                "name": container.name,
                "allocatedResourcesStatus": [
                    {
                        "name": name,
                        "resources": [
                            {"resourceID": one.resource_id, "health": one.health}
                            | ({"message": one.message} if one.message else {})
                            for one in devices
                        ],
                    }
                    for name, devices in container.claims_health.items()
                ],
            }
            for container in self.kubelet.pod(pod.uid).containers
        ]
        self.compare({kind: ...}, got, want)

    async def _on_message_lengths(self, line: Json) -> None:
        pod = next(iter(self.cast.pods.values()))
        (devices,) = self.kubelet.pod(pod.uid).containers[0].claims_health.values()
        got = [(len(one.message), one.message[-6:]) for one in devices]
        self.compare(line, got, list(zip(line["message_lengths"], line["tail"], strict=True)))

    async def _on_health_file(self, line: Json) -> None:
        self.compare(line, (self.folder / "dra_health_state").read_text(), line["health_file"])

    # ── the kubelet ──

    async def _start_kubelet(self) -> None:
        self.running = AsyncExitStack()
        await self.running.enter_async_context(self.kubelet.running())

    async def _stop_kubelet(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            await running.aclose()


def _comparable(line: Json) -> Json:
    return {
        "phase": line["phase"],
        "containers": [(one["name"], one["state"], _reason(one)) for one in line["containers"]],
    }


def _reason(state: Json) -> str:
    return state.get("reason") or ""
