"""Authentication and authorization: the token, the server's host names, the kubeconfig, and reviews. Pure.

kubectl sends no token over plain HTTP (client-go's clientcmd drops it without TLS), so the token may also
stand in front of every path, where only those know it who have read the kubeconfig.

Reviews are answered and not kept. The token is for everything; what nobody may do is what the sandbox
refuses for want of who would do it, so `kubectl auth can-i` says why not (registry/authorization and
registry/authentication of the API server).
"""

from __future__ import annotations

import base64
import hmac
import json
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from devplug.k8s.objects import Object, fields, text
from devplug.sandbox.api.errors import StatusError, unauthorized
from devplug.sandbox.api.kinds import REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devplug.sandbox.api.kinds import Resource

__all__ = ["CONTEXT", "admitted_path", "kubeconfig", "refuse_web_pages", "review"]

USER: Final = "devplug-sandbox"
"""The user name of everybody who has the token, as in the kubeconfig."""

_READING: Final = frozenset({"get", "list", "watch"})
_EVERYTHING: Final = ["*"]
CONTEXT: Final = USER
"""The name of the cluster, the user and the context in the kubeconfig."""

_PUBLIC: Final = {"healthz", "livez", "readyz", "version"}
_LOOPBACK: Final = {"127.0.0.1", "::1", "localhost"}


# ── Reviews ──


def review(resource: Resource, asked: Object) -> Object:
    """Return a review with its answer in `status`."""
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

# ── Token, host names and kubeconfig ──


def admitted_path(path: str, authorization: str, token: str) -> str:
    """Return the path that is asked for, without the token; raises `StatusError` (401) if there is none.

    `authorization` is the header of that name. Comparing takes the same time for every wrong token. How the
    server is, and its version, everybody may know, as in every cluster (role system:public-info-viewer).
    """
    first, slash, rest = path.removeprefix("/").partition("/")
    if _same(first, token):
        return f"{slash}{rest}" or "/"
    scheme, _, given = authorization.partition(" ")
    given = given.strip()
    if scheme.lower() == "basic":
        given = _password(given)
    if scheme.lower() in {"basic", "bearer"} and _same(given, token):
        return path
    if first in _PUBLIC:
        return path
    raise unauthorized()


def refuse_web_pages(headers: Mapping[str, str], scheme: str) -> None:
    """Refuse a request that a web page in somebody's browser sends, with a 403.

    Another name in `Host` is DNS rebinding; an `Origin` that is not this server is another site's script.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    if _host_name(host) not in _LOOPBACK:
        message = (
            "the devplug sandbox answers to 127.0.0.1 and localhost only; use the server of its kubeconfig"
        )
        raise StatusError(403, "Forbidden", message)
    if origin is not None and origin != f"{scheme}://{host}":
        raise StatusError(403, "Forbidden", "the devplug sandbox answers no web page of another origin")


def kubeconfig(server: str, token: str, ca_pem: bytes = b"") -> str:
    """Return the file that makes kubectl use the sandbox: JSON, which YAML's readers take.

    `server` is the address with the token in its path, or without it for https. `ca_pem` is what the server's
    certificate is trusted by.
    """
    cluster = {"server": server}
    if ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    context = {"cluster": CONTEXT, "namespace": "default", "user": CONTEXT}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": context}],
        "current-context": CONTEXT,
    }
    return json.dumps(document, indent=2) + "\n"


def _same(given: str, token: str) -> bool:
    return bool(token) and hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _password(credentials: str) -> str:
    """Return the password of RFC 7617's credentials, with which URLs that have one are asked."""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
