"""A node with a made machine, a kubelet, a daemon that comes and goes, and pods that want sticks.

Tests assert on what containers can open, what pods run, which devices are offered and which were cleaned.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from devplug.daemon.config.loader import load
from devplug.daemon.service import serve_config
from devplug.daemon.sources.host import Host
from devplug.errors import KubeletError
from devplug.kubelet.changes import Change
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod, PodPhase
from devplug.kubelet.settings import KubeletSettings
from devplug.wire.podresources import GET, GET_ALLOCATABLE_RESOURCES, LIST
from devplug.wire.sockets import Listener, connected, unary
from tests.ownership.machine import HIDDEN, Stick, Udev, UsbMachine
from tests.ownership.oracle import Container as Given
from tests.ownership.oracle import Machine as Seen
from tests.ownership.oracle import Numbers, Offer, Oracle
from tests.virtualtime import passes

KUBELET_FORGETS_SECONDS = 310.0
"""After that the kubelet no longer counts a resource without a plugin."""

QUIET_SECONDS = 45.0
"""After so long without an event all is quiet: the daemon has asked the kubelet four times."""

Described = Mapping[str, Any]


def usb(name: str, vendor: str = "0403", **more: Any) -> Described:
    """Return a resource for the serial ports of USB sticks of one vendor."""
    selector = {"vendor": vendor, **more.pop("selector", {})}
    expose = {"deviceNodes": ["tty"], "containerPath": "/dev/serial{index}", **more.pop("expose", {})}
    return {"name": name, "discover": {"usb": selector}, "expose": expose, **more}


def path(name: str, glob: str, **more: Any) -> Described:
    """Return a resource for device nodes, or for links to device nodes."""
    return {"name": name, "discover": {"path": glob}, **more}


CDI: Final = "cdi:"
"""The beginning of a CDI device's name among the host paths of a container: the spec file has its paths."""


def running_in(pod: Pod) -> str:
    """Return the name of the first container of a pod: it has the devices."""
    return next(pod.in_start_order()).name


@dataclass
class Running:
    """A pod that runs, with what its container was given."""

    pod: Pod
    resource: str
    host_paths: tuple[str, ...]
    """The answer of the daemon, which the kubelet gives again at each restart of the container."""
    numbers: Numbers
    """The device numbers that the container may open since it started."""
    env: Mapping[str, str]
    given: frozenset[Stick]
    """The sticks behind them at that time."""

    @property
    def count(self) -> int:
        """How many devices it has asked for."""
        return self.pod.container(running_in(self.pod)).limits[self.resource]


class PodResources:
    """The kubelet's answers to who holds what, as the daemon gets them; a test may spoil them."""

    def __init__(self, kubelet_socket: Path, socket: Path) -> None:
        self.socket = socket
        self.is_empty = False
        """Whether List names no pods."""
        self.is_refusing = False
        """Whether each call fails."""
        self.seconds = 0.0
        """How long an answer of List is on its way."""
        self._kubelet_socket = kubelet_socket
        self.listener = Listener(
            socket,
            (
                unary(LIST, self._list),
                unary(GET, partial(self._passed_on, GET)),
                unary(GET_ALLOCATABLE_RESOURCES, partial(self._passed_on, GET_ALLOCATABLE_RESOURCES)),
            ),
        )

    async def _list(self, asked: None) -> Any:
        answer = () if self.is_empty else await self._passed_on(LIST, asked)
        if self.seconds:
            await passes(self.seconds)
        return answer

    async def _passed_on(self, method: Any, asked: Any) -> Any:
        if self.is_refusing:
            raise KubeletError("the kubelet is out of order")
        async with connected(self._kubelet_socket) as peer:
            return await peer.call(method, asked)


