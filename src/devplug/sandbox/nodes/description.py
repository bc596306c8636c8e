"""The description of a node, which no API object has: who holds which device, and what containers get.

Pure, but that it reads the kubelet as it is at the moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.errors import KubeletError
from devplug.k8s.objects import Object, entries, fields, text
from devplug.kubelet.allocation import NO_NUMA_NODE
from devplug.sandbox.nodes.podstatus import is_in_name_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.kubelet.dra.claim_cache import ClaimInfo
    from devplug.kubelet.kubelet import Kubelet
    from devplug.sandbox.nodes.containerrecords import ContainerRecord


def describe_node(
    node: Object, kubelet: Kubelet, pods: Iterable[tuple[Object, Mapping[str, ContainerRecord]]]
) -> Object:
    """Return what `devplug sandbox describe` shows, in values that JSON has.

    `pods` are those on the node with the records of their containers.
    """
    listed = list(pods)
    names = {
        text(pod, "metadata", "uid"): f"{text(pod, 'metadata', 'namespace')}/{text(pod, 'metadata', 'name')}"
        for pod, _ in listed
    }
    status = fields(node, "status")
    return {
        "node": text(node, "metadata", "name"),
        "is_kubelet_running": kubelet.is_running,
        "plugin_dir": str(kubelet.plugin_dir),
        "capacity": fields(status, "capacity"),
        "allocatable": fields(status, "allocatable"),
        "resources": [
            _resource(kubelet, name, names) for name in sorted(kubelet.device_manager.allocations.resources)
        ],
        "claims": [_claim(claim, names) for claim in kubelet.dra.claims],
        "pods": [_pod(kubelet, pod, records) for pod, records in listed],
    }


def _resource(kubelet: Kubelet, name: str, names: Mapping[str, str]) -> Object:
    """Return one resource: every device that is listed, or is still held though it is not."""
    allocations = kubelet.device_manager.allocations
    state = allocations.state(name)
    holders: dict[str, str] = {}
    for held in allocations.assignments:
        if held.allocation.resource_name == name:
            pod = names.get(held.allocation.pod_uid, held.allocation.pod_uid)
            holders |= dict.fromkeys(held.allocation.device_ids, f"{pod}/{held.allocation.container_name}")
    devices: list[object] = []
    for id_ in sorted({*state.devices, *holders}):
        device = state.devices.get(id_)
        devices.append(
            {
                "id": id_,
                "health": device.health if device is not None else "",
                "is_usable": id_ in (state.healthy or ()),
                "numa_nodes": [one for one in (device and device.numa_nodes) or () if one != NO_NUMA_NODE],
                "held_by": holders.get(id_, ""),
            }
        )
    return {"name": name, "devices": devices}


def _claim(claim: ClaimInfo, names: Mapping[str, str]) -> Object:
    """Return one ResourceClaim that pods of the node use, with what each driver has prepared for it."""
    return {
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "used_by": [names.get(uid, uid) for uid in sorted(claim.pod_uids)],
        "drivers": [
            {
                "name": driver,
                "devices": [
                    {
                        "pool": one.pool_name,
                        "device": one.device_name,
                        "share_id": one.share_id,
                        "requests": list(one.request_names),
                        "cdi_devices": list(one.cdi_device_ids),
                    }
                    for one in claim.devices[driver]
                ],
            }
            for driver in sorted(claim.devices)
        ],
    }


def _pod(kubelet: Kubelet, pod: Object, records: Mapping[str, ContainerRecord]) -> Object:
    uid = text(pod, "metadata", "uid")
    containers: list[object] = []
    for word in ("initContainers", "containers"):
        for container in entries(pod, "spec", word):
            record = records[text(container, "name")]
            containers.append(
                {
                    "name": record.name,
                    "image": text(container, "image"),
                    "is_running": record.is_running,
                    "is_in_name_only": is_in_name_only(record.container_id),
                    "restart_count": record.restart_count,
                    **(_gets(kubelet, uid, record.name) if record.starts else {}),
                }
            )
    return {
        "namespace": text(pod, "metadata", "namespace"),
        "name": text(pod, "metadata", "name"),
        "uid": uid,
        "phase": text(pod, "status", "phase"),
        "reason": text(pod, "status", "reason"),
        "containers": containers,
    }


def _gets(kubelet: Kubelet, pod_uid: str, container: str) -> Object:
    """Return what a container got at its last start; nothing if the kubelet does not know it any more."""
    try:
        config = kubelet.container_config(pod_uid, container)
    except KubeletError:
        return {}
    return {
        "device_nodes": [
            {"host_path": one.host_path, "container_path": one.container_path, "permissions": one.permissions}
            for one in config.device_nodes
        ],
        "mounts": [
            {"host_path": one.host_path, "container_path": one.container_path, "read_only": one.read_only}
            for one in config.mounts
        ],
        "envs": [{"name": name, "value": value} for name, value in config.envs],
        "annotations": dict(config.annotations),
        "cdi_devices": list(config.cdi_devices),
    }
