"""The source `nvidia`: GPUs and MIG instances, with their health, as the driver reports them.

`nvml` asks the driver and `nvidia_gpu` decides. This has the threads, the found devices and their device
nodes: those of a GPU, of its capabilities, and of the driver.
"""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import time
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.daemon.sources.device import HostDevice, wanted_name
from devplug.daemon.sources.hardware import device_at
from devplug.daemon.sources.host import Host, NotADeviceNodeError, timed
from devplug.daemon.sources.nvidia_gpu import (
    APPLICATION_XIDS,
    fault_of,
    known_after,
    links_between,
    partition_of,
    standing,
    with_event,
)
from devplug.daemon.sources.nvml import read
from devplug.daemon.sources.nvml_events import EventListener
from devplug.devices import Health
from devplug.holds.hardware import Hardware
from devplug.holds.names import Names, Wanted
from devplug.linux.inotify import EventKind, shared_watcher
from devplug.linux.notifier import within
from devplug.linux.threads import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Mapping
    from concurrent.futures import Future

    from devplug.daemon.config.selectors import NvidiaSelector
    from devplug.daemon.config.templates import Template
    from devplug.daemon.sources.device import HostDeviceNode
    from devplug.daemon.sources.nvidia_gpu import Gpu, GpuEvent, GpuFault, GpuReading, MigInstance
    from devplug.linux.inotify import FileEvent

logger = logging.getLogger(__name__)

DRIVER_NODES: Final = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
)
"""What every container with a GPU gets, as far as it exists: the control node, memory that CPU and GPU share,
its profiler, and display modes."""

RECOVERY_SECONDS: Final = 300.0
"""A fault that needs no reset ends so long after its last Xid."""

LOOK_LIMIT_SECONDS: Final = 5.0
"""How long `look` waits for the driver; a healthy one answers in a tenth of that when it is in use."""

ANSWER_LIMIT_SECONDS: Final = 30.0
"""How long the driver may take before its GPUs are unhealthy: waking eight of them takes some 20 s."""

_SILENCE: Final = "NVML does not answer"


# ── device nodes ──────────────────────────────────────────────────────────────────────────────────


def _shared_nodes(host: Host) -> tuple[HostDeviceNode, ...]:
    """Return the nodes of the driver itself."""
    nodes = (_existing_node(host, path, is_shared=True) for path in DRIVER_NODES)
    return tuple(node for node in nodes if node is not None)


def _own_nodes(
    host: Host, gpu: Gpu, instance: MigInstance | None
) -> tuple[tuple[HostDeviceNode, ...], str | None]:
    """Return the nodes of a GPU or of one of its MIG instances, and the fault that one is missing, or None.

    A MIG device is reached through the GPU's node, the one for its GPU instance and the one for its compute
    instance ("Device Nodes and Capabilities" in NVIDIA's MIG user guide). Only the last is its alone.
    """
    if gpu.minor is None:
        return (), "the driver names no device node for it"
    paths = {f"/dev/nvidia{gpu.minor}": instance is not None}
    if instance is not None:
        folder = f"/proc/driver/nvidia/capabilities/gpu{gpu.minor}/mig/gi{instance.gpu_instance}"
        of_compute_instance = f"{folder}/ci{instance.compute_instance}/access"
        for access in (f"{folder}/access", of_compute_instance):
            minor = _capability_minor(host, access)
            if minor is None:
                return (), f"{access} names no device node"
            paths[f"/dev/nvidia-caps/nvidia-cap{minor}"] = access != of_compute_instance
    nodes = {path: _existing_node(host, path, is_shared=is_shared) for path, is_shared in paths.items()}
    missing = next((path for path, node in nodes.items() if node is None), None)
    fault = f"{missing} is missing; nvidia-modprobe makes it" if missing else None
    return tuple(node for node in nodes.values() if node is not None), fault


def _existing_node(host: Host, path: str, *, is_shared: bool) -> HostDeviceNode | None:
    try:
        node = host.node(path)
    except NotADeviceNodeError:
        return None
    return replace(node, is_shared=is_shared) if node is not None else None


