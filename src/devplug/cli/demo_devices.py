"""The devices of the demo: this machine's, and one that really comes and goes.

That one is a loop device where that is allowed, else a terminal.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from devplug.daemon.sources.path import PathSource

if TYPE_CHECKING:
    from devplug.daemon.config.types import Config


_SHARED: Final = (("fuse", "/dev/fuse"), ("kvm", "/dev/kvm"), ("tun", "/dev/net/tun"))
_REPLICAS: Final = 10

# linux/loop.h
_LOOP_CTL_ADD, _LOOP_CTL_REMOVE = 0x4C80, 0x4C81
_FIRST_LOOP: Final = 200
_BUSY_RETRY_SECONDS: Final = 0.01
_BUSY_SECONDS: Final = 2.0

# linux/netlink.h
_NETLINK_KOBJECT_UEVENT: Final = 15
_KERNEL_EVENTS: Final = 1
_EVENT_SECONDS: Final = 1.0


# ── configuration ─────────────────────────────────────────────────────────────────────────────────


def shared_here() -> list[tuple[str, str]]:
    """Return kind and path of the devices on this machine that many may use at once."""
    return [(kind, path) for kind, path in _SHARED if Path(path).exists()]


def devices_here(config: Config) -> list[dict[str, Any]]:
    """Return a row for each device that the configuration finds on this machine."""
    return [
        {
            "resource": resource.name,
            "device": found.name,
            "node": found.nodes[0].host_path,
            "numa_node": found.numa_node,
            "health": "Healthy",
            "replicas": resource.share.replicas,
        }
        for resource in config.resources
        for found in PathSource(resource.name, resource.discover.path).look()
    ]


def demo_config(present: list[tuple[str, str]], plug: HotPlug, firmware: Path) -> str:
    """Return the configuration of the demo: what is shared, and the kind of device that comes and goes."""
    shared = "".join(
        f"""
  - name: example.com/{kind}
    discover: {{path: {path}}}
    share: {{replicas: {_REPLICAS}, maxPerContainer: 1}}"""
        for kind, path in present
    )
    host_path = json.dumps(str(firmware).replace("{", "{{").replace("}", "}}"), ensure_ascii=False)
    return f"""version: 1
resources:{shared}
  - name: example.com/{plug.kind}
    discover: {{path: "{plug.glob}"}}
    expose:
      containerPath: "/dev/{plug.kind}{{index}}"
      env: {{DEVICES: "{{containerPaths}}"}}
      mounts: [{{hostPath: {host_path}, containerPath: /lib/firmware/demo, readOnly: true}}]
    whenUnplugged: {{keepUnhealthyFor: 0s}}
"""


# ── hot-plug ──────────────────────────────────────────────────────────────────────────────────────


class HotPlug(Protocol):
    """One device that can be plugged and unplugged. Each call returns the time of the kernel's event."""

    kind: str
    """The kind that its resource is named after."""
    glob: str
    """The glob that its device nodes match."""
    path: str
    """The path of its device node, once it was plugged."""

    async def plug(self) -> float:
        """Make the device; return the time of the kernel's event, in seconds of the monotonic clock."""

    async def unplug(self) -> float:
        """Remove the device; return the time of the kernel's event. Safe to repeat."""


@dataclass(slots=True)
class LoopPlug:
    """A loop device, made and removed through /dev/loop-control; the kernel sends its events."""

    number: int
    kind: str = "loop"
    glob: str = "/dev/loop[0-9]*"
    path: str = ""

    async def plug(self) -> float:
        """Add the loop device; under the next free number if somebody else has just taken this one."""
        while True:
            self.path = f"/dev/loop{self.number}"
            try:
                return await self._control(_LOOP_CTL_ADD, "add")
            except OSError as error:
                self.path = ""  # not ours to remove
                if error.errno != errno.EEXIST:
                    raise
                self.number += 1

    async def unplug(self) -> float:
        """Remove the loop device."""
        if not self.path:
            return time.monotonic()
        at_seconds = await self._control(_LOOP_CTL_REMOVE, "remove")
        self.path = ""
        return at_seconds

    async def _control(self, request: int, action: str) -> float:
        message = f"{action}@/devices/virtual/block/loop{self.number}\0".encode()
        failure: OSError | None = None
        with _kernel_events() as events:
            async with asyncio.TaskGroup() as group:
                heard = group.create_task(_hear(events, message))
                try:
                    await asyncio.to_thread(_control_loop, request, self.number)
                except OSError as error:
                    failure = error
                    heard.cancel()
                returned_at_seconds = time.monotonic()
        if failure is not None:
            raise failure  # outside of the group, which wraps errors
        return heard.result() or returned_at_seconds


def _control_loop(request: int, number: int) -> None:
    """Add or remove a loop device; one that somebody is still looking at is busy for a moment."""
    with open("/dev/loop-control", "rb", buffering=0) as control:  # noqa: PTH123 -- no Path.open without buffers
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                fcntl.ioctl(control, request, number)
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_BUSY_RETRY_SECONDS)
            else:
                return


def _kernel_events() -> socket.socket:
    """Return a socket that hears the kernel's own device events; no right is needed for that."""
    events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_KOBJECT_UEVENT)
    events.bind((0, _KERNEL_EVENTS))
    events.setblocking(False)  # noqa: FBT003
    return events


async def _hear(events: socket.socket, message: bytes) -> float | None:
    """Return the time of the kernel's event, or None without one (in a user namespace of its own, say)."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_EVENT_SECONDS):
            while not (await loop.sock_recv(events, 8192)).startswith(message):
                continue
            return time.monotonic()
    except OSError:  # too late, or too many events for the socket
        return None


@dataclass(slots=True)
class TerminalPlug:
    """A pseudo-terminal: anybody may open one, and its node comes and goes with it.

    The kernel's event falls into the call, which takes microseconds: the call's begin stands for it.
    """

    kind: str = "terminal"
    glob: str = "/dev/pts/[0-9]*"
    path: str = ""
    _ends: tuple[int, ...] = ()

    async def plug(self) -> float:
        """Open a pseudo-terminal."""
        at_seconds = time.monotonic()
        self._ends = os.openpty()
        self.path = os.ttyname(self._ends[1])
        return at_seconds

    async def unplug(self) -> float:
        """Close it."""
        at_seconds = time.monotonic()
        for end in self._ends:
            os.close(end)
        self._ends, self.path = (), ""
        return at_seconds


def best_plug() -> HotPlug:
    """Return what can be plugged here: a loop device if this user may make one, else a terminal."""
    with suppress(OSError), open("/dev/loop-control", "rb", buffering=0):  # noqa: PTH123
        # Elsewhere than in the kernel's own folder of nodes a new device gets no node by itself.
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        if any(mount.split()[1:3] == ["/dev", "devtmpfs"] for mount in mounts):
            taken = {entry.name for entry in Path("/dev").iterdir()}
            return LoopPlug(next(n for n in range(_FIRST_LOOP, 10_000) if f"loop{n}" not in taken))
    return TerminalPlug()
