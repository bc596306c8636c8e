"""The fields of metadata, nodes, reviews and all kinds but pods, as tables.

`types` has the notation. Names and types are those of Kubernetes 1.36 (apimachinery
pkg/apis/meta/v1/types.go and types.go of api/core/v1, api/apps/v1, api/coordination/v1, api/events/v1,
api/authentication/v1, api/authorization/v1, api/rbac/v1 and api/resource/v1).

Each field also has its number in protobuf (the `generated.proto` beside each types.go), and tells how it is
written when it has the zero value of its type: `?` is a pointer, which may hold it, `!` and `+` are always
written, and all others are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


META: Final[Mapping[str, str]] = {
    "Condition": """
        type! status!:ConditionStatus observedGeneration:int64 lastTransitionTime!:Time reason! message!
    """,
    "DeleteOptions": """
        *TypeMeta gracePeriodSeconds?:int64 preconditions?:Preconditions orphanDependents?:bool
        propagationPolicy?:DeletionPropagation dryRun:[string]
        ignoreStoreReadErrorWithClusterBreakingPotential?:bool
    """,
    "FieldSelectorRequirement": "key! operator! values:[string]",
    "LabelSelector": "matchLabels:{string} matchExpressions:[LabelSelectorRequirement]",
    "LabelSelectorRequirement": "key! operator!:LabelSelectorOperator values:[string]",
    "ListMeta": "selfLink resourceVersion continue remainingItemCount?:int64 shardInfo?:ShardInfo",
    "ManagedFieldsEntry": """
        manager operation:ManagedFieldsOperationType apiVersion time?:Time fieldsType=6 fieldsV1?:FieldsV1
        subresource
    """,
    "ObjectMeta": """
        name generateName namespace selfLink uid:UID resourceVersion generation:int64 creationTimestamp?:Time
        deletionTimestamp?:Time deletionGracePeriodSeconds?:int64 labels:{string} annotations:{string}
        ownerReferences:[OwnerReference] finalizers:[string] managedFields=17:[ManagedFieldsEntry]
    """,
    "OwnerReference": "apiVersion!=5 kind!=1 name!=3 uid!:UID controller?=6:bool blockOwnerDeletion?:bool",
    "Patch": "",
    "Preconditions": "uid?:UID resourceVersion?",
    "ShardInfo": "selector!",
    "Status": """
        *TypeMeta metadata:ListMeta status message reason:StatusReason details?:StatusDetails code:int32
    """,
    "StatusCause": "reason:CauseType message field",
    "StatusDetails": "name group kind uid=6:UID causes=4:[StatusCause] retryAfterSeconds:int32",
    "TypeMeta": "kind apiVersion",
}

NODES: Final[Mapping[str, str]] = {
    "Node": "*TypeMeta metadata:ObjectMeta spec:NodeSpec status:NodeStatus",
    "NodeSpec": """
        podCIDR podCIDRs=7:[string] providerID=3 unschedulable:bool taints:[Taint]
        configSource?:NodeConfigSource externalID=2
    """,
    "NodeStatus": """
        capacity:ResourceList allocatable:ResourceList phase:NodePhase conditions:[NodeCondition]
        addresses:[NodeAddress] daemonEndpoints:NodeDaemonEndpoints nodeInfo:NodeSystemInfo
        images:[ContainerImage] volumesInUse:[UniqueVolumeName] volumesAttached:[AttachedVolume]
        config?:NodeConfigStatus runtimeHandlers:[NodeRuntimeHandler] features?:NodeFeatures
        declaredFeatures:[string]
    """,
    "Taint": "key! value effect!:TaintEffect timeAdded?:Time",
    "NodeConfigSource": "configMap?=2:ConfigMapNodeConfigSource",
    "NodeCondition": """
        type!:NodeConditionType status!:ConditionStatus lastHeartbeatTime:Time lastTransitionTime:Time reason
        message
    """,
    "NodeAddress": "type!:NodeAddressType address!",
    "NodeDaemonEndpoints": "kubeletEndpoint:DaemonEndpoint",
    "NodeSystemInfo": """
        machineID! systemUUID! bootID! kernelVersion! osImage! containerRuntimeVersion! kubeletVersion!
        kubeProxyVersion! operatingSystem! architecture! swap?:NodeSwapStatus
    """,
    "ContainerImage": "names+:[string] sizeBytes:int64",
    "AttachedVolume": "name!:UniqueVolumeName devicePath!",
    "NodeConfigStatus": """
        assigned?:NodeConfigSource active?:NodeConfigSource lastKnownGood?:NodeConfigSource error
    """,
    "NodeRuntimeHandler": "name+ features?:NodeRuntimeHandlerFeatures",
    "NodeFeatures": "supplementalGroupsPolicy?:bool",
    "ConfigMapNodeConfigSource": "namespace! name! uid:UID resourceVersion kubeletConfigKey!",
    "DaemonEndpoint": "Port!:int32",
    "NodeSwapStatus": "capacity?:int64",
    "NodeRuntimeHandlerFeatures": "recursiveReadOnlyMounts?:bool userNamespaces?:bool",
}

CORE: Final[Mapping[str, str]] = {
    "ObjectReference": "kind namespace name uid:UID apiVersion resourceVersion fieldPath",
    "LocalObjectReference": "name",
    "TypedLocalObjectReference": "apiGroup+ kind! name!",
    "TypedObjectReference": "apiGroup+ kind! name! namespace?",
    "NodeSelector": "nodeSelectorTerms!:[NodeSelectorTerm]",
    "ScopeSelector": "matchExpressions:[ScopedResourceSelectorRequirement]",
    "NodeSelectorTerm": "matchExpressions:[NodeSelectorRequirement] matchFields:[NodeSelectorRequirement]",
    "ScopedResourceSelectorRequirement": """
        scopeName!:ResourceQuotaScope operator!:ScopeSelectorOperator values:[string]
    """,
    "NodeSelectorRequirement": "key! operator!:NodeSelectorOperator values:[string]",
    "Binding": "*TypeMeta metadata:ObjectMeta target!:ObjectReference",
    "ConfigMap": "*TypeMeta metadata:ObjectMeta immutable?=4:bool data=2:{string} binaryData:{bytes}",
    "Event": """
        *TypeMeta metadata!:ObjectMeta involvedObject!:ObjectReference reason message source:EventSource
        firstTimestamp:Time lastTimestamp:Time count:int32 type eventTime:MicroTime series?:EventSeries action
        related?:ObjectReference reportingComponent+ reportingInstance+
    """,
    "Namespace": "*TypeMeta metadata:ObjectMeta spec:NamespaceSpec status:NamespaceStatus",
    "ServiceAccount": """
        *TypeMeta metadata:ObjectMeta secrets:[ObjectReference] imagePullSecrets:[LocalObjectReference]
        automountServiceAccountToken?:bool
    """,
    "ResourceQuota": "*TypeMeta metadata:ObjectMeta spec:ResourceQuotaSpec status:ResourceQuotaStatus",
    "EventSource": "component host",
    "EventSeries": "count:int32 lastObservedTime:MicroTime",
    "NamespaceSpec": "finalizers:[FinalizerName]",
    "NamespaceStatus": "phase:NamespacePhase conditions:[NamespaceCondition]",
    "ResourceQuotaSpec": "hard:ResourceList scopes:[ResourceQuotaScope] scopeSelector?:ScopeSelector",
    "ResourceQuotaStatus": "hard:ResourceList used:ResourceList",
    "NamespaceCondition": """
        type!:NamespaceConditionType status!:ConditionStatus lastTransitionTime=4:Time reason message
    """,
}

APPS: Final[Mapping[str, str]] = {
    "DaemonSet": "*TypeMeta metadata:ObjectMeta spec:DaemonSetSpec status:DaemonSetStatus",
    "DaemonSetSpec": """
        selector!+:LabelSelector template!:PodTemplateSpec updateStrategy:DaemonSetUpdateStrategy
        minReadySeconds:int32 revisionHistoryLimit?=6:int32
    """,
    "DaemonSetStatus": """
        currentNumberScheduled!:int32 numberMisscheduled!:int32 desiredNumberScheduled!:int32
        numberReady!:int32 observedGeneration:int64 updatedNumberScheduled:int32 numberAvailable:int32
        numberUnavailable:int32 collisionCount?:int32 conditions:[DaemonSetCondition]
    """,
    "DaemonSetUpdateStrategy": "type:DaemonSetUpdateStrategyType rollingUpdate?:RollingUpdateDaemonSet",
    "DaemonSetCondition": """
        type!:DaemonSetConditionType status!:ConditionStatus lastTransitionTime:Time reason message
    """,
    "RollingUpdateDaemonSet": "maxUnavailable?:IntOrString maxSurge?:IntOrString",
}

COORDINATION: Final[Mapping[str, str]] = {
    "Lease": "*TypeMeta metadata:ObjectMeta spec:LeaseSpec",
    "LeaseSpec": """
        holderIdentity? leaseDurationSeconds?:int32 acquireTime?:MicroTime renewTime?:MicroTime
        leaseTransitions?:int32 strategy?:CoordinatedLeaseStrategy preferredHolder?
    """,
}

EVENTS: Final[Mapping[str, str]] = {
    "events.Event": """
        *TypeMeta metadata:ObjectMeta eventTime!:MicroTime series?:events.EventSeries reportingController
        reportingInstance action reason regarding:ObjectReference related?:ObjectReference note type
        deprecatedSource:EventSource deprecatedFirstTimestamp:Time deprecatedLastTimestamp:Time
        deprecatedCount:int32
    """,
    "events.EventSeries": "count!:int32 lastObservedTime!:MicroTime",
}

AUTHENTICATION: Final[Mapping[str, str]] = {
    "SelfSubjectReview": "*TypeMeta metadata:ObjectMeta status:SelfSubjectReviewStatus",
    "SelfSubjectReviewStatus": "userInfo:UserInfo",
    "UserInfo": "username uid groups:[string]",
    "TokenRequest": "*TypeMeta metadata:ObjectMeta spec!:TokenRequestSpec status:TokenRequestStatus",
    "TokenRequestSpec": """
        audiences!:[string] expirationSeconds+=4:int64 boundObjectRef+=3:BoundObjectReference
    """,
    "BoundObjectReference": "kind apiVersion name uid:UID",
    "TokenRequestStatus": "token! expirationTimestamp!:Time",
}

AUTHORIZATION: Final[Mapping[str, str]] = {
    "SelfSubjectAccessReview": """
        *TypeMeta metadata:ObjectMeta spec!:SelfSubjectAccessReviewSpec status:SubjectAccessReviewStatus
    """,
    "SelfSubjectAccessReviewSpec": """
        resourceAttributes?:ResourceAttributes nonResourceAttributes?:NonResourceAttributes
    """,
    "ResourceAttributes": """
        namespace verb group version resource subresource name fieldSelector?:FieldSelectorAttributes
        labelSelector?:LabelSelectorAttributes
    """,
    "FieldSelectorAttributes": "rawSelector requirements:[FieldSelectorRequirement]",
    "LabelSelectorAttributes": "rawSelector requirements:[LabelSelectorRequirement]",
    "NonResourceAttributes": "path verb",
    "SubjectAccessReviewStatus": "allowed!:bool denied=4:bool reason=2 evaluationError",
    "SelfSubjectRulesReview": """
        *TypeMeta metadata:ObjectMeta spec!:SelfSubjectRulesReviewSpec status:SubjectRulesReviewStatus
    """,
    "SelfSubjectRulesReviewSpec": "namespace",
    "SubjectRulesReviewStatus": """
        resourceRules!:[ResourceRule] nonResourceRules!:[NonResourceRule] incomplete!:bool evaluationError
    """,
    "ResourceRule": "verbs!:[string] apiGroups:[string] resources:[string] resourceNames:[string]",
    "NonResourceRule": "verbs!:[string] nonResourceURLs:[string]",
}

RBAC: Final[Mapping[str, str]] = {
    "Role": "*TypeMeta metadata:ObjectMeta rules+:[PolicyRule]",
    "ClusterRole": "*TypeMeta metadata:ObjectMeta rules+:[PolicyRule] aggregationRule?:AggregationRule",
    "AggregationRule": "clusterRoleSelectors:[LabelSelector]",
    "PolicyRule": """
        verbs!:[string] apiGroups:[string] resources:[string] resourceNames:[string] nonResourceURLs:[string]
    """,
    "RoleBinding": "*TypeMeta metadata:ObjectMeta subjects:[Subject] roleRef!:RoleRef",
    "ClusterRoleBinding": "*TypeMeta metadata:ObjectMeta subjects:[Subject] roleRef!:RoleRef",
    "RoleRef": "apiGroup! kind! name!",
    "Subject": "kind! apiGroup name! namespace",
}

RESOURCE: Final[Mapping[str, str]] = {
    "ResourceSlice": "*TypeMeta metadata:ObjectMeta spec!:ResourceSliceSpec",
    "ResourceSliceSpec": """
        driver! pool!:ResourcePool nodeName? nodeSelector?:NodeSelector allNodes?:bool devices:[Device]
        perDeviceNodeSelection?:bool sharedCounters:[CounterSet]
    """,
    "CounterSet": "name! counters!-:{Counter}",
    "ResourcePool": "name! generation!:int64 resourceSliceCount!:int64",
    "Device": """
        name! attributes:{DeviceAttribute} capacity:{DeviceCapacity}
        consumesCounters:[DeviceCounterConsumption] nodeName? nodeSelector?:NodeSelector allNodes?:bool
        taints:[DeviceTaint] bindsToNode?:bool bindingConditions:[string] bindingFailureConditions:[string]
        allowMultipleAllocations?:bool nodeAllocatableResourceMappings:{NodeAllocatableResourceMapping}
    """,
    "NodeAllocatableResourceMapping": "capacityKey? allocationMultiplier?:Quantity",
    "DeviceCounterConsumption": "counterSet! counters!-:{Counter}",
    "DeviceCapacity": "value!:Quantity requestPolicy?:CapacityRequestPolicy",
    "Counter": "value!:Quantity",
    "CapacityRequestPolicy": """
        default+:Quantity validValues=3:[Quantity] validRange?:CapacityRequestPolicyRange
    """,
    "CapacityRequestPolicyRange": "min!?:Quantity max?:Quantity step?:Quantity",
    "DeviceAttribute": """
        int?=2:int64 bool?:bool string? version? ints:[int64] bools:[bool] strings:[string] versions:[string]
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
        devices=4:[AllocatedDeviceStatus]
    """,
    "ResourceClaimConsumerReference": "apiGroup resource!=3 name! uid!:UID",
    "AllocationResult": """
        devices:DeviceAllocationResult nodeSelector?=3:NodeSelector allocationTimestamp?=5:Time
    """,
    "DeviceAllocationResult": """
        results:[DeviceRequestAllocationResult] config:[DeviceAllocationConfiguration]
    """,
    "DeviceRequestAllocationResult": """
        request! driver! pool! device! adminAccess?:bool tolerations:[DeviceToleration]
        bindingConditions:[string] bindingFailureConditions:[string] shareID?:UID consumedCapacity:{Quantity}
    """,
    "DeviceAllocationConfiguration": "source!:AllocationConfigSource requests:[string] *DeviceConfiguration",
    "DeviceClass": "*TypeMeta metadata:ObjectMeta spec!:DeviceClassSpec",
    "DeviceClassSpec": "selectors:[DeviceSelector] config:[DeviceClassConfiguration] extendedResourceName?=4",
    "DeviceClassConfiguration": "*DeviceConfiguration",
    "ResourceClaimTemplate": "*TypeMeta metadata:ObjectMeta spec!:ResourceClaimTemplateSpec",
    "ResourceClaimTemplateSpec": "metadata:ObjectMeta spec!:ResourceClaimSpec",
    "AllocatedDeviceStatus": """
        driver! pool! device! shareID?=7 conditions+=4:[Condition] data?:RawExtension
        networkData?:NetworkDeviceData
    """,
    "NetworkDeviceData": "interfaceName ips:[string] hardwareAddress",
}

RESOURCE_V1BETA1: Final[Mapping[str, str]] = {
    "v1beta1.ResourceSlice": "*TypeMeta metadata:ObjectMeta spec!:v1beta1.ResourceSliceSpec",
    "v1beta1.ResourceSliceSpec": RESOURCE["ResourceSliceSpec"]
    .replace("[Device]", "[v1beta1.Device]")
    .replace(" nodeName?", " nodeName")
    .replace(" allNodes?", " allNodes"),
    "v1beta1.Device": "name! basic?:BasicDevice",
    "BasicDevice": RESOURCE["Device"].replace("name!", "", 1),
    "v1beta1.ResourceClaim": RESOURCE["resource.ResourceClaim"].replace(
        ":ResourceClaimSpec", ":v1beta1.ResourceClaimSpec"
    ),
    "v1beta1.ResourceClaimSpec": "devices:v1beta1.DeviceClaim",
    "v1beta1.DeviceClaim": RESOURCE["DeviceClaim"].replace("[DeviceRequest]", "[v1beta1.DeviceRequest]"),
    "v1beta1.DeviceRequest": "name! "
    + RESOURCE["ExactDeviceRequest"].replace(" tolerations:", " tolerations=8:")
    + " firstAvailable=7:[v1beta1.DeviceSubRequest]",
    "v1beta1.DeviceSubRequest": RESOURCE["DeviceSubRequest"].replace(" tolerations:", " tolerations=7:"),
    "v1beta1.ResourceClaimTemplate": "*TypeMeta metadata:ObjectMeta spec!:v1beta1.ResourceClaimTemplateSpec",
    "v1beta1.ResourceClaimTemplateSpec": "metadata:ObjectMeta spec!:v1beta1.ResourceClaimSpec",
}
"""What v1beta1 has otherwise (staging/src/k8s.io/api/resource/v1beta1/types.go)."""

RESOURCE_V1BETA2: Final[Mapping[str, str]] = {
    "DeviceTaintRule": "*TypeMeta metadata:ObjectMeta spec!:DeviceTaintRuleSpec status:DeviceTaintRuleStatus",
    "DeviceTaintRuleSpec": "deviceSelector?:DeviceTaintSelector taint:DeviceTaint",
    "DeviceTaintRuleStatus": "conditions:[Condition]",
    "DeviceTaintSelector": "driver?=2 pool? device?",
}
"""The kinds that have no v1 yet (staging/src/k8s.io/api/resource/v1beta2/types.go)."""
