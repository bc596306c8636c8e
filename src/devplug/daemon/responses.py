"""From found devices to what a container gets: replicas, templates, and the container response. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from devplug.daemon.templates import Missing, Writing, render_all, render_one
from devplug.devices import DEVICE_ID_LIMIT_BYTES, ContainerResponse, Device, DeviceNode, Health, Mount
from devplug.errors import InvalidRequestError, PluginError, UnhealthyDeviceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from devplug.daemon.config import Expose, Resource
    from devplug.daemon.sources.found import Found
    from devplug.daemon.templates import Template
    from devplug.daemon.unplugged import Known

__all__ = ["advertised_devices", "container_response", "found_name", "with_room_for_replicas"]

REPLICA_MARK: Final = "::"


def found_name(device_id: str, replicas: int) -> str:
    """Return the name of the found device behind a device ID: replicas share one."""
    return device_id.rpartition(REPLICA_MARK)[0] if replicas > 1 else device_id


def with_room_for_replicas(found: Found, replicas: int) -> Found:
    """Return `found` under a name that is a device ID with the number of its last replica, too."""
    room = DEVICE_ID_LIMIT_BYTES - len(f"{REPLICA_MARK}{replicas - 1}")
    if replicas == 1 or len(found.name) <= room:
        return found
    digest = hashlib.sha256(found.name.encode()).hexdigest()[:10]
    return replace(found, name=f"{found.name[: room - 11]}-{digest}")


def advertised_devices(known: Iterable[Known], resource: Resource) -> Iterator[Device]:
    """Yield the devices of a resource: one for each known device, or `replicas` of them, `ID::0` and on.

    A device that is gone, or that no container can get, is Unhealthy and says so.
    """
    replicas = resource.share.replicas
    for one in known:
        name = one.found.name
        fault = _gap(one.found, resource.expose) if one.is_present else "unplugged"
        for id_ in [f"{name}{REPLICA_MARK}{n}" for n in range(replicas)] if replicas > 1 else [name]:
            yield Device(
                id_,
                health=Health.from_fault(fault),
                numa_nodes=() if one.found.numa_node is None else (one.found.numa_node,),
            )


def container_response(
    devices: Sequence[Device],
    found: Mapping[str, Found],
    resource: Resource,
) -> ContainerResponse:
    """Return what one container gets for `devices`, whose names are in `found`.

    Raises `AllocationError` if there are more than one container may have, if a template needs what a device
    does not know of itself, or if two devices would be one file in the container.
    """
    limit = resource.share.max_per_container
    if limit is not None and len(devices) > limit:
        raise InvalidRequestError(
            f"{len(devices)} devices of {resource.name} are asked for; one container may have {limit}",
        )
    names = sorted({found_name(device.id, resource.share.replicas) for device in devices})
    expose = resource.expose
    shares = [_share_of(found[name], index, expose) for index, name in enumerate(names)]
    facts_of_all = [share.facts for share in shares]
    envs = {name: value for share in shares for name, value in share.envs.items()}
    for name, template in expose.env.items():
        if not name.variables:
            envs[name.literal] = render_all(template, facts_of_all)
    try:
        return ContainerResponse(
            device_nodes=[node for share in shares for node in share.device_nodes],
            mounts=[mount for share in shares for mount in share.mounts],
            envs=envs,
            annotations={
                key: render_all(template, facts_of_all) for key, template in expose.annotations.items()
            },
        )
    except PluginError as error:
        raise InvalidRequestError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Share:
    """What one device adds to a container's response."""

    device_nodes: list[DeviceNode]
    mounts: list[Mount]
    envs: dict[str, str]
    facts: dict[str, str | int]


def _share_of(found: Found, index: int, expose: Expose) -> _Share:
    """Return what a device adds; raises `UnhealthyDeviceError` if it lacks what a template needs."""
    facts: dict[str, str | int] = {**found.facts, "id": found.name, "index": index}

    def rendered(template: Template, writing: Writing = Writing.TEXT) -> str:
        text = render_one(template, facts, writing)
        if isinstance(text, Missing):
            raise UnhealthyDeviceError(text.reason, Device(found.name))
        return text

    nodes = []
    for node in found.nodes:
        container_path = node.host_path
        if expose.container_path is not None:
            container_path = rendered(expose.container_path, Writing.PATH)
            if container_path.endswith("/"):
                container_path += node.host_path.rpartition("/")[2]
        nodes.append(DeviceNode(node.host_path, container_path, expose.permissions))
    if nodes:
        facts["containerPath"] = nodes[0].container_path
    mounts = []
    for mount in expose.mounts:
        host_path = rendered(mount.host_path, Writing.PATH)
        inside = rendered(mount.container_path, Writing.PATH) if mount.container_path else host_path
        mounts.append(Mount(host_path, inside, read_only=mount.read_only))
    envs = {
        rendered(name, Writing.NAME): rendered(template)
        for name, template in expose.env.items()
        if name.variables
    }
    return _Share(nodes, mounts, envs, facts)


def _gap(found: Found, expose: Expose) -> str | None:
    """Return why no container can get a device: a template needs what it lacks, its path is an odd one."""
    try:
        _share_of(found, 0, expose)
    except UnhealthyDeviceError as error:
        return error.reason
    except PluginError as error:
        return str(error)
    return None
