"""Both ends of the wire: a plugin with every ability, a kubelet with every server, and their answers.

What the servers may answer is written down here a second time: for each call its statuses with their texts.
"""

from __future__ import annotations

import re
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from devplug import Device, Health
from devplug.errors import RemoteError
from devplug.kubelet.settings import KubeletSettings
from devplug.wire import deviceplugin, podresources
from devplug.wire.codecs import Codec, MalformedMessageError
from devplug.wire.deviceplugin import ALLOCATE, REGISTER
from devplug.wire.podresources import LIST
from devplug.wire.sockets import connected
from devplug.wire.values import RegisterRequest
from torture.catalogue import BrokenError
from torture.testbed import Fed, bed, devices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from devplug.wire.deviceplugin import Method
    from torture.testbed import Bed

HEALTHY_IDS: Final = ("d0", "d1", "d2", "d3")

ENDS: Final = ("plugin", "kubelet", "podresources")

SERVED_SECONDS: Final = 10.0
"""How long a good call may take on a machine that is busy with something else; a hang is a hang."""

TEXT_LIMIT_BYTES: Final = 200
"""Longest text that a plugin's refusal may have: it ends in a pod's status."""

_BYTES: Final[Codec[bytes]] = Codec("bytes", lambda content: content, lambda content, _: content)
_DEVICE: Final = r'device "[^"]*(\\"[^"]*)*"'
_LEAKS: Final = re.compile(r"Traceback|Error\(|Exception|\.py\b|object at 0x|site-packages")


# ── sockets ──


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


# ── answers ──


def raw(method: Method[Any, Any]) -> Method[bytes, bytes]:
    """Return the method as one that takes and gives bytes as they are."""
    return replace(method, request=_BYTES, response=_BYTES)


@dataclass(frozen=True, slots=True)
class Row:
    """One refusal: its status as Go spells it, and what its text must match as a whole."""

    status: str
    text: str


_ABOUT_IDS: Final = (
    Row("InvalidArgument", "CALL: a device ID is empty"),
    Row("InvalidArgument", r'CALL: device ID ".+" is \d+ characters long; at most 63 fit'),
    Row("InvalidArgument", f"CALL: {_DEVICE} is asked for twice"),
    Row("NotFound", f"CALL: {_DEVICE} is not known to example.com/a"),
)


def _of(call: str, *rows: Row) -> tuple[Row, ...]:
    return tuple(Row(row.status, row.text.replace("CALL", call)) for row in rows)


ANSWERS: Final[Mapping[Method[Any, Any], tuple[Row, ...]]] = {
    deviceplugin.GET_OPTIONS: (),
    deviceplugin.LIST_AND_WATCH: (Row("ResourceExhausted", "16 streams are open, which is the limit"),),
    deviceplugin.ALLOCATE: _of(
        "allocate",
        *_ABOUT_IDS,
        Row("InvalidArgument", "CALL: no container requests"),
        Row("InvalidArgument", r"CALL: container \d+ asks for no devices"),
        Row("ResourceExhausted", r"CALL: \d+ devices are asked for; at most 10000 in one call"),
        Row(
            "FailedPrecondition",
            f"CALL: {_DEVICE} is unhealthy .+; delete and recreate the pod to get another device",
        ),
    ),
    deviceplugin.GET_PREFERRED_ALLOCATION: (
        Row("InvalidArgument", r"prefer: container \d+ asks for -\d+ devices"),
        Row("InvalidArgument", r'prefer: container \d+ must include ".*", which is not available'),
    ),
    deviceplugin.PRE_START_CONTAINER: _of(
        "pre-start", *_ABOUT_IDS, Row("InvalidArgument", "CALL: the request names no devices")
    ),
    deviceplugin.REGISTER: (
        Row("Unknown", r'requested API version ".*" is not supported by kubelet. Supported version is .+'),
        Row("Unknown", r'the ResourceName ".*" is invalid'),
        Row("Unknown", r"failed to dial device plugin: context deadline exceeded"),
        Row("Unknown", r'failed to dial device plugin: parse "passthrough:///.*": .+'),
        Row("Unknown", r"failed to get device plugin options: rpc error: code = \w+ desc = .*"),
    ),
    podresources.LIST: (),
    podresources.V1ALPHA1_LIST: (),
    podresources.GET_ALLOCATABLE_RESOURCES: (),
    podresources.GET: (Row("Unknown", r"pod .* in namespace .* not found"),),
}
"""Beyond `malformed …`, which every call answers to what is no message of its kind."""


def answer_fault(method: Method[Any, Any], content: bytes, answer: bytes | RemoteError) -> str:
    """Return what is wrong about the answer to a request with this content; empty if nothing is."""
    try:
        method.request.decode(content)
        is_malformed = False
    except MalformedMessageError:
        is_malformed = True
    if isinstance(answer, bytes):
        if is_malformed:
            return f"I11: {method.name} answers what is no {method.request.message}"
        method.response.decode(answer)
        return ""
    text = answer.text
    if _LEAKS.search(text):
        return f"I11: {method.name} tells of its inside: {text[:300]}"
    if is_malformed:
        is_right = (answer.status, text) == ("InvalidArgument", f"malformed {method.request.message}")
        return "" if is_right else f"I11: {method.name} says {answer} of what is malformed"
    if answer.status != "Unknown" and (len(text.encode()) > TEXT_LIMIT_BYTES or not text.isprintable()):
        return f"I11: {method.name} says more than one short line: {text!r}"
    if any(
        row.status == answer.status and re.fullmatch(row.text, text, re.DOTALL) for row in ANSWERS[method]
    ):
        return ""
    return f"I11: {method.name} answers outside of the table: {str(answer)[:300]}"
