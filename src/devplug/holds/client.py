"""The client of PodResources: the answer of a kubelet, why there is none, and its checkpoint."""

from __future__ import annotations

import enum
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from devplug.backoff import backoff_seconds
from devplug.errors import KubeletError, RemoteError
from devplug.holds.held_device import only_text
from devplug.linux.durable_file import read_regular
from devplug.linux.trust import UntrustedError, check_trusted
from devplug.wire.limits import MONITOR_RECEIVE_LIMIT_BYTES
from devplug.wire.podresources import GET, GET_ALLOCATABLE_RESOURCES, LIST, V1ALPHA1_LIST
from devplug.wire.sockets import connected, socket_identity
from devplug.wire.values import ContainerDevices, ContainerResources, PodName, PodResources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence
    from pathlib import Path

    from devplug.wire.sockets import Peer
    from devplug.wire.values import AllocatableResources, SocketIdentity

FIRST_RETRY_SECONDS: Final = 1.0
SLOWEST_RETRY_SECONDS: Final = 60.0


class Trouble(enum.StrEnum):
    """Why there was no answer; used as the value of a metric's label."""

    ABSENT = "absent"
    """There is no socket: no kubelet, or its folder is not mounted here."""
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"
    RATE_LIMITED = "rate_limited"
    """All monitors of the node together ask too often (kubelet.md 7.1)."""
    TOO_LARGE = "too_large"
    UNSERVED = "unserved"
    """It serves neither v1 nor v1alpha1."""
    REPLACED = "replaced"
    """Another kubelet took the socket over meanwhile."""
    OTHER = "other"


class UnansweredError(KubeletError):
    """The kubelet did not answer. It is asked again; the last good answer stays in use."""

    def __init__(self, trouble: Trouble, text: str) -> None:
        self.trouble = trouble
        super().__init__(text)


class Answer(Struct, frozen=True):
    """The answer of one kubelet: what its pods hold."""

    pods: Sequence[PodResources]
    kubelet: SocketIdentity
    is_v1: bool
    """Otherwise an old kubelet's v1alpha1, which leaves out sidecars and lists pods that have ended."""
    allocatable: AllocatableResources | None = None
    """The node's allocatable devices; None if that was not asked, or the kubelet is too old for it."""


async def ask(
    socket: Path,
    *,
    timeout_seconds: float,
    with_allocatable: bool = False,
    receive_limit_bytes: int = MONITOR_RECEIVE_LIMIT_BYTES,
) -> Answer:
    """Ask the kubelet at the socket over a new connection: an old one would stay with an old kubelet."""
    is_v1, allocatable = True, None
    async with _kubelet_at(socket, receive_limit_bytes) as (peer, kubelet):
        try:
            pods = await peer.call(LIST, None, timeout_seconds=timeout_seconds)
        except RemoteError as error:
            if error.status != "Unimplemented":
                raise
            is_v1 = False
            pods = await peer.call(V1ALPHA1_LIST, None, timeout_seconds=timeout_seconds)
        if with_allocatable and is_v1:
            allocatable = await _allocatable(peer, timeout_seconds)
    if socket_identity(socket) != kubelet:
        raise UnansweredError(Trouble.REPLACED, f"{socket} was replaced while its kubelet was asked")
    return Answer(pods, kubelet, is_v1, allocatable)


async def ask_pods(
    socket: Path, names: Collection[PodName], *, timeout_seconds: float
) -> tuple[PodResources, ...] | None:
    """Ask the kubelet for pods; pods that it does not know are left out. Raises `UnansweredError`.

    Unlike `List`, `Get` leaves the kubelet's books unchanged (manager.go UpdateAllocatedDevices). None if the
    kubelet does not serve `Get`: before 1.27, or with its feature gate off.
    """
    found = []
    async with _kubelet_at(socket) as (peer, _):
        for name in names:
            try:
                found.append(await peer.call(GET, name, timeout_seconds=timeout_seconds))
            except RemoteError as error:
                if error.status == "Unimplemented" or "disabled" in error.text:
                    return None
                if "not found" not in error.text:
                    raise
    return tuple(found)


async def ask_allocatable(socket: Path, *, timeout_seconds: float) -> AllocatableResources | None:
    """Ask for the allocatable devices; None if the kubelet does not serve them. Raises `UnansweredError`."""
    async with _kubelet_at(socket) as (peer, _):
        return await _allocatable(peer, timeout_seconds)


