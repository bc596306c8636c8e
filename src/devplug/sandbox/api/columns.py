"""The columns of `kubectl get`, kind by kind: how they are called, and which stand in the wide form only.

What the API server says of a column is kept word for word where it was recorded (Kubernetes 1.36.2), because
clients show it; kubectl does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.k8s.objects import Object


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    description: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    """0 is always shown, 1 in the wide form only."""

    @property
    def definition(self) -> Object:
        """One entry of `columnDefinitions`."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


_NAME_TEXT: Final = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources "
    "may allow a client to request the generation of an appropriate name automatically. Name is primarily "
    "intended for creation idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
_AGE_TEXT: Final = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not "
    "guaranteed to be set in happens-before order across separate operations. Clients may not set this "
    "value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null "
    "for lists. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)
_ADDRESS_TEXT: Final = (
    "List of addresses reachable to the node. Queried from cloud provider, if available. More info: "
    "https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is declared as "
    "mergeable, but the merge key is not sufficiently unique, which can cause data corruption when it is "
    "merged. Callers should instead use a full-replacement patch. See https://pr.k8s.io/79391 for an "
    "example. Consumers should assume that addresses can change during the lifetime of a Node. However, "
    "there are some exceptions where this may not be possible, such as Pods that inherit a Node's address "
    "in its own status or consumers of the downward API (status.hostIP)."
)

_NAME: Final = Column("Name", _NAME_TEXT, format="name")
_AGE: Final = Column("Age", _AGE_TEXT)


def _wide(name: str, description: str, *, format_: str = "") -> Column:
    return Column(name, description, format=format_, priority=1)


OTHERS: Final = (_NAME, _AGE)
"""The columns of a kind that has none of its own."""

COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    "Pod": (
        _NAME,
        Column("Ready", "The aggregate readiness state of this pod for accepting traffic."),
        Column("Status", "The aggregate status of the containers in this pod."),
        Column(
            "Restarts",
            "The number of times the containers in this pod have been restarted and when the last container "
            "in this pod has restarted.",
        ),
        _AGE,
        _wide(
            "IP",
            "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet "
            "allocated.",
        ),
        _wide(
            "Node",
            "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for "
            "scheduling by the scheduler defined in schedulerName. Once this field is set, the kubelet for "
            "this node becomes responsible for the lifecycle of this pod. This field should not be used to "
            "express a desire for the pod to be scheduled on a specific node. "
            "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename",
        ),
        _wide(
            "Nominated Node",
            "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be "
            "scheduled right away as preemption victims receive their graceful termination periods. This "
            "field does not guarantee that the pod will be scheduled on this node. Scheduler may decide to "
            "place the pod elsewhere if other nodes become available sooner. Scheduler may also decide to "
            "give the resources on this node to a higher priority pod that is created after preemption. As "
            "a result, this field may be different than PodSpec.nodeName when the pod is scheduled.",
        ),
        _wide(
            "Readiness Gates",
            "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all "
            "its containers are ready AND all conditions specified in the readiness gates have status equal "
            'to "True" More info: https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates',
        ),
    ),
    "Node": (
        _NAME,
        Column("Status", "The status of the node"),
        Column("Roles", "The roles of the node"),
        _AGE,
        Column("Version", "Kubelet Version reported by the node."),
        _wide("Internal-IP", _ADDRESS_TEXT),
        _wide("External-IP", _ADDRESS_TEXT),
        _wide(
            "OS-Image",
            "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy)).",
        ),
        _wide(
            "Kernel-Version",
            "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64).",
        ),
        _wide(
            "Container-Runtime",
            "ContainerRuntime Version reported by the node through runtime remote API (e.g. "
            "containerd://1.4.2).",
        ),
    ),
    "Event": (
        Column("Last Seen", "The time at which the most recent occurrence of this event was recorded."),
        Column("Type", "Type of this event (Normal, Warning), new types could be added in the future"),
        Column(
            "Reason",
            "This should be a short, machine understandable string that gives the reason for the transition "
            "into the object's current status.",
        ),
        Column("Object", "The object that this event is about."),
        _wide(
            "Subobject",
            "If referring to a piece of an object instead of an entire object, this string should contain a "
            "valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For "
            "example, if the object reference is to a container within a pod, this would take on a value "
            'like: "spec.containers{name}" (where "name" refers to the name of the container that triggered '
            'the event) or if no container name is specified "spec.containers[2]" (container with index 2 '
            "in this pod). This syntax is chosen only to have some well-defined way of referencing a part "
            "of an object.",
        ),
        _wide(
            "Source",
            "The component reporting this event. Should be a short machine understandable string.",
        ),
        Column("Message", "A human-readable description of the status of this operation."),
        _wide(
            "First Seen",
            "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)",
        ),
        _wide("Count", "The number of times this event has occurred."),
        _wide("Name", _NAME_TEXT, format_="name"),
    ),
    "DaemonSet": (
        _NAME,
        Column("Desired", "How many nodes ought to run the pod.", "integer"),
        Column("Current", "How many nodes run the pod that ought to.", "integer"),
        Column("Ready", "How many of these pods are ready.", "integer"),
        Column("Up-to-date", "How many of these pods follow the present template.", "integer"),
        Column("Available", "How many of these pods have been ready for long enough.", "integer"),
        Column("Node Selector", "The labels that a node must have for the pod."),
        _AGE,
        _wide("Containers", "Names of each container in the template."),
        _wide("Images", "Images referenced by each container in the template."),
        _wide("Selector", "The labels by which the set knows its pods."),
    ),
    "Namespace": (_NAME, Column("Status", "The status of the namespace"), _AGE),
    "ConfigMap": (_NAME, Column("Data", "How many entries there are."), _AGE),
    "ResourceQuota": (
        _NAME,
        Column(
            "Request",
            "Request represents a minimum amount of cpu/memory that a container may consume.",
        ),
        Column(
            "Limit",
            "Limits control the maximum amount of cpu/memory that a container may use independent of "
            "contention on the node.",
        ),
        _AGE,
    ),
    "Lease": (_NAME, Column("Holder", "Who holds the lease."), _AGE),
    "ServiceAccount": (_NAME, Column("Secrets", "How many secrets it names."), _AGE),
    **dict.fromkeys(("ClusterRole", "Role"), (_NAME, Column("Created At", "When it was made."))),
    **dict.fromkeys(
        ("ClusterRoleBinding", "RoleBinding"),
        (
            _NAME,
            Column("Role", "The role that is bound."),
            _AGE,
            _wide("Users", "The users among its subjects."),
            _wide("Groups", "The groups among them."),
            _wide("ServiceAccounts", "The service accounts among them, with their namespaces."),
        ),
    ),
    "ResourceClaim": (
        _NAME,
        Column("State", "A summary of the current state (allocated, pending, reserved, etc.)."),
        _AGE,
    ),
    "ResourceSlice": (
        _NAME,
        Column("Node", "The node whose devices these are; empty for devices that are not one node's."),
        Column("Driver", "The driver that publishes them."),
        Column("Pool", "The pool that they belong to."),
        _AGE,
    ),
}
"""The columns by kind, in their order."""
