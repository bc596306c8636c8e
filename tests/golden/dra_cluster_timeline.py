"""Plays timelines of what the scheduler and the controllers of a real cluster (v1.36.2) did with claims.

The driver answers as it was recorded, and does the same to its slice and claims at these times; claims have
the UIDs of the recording. Compared are the calls with their bytes, what is written into pods and claims, and
all events, in order.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from devplug.k8s.objects import entries, fields, text
from devplug.sandbox.api.watchlog import ChangeType
from devplug.sandbox.registry import DEVICE_CLASSES, NAMESPACES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.golden.dra_cluster import IMAGE, Cluster, running
from tests.golden.dra_notation import NAMESPACE
from tests.golden.dra_timeline import Player

Json = Any

OF_THE_CLUSTER = ("binding_conditions", "taint_eviction")
"""Timelines of what the scheduler and the controllers do; the kubelet only follows in them."""

SLICE = "slice"
TAINT = {"key": "example.com/broken", "effect": "NoExecute"}
TOLERATION = {"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute"}

TOLERANCE_SECONDS = 1.0
"""How exactly it is known how long a pod lived: times in the API are whole seconds."""


class ClusterPlayer(Player):
    """One timeline in a cluster of its own."""

    live: Cluster
    following: asyncio.Task[None]

    def __init__(
        self, lines: list[Json], folder: Path, tasks: asyncio.TaskGroup, machine: AsyncExitStack
    ) -> None:
        super().__init__(lines, folder, tasks, machine)
        self.history: defaultdict[str, list[Json]] = defaultdict(list)
        """By pod, its states as the lines with `deleting` tell them."""
        self.ran: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        """When each pod ran, and was gone."""

    # ── the cluster ──

    async def _start_kubelet(self) -> None:
        self.running = AsyncExitStack()
        claims = [(RESOURCE_CLAIMS, one) for one in self._claims()]
        self.live = await self.running.enter_async_context(running(self.folder, claims))
        self.kubelet = self.live.kubelet
        self.live.registry.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
        self.live.registry.create(DEVICE_CLASSES, "", {"metadata": {"name": "any"}, "spec": {}})
        self.following = self.tasks.create_task(self._follow())

    async def close(self) -> None:
        self.following.cancel()
        await super().close()

    async def _follow(self) -> None:
        async for event in self.live.registry.follow(PODS):
            name, status = text(event.object, "metadata", "name"), fields(event.object, "status")
            is_deleted = bool(text(event.object, "metadata", "deletionTimestamp"))
            self.history[name].append(_state(text(status, "phase"), status.get("conditions"), is_deleted))
            if text(status, "phase") == "Running":
                self.ran.setdefault(name, self.now)
            if event.type is ChangeType.DELETED:
                self.gone[name] = self.now

    def _claims(self) -> Iterator[Json]:
        """Yield the claims of the recording, as they are before the scheduler allocates them."""
        seconds: int | None = None
        names = {uid: name for name, uid in self.cast.uids.items()}
        told: dict[str, Json] = {}
        for line in self.lines:
            if "tolerationSeconds" in line.get("case", ""):
                seconds = int(line["case"].split()[-1])
            for uid, request in _requests(line):
                tolerations = [{**TOLERATION, "tolerationSeconds": seconds}] if seconds else []
                name = names.get(uid, uid)
                told.setdefault(
                    name, _claim(name, self.cast.uids.get(name, f"uid-{name}"), request, tolerations)
                )
        yield from told.values()

    def _publish(self) -> None:
        """Write the slice with the devices that are allocated in the recording."""
        devices: dict[str, Json] = {}
        for line in self.lines:
            for answer in line.get("response", {}).get("claims", {}).values():
                for one in answer.get("devices", ()):
                    devices.setdefault(one["device_name"], {"name": one["device_name"]})
            for result in _results(line):
                waits = {key: result[key] for key in result if key.startswith("binding")}
                devices[result["device"]] = {"name": result["device"], **waits}
        ((driver, _),) = self.drivers
        self.live.publish(SLICE, driver, list(devices.values()))

    # ── what is done ──

    async def _on_case(self, line: Json) -> None:
        if "device" in line:
            self.live.taint(SLICE, line["device"], TAINT)
            return
        later = self.lines[self.lines.index(line) :]
        name = next(one["object"] for one in later if "object" in one)
        self._begin_pod(name)

    def _begin_pod(self, name: str) -> None:
        if self.live.pod(NAMESPACE, name) is not None or name in self.history:
            return
        if self.live.registry.find(RESOURCE_SLICES, "", SLICE) is None:
            self._publish()
        container = {
            "name": "c",
            "image": IMAGE,
            "resources": {"claims": [{"name": "d"}]},
        }
        spec = {
            "containers": [container],
            "resourceClaims": [{"name": "d", "resourceClaimName": f"c-{name}"}],
            "terminationGracePeriodSeconds": 1,
        }
        self.live.registry.create(PODS, NAMESPACE, {"metadata": {"name": name}, "spec": spec})

    async def _on_note(self, line: Json) -> None:
        if line["note"].startswith("driver set condition "):
            self._set_condition(self._before(line), line["note"].split()[-1])
        else:
            await super()._on_note(line)

    def _set_condition(self, name: str, condition: str) -> None:
        status = self.live.claim(NAMESPACE, f"c-{name}")["status"]
        (result,) = status["allocation"]["devices"]["results"]
        device = {key: result[key] for key in ("driver", "pool", "device")}
        told = {"type": condition, "status": "True", "reason": "Done", "message": "by the driver"}
        conditions = [{**told, "lastTransitionTime": "2026-11-22T00:00:00Z"}]
        status = {**status, "devices": [{**device, "conditions": conditions}]}
        self.live.registry.set_status(RESOURCE_CLAIMS, NAMESPACE, f"c-{name}", status)

    def _before(self, line: Json) -> str:
        """The pod whose events or claim were told last."""
        for earlier in reversed(self.lines[: self.lines.index(line)]):
            if "object" in earlier:
                return str(earlier["object"])
        raise LookupError(line)

    # ── what is compared ──

    async def _about_pod(self, line: Json, words: list[str]) -> None:
        match words:
            case ["delete", "pod", name]:
                self.live.registry.delete(PODS, NAMESPACE, name)
            case ["pod", "gone", seconds, "s", *_]:
                name = self.cast.pod_before(line)
                await self.soon(line, lambda: self._is_there(name), want=False)
                lived = self.gone.get(name, self.now) - self.ran.get(name, self.now)
                self.compare(line, abs(lived - float(seconds)) < TOLERANCE_SECONDS, want=True)
            case ["pod", "gone"]:
                await self.soon(line, lambda: self._is_there(self.cast.pod_before(line)), want=False)
            case ["pod", name, "gone"]:
                await self.soon(line, lambda: self._is_there(name), want=False)

    def _is_there(self, name: str) -> bool:
        return self.live.pod(NAMESPACE, name) is not None

    async def _on_pod(self, line: Json) -> None:
        name = line["pod"]
        self._begin_pod(name)
        if not line["containers"] or (line["phase"] == "Pending" and self.cast.runs_at_once(line)):
            return

        def looks() -> Json:
            status: Json = fields(self.live.pod(NAMESPACE, name), "status")
            states = [(one["name"], *_word(one["state"])) for one in status.get("containerStatuses", ())]
            return {"phase": status.get("phase"), "containers": states}

        told = [(one["name"], one["state"], one["reason"]) for one in line["containers"]]
        await self.soon(line, looks, {"phase": line["phase"], "containers": told})

    async def _on_deleting(self, line: Json) -> None:
        history = self.history[self.cast.pod_before(line)]
        want = _state(line["phase"], line["disruption"], line["deleting"])
        await self.soon(line, lambda: next((one for one in history if one == want), None), want)
        del history[: history.index(want) if want in history else 0]

    async def _on_pod_conditions(self, line: Json) -> None:
        later = self.lines[self.lines.index(line) :]
        name = next(one["object"] for one in later if "object" in one)
        words = ("type", "status", "reason", "message")

        def looks() -> Json:
            pod: Json = self.live.pod(NAMESPACE, name)
            found: list[Json] = [*entries(pod, "status", "conditions")]
            conditions = [{word: one.get(word) for word in words} for one in found]
            return conditions, text(pod, "spec", "nodeName") or None, text(pod, "status", "phase")

        phase = line.get("phase", "Pending")
        await self.soon(line, looks, (line["pod_conditions"], line["nodeName"], phase))

    async def _events(self, line: Json, key: str) -> None:
        def seen() -> Json:
            return [
                {
                    "type": one["type"],
                    "reason": one["reason"],
                    "message": one["message"],
                    "count": one.get("count"),
                    "from": text(one, "source", "component") or one["reportingComponent"],
                }
                for one in self.live.events(line["object"])
            ]

        await self.soon(line, seen, line[key])

    async def _on_claim(self, line: Json) -> None:
        told = line["claim"]

        def looks() -> Json:
            found = self.live.claim(NAMESPACE, told["name"])
            meta = {
                key: found["metadata"].get(key) for key in ("ownerReferences", "annotations", "finalizers")
            }
            return {"name": told["name"], "code": 200, "status": _unnamed(found.get("status", {})), **meta}

        await self.soon(line, looks, {**told, "status": _unnamed(told["status"])})


def _results(line: Json) -> list[Json]:
    return [*entries(line.get("claim"), "status", "allocation", "devices", "results")]


def _requests(line: Json) -> Iterator[tuple[str, str]]:
    """Yield of each claim in a line its UID, or its name, and its request."""
    for uid, answer in line.get("response", {}).get("claims", {}).items():
        for device in answer.get("devices", ()):
            yield uid, device["request_names"][0]
    for result in _results(line):
        yield line["claim"]["name"], text(result, "request")


def _claim(name: str, uid: str, request: str, tolerations: list[Json]) -> Json:
    asked: Json = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    if tolerations:
        asked["tolerations"] = tolerations
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid, "resourceVersion": "1"},
        "spec": {"devices": {"requests": [{"name": request, "exactly": asked}]}},
        "status": {},
    }


def _state(phase: str, conditions: Any, is_deleted: bool) -> Json:
    disruption = [
        {key: one[key] for key in one if key != "lastTransitionTime"}
        for one in conditions or ()
        if one["type"] == "DisruptionTarget"
    ]
    return {"phase": phase, "deleting": is_deleted, "disruption": disruption}


def _word(state: Json) -> tuple[str, str | None]:
    ((word, more),) = state.items()
    return word, more.get("reason")


def _unnamed(status: Json) -> Json:
    """Return a claim's status without times and pods' UIDs, which are those of the run."""
    if isinstance(status, dict):
        return {
            key: _unnamed(one) for key, one in status.items() if key not in {"allocationTimestamp", "uid"}
        }
    return [_unnamed(one) for one in status] if isinstance(status, list) else status
