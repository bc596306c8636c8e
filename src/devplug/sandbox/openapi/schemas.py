"""Types as OpenAPI schemas, in the two dialects, 2.0 (`/openapi/v2`) and 3.0, with their descriptions.

The extensions are Kubernetes' own (`x-kubernetes-…`): kubectl finds a kind's schema by one of them, and
merges lists by others.

`kubectl explain` has descriptions of the types and fields that people who work with devices look for, in our
words; the rest has its name and its type. A field of a type is written `Type.field`, and `*.field` is of
every type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.kinds import REFUSED, SERVED
from devplug.sandbox.openapi.types import TYPES, WORDS, Form, patch_rule, reachable, type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.k8s.objects import Object
    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.openapi.types import Field, Type

__all__ = [
    "FIELD_DESCRIPTIONS",
    "PLAIN_DESCRIPTIONS",
    "TYPE_DESCRIPTIONS",
    "list_name",
    "qualified_kind",
    "reference",
    "schemas",
]

_BY_COMMAND: Final = (
    "In the sandbox a container runs only if its image is mapped to a local command (`--image`)."
)

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_IN_3: Final[Mapping[str, Object]] = {
    "IntOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
}
"""What the dialect 2.0 has no words for."""

_EVERYWHERE: Final = ("DeleteOptions", "Patch", "Status")
"""The types that every version's document has."""


# ── Descriptions ──


TYPE_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "Binding": "Binds a pod to a node, as the scheduler does.",
    "ConfigMap": "Settings as texts and bytes, under keys.",
    "Container": f"One program of a pod, and the devices that it asks for. {_BY_COMMAND}",
    "ContainerStatus": "How the kubelet sees one container of a pod.",
    "DaemonSet": "A pod on each node that its template fits: the usual way to run a device plugin.",
    "DaemonSetSpec": "What the pods of a DaemonSet are like, and how they are replaced.",
    "DaemonSetStatus": "On how many nodes the pods of a DaemonSet are, and should be.",
    "DeleteOptions": "How something is deleted.",
    "Event": "What happened to an object, as `kubectl describe` shows it at the end.",
    "HostPathVolumeSource": "A file or folder of the node; how a device plugin reaches the kubelet's socket.",
    "LabelSelector": "Which labels objects must have: all of `matchLabels` and of `matchExpressions`.",
    "Lease": "A claim that its holder renews; each node has one.",
    "Namespace": "A scope for names, as in `default`.",
    "Node": "A machine with a kubelet, with what it has of each resource.",
    "NodeSpec": "The desired state of a node.",
    "NodeStatus": "The state of a node, as its kubelet reports it.",
    "NodeSystemInfo": "Names and versions of the node's machine, kernel and programs.",
    "ObjectMeta": "What all objects have: name, namespace, labels, owners.",
    "Pod": f"Containers that are placed on one node together. {_BY_COMMAND}",
    "PodSpec": "The containers of a pod, and where it may run.",
    "PodStatus": "The state of a pod, as the kubelet and the scheduler report it.",
    "PodTemplateSpec": "The template from which pods are created.",
    "ResourceHealth": "The health of one device that a container holds, as its plugin reports it (KEP-4680).",
    "ResourceQuota": "How much all pods of a namespace may request together.",
    "ResourceRequirements": (
        "What a container needs. Devices are extended resources, `vendor.com/kind`: whole numbers under "
        "`limits`, and the same under `requests` or nothing."
    ),
    "ResourceStatus": "The health of the devices of one resource that a container holds.",
    "SelfSubjectAccessReview": "Whether the caller may do something, as `kubectl auth can-i` asks.",
    "SelfSubjectReview": "Who the caller is, as `kubectl auth whoami` asks.",
    "SelfSubjectRulesReview": "All that the caller may do, as `kubectl auth can-i --list` asks.",
    "Status": "How a request ended.",
    "Taint": "Keeps pods off a node that do not tolerate it.",
    "Toleration": "Lets a pod onto nodes with a taint.",
}
"""The sentences by type."""

