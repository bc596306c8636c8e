"""The fields of reviews: who a client is, and what it may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AUTHENTICATION", "AUTHORIZATION"]

AUTHENTICATION: Final[Mapping[str, str]] = {
    "SelfSubjectReview": "*TypeMeta metadata:ObjectMeta status:SelfSubjectReviewStatus",
    "SelfSubjectReviewStatus": "userInfo:UserInfo",
    "UserInfo": "username uid groups:[string]",
}

AUTHORIZATION: Final[Mapping[str, str]] = {
    "SelfSubjectAccessReview": """
        *TypeMeta metadata:ObjectMeta spec!:SelfSubjectAccessReviewSpec status:SubjectAccessReviewStatus
    """,
    "SelfSubjectAccessReviewSpec": """
        resourceAttributes:ResourceAttributes nonResourceAttributes:NonResourceAttributes
    """,
    "ResourceAttributes": """
        namespace verb group version resource subresource name fieldSelector:FieldSelectorAttributes
        labelSelector:LabelSelectorAttributes
    """,
    "FieldSelectorAttributes": "rawSelector requirements:[FieldSelectorRequirement]",
    "LabelSelectorAttributes": "rawSelector requirements:[LabelSelectorRequirement]",
    "NonResourceAttributes": "path verb",
    "SubjectAccessReviewStatus": "allowed!:bool denied:bool reason evaluationError",
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
