"""The machine of one recording: its kubelet and its plugins, and the steps that can be done to them."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from devplug.errors import KubeletError, RegistrationError, RemoteError
from devplug.kubelet.changes import ChangeKind, Changes
from devplug.kubelet.devicemanager import DeviceManager
from devplug.kubelet.pluginfolder import PluginFolder
from devplug.kubelet.podtable import PodTable
from devplug.kubelet.process import KubeletProcess
from devplug.kubelet.registration import check_watched_plugin
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import NodeHardware, TopologySettings
from devplug.kubelet_dir import CHECKPOINT_NAME
from tests.golden.notation import as_devices, as_options, as_refusal, decoded
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


class Machine:
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
