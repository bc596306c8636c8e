"""One recording's machine, and the steps that can be done to it."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from devplug.errors import AllocationError, KubeletError, RemoteError
from devplug.kubelet.admission import admit
from devplug.kubelet.changes import ChangeKind, Changes
from devplug.kubelet.devicemanager import DeviceManager
from devplug.kubelet.folder import CHECKPOINT_NAME, PluginFolder
from devplug.kubelet.settings import KubeletSettings
from tests.kubelet.recorded_notation import (
    as_devices,
    as_options,
    as_pod,
    as_refusal,
    decoded,
    run_options_of,
)
from tests.kubelet.recorded_plugin import RecordedPlugin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from devplug.kubelet.pods import Pod

Json = Any
"""What stands in a recording."""


class _Tally(Changes):
    """Changes that are counted too."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.counts: Counter[ChangeKind] = Counter()

    def announce(self, kind: ChangeKind, *, resource_name: str = "", pod_uid: str = "") -> None:
        self.counts[kind] += 1
        super().announce(kind, resource_name=resource_name, pod_uid=pod_uid)


class World:
    """One record's machine: a folder, a device manager, plugins and pods."""

    def __init__(self, folder: Path, tasks: asyncio.TaskGroup) -> None:
        self.folder = folder
        self.tasks = tasks
        self.now = 0.0
        self.changes = _Tally(lambda: self.now)
        self.active: set[str] = set()
        self.pods: dict[str, Pod] = {}
        self.plugins: dict[str, RecordedPlugin] = {}
        self.ever: list[RecordedPlugin] = []
        self.calls: list[Json] = []
        self.contradicted: set[str] = set()
        """Devices that a checkpoint puts both on a node and on none; the real one answers either."""
        self.manager = self._manager()

    def _manager(self) -> DeviceManager:
        return DeviceManager(
            PluginFolder(self.folder),
            lambda: self.active,
            self.changes,
            KubeletSettings(
                clock=lambda: self.now,
                compat=True,
                dial_timeout_seconds=0.5,
                pre_start_timeout_seconds=0.3,
            ),
        )

    async def close(self) -> None:
        for plugin in self.ever:
            await plugin.die()
        await self.manager.stop()

    async def play(self, step: Json) -> Json:
        """Do one step and return what was observed."""
        self.calls = []
        operation = getattr(self, f"_{step['op']}")
        observed = await operation(**step["input"])
        return {} if observed is None else observed

    async def settled(self, plugin: RecordedPlugin | None = None) -> None:
        """Wait until every stream is as open here as there."""
        await self.changes.wait(
            lambda: (
                (plugin is None or not plugin.open_streams)
                and self._open_streams() == sum(one.open_streams for one in self.ever)
            ),
        )

    def _open_streams(self) -> int:
        return self.changes.counts[ChangeKind.REGISTERED] - self.changes.counts[ChangeKind.STREAM_ENDED]

    async def listed(self, before: int, lists: int) -> None:
        """Wait until so many lists more than `before` are in the table."""
        await self.changes.wait(lambda: self.changes.counts[ChangeKind.LISTED] >= before + lists)

    # ── the manager ──

    async def _boot(self, *, sources_ready: bool = True, running: Sequence[Json] = ()) -> Json:
        self.manager = self._manager()
        self.manager.sources_ready = sources_ready
        running_containers = [(one["uid"], one["container"]) for one in running if one["running"]]
        error = None
        try:
            await self.manager.start(self.tasks, running_containers)
        except KubeletError as failure:
            error = str(failure)
        failed = self.manager.checkpoint_error
        return {"start_error": error, "checkpoint_error": failed and str(failed)}

    async def _stop_manager(self) -> Json:
        await self.manager.stop(orderly=True)
        await self.changes.wait(lambda: not any(one.open_streams for one in self.ever))
        return {"error": None}

    async def _sources_ready(self, *, ready: bool) -> None:
        self.manager.sources_ready = ready

    async def _advance(self, *, seconds: float) -> None:
        self.now += seconds

    async def _gc(self) -> None:
        self.manager.free_inactive()

    async def _file_touch(self, *, name: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    async def _dir(self) -> Json:
        return {"files": sorted(path.name for path in self.folder.iterdir())}

    # ── plugins ──

    async def _plugin_start(
        self,
        *,
        plugin: str,
        devices: Json,
        behaviour: Json = None,
        socket: str | None = None,
    ) -> Json:
        started = RecordedPlugin(self, plugin, socket)
        before = self.plugins.get(plugin)
        started.set(devices, before.behaviour if behaviour is None and before else behaviour or {})
        await started.listen()
        self.plugins[plugin] = started
        self.ever.append(started)
        return {"error": None}

    async def _plugin_set(self, *, plugin: str, devices: Json = None, behaviour: Json = None) -> None:
        self.plugins[plugin].set(devices, behaviour)

    async def _plugin_update(self, *, plugin: str, devices: Json) -> Json:
        before = self.changes.counts[ChangeKind.LISTED]
        streams = self.plugins[plugin].send(as_devices(devices))
        await self.listed(before, streams)
        return {"streams": streams}

    async def _plugin_end_stream(self, *, plugin: str, error: Json = None) -> Json:
        streams = self.plugins[plugin].end_streams(error and as_refusal(*error.values()))
        await self.settled(self.plugins[plugin])
        return {"streams": streams}

    async def _plugin_stop(self, *, plugin: str, keep_socket: bool = False) -> None:
        await self.plugins[plugin].die(keep_file=keep_socket)
        await self.settled(self.plugins[plugin])

    async def _register(
        self,
        *,
        plugin: str,
        resource: str,
        version: str = "v1beta1",
        endpoint: str | None = None,
        options: Json = None,
        timeout_ms: int | None = None,
    ) -> Json:
        caller = self.plugins[plugin]
        before = self.changes.counts[ChangeKind.LISTED]
        open_before = caller.open_streams
        try:
            await caller.register(
                resource,
                version=version,
                endpoint=endpoint,
                options=as_options(options or {}),
                timeout_seconds=timeout_ms and timeout_ms / 1000,
            )
        except RemoteError as error:
            return {"code": error.status, "message": error.text}
        observed: Json = {"code": "OK", "message": ""}
        mode = caller.behaviour.get("list", "send")
        if mode in ("send", "end"):
            await self.listed(before, 1)
            observed["synced"] = True
        if mode in ("send", "none"):
            await self.changes.wait(lambda: caller.open_streams > open_before)
        else:
            await self.settled()
        return observed

    # ── pods ──

    async def _admit(self, *, pod: Json, keep_active_on_reject: bool = False) -> Json:
        self._bind(pod)
        admitted = self.pods[pod["uid"]]
        rejection = await admit(admitted, self.manager.allocate)
        if rejection and not keep_active_on_reject:
            self.active.discard(admitted.uid)
        return {
            "admit": rejection is None,
            "reason": rejection.reason if rejection else "",
            "message": rejection.message if rejection else "",
            **self._allocated(admitted.uid),
        }

    async def _allocate_container(self, *, container: str, pod: Json = None, uid: str | None = None) -> Json:
        if pod is not None:
            self._bind(pod)
            uid = pod["uid"]
        assert uid is not None
        return await self._with_error(
            self.manager.allocate(self.pods[uid], self.pods[uid].container(container)),
            lambda _: self._allocated(uid),
        )

    async def _run_container(self, *, uid: str, container: str) -> Json:
        return await self._with_error(
            self.manager.container_options(self.pods[uid], self.pods[uid].container(container)),
            lambda options: {"options": options and run_options_of(options), "calls": self.calls},
        )

    async def _with_error(self, attempt: Awaitable[Any], observe: Callable[[Any], Json]) -> Json:
        error = result = None
        try:
            result = await attempt
        except (AllocationError, RemoteError) as failure:
            error = str(failure)
        return {"error": error, **observe(result)}

    def _allocated(self, uid: str) -> Json:
        alloc: Json = {}
        for held in self.manager.ledger.assignments:
            if held.key[0] == uid:
                alloc.setdefault(held.key[1], {})[held.key[2]] = {
                    "ids": list(held.allocation.device_ids),
                    "numa": {str(node): len(ids) for node, ids in held.devices_per_numa.items()},
                }
        return {"alloc": alloc, "calls": self.calls}

    async def _pod_add(self, *, pod: Json) -> None:
        self._bind(pod)

    def _bind(self, pod: Json) -> None:
        self.pods[pod["uid"]] = as_pod(pod)
        self.active.add(pod["uid"])

    async def _pod_remove(self, *, uid: str) -> None:
        self.active.discard(uid)

    _pod_terminate = _pod_remove

    # ── reading ──

    async def _capacity(self) -> Json:
        counts = self.manager.capacity()
        self.manager.drop_expired()
        return {
            "capacity": dict(counts.capacity),
            "allocatable": dict(counts.allocatable),
            "deleted": list(counts.deleted),
        }

    async def _devices(self, *, uid: str, container: str) -> Json:
        held = self.manager.ledger.of_container(uid, container)
        observed: Json = {}
        self.contradicted = set()
        for one in held:
            for node, ids in one.devices_per_numa.items():
                nodes: Json = observed.setdefault(one.allocation.resource_name, {})
                for device_id in ids:
                    before = nodes.get(device_id, [])
                    if (node == -1 and before) or before is None:
                        self.contradicted.add(device_id)
                    nodes[device_id] = None if node == -1 else sorted([*(before or []), node])
        return {"devices": observed if held else None}

    async def _allocatable_devices(self) -> Json:
        return {
            "devices": {
                name: {
                    device_id: numa and list(numa) if (numa := state.devices[device_id].numa_nodes) else numa
                    for device_id in sorted(state.healthy)
                }
                for name, state in self.manager.ledger.resources.items()
                if state.healthy
            },
        }

    async def _state(self) -> Json:
        resources = self.manager.ledger.resources

        def ids(which: str) -> Json:
            return {
                name: sorted(getattr(state, which))
                for name, state in resources.items()
                if getattr(state, which) is not None
            }

        return {
            "healthy": ids("healthy"),
            "unhealthy": ids("unhealthy"),
            "allocated": ids("allocated"),
            "reuse": {
                uid: {name: sorted(one) for name, one in reusable.items()}
                for uid, reusable in self.manager.ledger.reusable.items()
            },
            "endpoints": {
                name: {
                    "grace_expired": endpoint.is_expired(self.now),
                    "has_options": endpoint.options is not None,
                    "pre_start": bool(endpoint.options and endpoint.options.pre_start_required),
                    "preferred": bool(endpoint.options and endpoint.options.preferred_allocation_available),
                    "stopped": endpoint.stopped_at_seconds is not None,
                }
                for name, endpoint in self.manager.endpoints.items()
            },
            "pods": [
                {
                    "uid": held.key[0],
                    "container": held.key[1],
                    "resource": held.key[2],
                    "numa": {str(node): sorted(ids) for node, ids in held.devices_per_numa.items()},
                }
                for held in self.manager.ledger.assignments
            ],
        }

    # ── the checkpoint file ──

    async def _checkpoint_write(self, *, text: str | None = None, b64: str | None = None) -> None:
        content = base64.b64decode(b64) if b64 is not None else (text or "").encode()
        self.folder.mkdir(exist_ok=True)
        (self.folder / CHECKPOINT_NAME).write_bytes(content)

    async def _checkpoint_remove(self) -> None:
        (self.folder / CHECKPOINT_NAME).unlink()

    async def _checkpoint(self) -> Json:
        path = self.folder / CHECKPOINT_NAME
        return decoded(path.read_bytes()) if path.exists() else {"exists": False}


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    async with asyncio.TaskGroup() as tasks:
        made = World(folder / "dp", tasks)
        try:
            yield made
        finally:
            await made.close()
