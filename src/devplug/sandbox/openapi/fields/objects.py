"""Fields of the smaller kinds, and of references to objects, which several kinds have.

What a line means is `notation`'s. Names and types are those of Kubernetes 1.36 (types.go of api/core/v1,
api/apps/v1, api/coordination/v1 and api/events/v1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["APPS", "COORDINATION", "CORE", "EVENTS"]

CORE: Final[Mapping[str, str]] = {
    "ObjectReference": "kind namespace name uid:UID apiVersion resourceVersion fieldPath",
    "LocalObjectReference": "name",
    "TypedLocalObjectReference": "apiGroup kind! name!",
    "TypedObjectReference": "apiGroup kind! name! namespace",
    "NodeSelector": "nodeSelectorTerms!:[NodeSelectorTerm]",
    "ScopeSelector": "matchExpressions:[ScopedResourceSelectorRequirement]",
    "NodeSelectorTerm": "matchExpressions:[NodeSelectorRequirement] matchFields:[NodeSelectorRequirement]",
    "ScopedResourceSelectorRequirement": """
        scopeName!:ResourceQuotaScope operator!:ScopeSelectorOperator values:[string]
    """,
    "NodeSelectorRequirement": "key! operator!:NodeSelectorOperator values:[string]",
    "Binding": "*TypeMeta metadata:ObjectMeta target!:ObjectReference",
    "ConfigMap": "*TypeMeta metadata:ObjectMeta immutable:bool data:{string} binaryData:{bytes}",
    "Event": """
        *TypeMeta metadata!:ObjectMeta involvedObject!:ObjectReference reason message source:EventSource
        firstTimestamp:Time lastTimestamp:Time count:int32 type eventTime:MicroTime series:EventSeries action
        related:ObjectReference reportingComponent reportingInstance
    """,
    "Namespace": "*TypeMeta metadata:ObjectMeta spec:NamespaceSpec status:NamespaceStatus",
    "ResourceQuota": "*TypeMeta metadata:ObjectMeta spec:ResourceQuotaSpec status:ResourceQuotaStatus",
    "EventSource": "component host",
    "EventSeries": "count:int32 lastObservedTime:MicroTime",
    "NamespaceSpec": "finalizers:[FinalizerName]",
    "NamespaceStatus": "phase:NamespacePhase conditions:[NamespaceCondition]",
    "ResourceQuotaSpec": "hard:ResourceList scopes:[ResourceQuotaScope] scopeSelector:ScopeSelector",
    "ResourceQuotaStatus": "hard:ResourceList used:ResourceList",
    "NamespaceCondition": """
        type!:NamespaceConditionType status!:ConditionStatus lastTransitionTime:Time reason message
    """,
}

APPS: Final[Mapping[str, str]] = {
    "DaemonSet": "*TypeMeta metadata:ObjectMeta spec:DaemonSetSpec status:DaemonSetStatus",
    "DaemonSetSpec": """
        selector!:LabelSelector template!:PodTemplateSpec updateStrategy:DaemonSetUpdateStrategy
        minReadySeconds:int32 revisionHistoryLimit:int32
    """,
    "DaemonSetStatus": """
        currentNumberScheduled!:int32 numberMisscheduled!:int32 desiredNumberScheduled!:int32
        numberReady!:int32 observedGeneration:int64 updatedNumberScheduled:int32 numberAvailable:int32
        numberUnavailable:int32 collisionCount:int32 conditions:[DaemonSetCondition]
    """,
    "DaemonSetUpdateStrategy": "type:DaemonSetUpdateStrategyType rollingUpdate:RollingUpdateDaemonSet",
    "DaemonSetCondition": """
        type!:DaemonSetConditionType status!:ConditionStatus lastTransitionTime:Time reason message
    """,
    "RollingUpdateDaemonSet": "maxUnavailable:IntOrString maxSurge:IntOrString",
}

COORDINATION: Final[Mapping[str, str]] = {
    "Lease": "*TypeMeta metadata:ObjectMeta spec:LeaseSpec",
    "LeaseSpec": """
        holderIdentity leaseDurationSeconds:int32 acquireTime:MicroTime renewTime:MicroTime
        leaseTransitions:int32 strategy:CoordinatedLeaseStrategy preferredHolder
    """,
}

EVENTS: Final[Mapping[str, str]] = {
    "events.Event": """
        *TypeMeta metadata:ObjectMeta eventTime!:MicroTime series:events.EventSeries reportingController
        reportingInstance action reason regarding:ObjectReference related:ObjectReference note type
        deprecatedSource:EventSource deprecatedFirstTimestamp:Time deprecatedLastTimestamp:Time
        deprecatedCount:int32
    """,
    "events.EventSeries": "count!:int32 lastObservedTime!:MicroTime",
}