def _capability_minor(host: Host, access: str) -> int | None:
    """Return the minor of the node that grants a capability, from the file that the driver has for it."""
    try:
        with open(host.inside(access), encoding="ascii") as file:  # noqa: PTH123
            lines = [line.partition(":") for line in file]
    except (OSError, UnicodeDecodeError):
        return None
    minor = next((value.strip() for key, _, value in lines if key == "DeviceFileMinor"), "")
    return int(minor) if minor.isdigit() else None


# ── the source ────────────────────────────────────────────────────────────────────────────────────


class _Part(Struct, frozen=True):
    """What one device ID stands for: a GPU, or one of its MIG instances."""

    gpu: Gpu
    instance: MigInstance | None
    ignored_xids: frozenset[int]

    @property
    def memory_bytes(self) -> int:
        return (self.instance or self.gpu).memory_bytes

    @property
    def uuid(self) -> str:
        return self.gpu.uuid if self.instance is None else self.instance.uuid


class NvidiaSource(Struct):
    """The GPUs or MIG instances that the selectors of one resource cover; lives as long as it is served.

    A GPU in MIG mode is never a device, only its instances are. Sharing one GPU among containers by time is
    `share.replicas`, for all kinds of devices alike, and nothing of this source.

    Faults are what the driver reported while `looks` was followed; of older ones a new process knows only
    what the driver can still be asked. While NVML is open, which is always, `nvidia-smi --gpu-reset` finds
    the GPU in use (as with NVIDIA's plugin and DCGM): stop the daemon for a reset by hand.
    """

    resource_name: str
    selectors: tuple[NvidiaSelector, ...]
    id_template: Template | None = None
    allow: Collection[str] = ()
    host: Host = field(default_factory=Host)
    resync_seconds: float = 30.0
    recovery_seconds: float = RECOVERY_SECONDS
    answer_limit_seconds: float = ANSWER_LIMIT_SECONDS
    clock: Callable[[], float] = time.monotonic
    _reader: DaemonThreads = field(default_factory=lambda: DaemonThreads(1, "devplug-nvml"))
    """It has one thread: a driver that hangs blocks one, however often it is asked."""
    _unanswered: Future[GpuReading] | None = None
    """The question that the driver has not answered in time."""
    known_names: Names = field(default_factory=Names)
    _known: Mapping[str, Gpu] = field(default_factory=dict)
    """The GPUs of the last scan of `looks`, by UUID: one of them that does not answer is lost."""
    _lost: Mapping[str, str] = field(default_factory=dict)
    _faults: tuple[GpuFault, ...] = ()
    _missing: str = ""
    _seen: set[str] = field(default_factory=set)
    """The GPUs that have ever answered in `looks`, by UUID."""
    _needs_fresh: bool = False
    """Whether a GPU may have come or come back: NVML shows that only after it was closed and opened again."""

    @timed
    def look(self) -> tuple[HostDevice, ...]:
        """Return the devices that are there now, sorted by name; none if the driver cannot be asked.

        Blocks until the driver answers, for `LOOK_LIMIT_SECONDS` at most once some devices are known. While
        the driver hangs it does not block: it returns the devices of the last scan, of unknown health.
        """
        if self._unanswered is None or self._unanswered.done():
            asked = self._reader.submit(read, self.host)
            try:
                limit = self.answer_limit_seconds
                reading = asked.result(min(LOOK_LIMIT_SECONDS, limit) if self._known else limit)
            except TimeoutError:
                self._unanswered = asked
            else:
                self._log_missing(reading)
                return self._found(*known_after(self._known, reading))
        return self._found(self._known, {}, Health.unknown(_SILENCE))

    async def looks(self) -> AsyncGenerator[tuple[HostDevice, ...], None]:
        """Yield what is there at once, after each event of the driver, and every `resync_seconds`.

        All calls of the driver are made in two threads of this source, which nobody waits for at exit.
        """
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def hear(event: GpuEvent) -> None:
            self._note(event)
            changed.set()

        def see(event: FileEvent) -> None:
            self._needs_fresh |= event.kind is EventKind.APPEARED

        listener = EventListener(self.host, lambda event: _hand_over(loop, hear, event))
        thread = DaemonThreads(1, "devplug-nvml-events")
        thread.submit(listener.run)
        nodes = [self.host.inside("/dev/nvidia*"), self.host.inside("/dev/nvidia-caps/*")]
        try:
            async with shared_watcher() as watcher:
                with watcher.subscribe(changed.set, see) as subscription:
                    while True:
                        changed.clear()
                        subscription.arm(nodes)
                        asked = self._reader.submit(read, self.host, is_fresh=self._needs_fresh)
                        answer = asyncio.wrap_future(asked)
                        while not (await asyncio.wait({answer}, timeout=self.answer_limit_seconds))[0]:
                            self._log_silence(asked)
                            if self._known:
                                yield self._found(self._known, {}, Health.unhealthy(_SILENCE))
                        self._take(answer.result())
                        listener.follow(frozenset(self._known) - frozenset(self._lost))
                        yield self._found(self._known, self._lost)
                        await within(self.resync_seconds, changed.wait())
        finally:
            listener.stop()
            thread.shutdown()

    def _note(self, event: GpuEvent) -> None:
        """Keep a fault that the driver reported."""
        faults = with_event(self._faults, event, self.clock())
        if faults != self._faults:
            self._faults = faults
            fault = faults[-1]
            logger.warning("a GPU has a fault", extra=self._extra(fault.gpu_uuid, fault.reason))

    def _extra(self, uuid: str, reason: str) -> dict[str, str]:
        return {"resource_name": self.resource_name, "gpu": uuid, "reason": reason}

    def _take(self, reading: GpuReading) -> None:
        """Make a reading the state of this source."""
        self._log_missing(reading)
        known, lost = known_after(self._known, reading)
        for uuid in sorted(lost.keys() - self._lost.keys()):
            logger.warning("a GPU does not answer", extra=self._extra(uuid, lost[uuid]))
        answering = {gpu.uuid: gpu for gpu in reading.gpus}
        faults = standing(self._faults, answering, self.clock(), self.recovery_seconds)
        left = {(fault.gpu_uuid, fault.xid) for fault in faults}
        for fault in self._faults:
            if (fault.gpu_uuid, fault.xid) not in left:
                logger.info(
                    "a GPU has recovered from a fault", extra=self._extra(fault.gpu_uuid, fault.reason)
                )
        self._known, self._lost, self._faults = known, lost, faults
        self._seen.update(answering)
        self._needs_fresh = bool(reading.missing or reading.unanswered or self._seen - answering.keys())

    def _log_missing(self, reading: GpuReading) -> None:
        """Log once that the driver cannot be asked and why, and once that it can again."""
        if reading.missing and reading.missing != self._missing:
            logger.warning(
                "NVML is not available; no GPUs are found",
                extra={"resource_name": self.resource_name, "reason": reading.missing},
            )
        elif self._missing and not reading.missing:
            logger.info("NVML is available again", extra={"resource_name": self.resource_name})
        self._missing = reading.missing

    def _log_silence(self, asked: Future[GpuReading]) -> None:
        if self._unanswered is not asked:
            self._unanswered = asked
            logger.warning(_SILENCE, extra={"resource_name": self.resource_name})

    def _found(
        self,
        known: Mapping[str, Gpu],
        lost: Mapping[str, str],
        health: Health | None = None,
    ) -> tuple[HostDevice, ...]:
        """Return the devices that the selectors cover; `health` of all of them if it is given."""
        parts = self._parts(known)
        facts = {uuid: self._facts(part) for uuid, part in parts.items()}
        wanted = []
        for uuid, part in parts.items():
            name = wanted_name(self.id_template, facts[uuid], part.uuid)
            wanted.append(Wanted(uuid, name, f"{name}@{uuid}"))
        names = self.known_names.assign(wanted)
        links = links_between(part.gpu for part in parts.values() if part.instance is None)
        shared = _shared_nodes(self.host)
        found = []
        for uuid, part in parts.items():
            nodes, fault = _own_nodes(self.host, part.gpu, part.instance)
            if part.gpu.uuid in lost:
                fault = lost[part.gpu.uuid]
            elif fault is None:
                fault = fault_of(self._faults, part.gpu, part.instance, part.ignored_xids)
            numa_node = facts[uuid].get("numaNode")
            found.append(
                HostDevice(
                    names[uuid],
                    (*nodes, *shared),
                    numa_node if isinstance(numa_node, int) else None,
                    MappingProxyType(facts[uuid]),
                    self._hardware(part),
                    health or Health.from_fault(fault),
                    MappingProxyType(
                        {names[other]: count for other, count in sorted(links.get(uuid, {}).items())}
                    ),
                    MappingProxyType({"memory": part.memory_bytes} if part.memory_bytes else {}),
                    partition_of(part.gpu, part.instance),
                    identity=_identity(part),
                )
            )
        return tuple(sorted(found, key=lambda one: one.name))

    def _parts(self, known: Mapping[str, Gpu]) -> dict[str, _Part]:
        """Return by UUID the GPUs and instances that a selector matches, each with the first that does."""
        parts: dict[str, _Part] = {}
        for selector in self.selectors:
            ignored = APPLICATION_XIDS if selector.ignore_xids is None else frozenset(selector.ignore_xids)
            for gpu in known.values():
                if selector.mig == "none":
                    candidates = [] if gpu.is_in_mig_mode else [_Part(gpu, None, ignored)]
                else:
                    fitting = (one for one in gpu.instances if one.profile == selector.mig)
                    candidates = [_Part(gpu, one, ignored) for one in fitting]
                for part in candidates:
                    if part.uuid not in parts and _covers(selector, part):
                        parts[part.uuid] = part
        return parts

    def _facts(self, part: _Part) -> dict[str, str | int]:
        gpu = part.gpu
        facts: dict[str, str | int] = {"uuid": part.uuid, "model": gpu.model, "pciAddress": gpu.pci_address}
        if gpu.serial:
            facts["serial"] = gpu.serial
        if gpu.minor is not None:
            facts |= {"file": f"nvidia{gpu.minor}", "hostPath": f"/dev/nvidia{gpu.minor}"}
        function = device_at(self.host, f"/sys/bus/pci/devices/{gpu.pci_address}")
        if function is not None and (numa_node := function.numa_node) is not None:
            facts["numaNode"] = numa_node
        return facts

    def _hardware(self, part: _Part) -> str:
        """Return the folder of the PCI function; for an instance, one of its own below.

        So two instances of one GPU are different hardware. A GPU with instances is itself not a device.
        """
        function = device_at(self.host, f"/sys/bus/pci/devices/{part.gpu.pci_address}")
        folder = function.path if function is not None else f"/nvidia/{part.gpu.uuid}"
        return folder if part.instance is None else f"{folder}/mig/{part.instance.uuid}"


def _identity(part: _Part) -> Hardware:
    """Return the hardware: a GPU is its PCI function, with all its parts; an instance is one of these."""
    place = part.gpu.pci_address or part.gpu.uuid
    if part.instance is None:
        return Hardware(place, part.uuid, is_whole=True)
    return Hardware(f"{place}.{part.uuid}", part.uuid)


def _covers(selector: NvidiaSelector, part: _Part) -> bool:
    """Whether a selector matches; for an instance also by the UUID of its GPU."""
    return (selector.model is None or fnmatch.fnmatchcase(part.gpu.model, selector.model)) and (
        selector.uuid is None
        or fnmatch.fnmatchcase(part.uuid, selector.uuid)
        or fnmatch.fnmatchcase(part.gpu.uuid, selector.uuid)
    )


def _hand_over(loop: asyncio.AbstractEventLoop, hear: Callable[[GpuEvent], None], event: GpuEvent) -> None:
    """Pass an event to the loop, from another thread; once the loop is closed, the event is dropped."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(hear, event)
