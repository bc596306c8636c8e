"""The fields of the kinds of Dynamic Resource Allocation (resource.k8s.io/v1), as tables.

What a line means is said in `types`. These tables also tell how a field is written that has the zero value of
its type: `?` is a pointer, which may hold it, `!` and `+` are always written, and all others are left out.
Names and types are those of Kubernetes 1.36.2 (api/resource/v1/types.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RESOURCE"]

RESOURCE: Final[Mapping[str, str]] = {
    "ResourceSlice": "*TypeMeta metadata:ObjectMeta spec!:ResourceSliceSpec",
    "ResourceSliceSpec": """
        driver! pool!:ResourcePool nodeName? nodeSelector?:NodeSelector allNodes?:bool devices:[Device]
        perDeviceNodeSelection?:bool sharedCounters:[CounterSet]
    """,
    "CounterSet": "name! counters!:{Counter}",
    "ResourcePool": "name! generation!:int64 resourceSliceCount!:int64",
    "Device": """
        name! attributes:{DeviceAttribute} capacity:{DeviceCapacity}
        consumesCounters:[DeviceCounterConsumption] nodeName? nodeSelector?:NodeSelector allNodes?:bool
        taints:[DeviceTaint] bindsToNode?:bool bindingConditions:[string] bindingFailureConditions:[string]
        allowMultipleAllocations?:bool nodeAllocatableResourceMappings:{NodeAllocatableResourceMapping}
    """,
    "NodeAllocatableResourceMapping": "capacityKey? allocationMultiplier?:Quantity",
    "DeviceCounterConsumption": "counterSet! counters!:{Counter}",
    "DeviceCapacity": "value!:Quantity requestPolicy?:CapacityRequestPolicy",
    "Counter": "value!:Quantity",
    "CapacityRequestPolicy": """
        default+:Quantity validValues:[Quantity] validRange?:CapacityRequestPolicyRange
    """,
    "CapacityRequestPolicyRange": "min!?:Quantity max?:Quantity step?:Quantity",
    "DeviceAttribute": """
        int?:int64 bool?:bool string? version? ints:[int64] bools:[bool] strings:[string] versions:[string]
    """,
    "DeviceTaint": "key! value effect!:DeviceTaintEffect timeAdded?:Time",
    "resource.ResourceClaim": """
        *TypeMeta metadata:ObjectMeta spec!:ResourceClaimSpec status:ResourceClaimStatus
    """,
    "ResourceClaimSpec": "devices:DeviceClaim",
    "DeviceClaim": """
        requests+:[DeviceRequest] constraints:[DeviceConstraint] config:[DeviceClaimConfiguration]
    """,
    "DeviceRequest": "name! exactly?:ExactDeviceRequest firstAvailable:[DeviceSubRequest]",
    "ExactDeviceRequest": """
        deviceClassName! selectors:[DeviceSelector] allocationMode:DeviceAllocationMode count:int64
        adminAccess?:bool tolerations:[DeviceToleration] capacity?:CapacityRequirements
    """,
    "DeviceSubRequest": """
        name! deviceClassName! selectors:[DeviceSelector] allocationMode:DeviceAllocationMode count:int64
        tolerations:[DeviceToleration] capacity?:CapacityRequirements
    """,
    "CapacityRequirements": "requests:{Quantity}",
    "DeviceSelector": "cel?:CELDeviceSelector",
    "CELDeviceSelector": "expression!",
    "DeviceConstraint": "requests:[string] matchAttribute? distinctAttribute?",
    "DeviceClaimConfiguration": "requests:[string] *DeviceConfiguration",
    "DeviceConfiguration": "opaque?:OpaqueDeviceConfiguration",
    "OpaqueDeviceConfiguration": "driver! parameters!:RawExtension",
    "DeviceToleration": """
        key operator:DeviceTolerationOperator value effect:DeviceTaintEffect tolerationSeconds?:int64
    """,
    "ResourceClaimStatus": """
        allocation?:AllocationResult reservedFor:[ResourceClaimConsumerReference]
        devices:[AllocatedDeviceStatus]
    """,
    "ResourceClaimConsumerReference": "apiGroup resource! name! uid!:UID",
    "AllocationResult": "devices:DeviceAllocationResult nodeSelector?:NodeSelector allocationTimestamp?:Time",
    "DeviceAllocationResult": """
        results:[DeviceRequestAllocationResult] config:[DeviceAllocationConfiguration]
    """,
    "DeviceRequestAllocationResult": """
        request! driver! pool! device! adminAccess?:bool tolerations:[DeviceToleration]
        bindingConditions:[string] bindingFailureConditions:[string] shareID?:UID
        consumedCapacity:{Quantity}
    """,
    "DeviceAllocationConfiguration": "source!:AllocationConfigSource requests:[string] *DeviceConfiguration",
    "DeviceClass": "*TypeMeta metadata:ObjectMeta spec!:DeviceClassSpec",
    "DeviceClassSpec": "selectors:[DeviceSelector] config:[DeviceClassConfiguration] extendedResourceName?",
    "DeviceClassConfiguration": "*DeviceConfiguration",
    "ResourceClaimTemplate": "*TypeMeta metadata:ObjectMeta spec!:ResourceClaimTemplateSpec",
    "ResourceClaimTemplateSpec": "metadata:ObjectMeta spec!:ResourceClaimSpec",
    "AllocatedDeviceStatus": """
        driver! pool! device! shareID? conditions+:[Condition] data?:RawExtension
        networkData?:NetworkDeviceData
    """,
    "NetworkDeviceData": "interfaceName ips:[string] hardwareAddress",
}
