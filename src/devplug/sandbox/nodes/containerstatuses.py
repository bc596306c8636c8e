"""One container's part of a pod's status, in the fields and the order of the real kubelet's. Pure.

The real one's is made in pkg/kubelet/kubelet_pods.go convertToAPIContainerStatuses.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.objects import fields, text
from devplug.sandbox.api.times import stamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.nodes.records import ContainerRecord, Termination

__all__ = ["container_id", "container_status", "is_in_name_only"]

_SCHEME: Final = "sandbox://"
"""What IDs of containers and images begin with, as with `containerd://` on other nodes."""

_IN_NAME_ONLY: Final = f"{_SCHEME}in-name-only/"
"""What they begin with where nothing runs."""


def container_id(pod_uid: str, name: str, start: int, *, in_name_only: bool) -> str:
    """Return the ID of a container's start, which says whether it is a process."""
    return f"{_IN_NAME_ONLY if in_name_only else _SCHEME}{_hexadecimal(f'{pod_uid}/{name}/{start}')}"


def is_in_name_only(id_: str) -> bool:
    """Whether the container of that ID is no process."""
    return id_.startswith(_IN_NAME_ONLY)


def container_status(
    container: Object,
    record: ContainerRecord,
    allocated: Mapping[str, Mapping[str, str]],
    waiting_reason: str,
    *,
    is_ready: bool,
) -> Object:
    """Return the status of one container of the spec.

    `allocated` is resource name → device ID → health, of app containers; `waiting_reason` is why a
    container waits that was not tried yet.
    """
    image = record.image or text(container, "image")
    status: Object = {
        "name": record.name,
        "state": _state(record, waiting_reason),
        "lastState": _last_state(record, waiting_reason),
        "ready": is_ready,
        "restartCount": record.restart_count,
        "image": image,
        "imageID": _image_id(image, record.container_id),
        **({"containerID": record.container_id} if record.container_id else {}),
        "started": record.is_running,
    }
    resources = fields(container, "resources")
    if requests := fields(resources, "requests"):
        status["allocatedResources"] = requests
    status["resources"] = {key: resources[key] for key in ("limits", "requests") if resources.get(key)}
    if allocated:
        status["allocatedResourcesStatus"] = [
            {
                "name": name,
                "resources": [
                    {"resourceID": one, "health": health} for one, health in sorted(devices.items())
                ],
            }
            for name, devices in sorted(allocated.items())
        ]
    return status


def _waits(record: ContainerRecord, waiting_reason: str) -> bool:
    """Whether the state is that of a container that waits, though it may have ended before."""
    return not record.is_running and bool(
        record.waits_for or record.ended is None or (record.is_stale and waiting_reason)
    )


def _state(record: ContainerRecord, waiting_reason: str) -> Object:
    if record.started is not None:
        return {"running": {"startedAt": stamp(record.started)}}
    if _waits(record, waiting_reason) or record.ended is None:
        told = {"reason": record.waits_for or waiting_reason, "message": record.message}
        return {"waiting": {key: value for key, value in told.items() if value}}
    return {"terminated": _terminated(record.ended)}


def _last_state(record: ContainerRecord, waiting_reason: str) -> Object:
    is_over = record.is_running or _waits(record, waiting_reason)
    last = record.ended if is_over else record.ended_before
    return {} if last is None else {"terminated": _terminated(last)}


def _terminated(end: Termination) -> Object:
    told: Object = {"exitCode": end.exit_code}
    if end.reason:
        told["reason"] = end.reason
    if end.message:
        told["message"] = end.message
    if end.started is not None:
        told["startedAt"] = stamp(end.started)
    told["finishedAt"] = stamp(end.finished)
    if end.container_id:
        told["containerID"] = end.container_id
    return told


def _image_id(image: str, of_container: str) -> str:
    """Return the ID of an image, which nobody has; empty before the first start of a container."""
    if not of_container:
        return ""
    return f"{_IN_NAME_ONLY if is_in_name_only(of_container) else _SCHEME}{_hexadecimal(image)}"


def _hexadecimal(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