FIELD_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "*.apiVersion": "The group and the version of the kind, as in `apps/v1`; for the core group `v1`.",
    "*.kind": "What sort of object it is.",
    "Affinity.nodeAffinity": "Which nodes the pod must or should run on, by their labels.",
    "Affinity.podAffinity": "Which pods it must or should run near.",
    "Affinity.podAntiAffinity": "Which pods it must or should not run near.",
    "Container.args": "The arguments of the program.",
    "Container.command": "The program, in place of the image's own.",
    "Container.env": "Variables of the environment; a device plugin's answer adds to them.",
    "Container.image": "The container image.",
    "Container.name": "The name, once in a pod.",
    "Container.ports": "Ports that the program listens on; for information.",
    "Container.resources": "What it needs, devices included. A pod waits until a node has so much left.",
    "Container.restartPolicy": "For init containers: `Always` makes one a sidecar that runs on.",
    "Container.volumeMounts": "Where volumes of the pod appear in the container.",
    "ContainerStatus.allocatedResources": "What the node set aside for it.",
    "ContainerStatus.allocatedResourcesStatus": "The health of its devices, by resource (KEP-4680).",
    "ContainerStatus.ready": "Whether it serves.",
    "ContainerStatus.restartCount": "The number of its restarts.",
    "ContainerStatus.state": "Waiting, running or terminated, with the reason.",
    "DaemonSetSpec.selector": "Which pods are its own; the template's labels must match.",
    "DaemonSetSpec.template": "The template of its pods.",
    "DaemonSetSpec.updateStrategy": "How pods are replaced when the template changes.",
    "DaemonSetStatus.desiredNumberScheduled": "How many nodes should run the pod.",
    "DaemonSetStatus.numberReady": "How many nodes run it, and it is ready.",
    "Event.count": "How often it happened.",
    "Event.involvedObject": "The object that it happened to.",
    "Event.message": "What happened, for people.",
    "Event.reason": "What happened, in one word, as in `FailedScheduling`.",
    "Event.type": "`Normal` or `Warning`.",
    "HostPathVolumeSource.path": "The path on the node, as in /var/lib/kubelet/device-plugins.",
    "HostPathVolumeSource.type": "What must be there before the pod starts; empty for no check.",
    "NodeSpec.taints": "The taints, which keep pods away.",
    "NodeSpec.unschedulable": "Whether new pods are kept away (`kubectl cordon`).",
    "NodeStatus.allocatable": "What pods can have of each resource: the healthy devices of each plugin.",
    "NodeStatus.capacity": (
        "All that the node has of each resource. A resource stays here with 0 allocatable when its plugin is "
        "gone; one without a plugin can be written here by a patch of the status."
    ),
    "NodeStatus.conditions": "What the kubelet says of the node's state.",
    "ObjectMeta.annotations": "Texts under keys, not for selection.",
    "ObjectMeta.creationTimestamp": "When it was made; the server writes it.",
    "ObjectMeta.deletionTimestamp": "When it is gone at the latest; set while it ends.",
    "ObjectMeta.finalizers": "Who must let go of it before it is deleted.",
    "ObjectMeta.generateName": "The beginning of a name that the server completes.",
    "ObjectMeta.labels": "Texts under keys, by which objects are selected.",
    "ObjectMeta.name": "The name, once in its namespace for its kind.",
    "ObjectMeta.namespace": "The namespace that it is in.",
    "ObjectMeta.ownerReferences": "What it goes with when that is deleted.",
    "ObjectMeta.resourceVersion": "The version of the object; an update that names an older one is refused.",
    "ObjectMeta.uid": "Tells apart objects that had the same name one after the other.",
    "PodSpec.affinity": "Which nodes it must or should run on, and near or away from which pods.",
    "PodSpec.containers": "The containers; at least one.",
    "PodSpec.hostNetwork": "Whether it uses the node's network.",
    "PodSpec.initContainers": "Containers that run before, in turn. Devices of theirs are used again.",
    "PodSpec.nodeName": "The node that it is on. If you set it, the scheduler is bypassed.",
    "PodSpec.nodeSelector": "Labels that the node must have.",
    "PodSpec.priorityClassName": "How important the pod is.",
    "PodSpec.resourceClaims": "Devices by claims (DRA), which the sandbox has no drivers for.",
    "PodSpec.resources": "What all containers need together.",
    "PodSpec.restartPolicy": "Whether containers are started again when they end.",
    "PodSpec.schedulerName": "Who places it.",
    "PodSpec.schedulingGates": "The gates that must be removed before it is scheduled.",
    "PodSpec.terminationGracePeriodSeconds": "How long it has to end, in seconds.",
    "PodSpec.tolerations": "Which taints of nodes it tolerates.",
    "PodSpec.topologySpreadConstraints": "How pods spread over nodes or zones.",
    "PodSpec.volumes": "Files and folders that containers can mount.",
    "PodStatus.conditions": "What is true of it by now; `PodScheduled` says why it waits.",
    "PodStatus.containerStatuses": "The state of each container.",
    "PodStatus.extendedResourceClaimStatus": "Which claim stands for extended resources (KEP-5004).",
    "PodStatus.message": "The reason for its phase, for people.",
    "PodStatus.phase": "How far it is.",
    "PodStatus.qosClass": "How sure it can be of its resources.",
    "PodStatus.reason": "The reason for its phase, in one word, as in `UnexpectedAdmissionError`.",
    "ResourceHealth.health": "`Healthy`, `Unhealthy` or `Unknown`.",
    "ResourceHealth.resourceID": "The device's ID, as its plugin names it.",
    "ResourceQuotaSpec.hard": "The most of each; of devices `requests.vendor.com/kind`.",
    "ResourceQuotaStatus.used": "How much is requested by now.",
    "ResourceRequirements.claims": "Which claims of the pod it uses (DRA).",
    "ResourceRequirements.limits": (
        "The most that it gets. Devices stand here, as in `vendor.com/kind: 1`: a whole number of them."
    ),
    "ResourceRequirements.requests": (
        "What the scheduler counts; what is not here is as under `limits`. Of devices both must be equal."
    ),
    "Taint.effect": "What becomes of pods that do not tolerate it.",
    "VolumeMount.mountPath": "The path in the container.",
    "VolumeMount.name": "The name of the volume.",
}
"""The sentences by field."""