@dataclass
class Node:
    """A node; `node` makes one."""

    folder: Path
    tasks: asyncio.TaskGroup
    machine: UsbMachine
    kubelet: Kubelet
    pod_resources: PodResources
    pods: dict[str, Running] = field(default_factory=dict)
    resources: tuple[Described, ...] = ()
    changes: list[Change] = field(default_factory=list)
    """What the kubelet has seen in `watching`."""
    given: list[Running] = field(default_factory=list)
    """All pods that have ever run, in order."""
    oracle: Oracle = field(default_factory=Oracle)
    _known: dict[str, Described] = field(default_factory=dict)
    """The last description of each resource that was ever configured."""
    _cleaned: int = 0
    """How many clean-ups the oracle knows of."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _life: asyncio.Task[None] | None = None
    _count: int = 0

    # ── the daemon ──

    @property
    def file(self) -> Path:
        return self.folder / "devplug.yaml"

    @property
    def _log(self) -> Path:
        return self.folder / "cleaned"

    def cleaning(self, described: Described | None = None) -> Described:
        """Return what has each stick cleaned after its use, for a resource; by default for USB devices."""
        if described is not None and "path" in described["discover"]:
            script = f"cat {self.machine.names}/$(stat -Lc %T {self.machine.root}$0)"
            command = ["/bin/sh", "-c", f"{script} >> {self._log}", "{hostPath}"]
            return {"onRelease": {"exec": {"command": command}}}
        sticks = self.machine.root / "sys/bus/usb/devices"
        script = f"cat {sticks}/1-$0/{HIDDEN} >> {self._log}"
        return {"onRelease": {"exec": {"command": ["/bin/sh", "-c", script, "{attr.devpath}"]}}}

    def _write(self, resources: tuple[Described, ...]) -> None:
        self.resources = resources
        self._known.update((str(one["name"]), one) for one in resources)
        new = self.file.with_suffix(".new")
        text = self._text(resources)
        load(text, str(self.file))
        new.write_text(text)
        new.rename(self.file)

    def _text(self, resources: tuple[Described, ...]) -> str:
        return json.dumps({"version": 1, "resources": resources})

    async def start(self, *resources: Described) -> None:
        """Start the daemon with these resources, or with those of before; return once all is quiet."""
        await self.begin(*resources)
        await self.quiet()

    async def begin(self, *resources: Described) -> None:
        """Start the daemon with these resources, or with those of before; wait for nothing more."""
        self._write(resources or self.resources)
        self._stop = asyncio.Event()
        ready = asyncio.Event()
        self._life = self.tasks.create_task(self._serve(ready))
        await ready.wait()

    async def _serve(self, ready: asyncio.Event) -> None:
        async with self._serving(self.file):
            ready.set()
            await self._stop.wait()

    def _serving(self, file: Path) -> AbstractAsyncContextManager[object]:
        return serve_config(
            load(file.read_text(), str(file)),
            plugin_dir=self.kubelet.plugin_dir,
            pod_resources=self.pod_resources.socket,
            file=file,
            cdi_folder=self.folder / "cdi",
            host=Host(self.machine.root),
        )

    @asynccontextmanager
    async def another_daemon(self, *resources: Described) -> AsyncIterator[None]:
        """Run a second daemon with resources of its own, as in another process."""
        file = self.folder / "another.yaml"
        file.write_text(json.dumps({"version": 1, "resources": resources}))
        self._known.update((str(one["name"]), one) for one in resources)
        async with self._serving(file):
            await self.quiet()
            yield

    async def stop(self) -> None:
        """Stop the daemon as SIGTERM does."""
        self._stop.set()
        if self._life is not None:
            await asyncio.wait({self._life})
            self._life = None

    def memory(self) -> list[Path]:
        """Return all files in which the daemon remembers something."""
        return [one for one in (self.kubelet.plugin_dir / ".devplug").rglob("*") if one.is_file()]

    async def kill(self) -> None:
        """Stop the daemon as SIGKILL does: what it had not written by now is lost."""
        kept = {one: one.read_bytes() for one in self.memory()}
        await self.stop()
        for file in self.memory():
            file.unlink()
        for file, content in kept.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    async def restart(self, *resources: Described, is_killed: bool = False) -> None:
        """End the daemon, and start it again, with other resources if some are named."""
        await (self.kill() if is_killed else self.stop())
        await self.start(*resources)

    async def edit(self, *resources: Described) -> None:
        """Write another configuration; return once all is quiet."""
        self.write(*resources)
        await self.quiet()

    def write(self, *resources: Described) -> None:
        """Write another configuration, and wait for nothing."""
        self._write(resources)

    async def quiet(self) -> None:
        """Let so much time go by that nothing happens any more."""
        await passes(QUIET_SECONDS)

    async def restart_kubelet(self, *, reboot: bool = False) -> None:
        """End the kubelet's process and start the next one; PodResources is on a new socket then."""
        await self.pod_resources.listener.close()
        await self.kubelet.restart(reboot=reboot)
        await self.pod_resources.listener.bind()
        self.end_refused()

    async def lose_api_server(self) -> None:
        """Have the next kubelet process hear nothing of the API server."""
        self.kubelet.lose_api_server()
        await self.restart_kubelet()

    async def find_api_server(self) -> None:
        """Have the kubelet hear of the API server again."""
        if not self.kubelet.is_api_server_up:
            await self.kubelet.find_api_server()
            self.end_refused()

    def end_refused(self) -> None:
        """End the pods that a kubelet has refused when it admitted them again, without their plugin.

        So it does with pods whose init container has ended.
        """
        for name in [name for name, one in self.pods.items() if self.kubelet.pod(one.pod.uid).is_terminal]:
            self.end(name)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Note the kubelet's changes meanwhile, but those that the test itself makes of the daemon."""

        async def note(changes: AsyncIterator[Change]) -> None:
            async for change in changes:
                self.changes.append(change)

        with self.kubelet.changes() as changes:
            noting = self.tasks.create_task(note(changes))
            try:
                yield
            finally:
                noting.cancel()

    # ── pods ──

    def capacity(self) -> dict[str, int]:
        """Return how many devices of each resource the node has, held ones too."""
        return {name: count for name, count in self.kubelet.capacity().items() if count}

    def counted(self) -> dict[str, int]:
        """Return the capacity without names that are neither configured nor held.

        The kubelet counts those for five minutes, whatever the daemon does.
        """
        names = {str(one["name"]) for one in self.resources} | {one.resource for one in self.pods.values()}
        return {name: count for name, count in self.capacity().items() if name in names}

    def healthy(self) -> dict[str, int]:
        """Return how many healthy devices of each resource the node has, held ones too."""
        return {name: count for name, count in self.kubelet.allocatable().items() if count}

    def free(self, resource: str) -> int:
        """Return how many devices of a resource the scheduler has left for pods."""
        used = sum(one.count for one in self.pods.values() if one.resource == resource)
        return self.kubelet.allocatable().get(resource, 0) - used

    async def run(self, name: str, resource: str, count: int = 1) -> Running | None:
        """Run a pod that wants devices; None if the scheduler or the node refuses it."""
        if self.kubelet.allocatable().get(resource, 0) < count:
            return None
        pod = Pod(f"uid-{name}", name, containers=(Container("main", {resource: count}),))
        return await self._run(pod, resource)

    async def run_init_pod(self, name: str, resource: str) -> Running:
        """Run a pod whose init container wants a device, and has ended; the pod keeps the device."""
        running = await self.try_init_pod(name, resource)
        assert running is not None
        return running

    async def try_init_pod(self, name: str, resource: str) -> Running | None:
        """Do `run_init_pod`; None if the node refuses the pod."""
        initial, main = Container("init", {resource: 1}), Container("main")
        pod = Pod(f"uid-{name}", name, init_containers=(initial,), containers=(main,))
        return await self._run(pod, resource)

    async def start_again(self, name: str) -> None:
        """Have a pod's container end and start: the kubelet gives its answer again, for what is there now."""
        running = self.pods[name]
        container = running_in(running.pod)
        self.kubelet.end_container(running.pod.uid, container)
        await self.kubelet.start_container(running.pod.uid, container)
        self.oracle.started_again(name, self.seen(*running.host_paths))

    async def _run(self, pod: Pod, resource: str) -> Running | None:
        name = pod.name
        status = await self.kubelet.run_pod(pod)
        is_running = status.phase is PodPhase.RUNNING
        options = status.container(running_in(pod)).options if is_running else None
        if options is None:
            self.kubelet.remove_pod(pod.uid)
            return None
        cdi = (f"{CDI}{device}" for device in options.cdi_devices)
        paths = (*(node.host_path for node in options.device_nodes), *cdi)
        numbers = self._numbers(paths)
        given, described = self.machine.behind(numbers), self._known[resource]
        running = Running(pod, resource, paths, numbers, options.envs, given)
        self._note_cleaned()
        is_sharing = "share" in described or described.get("overlap") == "shared"
        names = frozenset(stick.name for stick in given)
        container = Given(name, resource, numbers, paths, names, is_sharing=is_sharing)
        self.oracle.started(container, self.seen(*paths))
        self.pods[name] = running
        self.given.append(running)
        return running

    async def must_run(self, name: str, resource: str, count: int = 1) -> Running:
        """Run a pod that wants devices."""
        running = await self.run(name, resource, count)
        assert running is not None, f"pod {name} was refused; the node has {self.capacity()}"
        return running

    def health(self, name: str) -> set[str]:
        """Return the health of a pod's devices, as its status shows them."""
        devices = self.kubelet.pod(f"uid-{name}").containers[0].allocated_resources
        return {health for of_resource in devices.values() for health in of_resource.values()}

    def end(self, name: str) -> None:
        """End a pod, and delete it."""
        ended = self.pods.pop(name)
        self.kubelet.remove_pod(ended.pod.uid)
        self._note_cleaned()
        self.oracle.ended(name, is_cleaned="onRelease" in self._known[ended.resource])

    def unplug(self, stick: Stick) -> None:
        """Pull a stick out, and have the oracle know of it."""
        self._note_cleaned()
        self.machine.unplug(stick)
        self.oracle.unplugged(stick.name)

    async def fill(self) -> None:
        """Run pods for each resource until the node refuses one: then each stick has a pod."""
        for resource in self.kubelet.capacity():
            self._count += 1
            while await self.run(f"more-{self._count}", resource):
                self._count += 1
        await self.quiet()

    # ── who has what ──

    def _numbers(self, host_paths: Iterable[str]) -> Numbers:
        return frozenset(number for path in host_paths for number in self._numbers_at(path))

    def _numbers_at(self, host_path: str) -> Numbers:
        if not host_path.startswith(CDI):
            return self.machine.numbers(host_path)
        kind, _, name = host_path.removeprefix(CDI).partition("=")
        specs = [json.loads(file.read_text()) for file in (self.folder / "cdi").glob("*.json")]
        edits = [
            device["containerEdits"]
            for spec in specs
            for device in spec["devices"]
            if (spec["kind"], device["name"]) == (kind, name)
        ]
        paths = [node.get("hostPath", node["path"]) for one in edits for node in one.get("deviceNodes", ())]
        return frozenset(number for path in paths for number in self.machine.numbers(path))

    def seen(self, *paths: str) -> Seen:
        """Return the machine as the oracle sees it; `paths` are those of containers, besides the running."""
        every = {*paths, *(path for running in self.pods.values() for path in running.host_paths)}
        hardware = {stick.name: self.machine.numbers_of(stick) for stick in self.machine.sticks}
        return Seen(hardware, {path: self._numbers_at(path) for path in every})

    def owners(self) -> dict[str, set[str]]:
        """Return the pods of each stick that is plugged in."""
        now = self.seen()
        return {
            stick: {name for name, container in self.oracle.live.items() if stick in container.has(now)}
            for stick in now.hardware
        }

    def owner(self, stick: Stick) -> str:
        """Return the only pod of a stick; empty if it has none."""
        (found,) = self.owners()[stick.name] or {""}
        return found

    def cleaned(self) -> list[str]:
        """Return the sticks on which `onRelease` has run, each as often as it has."""
        return self._log.read_text().split() if self._log.exists() else []

    def _note_cleaned(self) -> None:
        cleaned = self.cleaned()
        for stick in cleaned[self._cleaned :]:
            self.oracle.cleaned(stick)
        self._cleaned = len(cleaned)

    def judge(self) -> None:
        """Have the oracle judge the node, which has to be quiet."""
        self._note_cleaned()
        capacity, healthy = self.counted(), self.kubelet.allocatable()
        configured = {str(one["name"]): one for one in self.resources}
        offers = {
            name: Offer(
                self._matching(configured[name]) if name in configured else frozenset(),
                healthy.get(name, 0),
                capacity.get(name, 0),
            )
            for name in dict.fromkeys((*configured, *healthy))
        }
        lasting = [name for name, one in self.pods.items() if not one.pod.init_containers]
        self.oracle.quiet(self.seen(), offers, {name: " ".join(self.health(name)) for name in lasting})

    def matching(self, resource: str) -> frozenset[str]:
        """Return the sticks that a resource of the file selects; none if the file does not have it."""
        return next((self._matching(one) for one in self.resources if one["name"] == resource), frozenset())

    def _matching(self, described: Described) -> frozenset[str]:
        if (glob := described["discover"].get("path")) is not None:
            return frozenset(stick.name for stick in self.machine.found_at(glob))
        selector = described["discover"].get("usb", {})
        return frozenset(
            stick.name
            for stick in self.machine.seen
            if all(getattr(stick, key) == value for key, value in selector.items())
        )

    def nothing_was_wrong(self) -> None:
        """Check that the oracle has found nothing."""
        self._note_cleaned()
        assert not self.oracle.violations, "; ".join(self.oracle.violations)

    async def each_stick_has_one_pod(self) -> None:
        """Fill the node; check that no stick is given out twice, counted twice, or offered to nobody."""
        counted = sum(self.counted().values())
        await self.fill()
        self.nothing_was_wrong()
        wanted = {stick for one in self.resources for stick in self._matching(one)}
        unused = [name for name, pods in self.owners().items() if not pods and name in wanted]
        assert not unused, f"no pod could get {unused}"
        assert counted <= len(self.machine.seen)


@asynccontextmanager
async def node(
    folder: Path, udev: Udev = "by-path", machine: UsbMachine | None = None
) -> AsyncIterator[Node]:
    """A node whose kubelet runs, on virtual time; its daemon is yet to be started."""
    (folder / "cdi").mkdir()
    clock = asyncio.get_running_loop().time
    kubelet = Kubelet.under(folder, KubeletSettings(clock=clock))
    failure: Exception | None = None
    async with kubelet.running(), asyncio.TaskGroup() as tasks:
        pod_resources = PodResources(folder / "pod-resources" / "kubelet.sock", folder / "asked.sock")
        await pod_resources.listener.bind()
        machine = machine or UsbMachine(folder / "machine", udev)
        made = Node(folder, tasks, machine, kubelet, pod_resources)
        try:
            yield made
        except Exception as error:  # noqa: BLE001 -- raised below, because a group wraps errors
            failure = error
        finally:
            await made.stop()
            await pod_resources.listener.close()
    if failure is not None:
        raise failure
