"""The Node object and its status as the real kubelet writes them. Pure.

Capacity and allocatable follow pkg/kubelet/nodestatus/setters.go MachineInfo: what others have put into
capacity stays, and is allocatable; what they take out of it is not allocatable any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, same, text
from devplug.k8s.resource_names import is_extended
from devplug.k8s.times import micro_stamp, moment, stamp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from devplug.kubelet.resources import Capacity

KUBERNETES_VERSION: Final = "v1.36.2"
"""What the sandbox says it is."""

_REPORT_SECONDS: Final = 300.0
"""How long a status that has not changed is not written again (nodeStatusReportFrequency)."""

_LEASE_SECONDS: Final = 40
"""How long a lease holds (nodeLeaseDurationSeconds)."""

_RESERVED_KIBIBYTES: Final = 100 * 1024
"""Memory that pods do not get: the kubelet's eviction threshold."""

_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
_DOWN: Final = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
"""What the node controller says of every condition of a node whose kubelet is gone."""

_FEATURES: Final = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
)
"""What a kubelet of that version declares (KEP-5328), for schedulers to read."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts of a machine that its kubelet reports."""

    name: str
    cpus: int
    memory_kibibytes: int
    architecture: str
    """In Go's words: `amd64`, `arm64`."""
    kernel_version: str
    os_image: str
    runtime_version: str
    machine_id: str
    boot_id: str
    """Another one after each boot."""
    internal_ip: str = ""
    """Empty for a node without addresses."""
    labels: Mapping[str, str] | None = None
    """Labels beside those that every node has."""


def new_node(facts: NodeFacts) -> Object:
    """Return the Node object as a kubelet makes it at its first start, without a status."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": facts.name,
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "labels": {
                "beta.kubernetes.io/arch": facts.architecture,
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": facts.architecture,
                "kubernetes.io/hostname": facts.name,
                "kubernetes.io/os": "linux",
                **(facts.labels or {}),
            },
        },
        "spec": {},
    }


def status_of(
    old: Object, facts: NodeFacts, counts: Capacity, now: datetime, *, is_up: bool = True
) -> Object:
    """Return the next status of a node after `old`; `counts` are the device manager's.

    With `is_up` false there is no kubelet, and only the conditions change, as the node controller has it.
    """
    conditions = _conditions(old, now, is_up=is_up)
    if not is_up:
        return {**old, "conditions": conditions}
    machine = {
        "cpu": str(facts.cpus),
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": f"{facts.memory_kibibytes}Ki",
        "pods": "110",
    }
    capacity: Object = {
        **fields(old, "capacity"),
        **machine,
        **{name: str(count) for name, count in counts.capacity.items()},
        **dict.fromkeys(counts.deleted, "0"),
    }
    allocatable: Object = {
        **{name: count for name, count in fields(old, "allocatable").items() if not is_extended(name)},
        **capacity,
        "memory": f"{max(facts.memory_kibibytes - _RESERVED_KIBIBYTES, 0)}Ki",
        **{name: str(count) for name, count in counts.allocatable.items()},
    }
    status: Object = {
        **old,
        "allocatable": dict(sorted(allocatable.items())),
        "capacity": dict(sorted(capacity.items())),
        "conditions": conditions,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "declaredFeatures": list(_FEATURES),
        "nodeInfo": {
            "architecture": facts.architecture,
            "bootID": facts.boot_id,
            "containerRuntimeVersion": facts.runtime_version,
            "kernelVersion": facts.kernel_version,
            "kubeProxyVersion": "",
            "kubeletVersion": KUBERNETES_VERSION,
            "machineID": facts.machine_id,
            "operatingSystem": "linux",
            "osImage": facts.os_image,
            "systemUUID": facts.machine_id,
        },
    }
    if facts.internal_ip:
        status["addresses"] = [
            {"type": "InternalIP", "address": facts.internal_ip},
            {"type": "Hostname", "address": facts.name},
        ]
    return status


def is_due(old: Object, new: Object, now: datetime) -> bool:
    """Whether a status is to be written: more than its heartbeats has changed, or it is five minutes old."""
    if not same(_timeless(old), _timeless(new)):
        return True
    ours = {type_ for type_, *_ in _CONDITIONS}
    beats = [
        moment(text(one, "lastHeartbeatTime"))
        for one in entries(old, "conditions")
        if text(one, "type") in ours
    ]
    return any(beat is None or (now - beat).total_seconds() >= _REPORT_SECONDS for beat in beats)


def lease_of(node: Object, now: datetime) -> Object:
    """Return the lease by which a kubelet says that it lives, in the namespace `kube-node-lease`."""
    name = text(node, "metadata", "name")
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": text(node, "metadata", "uid")}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": micro_stamp(now),
        },
    }


def _conditions(old: Object, now: datetime, *, is_up: bool) -> list[object]:
    before = {text(one, "type"): one for one in entries(old, "conditions")}
    conditions: list[object] = []
    for type_, *when_up in _CONDITIONS:
        found = before.get(type_)
        status, reason, message = _DOWN if not is_up else when_up
        kept = text(found, "lastTransitionTime") if text(found, "status") == status else ""
        beat = stamp(now) if is_up else text(found, "lastHeartbeatTime")
        conditions.append(
            {
                "lastHeartbeatTime": beat or stamp(now),
                "lastTransitionTime": kept or stamp(now),
                "message": message,
                "reason": reason,
                "status": status,
                "type": type_,
            }
        )
    ours = {type_ for type_, *_ in _CONDITIONS}
    return conditions + [one for type_, one in before.items() if type_ not in ours]


def _timeless(status: Object) -> Object:
    conditions = [{**fields(one), "lastHeartbeatTime": ""} for one in entries(status, "conditions")]
    return {**status, "conditions": conditions}