PLAIN_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "FieldsV1": "Who manages which fields; its form is the server's.",
    "IntOrString": "A whole number, or a text such as `25%`.",
    "MicroTime": "A moment to the microsecond (RFC 3339).",
    "Quantity": "An amount: a number, with or without a suffix, as in `2`, `500m` and `1Gi`.",
    "Time": "A moment to the second (RFC 3339).",
}
"""The sentences of the plain types."""

# ── Schemas ──


_NAMED: Final[Mapping[str, str]] = {
    "FieldsV1": f"{_META}.FieldsV1",
    "IntOrString": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    "MicroTime": f"{_META}.MicroTime",
    "Quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "Time": f"{_META}.Time",
}
"""The plain types that have a schema of their own."""

_PLAIN: Final[Mapping[str, Object]] = {
    "FieldsV1": {"type": "object"},
    "IntOrString": {"format": "int-or-string", "type": "string"},
    "MicroTime": {"format": "date-time", "type": "string"},
    "Quantity": {"type": "string"},
    "Time": {"format": "date-time", "type": "string"},
    "UID": {"type": "string"},
    "bool": {"type": "boolean"},
    "bytes": {"format": "byte", "type": "string"},
    "int32": {"format": "int32", "type": "integer"},
    "int64": {"format": "int64", "type": "integer"},
    "string": {"type": "string"},
}


def reference(qualified: str, *, dialect: int) -> Object:
    """Return the reference to a schema of this name."""
    return {"$ref": f"#/{'definitions' if dialect == 2 else 'components/schemas'}/{qualified}"}


def qualified_kind(resource: Resource, kind: str = "") -> str:
    """Return the schema's name of a resource's objects, or of another kind that it takes."""
    kind = kind or resource.kind
    if kind in _EVERYWHERE:
        return f"{_META}.{kind}"
    group = "core" if kind == "Binding" else resource.group.partition(".")[0] or "core"
    return f"io.k8s.api.{group}.{resource.version}.{kind}"


def list_name(resource: Resource) -> str:
    """Return the schema's name of a list of a resource's objects."""
    return qualified_kind(resource, f"{resource.kind}List")


