"""The descriptions of types and fields that `kubectl explain` prints, in our words.

They are of what people who work with devices look for; the rest has its name and its type. A field of a type
is written `Type.field`, and `*.field` is of every type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_BY_COMMAND: Final = (
    "In the sandbox a container runs only if its image is mapped to a local command (`--image`)."
)

TYPE_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "Binding": "Binds a pod to a node, as the scheduler does.",
    "ClusterRole": "What those may do to whom it is bound, in all namespaces and outside of them.",
    "ClusterRoleBinding": "Gives a ClusterRole to users, groups and service accounts, everywhere.",
    "ConfigMap": "Settings as texts and bytes, under keys.",
    "Container": f"One program of a pod, and the devices that it asks for. {_BY_COMMAND}",
    "ContainerStatus": "How the kubelet sees one container of a pod.",
    "DaemonSet": "A pod on each node that its template fits: the usual way to run a device plugin.",
    "DaemonSetSpec": "What the pods of a DaemonSet are like, and how they are replaced.",
    "DaemonSetStatus": "On how many nodes the pods of a DaemonSet are, and should be.",
    "DeleteOptions": "How something is deleted.",
    "Device": "One device: its attributes and capacities, by which claims select it.",
    "DeviceAttribute": "A fact about a device: exactly one of `bool`, `int`, `string` and `version`.",
    "DeviceCapacity": "How much of something a device has, and how it may be shared out.",
    "DeviceClass": "What claims for one sort of device have in common.",
    "DeviceConstraint": "What the devices of several requests must have in common, or apart.",
    "DeviceRequest": "One request of a claim: devices `exactly`, or the `firstAvailable` of some choices.",
    "DeviceTaint": "Keeps claims off a device that do not tolerate it.",
    "DeviceToleration": "Lets a claim have a device with a taint.",
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
    "ResourceClaim": "An entry of `resources.claims`: a claim of the pod that the container uses.",
    "ResourceClaimTemplate": "The template from which each pod that names it gets its own ResourceClaim.",
    "ResourcePool": "The slices that a driver publishes together, with their generation.",
    "Role": "What those may do in its namespace to whom it is bound.",
    "RoleBinding": "Gives a Role, or a ClusterRole, to users, groups and service accounts in its namespace.",
    "ResourceSlice": "Devices that a driver publishes, of one node or of several; one part of a pool.",
    "resource.ResourceClaim": "Devices that are asked for, and the devices that were found for it.",
    "SelfSubjectAccessReview": "Whether the caller may do something, as `kubectl auth can-i` asks.",
    "SelfSubjectReview": "Who the caller is, as `kubectl auth whoami` asks.",
    "SelfSubjectRulesReview": "All that the caller may do, as `kubectl auth can-i --list` asks.",
    "ServiceAccount": "Whom the programs of a pod are to the API server.",
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
    "CELDeviceSelector.expression": (
        "A CEL expression about `device` that is true for devices that fit, as in `device.driver == "
        '"gpu.example.com"`.'
    ),
    "CapacityRequestPolicy.default": "How much a request gets that asks for nothing.",
    "CapacityRequestPolicy.validRange": "Between which amounts a request may get, and in which steps.",
    "CapacityRequestPolicy.validValues": "The amounts that a request may get.",
    "CapacityRequirements.requests": "How much of each capacity the device must have left.",
    "Device.allowMultipleAllocations": "Whether several claims may have it at the same time.",
    "Device.attributes": "Facts under names; a name without a domain is of the driver's own.",
    "Device.bindingConditions": "Conditions of the claim's status that must be true before the pod is bound.",
    "Device.capacity": "Amounts under names, as in `memory`.",
    "Device.consumesCounters": "What it takes of the pool's shared counters while it is allocated.",
    "Device.name": "The name, once in its pool.",
    "Device.taints": "The taints, which keep claims off it.",
    "DeviceClassSpec.config": "Configuration for the drivers, which each claim of the class gets.",
    "DeviceClassSpec.extendedResourceName": "The extended resource that pods can ask for instead of a claim.",
    "DeviceClassSpec.selectors": "Which devices belong to the class; all of them must be true.",
    "DeviceConstraint.distinctAttribute": "The attribute in which the devices must differ.",
    "DeviceConstraint.matchAttribute": "The attribute in which the devices must be equal.",
    "DeviceRequest.exactly": "One sort of devices, and how many.",
    "DeviceRequest.firstAvailable": "Choices, of which the first that can be had is taken.",
    "DeviceTaint.effect": "`NoSchedule`, `NoExecute`, which also evicts, or `None`, which only informs.",
    "Event.count": "How often it happened.",
    "Event.involvedObject": "The object that it happened to.",
    "Event.message": "What happened, for people.",
    "Event.reason": "What happened, in one word, as in `FailedScheduling`.",
    "Event.type": "`Normal` or `Warning`.",
    "ExactDeviceRequest.adminAccess": (
        "Whether it gets devices that others use too; the namespace needs the label "
        "`resource.kubernetes.io/admin-access: true`."
    ),
    "ExactDeviceRequest.allocationMode": "`ExactCount`, or `All` for every device that fits.",
    "ExactDeviceRequest.count": "How many devices.",
    "ExactDeviceRequest.deviceClassName": "The class of the devices.",
    "ExactDeviceRequest.selectors": "Which devices of the class fit; all of them must be true.",
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
    "OpaqueDeviceConfiguration.driver": "The driver that understands the parameters.",
    "OpaqueDeviceConfiguration.parameters": "An object of the driver's own; at most 10 KiB.",
    "PodSpec.affinity": "Which nodes it must or should run on, and near or away from which pods.",
    "PodSpec.containers": "The containers; at least one.",
    "PodSpec.hostNetwork": "Whether it uses the node's network.",
    "PodSpec.initContainers": "Containers that run before, in turn. Devices of theirs are used again.",
    "PodSpec.nodeName": "The node that it is on. If you set it, the scheduler is bypassed.",
    "PodSpec.nodeSelector": "Labels that the node must have.",
    "PodSpec.priorityClassName": "How important the pod is.",
    "PodSpec.resourceClaims": "The claims whose devices its containers may use (DRA).",
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
    "ResourceClaimStatus.allocation": "The devices that were found; nothing until then.",
    "ResourceClaimStatus.devices": "What the driver says of each device.",
    "ResourceClaimStatus.reservedFor": "The pods that may use the devices.",
    "ResourceHealth.health": "`Healthy`, `Unhealthy` or `Unknown`.",
    "ResourceHealth.resourceID": "The device's ID, as its plugin names it.",
    "ResourceQuotaSpec.hard": "The most of each; of devices `requests.vendor.com/kind`.",
    "ResourceQuotaStatus.used": "How much is requested by now.",
    "ResourcePool.generation": "The driver's count of changes; slices of an older one are not used.",
    "ResourcePool.name": "The name, once for the driver; often the node's.",
    "ResourcePool.resourceSliceCount": "How many slices the pool has; with fewer it is incomplete.",
    "ResourceSliceSpec.allNodes": "Whether every node can use the devices.",
    "ResourceSliceSpec.devices": "The devices; at most 128, or 64 with taints or counters.",
    "ResourceSliceSpec.driver": "The driver, by its DNS name.",
    "ResourceSliceSpec.nodeName": "The node that has the devices.",
    "ResourceSliceSpec.nodeSelector": "The nodes that can use the devices.",
    "ResourceSliceSpec.perDeviceNodeSelection": "Whether each device names its own nodes.",
    "ResourceSliceSpec.pool": "The pool that the slice is a part of.",
    "ResourceSliceSpec.sharedCounters": "What devices of the pool take from together.",
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
    "RawExtension": "An object of any form.",
    "Time": "A moment to the second (RFC 3339).",
}
"""The sentences of the plain types."""
