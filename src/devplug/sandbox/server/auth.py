"""Authentication and authorization: the token, the server's host names, the kubeconfig, and reviews. Pure.

kubectl sends no token over plain HTTP (client-go's clientcmd drops it without TLS), so the token may also
stand in front of every path, where only those know it who have read the kubeconfig.

Reviews are answered and not kept. Without roles the token is for everything; what nobody may do is what the
sandbox refuses for want of who would do it, so `kubectl auth can-i` says why not (registry/authorization and
registry/authentication of the API server).
"""

from __future__ import annotations

import base64
import hmac
import json
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from devplug.k8s.objects import Object, entries, fields, text
from devplug.sandbox.api.errors import StatusError, internal_error, unauthorized
from devplug.sandbox.api.kinds import REFUSED
from devplug.sandbox.authorization.rbac import Access
from devplug.sandbox.authorization.tokens import user_of_token
from devplug.sandbox.authorization.users import ADMIN, ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.authorization.authorizer import Rights
    from devplug.sandbox.authorization.users import User

_READING: Final = frozenset({"get", "list", "watch"})
_EVERYTHING: Final = ["*"]
_EXTRA: Final = "impersonate-extra-"
CONTEXT: Final = ADMIN.name
"""The name of the cluster, the user and the context in the kubeconfig."""

_PUBLIC: Final = {"healthz", "livez", "readyz", "version"}
_LOOPBACK: Final = {"127.0.0.1", "::1", "localhost"}


# ── Reviews ──


def review(resource: Resource, asked: Object, rights: Rights) -> Object:
    """Return a review with its answer in `status`, for the user who has these rights."""
    return {
        **asked,
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {**fields(asked, "metadata"), "creationTimestamp": None},
        "status": _ANSWERS[resource.kind](asked, rights),
    }


def _access(asked: Object, rights: Rights) -> Object:
    wanted = fields(asked, "spec", "resourceAttributes")
    if text(wanted, "verb") not in _READING:
        for one in REFUSED:
            if (one.group, one.plural) == (text(wanted, "group"), text(wanted, "resource")):
                return {"allowed": False, "denied": True, "reason": one.refusal}
    path = fields(asked, "spec", "nonResourceAttributes")
    access = Access(
        verb=text(wanted or path, "verb"),
        group=text(wanted, "group"),
        resource=text(wanted, "resource"),
        part_name=text(wanted, "subresource"),
        namespace=text(wanted, "namespace"),
        name=text(wanted, "name"),
        path=text(path, "path"),
    )
    decision = rights.decide(access)
    return {"allowed": decision.is_allowed, **({"reason": decision.reason} if decision.reason else {})}


def _rules(asked: Object, rights: Rights) -> Object:
    if not rights.has_everything:
        rules, errors = rights.rules_for(text(asked, "spec", "namespace"))
        of_paths = [one for one in rules if entries(one, "nonResourceURLs")]
        return {
            "resourceRules": [one for one in rules if one not in of_paths],
            "nonResourceRules": of_paths,
            "incomplete": bool(errors),
            **({"evaluationError": ", ".join(errors)} if errors else {}),
        }
    return {
        "resourceRules": [{"verbs": _EVERYTHING, "apiGroups": _EVERYTHING, "resources": _EVERYTHING}],
        "nonResourceRules": [{"verbs": _EVERYTHING, "nonResourceURLs": _EVERYTHING}],
        "incomplete": False,
    }


def _user(_: Object, rights: Rights) -> Object:
    user = rights.user
    extra = {key: list(values) for key, values in user.extra.items()}
    told: Object = {"username": user.name, "groups": list(user.groups)}
    return {"userInfo": {**told, **({"extra": extra} if extra else {})}}


_ANSWERS: Final[Mapping[str, Callable[[Object, Rights], Object]]] = {
    "SelfSubjectAccessReview": _access,
    "SelfSubjectReview": _user,
    "SelfSubjectRulesReview": _rules,
}

# ── Token, host names and kubeconfig ──


def admitted(path: str, authorization: str, token: str, now: datetime) -> tuple[str, User]:
    """Return the path that is asked for, without the token, and whose token it is.

    Raises `StatusError` (401) if there is none. `authorization` is the header of that name; `token` is the
    administrator's, with which those of others are signed. Comparing takes the same time for every wrong
    token. How the server is, and its version, everybody may know, as in every cluster (role
    system:public-info-viewer).
    """
    first, slash, rest = path.removeprefix("/").partition("/")
    if user := _user_of(first, token, now):
        return f"{slash}{rest}" or "/", user
    scheme, _, given = authorization.partition(" ")
    given = given.strip()
    if scheme.lower() == "basic":
        given = _password(given)
    if scheme.lower() in {"basic", "bearer"} and (user := _user_of(given, token, now)):
        return path, user
    if first in _PUBLIC:
        return path, ANONYMOUS
    raise unauthorized()


def impersonating(rights: Rights, headers: Iterable[tuple[str, str]]) -> Rights:
    """Return the rights of the user whom the headers of a request name instead (`kubectl --as`).

    Raises `StatusError`, with a 403 for who may not be that user.
    """
    groups, extra = [], dict[str, tuple[str, ...]]()
    name = ""
    for header, value in headers:
        if header == "impersonate-user":
            name = value
        elif header == "impersonate-group":
            groups.append(value)
        elif header.startswith(_EXTRA):
            key = unquote(header.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    if name:
        return rights.acting_as(name, groups, extra)
    if groups or extra:
        raise internal_error("requested groups or extras without impersonating a user")
    return rights


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


def _user_of(given: str, token: str, now: datetime) -> User | None:
    if token and hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
        return ADMIN
    return user_of_token(given, token, now)


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
