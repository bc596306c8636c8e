"""What a client may do, and who it is: the answers to reviews, of which nothing is kept. Pure.

The token is for everything. What nobody may do is what the sandbox refuses for want of who would do it; so
`kubectl auth can-i` says why not (registry/authorization and registry/authentication of the API server).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.kinds import REFUSED
from devplug.sandbox.api.objects import fields, text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object

__all__ = ["USER", "review"]

USER: Final = "devplug-sandbox"
"""Who everybody is that has the token; the name of the user in the kubeconfig."""

_READING: Final = frozenset({"get", "list", "watch"})
_EVERYTHING: Final = ["*"]


def review(resource: Resource, asked: Object) -> Object:
    """Return the answer to what was asked, which has the asked with it."""
    return {
        **asked,
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {**fields(asked, "metadata"), "creationTimestamp": None},
        "status": _ANSWERS[resource.kind](asked),
    }


def _access(asked: Object) -> Object:
    wanted = fields(asked, "spec", "resourceAttributes")
    if text(wanted, "verb") not in _READING:
        for one in REFUSED:
            if (one.group, one.plural) == (text(wanted, "group"), text(wanted, "resource")):
                return {"allowed": False, "denied": True, "reason": one.refusal}
    return {"allowed": True}


def _rules(_: Object) -> Object:
    return {
        "resourceRules": [{"verbs": _EVERYTHING, "apiGroups": _EVERYTHING, "resources": _EVERYTHING}],
        "nonResourceRules": [{"verbs": _EVERYTHING, "nonResourceURLs": _EVERYTHING}],
        "incomplete": False,
    }


def _user(_: Object) -> Object:
    return {"userInfo": {"username": USER, "groups": ["system:masters", "system:authenticated"]}}


_ANSWERS: Final[Mapping[str, Callable[[Object], Object]]] = {
    "SelfSubjectAccessReview": _access,
    "SelfSubjectReview": _user,
    "SelfSubjectRulesReview": _rules,
}
