"""The tokens by which the API server knows a user, and the requests for one (TokenRequest). Pure.

A token is a JSON Web Token (RFC 7519) with the user in it, signed with the sandbox's secret, so nobody keeps
a list. What a token may be bound to is as in pkg/registry/core/serviceaccount/storage/token.go.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, text, whole
from devplug.k8s.times import stamp
from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.errors import bad_request, conflict, invalid, invalid_field
from devplug.sandbox.api.kinds import known
from devplug.sandbox.authorization.users import NODE_NAME, User, service_account

if TYPE_CHECKING:
    from datetime import datetime

    from devplug.sandbox.api.store import Store

_PODS: Final = known("v1", "Pod")
_NODES: Final = known("v1", "Node")
_HEADER: Final = b'{"alg":"HS256","typ":"JWT"}'
_EXTRA: Final = "authentication.kubernetes.io/"
_SECONDS: Final = 3600
_LEAST_SECONDS: Final = 600
_NOT_THE_SAME: Final = (
    "the UID in the bound object reference ({}) does not match the UID in record. The object might have been "
    "deleted and then recreated"
)


def signed(user: User, secret: str, expires: datetime) -> str:
    """Return the token of a user, valid until `expires`."""
    seconds = int(expires.timestamp())
    claims = {"sub": user.name, "groups": user.groups, "extra": user.extra, "exp": seconds}
    told = f"{_text(_HEADER)}.{_text(json.dumps(claims, separators=(',', ':')).encode())}"
    return f"{told}.{_signature(told, secret)}"


def user_of_token(token: str, secret: str, now: datetime) -> User | None:
    """Return the user of a token that `signed` made with this secret and that is valid; None for others."""
    told, _, signature = token.rpartition(".")
    is_ours = hmac.compare_digest(signature.encode("utf-8", "replace"), _signature(told, secret).encode())
    if not secret or not is_ours:
        return None
    claims: Object = json.loads(base64.urlsafe_b64decode(told.partition(".")[2] + "=="))
    if whole(claims, "exp") <= now.timestamp():
        return None
    extra = {key: tuple(map(str, entries(claims, "extra", key))) for key in fields(claims, "extra")}
    return User(text(claims, "sub"), tuple(map(str, entries(claims, "groups"))), extra)


def pod_user(pod: Object) -> User:
    """Return the user that the programs of a pod are: its service account, on its node."""
    account = text(pod, "spec", "serviceAccountName") or "default"
    extra = {
        f"{_EXTRA}pod-name": text(pod, "metadata", "name"),
        f"{_EXTRA}pod-uid": text(pod, "metadata", "uid"),
        NODE_NAME: text(pod, "spec", "nodeName"),
    }
    told = {key: value for key, value in extra.items() if value}
    return service_account(text(pod, "metadata", "namespace"), account, told)


def issued(asked: Object, account: Object, store: Store, secret: str) -> Object:
    """Return a TokenRequest with its token for a service account; raises `StatusError`."""
    namespace, name = (text(account, "metadata", word) for word in ("namespace", "name"))
    spec = fields(asked, "spec")
    seconds = whole(spec, "expirationSeconds") or _SECONDS
    if seconds < _LEAST_SECONDS:
        why = "may not specify a duration less than 10 minutes"
        fault = invalid_field("spec.expirationSeconds", seconds, why)
        raise invalid("TokenRequest.authentication.k8s.io", "", [fault])
    user = _bound_user(fields(spec, "boundObjectRef"), namespace, name, store)
    expires = store.now + timedelta(seconds=seconds)
    status = {"token": signed(user, secret, expires), "expirationTimestamp": stamp(expires)}
    return {**asked, "spec": {**spec, "expirationSeconds": seconds}, "status": status}


def _bound_user(bound: Object, namespace: str, name: str, store: Store) -> User:
    match text(bound, "kind"):
        case "":
            return service_account(namespace, name)
        case "Pod":
            pod = store.get(_PODS, namespace, text(bound, "name"))
            if (text(pod, "spec", "serviceAccountName") or "default") != name:
                raise bad_request(
                    f"cannot bind token for serviceaccount {go_quoted(name)} to pod running with different "
                    "serviceaccount name."
                )
            _refuse_other_uid(bound, pod, "pods")
            return pod_user(pod)
        case "Node":
            node = store.get(_NODES, "", text(bound, "name"))
            _refuse_other_uid(bound, node, "nodes")
            return service_account(namespace, name, {NODE_NAME: text(node, "metadata", "name")})
        case kind:
            raise bad_request(f"cannot bind token to object of type {text(bound, 'apiVersion')}, Kind={kind}")


def _refuse_other_uid(bound: Object, found: Object, what: str) -> None:
    uid = text(bound, "uid")
    if uid and uid != text(found, "metadata", "uid"):
        raise conflict(what, text(bound, "name"), _NOT_THE_SAME.format(uid))


def _signature(told: str, secret: str) -> str:
    return _text(hmac.digest(secret.encode(), told.encode("utf-8", "replace"), hashlib.sha256))


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
