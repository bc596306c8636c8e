"""One recording's machine, and the steps that can be done to it."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from devplug.errors import AllocationError, KubeletCrashError, KubeletError, RegistrationError, RemoteError
from devplug.k8s.kubelet_dir import CHECKPOINT_NAME
from devplug.kubelet.admission import allocatable_for
from devplug.kubelet.changes import ChangeKind, Changes
from devplug.kubelet.devicemanager import DeviceManager
from devplug.kubelet.pluginfolder import PluginFolder
from devplug.kubelet.podresources import allocatable_resources, pod_resources
from devplug.kubelet.pods import Pod, PodPhase, PodStatus
from devplug.kubelet.podtable import PodTable
from devplug.kubelet.process import KubeletProcess
from devplug.kubelet.registration import check_watched_plugin
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import NodeHardware, Policy, Scope, TopologyRules, TopologySettings
from tests.golden.notation import (
    as_container_devices,
    as_devices,
    as_hint,
    as_hints,
    as_machine,
    as_options,
    as_pod,
    as_pod_resources,
    as_provider,
    as_refusal,
    as_topology,
    decoded,
    run_options_of,
)
from tests.golden.plugin import RecordedPlugin

Json = Any
"""What stands in a recording."""


class _Tally(Changes):
    """Changes that are counted too."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.counts: Counter[ChangeKind] = Counter()
        self.updates: list[list[str]] = []
        """The pods to update, for each list that called for it."""
        self._told: list[str] = []

    def announce(self, kind: ChangeKind, *, resource_name: str = "", pod_uid: str = "") -> None:
        self.counts[kind] += 1
        if kind is ChangeKind.HEALTH:
            self._told.append(pod_uid)
        elif kind is ChangeKind.LISTED and self._told:
            self.updates.append(self._told)
            self._told = []
        super().announce(kind, resource_name=resource_name, pod_uid=pod_uid)


