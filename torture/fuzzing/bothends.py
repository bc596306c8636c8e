"""What the wire's cases stand on: a plugin with every ability, a kubelet with every server, their sockets."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug import Device, Health
from devplug.errors import RemoteError
from devplug.exchange import RegisterRequest
from devplug.kubelet.settings import KubeletSettings
from devplug.wire.methods import ALLOCATE, REGISTER
from devplug.wire.podresources import LIST
from devplug.wire.sockets import connected
from torture.beds import Fed, bed, devices
from torture.catalogue import BrokenError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from torture.beds import Bed

__all__ = ["ENDS", "HEALTHY_IDS", "BothEnds", "both_ends"]

HEALTHY_IDS: Final = ("d0", "d1", "d2", "d3")

ENDS: Final = ("plugin", "kubelet", "podresources")

SERVED_SECONDS: Final = 10.0
"""How long a good call may take on a machine that is busy with something else; a hang is a hang."""


class Able(Fed):
    """A plugin with every optional call, four good devices and a bad one."""

    def __init__(self) -> None:
        super().__init__()
        self.feed.replace([*devices(*HEALTHY_IDS), Device("bad", health=Health.unhealthy("of its own"))])

    async def prefer(
        self, available: Sequence[Device], _must_include: Sequence[Device], _size: int, /
    ) -> list[Device]:
        """Prefer the last."""
        return sorted(available, key=lambda one: one.id, reverse=True)

    async def pre_start(self, devices: Sequence[Device], /) -> None:
        """Do nothing."""


@dataclass(slots=True)
class BothEnds:
    """The sockets of a plugin and of a kubelet, and whether they serve."""

    stage: Bed
    sockets: dict[str, Path]
    """By the words of `ENDS`."""

    async def check_served(self, *ends: str) -> None:
        """Raise `BrokenError` unless good calls, over connections of their own, are answered rightly."""
        for end in ends or ENDS:
            try:
                async with connected(self.sockets[end], ready_within_seconds=SERVED_SECONDS) as peer:
                    if end == "plugin":
                        (answer,) = await peer.call(
                            ALLOCATE, [HEALTHY_IDS[:1]], timeout_seconds=SERVED_SECONDS
                        )
                        is_right = [node.host_path for node in answer.device_nodes] == ["/dev/d0"]
                    elif end == "podresources":
                        is_right = not await peer.call(LIST, None, timeout_seconds=SERVED_SECONDS)
                    else:
                        # An unknown version: it is refused without a dial, and nothing is left of it.
                        request = RegisterRequest("v0", "x.sock", "example.com/a")
                        is_right = False
                        await peer.call(REGISTER, request, timeout_seconds=SERVED_SECONDS)
            except RemoteError as error:
                is_right = end == "kubelet" and "is not supported by kubelet" in error.text
                if not is_right:
                    raise BrokenError(f"I4: the {end} does not serve: {error}") from error
            if not is_right:
                raise BrokenError(f"I4: the {end} answers a good call wrongly")


@asynccontextmanager
async def both_ends(folder: Path, *, dial_timeout_seconds: float = 0.1) -> AsyncIterator[BothEnds]:
    """Run a plugin and a kubelet for a block; entered once the plugin is registered."""
    pod_resources = folder / "pod-resources" / "kubelet.sock"
    settings = KubeletSettings(
        # PodResources takes a hundred calls a second, of this clock's seconds.
        clock=lambda: 10_000 * time.monotonic(),
        dial_timeout_seconds=dial_timeout_seconds,
        pod_resources_socket=pod_resources,
    )
    async with bed(folder / "p", Able(), settings=settings) as stage:
        (plugin,) = (path for path in (folder / "p").glob("*.sock") if path != stage.kubelet.socket_path)
        sockets = {"plugin": plugin, "kubelet": stage.kubelet.socket_path, "podresources": pod_resources}
        ends = BothEnds(stage, sockets)
        await ends.check_served()
        yield ends