def schemas(resources: Iterable[Resource], *, dialect: int) -> dict[str, Object]:
    """Return the schemas of these resources' objects and of all that stands inside, by name."""
    listed = list(resources)
    types = [type_ for one in listed if (type_ := type_of(one))]
    found: dict[str, Object] = {}
    for inner in reachable([*(one.name for one in types), "ListMeta", "ObjectMeta", *_EVERYWHERE]).values():
        found[inner.qualified] = _schema(inner, dialect)
    for plain, name in _NAMED.items():
        found[name] = _plain(plain, dialect)
    for one in listed:
        if one.refusal:
            found[qualified_kind(one)] = _refused(one, dialect)
        if "list" in one.verbs or one.refusal:
            found[list_name(one)] = _list(one, dialect)
    return dict(sorted(found.items()))


def _schema(one: Type, dialect: int) -> Object:
    properties = {name: _property(one, field, dialect) for name, field in one.fields.items()}
    schema: Object = {"type": "object"}
    if description := TYPE_DESCRIPTIONS.get(one.name):
        schema["description"] = description
    if properties:
        schema["properties"] = properties
    if required := [name for name, field in one.fields.items() if field.required]:
        schema["required"] = required
    if kinds := _kinds_of(one):
        schema["x-kubernetes-group-version-kind"] = kinds
    return schema


def _property(owner: Type, field: Field, dialect: int) -> Object:
    description = FIELD_DESCRIPTIONS.get(f"{owner.name}.{field.name}") or FIELD_DESCRIPTIONS.get(
        f"*.{field.name}", ""
    )
    schema: Object = {"description": description} if description else {}
    match field.form:
        case Form.ONE:
            schema |= _value(field.type, dialect, aside=True)
        case Form.LIST:
            schema |= {"type": "array", "items": _value(field.type, dialect)}
        case Form.MAP:
            schema |= {"type": "object", "additionalProperties": _value(field.type, dialect)}
    rule = patch_rule(owner, field.name)
    if rule is not None and rule.merged:
        strategy = "merge,retainKeys" if rule.retains_keys else "merge"
        schema["x-kubernetes-patch-strategy"] = strategy
        if rule.key:
            schema["x-kubernetes-patch-merge-key"] = rule.key
    return schema


def _value(type_: str, dialect: int, *, aside: bool = False) -> Object:
    """Return the schema of one value; `aside` where more stands beside it, which 3.0 forbids a reference."""
    if type_ == "ResourceList":
        return {"type": "object", "additionalProperties": _value("Quantity", dialect)}
    name = TYPES[type_].qualified if type_ in TYPES else _NAMED.get(type_)
    if name is None:
        return _plain(type_, dialect)
    found = reference(name, dialect=dialect)
    return {"allOf": [found]} if aside and dialect == 3 else found


def _plain(type_: str, dialect: int) -> Object:
    if type_ in WORDS:
        values = WORDS[type_]
        return {"type": "string", **({"enum": list(values)} if values else {})}
    schema = _IN_3.get(type_, _PLAIN[type_]) if dialect == 3 else _PLAIN[type_]
    return {**schema, **({"description": PLAIN_DESCRIPTIONS[type_]} if type_ in PLAIN_DESCRIPTIONS else {})}


def _kinds_of(one: Type) -> list[Object]:
    """Return which objects are of this type, in the words of Kubernetes."""
    if one.name in {"DeleteOptions", "Status"}:
        versions = dict.fromkeys((served.group, served.version) for served in (*SERVED, *REFUSED))
        asked = versions if one.name == "DeleteOptions" else [("", "v1")]
        return [{"group": group, "version": version, "kind": one.name} for group, version in asked]
    return [_kind(served) for served in SERVED if type_of(served) == one]


def _kind(resource: Resource, kind: str = "") -> Object:
    return {"group": resource.group, "version": resource.version, "kind": kind or resource.kind}


def _list(resource: Resource, dialect: int) -> Object:
    item = reference(qualified_kind(resource), dialect=dialect)
    return {
        "type": "object",
        "description": f"A list of objects of the kind {resource.kind}.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": _value("ListMeta", dialect, aside=True),
            "items": {"type": "array", "items": item},
        },
        "required": ["items"],
        "x-kubernetes-group-version-kind": [_kind(resource, f"{resource.kind}List")],
    }


def _refused(resource: Resource, dialect: int) -> Object:
    return {
        "type": "object",
        "description": f"Not made here: {resource.refusal}.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": _value("ObjectMeta", dialect, aside=True),
        },
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-group-version-kind": [_kind(resource)],
    }
