"""A plugin that behaves as a recording says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from devplug.devices import ContainerResponse, DeviceNode, Mount
from devplug.kubelet.changes import ChangeKind
from devplug.wire.values import PreferenceRequest
from tests.golden.notation import as_devices, as_options, as_refusal
from tests.kubelet.fakes import FakePlugin, Ids

if TYPE_CHECKING:
    from tests.golden.machine import Machine

Json = Any
"""What stands in a recording."""

PRE_START_TIMEOUT_MS = 500
"""How long the recorded kubelet waited for PreStartContainer."""

_FIRST: dict[str, Literal["send", "nothing", "end"]] = {"none": "nothing", "end": "end"}


class RecordedPlugin(FakePlugin):
    """A plugin with the behaviour that a record gives it."""

    def __init__(self, world: Machine, name: str, socket_name: str | None) -> None:
        super().__init__(world.folder, name, socket_name=socket_name)
        self.world = world
        self.behaviour: Json = {}
        self.on_options = self._tell_options
        self.on_list = self._begin_list
        self.on_prefer = self._apply_rule
        self.on_allocate = self._give
        self.on_pre_start = self._make_ready
        self.on_streams = lambda: world.changes.announce(ChangeKind.POD)

    def set(self, devices: Json, behaviour: Json) -> None:
        if devices is not None:
            self.devices = as_devices(devices)
        if behaviour is not None:
            self.behaviour = behaviour
            self.options = as_options(behaviour)
            mode = behaviour.get("list", "send")
            self.first = _FIRST.get(mode, "send")

    def _refuse(self, key: str) -> None:
        if key in self.behaviour:
            raise as_refusal(**self.behaviour[key])

    def _error(self, key: str) -> Json:
        """What a record notes of a call that is refused."""
        return {"error": list(self.behaviour[key].values())} if key in self.behaviour else {}

    def _saw(self, method: str, **facts: Json) -> None:
        self.world.calls.append({"method": method, "plugin": self.name, **facts})

    async def _tell_options(self) -> None:
        self._refuse("options_error")

    def _begin_list(self) -> None:
        self._refuse("list_error")

    async def _apply_rule(self, request: PreferenceRequest) -> Sequence[Ids]:
        must, size = sorted(request.must_include), request.size
        seen = {"available": sorted(request.available), "must_include": must, "size": size}
        rule = self.behaviour.get("rule", "first")
        if rule == "error":
            self._saw("GetPreferredAllocation", **seen, **self._error("preferred_error"))
            self._refuse("preferred_error")
        rest = sorted(set(request.available) - set(must))
        count = size - len(must)
        last = self.behaviour.get("n", 0)
        preferred: Sequence[str] = {
            "first": [*must, *rest[:count]],
            "last": [*must, *(rest[-count:] if count else [])],
            "partial": [*must, *(rest[-last:] if last else [])],
            "exclude_must": rest[-count:] if count else [],
            "all": sorted(request.available),
            "dup": [max(request.available, default="")] * size,
            "fixed": self.behaviour.get("ids", []),
            "empty": [],
            "no_container": [],
        }[rule]
        self._saw("GetPreferredAllocation", **seen, response=list(preferred))
        await self._meanwhile("preferred")
        return [] if rule == "no_container" else [tuple(preferred)]

    async def _give(self, ids: Ids) -> Sequence[ContainerResponse]:
        mode = self.behaviour.get("allocate", "env")
        error = self._error("allocate_error") if mode == "error" else {}
        self._saw("Allocate", devices=sorted(ids), **error)
        await self._meanwhile("allocate")
        if mode == "error":
            self._refuse("allocate_error")
        if mode == "empty":
            return []
        if mode == "blank":
            return [ContainerResponse()]
        response = self._full(ids) if mode == "full" else self._plain(ids)
        return [response, ContainerResponse(envs={"SECOND": "1"})] if mode == "two" else [response]

    def _plain(self, ids: Ids) -> ContainerResponse:
        envs = {f"DEVS_{self.name.upper()}": ",".join(sorted(ids))}
        return ContainerResponse.as_received(
            device_nodes=(),
            mounts=(),
            envs={**envs, **self.behaviour.get("envs", {})},
            annotations={},
            cdi_devices=(),
        )

    def _full(self, ids: Ids) -> ContainerResponse:
        ordered = sorted(ids)
        return ContainerResponse(
            envs=self._plain(ids).envs,
            device_nodes=[
                DeviceNode(f"/dev/host-{device_id}", f"/dev/{self.name}{index}", "mrw")
                for index, device_id in enumerate(ordered)
            ],
            mounts=[Mount(f"/opt/{self.name}", "/mnt/shared", read_only=True)],
            annotations={f"lab/{self.name}": "_".join(ordered), "lab/shared": self.name},
            cdi_devices=[f"lab.example/{self.name}={device_id}" for device_id in ordered],
        )

    async def _make_ready(self, ids: Ids) -> None:
        self._saw("PreStartContainer", devices=sorted(ids), **self._error("pre_start_error"))
        if self.behaviour.get("pre_start_delay_ms", 0) >= PRE_START_TIMEOUT_MS:
            await asyncio.get_running_loop().create_future()  # longer than the kubelet waits
        self._refuse("pre_start_error")

    async def _meanwhile(self, call: str) -> None:
        """Do what the record wants done while this call is running."""
        if self.behaviour.get("during") != call:
            return
        if "during_devices" in self.behaviour:
            before = self.world.changes.counts[ChangeKind.LISTED]
            await self.world.listed(before, self.send(as_devices(self.behaviour["during_devices"])))
        if self.behaviour.get("during_end"):
            before = self.world.changes.counts[ChangeKind.STREAM_ENDED]
            self.end_streams()
            await self.world.changes.wait(lambda: self.world.changes.counts[ChangeKind.STREAM_ENDED] > before)
