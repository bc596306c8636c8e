"""One recording's machine with its pods: what is done to them, and what can be read of all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from devplug.errors import AllocationError, KubeletCrashError, KubeletError, RemoteError
from devplug.kubelet.admission import allocatable_for
from devplug.kubelet.podresources import allocatable_resources, pod_resources
from devplug.kubelet.pods import Pod, PodPhase, PodStatus
from devplug.kubelet.topology import Policy, Scope, TopologyRules, TopologySettings
from tests.golden.machine import Json, Machine
from tests.golden.notation import (
    as_container_devices,
    as_hint,
    as_hints,
    as_machine,
    as_pod,
    as_pod_resources,
    as_provider,
    as_topology,
    run_options_of,
)


class World(Machine):
    """A machine with pods."""

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


@asynccontextmanager
async def world(folder: Path, machine: Json) -> AsyncIterator[World]:
    async with asyncio.TaskGroup() as tasks:
        made = World(folder / "dp", tasks, as_machine(machine), as_topology(machine))
        try:
            yield made
        finally:
            await made.close()
