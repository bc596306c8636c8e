"""Fields of nodes.

What a line means is `notation`'s. Names and types are those of Kubernetes 1.36 (api/core/v1/types.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NODES"]

NODES: Final[Mapping[str, str]] = {
    "Node": "*TypeMeta metadata:ObjectMeta spec:NodeSpec status:NodeStatus",
    "NodeSpec": """
        podCIDR podCIDRs:[string] providerID unschedulable:bool taints:[Taint] configSource:NodeConfigSource
        externalID
    """,
    "NodeStatus": """
        capacity:ResourceList allocatable:ResourceList phase:NodePhase conditions:[NodeCondition]
        addresses:[NodeAddress] daemonEndpoints:NodeDaemonEndpoints nodeInfo:NodeSystemInfo
        images:[ContainerImage] volumesInUse:[UniqueVolumeName] volumesAttached:[AttachedVolume]
        config:NodeConfigStatus runtimeHandlers:[NodeRuntimeHandler] features:NodeFeatures
        declaredFeatures:[string]
    """,
    "Taint": "key! value effect!:TaintEffect timeAdded:Time",
    "NodeConfigSource": "configMap:ConfigMapNodeConfigSource",
    "NodeCondition": """
        type!:NodeConditionType status!:ConditionStatus lastHeartbeatTime:Time lastTransitionTime:Time reason
        message
    """,
    "NodeAddress": "type!:NodeAddressType address!",
    "NodeDaemonEndpoints": "kubeletEndpoint:DaemonEndpoint",
    "NodeSystemInfo": """
        machineID! systemUUID! bootID! kernelVersion! osImage! containerRuntimeVersion! kubeletVersion!
        kubeProxyVersion! operatingSystem! architecture! swap:NodeSwapStatus
    """,
    "ContainerImage": "names:[string] sizeBytes:int64",
    "AttachedVolume": "name!:UniqueVolumeName devicePath!",
    "NodeConfigStatus": """
        assigned:NodeConfigSource active:NodeConfigSource lastKnownGood:NodeConfigSource error
    """,
    "NodeRuntimeHandler": "name features:NodeRuntimeHandlerFeatures",
    "NodeFeatures": "supplementalGroupsPolicy:bool",
    "ConfigMapNodeConfigSource": "namespace! name! uid:UID resourceVersion kubeletConfigKey!",
    "DaemonEndpoint": "Port!:int32",
    "NodeSwapStatus": "capacity:int64",
    "NodeRuntimeHandlerFeatures": "recursiveReadOnlyMounts:bool userNamespaces:bool",
}