class World:
    """One record's machine: a folder, a device manager, plugins and pods."""

    def __init__(
        self, folder: Path, tasks: asyncio.TaskGroup, machine: NodeHardware, topology: TopologySettings
    ) -> None:
        self.folder = folder
        self.tasks = tasks
        self.now = 0.0
        self.settings = KubeletSettings(
            clock=lambda: self.now,
            machine=machine,
            topology=topology,
            dial_timeout_seconds=0.5,
            pre_start_timeout_seconds=0.3,
        )
        self.changes = _Tally(lambda: self.now)
        self.pods = PodTable(self.changes)
        self.plugins: dict[str, RecordedPlugin] = {}
        self.ever: list[RecordedPlugin] = []
        self.calls: list[Json] = []
        self.contradicted: set[str] = set()
        """Devices that a checkpoint puts both on a node and on none; the real one answers either."""
        self.process: KubeletProcess | None = None
        self.container_ids: dict[str, tuple[str, str]] = {}

    @property
    def manager(self) -> DeviceManager:
        assert self.process is not None
        return self.process.devices

    async def close(self) -> None:
        for plugin in self.ever:
            await plugin.die()
        if self.process is not None:
            await self.process.stop()

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
            )
        )

    def _open_streams(self) -> int:
        return self.changes.counts[ChangeKind.REGISTERED] - self.changes.counts[ChangeKind.STREAM_ENDED]

    async def listed(self, before: int, lists: int) -> None:
        """Wait until so many lists more than `before` are in the table."""
        await self.changes.wait(lambda: self.changes.counts[ChangeKind.LISTED] >= before + lists)

    # ── the manager ──

    async def _boot(self, *, sources_ready: bool = True, running: Sequence[Json] = ()) -> Json:
        try:
            self.process = KubeletProcess(PluginFolder(self.folder), self.pods, self.changes, self.settings)
        except KubeletError as failure:
            return {"topology_error": str(failure)}
        self.manager.sources_ready = sources_ready
        running_containers = [(one["uid"], one["container"]) for one in running if one["running"]]
        is_fresh = not any(not path.name.startswith(".") for path in self.folder.glob("*"))
        error = None
        try:
            await self.process.start(self.tasks, running_containers)
        except KubeletError as failure:
            error = str(failure)
        failed = self.manager.checkpoint_error
        return {
            "start_error": error,
            "checkpoint_error": failed and str(failed),
            "should_reset_extended_resources": is_fresh,
        }

    async def _stop_manager(self) -> Json:
        assert self.process is not None
        await self.process.stop(orderly=True)
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
        self, *, plugin: str, devices: Json, behaviour: Json = None, socket: str | None = None
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
        assert self.process is not None
        admitted = self._bind(pod)
        rejection = await self.process.topology.admit(admitted, self.manager)
        if rejection and not keep_active_on_reject:
            self.pods.reject(admitted, rejection)
        return {
            "admit": rejection is None,
            "reason": rejection.reason if rejection else "",
            "message": rejection.message if rejection else "",
            "affinity": {
                container.name: as_hint(self.process.topology.affinity(admitted.uid, container.name))
                for container in admitted.in_start_order()
            },
            **self._allocated(admitted.uid),
        }

    async def _allocate_container(self, *, container: str, pod: Json = None, uid: str | None = None) -> Json:
        if pod is not None:
            uid = self._bind(pod).uid
        assert uid is not None
        bound = self.pods.get(uid).pod
        return await self._with_error(
            self.manager.allocate(bound, bound.container(container)), lambda _: self._allocated(uid)
        )

    async def _run_container(self, *, uid: str, container: str) -> Json:
        bound = self.pods.get(uid).pod
        return await self._with_error(
            self.manager.container_options(bound, bound.container(container)),
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
        for held in self.manager.allocations.assignments:
            if held.key[0] == uid:
                alloc.setdefault(held.key[1], {})[held.key[2]] = {
                    "ids": list(held.allocation.device_ids),
                    "numa": {str(node): len(ids) for node, ids in held.devices_per_numa.items()},
                }
        return {"alloc": alloc, "calls": self.calls}

    async def _pod_add(self, *, pod: Json) -> None:
        self._bind(pod)

    def _bind(self, pod: Json) -> Pod:
        bound = as_pod(pod)
        self.pods.add(bound)
        return bound

    async def _pod_remove(self, *, uid: str) -> None:
        with suppress(KubeletError):  # some recordings remove a pod twice
            self.pods.remove(uid)

    async def _pod_terminate(self, *, uid: str) -> None:
        with suppress(KubeletError):  # or end one that they have removed
            self.pods.end(uid, PodPhase.SUCCEEDED)

    async def _hints(self, *, container: str, pod: Json = None, uid: str | None = None) -> Json:
        wanted = self._known(pod, uid)
        hints = self.manager.container_hints(wanted, wanted.container(container))
        return {"hints": as_hints(hints)}

    async def _pod_hints(self, *, pod: Json = None, uid: str | None = None) -> Json:
        return {"hints": as_hints(self.manager.pod_hints(self._known(pod, uid)))}

    def _known(self, pod: Json, uid: str | None) -> Pod:
        return as_pod(pod) if uid is None else self.pods.get(uid).pod

    async def _affinity(self, *, uid: str, container: str) -> Json:
        assert self.process is not None
        return {"affinity": as_hint(self.process.topology.affinity(uid, container))}

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
        held = self.manager.allocations.of_container(uid, container)
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
                for name, state in self.manager.allocations.resources.items()
                if state.healthy
            }
        }

    async def _podresources_list(self) -> Json:
        self.manager.free_inactive()
        pods = pod_resources(
            self.pods.active(), self.manager.allocations, self.settings.machine, compat=self.settings.compat
        )
        return {"code": "OK", "message": "", "pods": [as_pod_resources(pod) for pod in pods]}

    async def _podresources_get(self, *, ns: str, name: str) -> Json:
        # What was recorded looked for pods without asking whether they had ended: that is the kubelet's.
        bound = self.pods.named(ns, name)
        if bound is None:
            return {"code": "Unknown", "message": f"pod {name} in namespace {ns} not found"}
        (pod,) = pod_resources(
            [bound.pod], self.manager.allocations, self.settings.machine, compat=self.settings.compat
        )
        return {"code": "OK", "message": "", "pod": as_pod_resources(pod)}

    async def _podresources_allocatable(self) -> Json:
        allocatable = allocatable_resources(self.manager.allocations, self.settings.machine)
        return {"code": "OK", "message": "", "devices": as_container_devices(allocatable.devices)}

    async def _state(self) -> Json:
        resources = self.manager.allocations.resources

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
                for uid, reusable in self.manager.allocations.reusable.items()
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
                for held in self.manager.allocations.assignments
            ],
        }

    async def _health_status(self, *, uid: str) -> Json:
        pod = self.pods.get(uid).pod
        status = PodStatus.pending(pod).with_device_health(pod, self.manager.health_of(uid))
        shown = {one.name: one.allocated_resources for one in status.containers if one.allocated_resources}
        return {"status": shown}

    async def _drain_updates(self) -> Json:
        updates, self.changes.updates = self.changes.updates, []
        return {"updates": updates}

    async def _healthz(self) -> Json:
        return {"error": None}  # there is another answer only when gRPC's serving fails by itself

    async def _sanitize(self, *, uid: str, allocatable: Json) -> Json:
        pod = self.pods.get(uid).pod
        return {"allocatable": allocatable_for(pod, allocatable, self.manager.allocations), "error": None}

    async def _merge(self, *, providers: Json) -> Json:
        found: Json = {}
        hints = [as_provider(provider) for provider in providers]
        for policy in Policy:
            for suffix, options in (("", {}), ("+closest", {"prefer-closest-numa-nodes": "true"})):
                if policy is Policy.NONE and suffix:
                    continue
                settings = TopologySettings(policy, Scope.CONTAINER, options)
                rules = TopologyRules.of(settings, self.settings.machine)
                try:
                    hint, is_admitted = rules.merge(hints)
                except KubeletCrashError as error:
                    found[policy + suffix] = {"panic": error.cause, "panic_in": error.place}
                else:
                    found[policy + suffix] = [*as_hint(hint), is_admitted]
        return found

    # ── the topology manager's containers ──

    async def _tm_add_container(self, *, uid: str, container: str, id: str) -> None:  # noqa: A002
        self.container_ids[id] = (uid, container)

    async def _tm_remove_container(self, *, id: str) -> Json:  # noqa: A002
        removed = self.container_ids.pop(id, None)
        if removed is not None and removed not in self.container_ids.values():
            assert self.process is not None
            self.process.topology.forget(*removed)
        return {"error": None}

    # ── plugins_registry ──

    async def _watcher_validate(self, *, name: str, endpoint: str, versions: Json) -> Json:
        try:
            check_watched_plugin(name, versions)
        except RegistrationError as error:
            return {"error": str(error)}
        return {"error": None}

    async def _watcher_register(self, *, name: str, endpoint: str, versions: Json) -> Json:
        registration = self.manager.registration
        assert registration is not None
        before = self.changes.counts[ChangeKind.LISTED]
        try:
            await registration.connect(name, self.folder / endpoint)
        except RegistrationError as error:
            return {"error": str(error)}
        await self.listed(before, 1)
        return {"error": None, "synced": True}

    async def _watcher_deregister(self, *, name: str, endpoint: str) -> None:
        registration = self.manager.registration
        assert registration is not None
        with suppress(KubeletError):
            registration.disconnect(name)
        await self.settled()

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
async def world(folder: Path, machine: Json) -> AsyncIterator[World]:
    async with asyncio.TaskGroup() as tasks:
        made = World(folder / "dp", tasks, as_machine(machine), as_topology(machine))
        try:
            yield made
        finally:
            await made.close()
