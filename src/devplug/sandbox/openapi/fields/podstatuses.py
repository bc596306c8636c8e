"""Fields of what the kubelet tells of a pod.

What a line means is `notation`'s. Names and types are those of Kubernetes 1.36 (api/core/v1/types.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["POD_STATUSES"]

POD_STATUSES: Final[Mapping[str, str]] = {
    "PodStatus": """
        observedGeneration:int64 phase:PodPhase conditions:[PodCondition] message reason nominatedNodeName
        hostIP hostIPs:[HostIP] podIP podIPs:[PodIP] startTime:Time initContainerStatuses:[ContainerStatus]
        containerStatuses:[ContainerStatus] qosClass:PodQOSClass ephemeralContainerStatuses:[ContainerStatus]
        resize:PodResizeStatus resourceClaimStatuses:[PodResourceClaimStatus]
        extendedResourceClaimStatus:PodExtendedResourceClaimStatus allocatedResources:ResourceList
        resources:ResourceRequirements
        nodeAllocatableResourceClaimStatuses:[NodeAllocatableResourceClaimStatus]
    """,
    "PodCondition": """
        type!:PodConditionType observedGeneration:int64 status!:ConditionStatus lastProbeTime:Time
        lastTransitionTime:Time reason message
    """,
    "HostIP": "ip!",
    "PodIP": "ip!",
    "ContainerStatus": """
        name! state:ContainerState lastState:ContainerState ready!:bool restartCount!:int32 image! imageID!
        containerID started:bool allocatedResources:ResourceList resources:ResourceRequirements
        volumeMounts:[VolumeMountStatus] user:ContainerUser allocatedResourcesStatus:[ResourceStatus]
        stopSignal:Signal
    """,
    "PodResourceClaimStatus": "name! resourceClaimName",
    "PodExtendedResourceClaimStatus": """
        requestMappings!:[ContainerExtendedResourceRequest] resourceClaimName!
    """,
    "NodeAllocatableResourceClaimStatus": "resourceClaimName! containers:[string] resources!:ResourceList",
    "ContainerState": """
        waiting:ContainerStateWaiting running:ContainerStateRunning terminated:ContainerStateTerminated
    """,
    "VolumeMountStatus": """
        name! mountPath! readOnly:bool recursiveReadOnly:RecursiveReadOnlyMode volumeStatus:VolumeStatus
    """,
    "ContainerUser": "linux:LinuxContainerUser",
    "ResourceStatus": "name!:ResourceName resources:[ResourceHealth]",
    "ContainerExtendedResourceRequest": "containerName! resourceName! requestName!",
    "ContainerStateWaiting": "reason message",
    "ContainerStateRunning": "startedAt:Time",
    "ContainerStateTerminated": """
        exitCode!:int32 signal:int32 reason message startedAt:Time finishedAt:Time containerID
    """,
    "VolumeStatus": "image:ImageVolumeStatus",
    "LinuxContainerUser": "uid!:int64 gid!:int64 supplementalGroups:[int64]",
    "ResourceHealth": "resourceID!:ResourceID health:ResourceHealthStatus message",
    "ImageVolumeStatus": "imageRef!",
}