@asynccontextmanager
async def _kubelet_at(
    socket: Path, receive_limit_bytes: int = MONITOR_RECEIVE_LIMIT_BYTES
) -> AsyncIterator[tuple[Peer, SocketIdentity]]:
    """Connect to the kubelet for the block. Raises `UnansweredError` for a `RemoteError` in the block."""
    kubelet = socket_identity(socket)
    if kubelet is None:
        raise _unseen(socket)
    try:
        check_trusted(socket.parent, "let only root write there")
        async with connected(socket, receive_limit_bytes=receive_limit_bytes) as peer:
            yield peer, kubelet
    except UntrustedError as error:  # other users could have made the socket
        raise UnansweredError(Trouble.OTHER, str(error)) from error
    except RemoteError as error:
        raise _unanswered(error, socket) from error


def _unseen(socket: Path) -> UnansweredError:
    try:
        socket.stat()
    except PermissionError:
        text = f"no right to look for {socket}: run as root, to whom the kubelet's folders belong"
        return UnansweredError(Trouble.UNREACHABLE, text)
    except OSError:
        pass
    return UnansweredError(Trouble.ABSENT, f"{socket} is not there: no kubelet runs, or mount its folder")


async def _allocatable(peer: Peer, timeout_seconds: float) -> AllocatableResources | None:
    """Return the node's allocatable devices; None from a kubelet before 1.23, or with that gate off."""
    try:
        return await peer.call(GET_ALLOCATABLE_RESOURCES, None, timeout_seconds=timeout_seconds)
    except RemoteError as error:
        if error.status == "Unimplemented" or "disabled" in error.text:
            return None
        raise


def retry_wait_seconds(failures: int, jitter: float) -> float:
    """Return the wait after the `failures`-th question in a row without answer; `jitter` is from 0 to 1."""
    return backoff_seconds(failures, FIRST_RETRY_SECONDS, SLOWEST_RETRY_SECONDS) * (1 + 0.2 * jitter)


_TROUBLE_OF_STATUS: Final = {
    "Unavailable": Trouble.UNREACHABLE,
    "DeadlineExceeded": Trouble.TIMED_OUT,
    "ResourceExhausted": Trouble.RATE_LIMITED,
    "Unimplemented": Trouble.UNSERVED,
}


def _unanswered(error: RemoteError, socket: Path) -> UnansweredError:
    trouble = _TROUBLE_OF_STATUS.get(error.status, Trouble.OTHER)
    # Both have one status; the kubelet's own refusal says `rejected by rate limit`.
    if trouble is Trouble.RATE_LIMITED and ("larger than max" in error.text or "too large" in error.text):
        trouble = Trouble.TOO_LARGE
    texts = {
        Trouble.UNREACHABLE: f"no kubelet answers at {socket}: {error.text}",
        Trouble.TIMED_OUT: f"the kubelet at {socket} did not answer in time",
        Trouble.RATE_LIMITED: f"monitors ask the kubelet too often: {error.text}",
        Trouble.TOO_LARGE: f"the kubelet's answer is larger than devplug accepts: {error.text}",
        Trouble.UNSERVED: f"the kubelet at {socket} serves neither PodResources v1 nor v1alpha1",
    }
    return UnansweredError(trouble, texts.get(trouble, str(error)))


def read_checkpoint(path: Path) -> tuple[PodResources, ...] | None:
    """Return `checkpoint_pods` of a file; None if it is missing, damaged, or not readable for this user."""
    try:
        return checkpoint_pods(read_regular(path, MONITOR_RECEIVE_LIMIT_BYTES))
    except (OSError, ValueError):
        return None


def checkpoint_pods(content: bytes) -> tuple[PodResources, ...]:
    """Return the containers that a checkpoint gives devices to, each as a pod that is named by its UID.

    The names of pods are not in the file (checkpoint.go PodDevicesEntry). Its checksum is not looked at: what
    the kubelet does not take because of it may be held all the same. Raises `ValueError` for what no kubelet
    from 1.20 on writes.
    """
    try:
        return tuple(map(_checkpoint_pod, json.loads(content)["Data"]["PodDeviceEntries"] or ()))
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(f"not a checkpoint: {error!r}") from error


def _checkpoint_pod(entry: Any) -> PodResources:  # noqa: ANN401 -- whatever the file has
    devices = tuple(
        ContainerDevices(only_text(entry["ResourceName"]), (only_text(device_id),))
        for device_ids in (entry["DeviceIDs"] or {}).values()
        for device_id in device_ids or ()
    )
    container = ContainerResources(only_text(entry["ContainerName"]), devices)
    return PodResources(only_text(entry["PodUID"]), "", (container,))
