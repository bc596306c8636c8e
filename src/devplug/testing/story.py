"""What a failing test tells of its node."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from devplug.errors import KubeletError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.kubelet.manager import Kubelet
    from devplug.kubelet.pods import Pod

__all__ = ["NotInTimeError", "node_lines"]


class NotInTimeError(TimeoutError):
    """Something did not happen; the text ends with what the node is like (`SyncKubelet.story`)."""


def node_lines(kubelet: Kubelet, pods: Mapping[str, Pod]) -> list[str]:
    """Return what the node has, who holds what, and what happened; `pods` are those that may be named."""
    names = {uid: f"{pod.namespace}/{pod.name}" for uid, pod in pods.items()}
    capacity, allocatable = kubelet.capacity(), kubelet.allocatable()
    lines = [
        f"resource     {name}: capacity {count}, allocatable {allocatable[name]}"
        for name, count in capacity.items()
    ]
    for uid, name in names.items():
        with suppress(KubeletError):  # one that the kubelet has never got
            lines += _pod_lines(kubelet, uid, name)
    lines += [
        f"held         {names.get(held.pod_uid, held.pod_uid)} {held.container_name}: "
        f"{held.resource_name}: {', '.join(held.device_ids)}"
        for held in kubelet.allocations()
    ]
    lines += [
        _line("event       ", names.get(event.pod_uid, event.pod_uid), event.reason, event.message)
        for event in kubelet.events
    ]
    return lines or ["the node has no resources and no pods"]


def _pod_lines(kubelet: Kubelet, uid: str, name: str) -> Iterator[str]:
    status = kubelet.pod(uid)
    yield _line("pod         ", f"{name} is {status.phase}", status.reason, status.message)
    for one in status.containers:
        yield _line("container   ", f"{name} {one.name} is {one.state}", one.reason, one.message)


def _line(title: str, *parts: str) -> str:
    return f"{title} {': '.join(part for part in parts if part)}"
