"""A plugin that does everything right, in parts that a mutant can replace one at a time.

It polls, shares no line with `devplug.plugin`, and serves whatever bytes it is told to.
"""

from __future__ import annotations

import asyncio
import errno
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from devplug.devices import ContainerResponse, DeviceNode, Mount
from devplug.errors import (
    InvalidRequestError,
    KubeletError,
    NotOfferedError,
    RemoteError,
    UnhealthyDeviceError,
    UnknownDeviceError,
)
from devplug.wire import deviceplugin
from devplug.wire.podresources import LIST
from devplug.wire.sockets import Binding, Listener, connected, socket_identity, stream, unary
from devplug.wire.values import AdvertisedDevice, PluginOptions, PreferenceRequest, RegisterRequest

Ids = tuple[str, ...]


class RightPlugin:
    """Four devices and a broken one; each file `ID` in `work` that is called `gone-ID` takes one away."""

    resource_name = "example.com/mutant"
    endpoint = "mutant.sock"
    version = "v1beta1"
    options = PluginOptions(pre_start_required=True, preferred_allocation_available=True)
    register_timeout_seconds: float | None = 30.0
    poll_seconds = 0.1
    retry_seconds = 0.2
    stream_seconds = 5.0
    """How long a kubelet may take to open the stream: one that has dialled a predecessor never does."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder = folder
        self.work = work
        self.streams = 0
        """How many are open."""
        self.streams_opened = 0
        self.handed_out: set[str] = set()
        self.allocated: set[str] = set()
        """The devices for which Allocate was called."""
        self.registered_at = 0.0
        self.has_served = False
        self.stopping = asyncio.Event()
        self.listener = self.make_listener()
        self.write_spec()

    # ── devices ──

    def devices(self) -> list[AdvertisedDevice]:
        """Return the list of now. One that was taken away is Unhealthy if a pod may hold it, else gone."""
        listed = []
        for number in range(4):
            id_ = f"dev-{number}"
            if not self.is_gone(id_):
                listed.append(AdvertisedDevice(id_, "Healthy", (0,)))
            elif id_ in self.handed_out:
                listed.append(AdvertisedDevice(id_, "Unhealthy", (0,)))
        return [*listed, AdvertisedDevice("dev-broken", "Unhealthy", None)]

    def is_gone(self, id_: str) -> bool:
        """Whether a device was taken away."""
        return (self.work / f"gone-{id_}").exists()

    def health_of(self, id_: str) -> str:
        """Return the health word of a device, empty for one that is not listed."""
        return next((device.health for device in self.devices() if device.id == id_), "")

    # ── the service ──

    def bindings(self) -> tuple[Binding, ...]:
        return (
            unary(deviceplugin.GET_OPTIONS, self.get_options),
            stream(deviceplugin.LIST_AND_WATCH, self.list_and_watch),
            unary(deviceplugin.GET_PREFERRED_ALLOCATION, self.prefer),
            unary(deviceplugin.ALLOCATE, self.allocate_free),
            unary(deviceplugin.PRE_START_CONTAINER, self.pre_start),
        )

    async def get_options(self, _: None) -> PluginOptions:
        return self.options

    async def list_and_watch(self, _: None) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        self.streams += 1
        self.streams_opened += 1
        try:
            async for devices in self.lists():
                yield devices
        finally:
            self.streams -= 1

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        """Yield the list at once, and again when it is another."""
        sent = None
        while True:
            devices = self.devices()
            if devices != sent:
                yield devices
                sent = devices
            await asyncio.sleep(self.poll_seconds)

    async def allocate_free(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        """Allocate devices that no container has."""
        asked = {id_ for ids in containers for id_ in ids}
        if again := asked & self.allocated:
            self.refuse(again & await self.held())
        self.allocated |= asked
        return await self.allocate(containers)

    async def held(self) -> set[str]:
        """Return the devices that containers have by PodResources."""
        async with connected(self.folder.parent / "pod-resources" / "kubelet.sock") as kubelet:
            pods = await kubelet.call(LIST, None, timeout_seconds=5.0)
        return {
            id_
            for pod in pods
            for container in pod.containers
            for devices in container.devices
            if devices.resource_name == self.resource_name
            for id_ in devices.device_ids
        }

    def refuse(self, held: set[str]) -> None:
        """Raise an error if one of the requested devices is held."""
        if held:
            raise UnhealthyDeviceError(f"{min(held)} is held by a running pod")

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        self.check_request(containers)
        self.handed_out.update(id_ for ids in containers for id_ in ids)
        return [self.response(ids) for ids in containers]

    def check_request(self, containers: Sequence[Ids]) -> None:
        if not containers:
            raise InvalidRequestError("no container requests")
        asked = [id_ for ids in containers for id_ in ids]
        if len(set(asked)) < len(asked):
            raise InvalidRequestError("a device is asked for twice")
        for ids in containers:
            if not ids:
                raise InvalidRequestError("a container asks for no devices")
            for id_ in ids:
                self.check_id(id_)

    def check_id(self, id_: str) -> None:
        health = self.health_of(id_)
        if not health:
            raise UnknownDeviceError(id_[:64], self.resource_name)
        if health != "Healthy":
            raise UnhealthyDeviceError(f"{id_} is out of order")

    def response(self, ids: Ids) -> ContainerResponse:
        return ContainerResponse(
            device_nodes=[DeviceNode("/dev/null", f"/dev/mutant-{id_}", "rw") for id_ in ids],
            mounts=[Mount(self.work, "/run/mutant", read_only=True)],
            envs={"MUTANT_IDS": ",".join(ids)},
            annotations={"example.com/mutant": "-".join(ids)},
            cdi_devices=["example.com/mutant=all"],
        )

    def write_spec(self) -> None:
        """Define the CDI name in the folder where the judge of the tests looks."""
        devices = [{"name": "all", "containerEdits": {"env": ["MUTANT=yes"]}}]
        spec = {"cdiVersion": "0.3.0", "kind": "example.com/mutant", "devices": devices}
        folder = self.work / "cdi"
        folder.mkdir(exist_ok=True)
        (folder / "mutant.json").write_text(json.dumps(spec))

    async def prefer(self, requests: Sequence[PreferenceRequest]) -> Sequence[Ids]:
        if not self.options.preferred_allocation_available:
            raise NotOfferedError("preferred allocation is not announced")
        return [self.preferred(request) for request in requests]

    def preferred(self, request: PreferenceRequest) -> Ids:
        """Return the IDs that must be included, then the first of the others."""
        wanted = dict.fromkeys((*request.must_include, *sorted(request.available)))
        return tuple(wanted)[: request.size]

    async def pre_start(self, ids: Ids) -> None:
        if not self.options.pre_start_required:
            raise NotOfferedError("pre-start is not announced")
        for id_ in ids:
            self.check_id(id_)

    # ── its life ──

    def make_listener(self) -> Listener:
        return Listener(self.folder / self.endpoint, self.bindings())

    def request(self) -> RegisterRequest:
        return RegisterRequest(self.version, self.endpoint, self.resource_name, self.options)

    async def serve(self) -> None:
        self.has_served = True
        await self.listener.bind()
        await self.listener.tidy()

    async def register(self) -> None:
        async with connected(self.folder / "kubelet.sock") as kubelet:
            await kubelet.call(
                deviceplugin.REGISTER, self.request(), timeout_seconds=self.register_timeout_seconds
            )

    async def run(self) -> None:
        """Register with every kubelet that comes, until `stopping` is set."""
        async with asyncio.TaskGroup() as group:
            life = group.create_task(self.live())
            await self.stopping.wait()
            life.cancel()
        await self.end()

    async def live(self) -> None:
        known = None
        opened = 0
        task = asyncio.current_task()
        # Until Python 3.13, a task group loses the cancellation if a child fails in the same turn.
        while task is not None and not task.cancelling():
            kubelet = socket_identity(self.folder / "kubelet.sock")
            is_same = kubelet == known
            is_wanting = self.is_wanting(is_same, opened) or (is_same and self.is_unheard(opened))
            if kubelet is not None and is_wanting and not self.has_successor():
                try:
                    if not self.listener.is_bound():
                        await self.serve()
                    opened = self.streams_opened
                    async with asyncio.TaskGroup() as group:
                        keeper = group.create_task(self.stay_reachable())
                        await self.register()
                        keeper.cancel()
                    known = kubelet
                    self.registered_at = asyncio.get_running_loop().time()
                except* (RemoteError, KubeletError) as errors:
                    self.say(str(errors.exceptions[0]))
                    await asyncio.sleep(self.retry_seconds)
            await asyncio.sleep(self.poll_seconds)

    async def stay_reachable(self) -> None:
        """Bind again when the socket is lost; for a kubelet that removes it and then waits in its dial."""
        while True:
            await asyncio.sleep(self.poll_seconds)
            if not self.listener.is_bound() and not self.has_successor():
                await self.serve()

    def has_successor(self) -> bool:
        """Whether another process serves in our place: who registers then takes the kubelet away from it.

        The successor's stream stays open, so it would never know.
        """
        if not self.has_served or self.listener.is_bound():
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
            return client.connect_ex(str(self.folder / self.endpoint)) in {0, errno.EAGAIN}

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        """Whether a registration is due: a new kubelet, a socket that is not ours any more, a lost stream."""
        lost_stream = self.streams_opened > opened and self.streams == 0
        return not is_same_kubelet or not self.listener.is_bound() or lost_stream

    def is_unheard(self, opened: int) -> bool:
        """Whether no stream came: its kubelet may have dialled a predecessor that ended just then."""
        is_late = asyncio.get_running_loop().time() > self.registered_at + self.stream_seconds
        return self.streams_opened == opened and is_late

    async def end(self) -> None:
        await self.listener.close(0.2)

    def say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")

    def exit_code(self) -> int:
        return 0


def play(plugin_class: type[RightPlugin], folder: Path, work: Path) -> int:
    """Run a plugin until SIGTERM or SIGINT; return its exit code."""

    async def main() -> int:
        plugin = plugin_class(folder, work)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, plugin.stopping.set)
        await plugin.run()
        return plugin.exit_code()

    return asyncio.run(main())
