"""Fields of what all kinds have in common: the metadata of objects and lists, options, refusals.

What a line means is `notation`'s. Names and types are those of Kubernetes 1.36
(apimachinery pkg/apis/meta/v1/types.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["META"]

META: Final[Mapping[str, str]] = {
    "DeleteOptions": """
        *TypeMeta gracePeriodSeconds:int64 preconditions:Preconditions orphanDependents:bool
        propagationPolicy:DeletionPropagation dryRun:[string]
        ignoreStoreReadErrorWithClusterBreakingPotential:bool
    """,
    "FieldSelectorRequirement": "key! operator! values:[string]",
    "LabelSelector": "matchLabels:{string} matchExpressions:[LabelSelectorRequirement]",
    "LabelSelectorRequirement": "key! operator!:LabelSelectorOperator values:[string]",
    "ListMeta": "selfLink resourceVersion continue remainingItemCount:int64 shardInfo:ShardInfo",
    "ManagedFieldsEntry": """
        manager operation:ManagedFieldsOperationType apiVersion time:Time fieldsType fieldsV1:FieldsV1
        subresource
    """,
    "ObjectMeta": """
        name generateName namespace selfLink uid:UID resourceVersion generation:int64 creationTimestamp:Time
        deletionTimestamp:Time deletionGracePeriodSeconds:int64 labels:{string} annotations:{string}
        ownerReferences:[OwnerReference] finalizers:[string] managedFields:[ManagedFieldsEntry]
    """,
    "OwnerReference": "apiVersion! kind! name! uid!:UID controller:bool blockOwnerDeletion:bool",
    "Patch": "",
    "Preconditions": "uid:UID resourceVersion",
    "ShardInfo": "selector!",
    "Status": """
        *TypeMeta metadata:ListMeta status message reason:StatusReason details:StatusDetails code:int32
    """,
    "StatusCause": "reason:CauseType message field",
    "StatusDetails": "name group kind uid:UID causes:[StatusCause] retryAfterSeconds:int32",
    "TypeMeta": "kind apiVersion",
}
