"""Plays requests of kubelets and drivers, and compares the answers with the real API server's (v1.36.2).

A record says in words who asks and for what; the tables here have the user, the rules of its role, and the
request for each of these words.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import known
from devplug.sandbox.authorization.authorizer import Authorizer, Rights
from devplug.sandbox.authorization.users import NODE_NAME, User, node_user, service_account
from devplug.sandbox.registry import NAMESPACES, RESOURCE_CLAIMS, RESOURCE_SLICES, Registry
from devplug.sandbox.server.handlers import RequestHandlers
from devplug.sandbox.server.routes import request_of

Json = Any

DRIVER = "gpu.example.com"
ROOT = "/apis/resource.k8s.io/v1"
SLICES = f"{ROOT}/resourceslices"
CLAIMS = f"{ROOT}/namespaces/perm/resourceclaims"
ROLES = "rbac.authorization.k8s.io/v1"
EVERY_WRITE = ["get", "list", "watch", "create", "update", "patch", "delete"]


# ── the world ──


def device_slice(name: str, **node: Json) -> Json:
    spec = {"driver": DRIVER, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}, **node}
    return {"metadata": {"name": name}, "spec": {**spec, "devices": [{"name": "dev-0"}]}}


def status(*, devices: bool = False, others: int = 0, allocated: bool = True) -> Json:
    place = {"driver": DRIVER, "pool": "worker-0", "device": "dev-0"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-0"]}]}
    pods = [{"resource": "pods", "name": f"p{number}", "uid": f"u{number}"} for number in range(1 + others)]
    allocation = {
        "devices": {"results": [{"request": "r", **place}]},
        "nodeSelector": {"nodeSelectorTerms": [term]},
    }
    return {
        **({"allocation": allocation, "reservedFor": pods} if allocated else {}),
        **({"devices": [{**place, "data": {"state": "set"}}]} if devices else {}),
    }


def claim(given: Json) -> Json:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    return {
        "metadata": {"name": "c", "namespace": "perm"},
        "spec": {"devices": {"requests": [request]}},
        "status": given,
    }


def world(rules: list[Json]) -> Registry:
    """Return what was there before each request: a claim for worker-0, slices of both nodes, and a role."""
    registry = Registry(seed=1)
    registry.create(NAMESPACES, "", {"metadata": {"name": "perm"}})
    registry.create(RESOURCE_SLICES, "", device_slice("mine", nodeName="worker-0"))
    registry.create(RESOURCE_SLICES, "", device_slice("other", nodeName="worker-1"))
    registry.create(RESOURCE_CLAIMS, "perm", claim({}))
    registry.set_status(RESOURCE_CLAIMS, "perm", "c", status())
    role = {"metadata": {"name": "driver"}, "rules": rules}
    registry.create(known(ROLES, "ClusterRole"), "", {"kind": "ClusterRole", **role})
    binding: Json = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "driver"},
        "roleRef": {"kind": "ClusterRole", "name": "driver"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "perm", "name": "drv"}],
    }
    registry.create(known(ROLES, "ClusterRoleBinding"), "", binding)
    return registry


# ── who ──


def rule(resource: str, *verbs: str, **names: list[str]) -> Json:
    return {"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": list(verbs), **names}


class Who(NamedTuple):
    user: User
    rules: list[Json]


def driver(*rules: Json, node: str = "worker-0") -> Who:
    user = service_account("perm", "drv", {NODE_NAME: node} if node else {})
    return Who(user, [rule("resourceslices", *EVERY_WRITE), rule("resourceclaims", "get"), *rules])


STATUS = rule("resourceclaims/status", "update", "patch")
HERE = rule("resourceclaims/driver", "associated-node:update", resourceNames=[DRIVER])
ELSEWHERE = rule("resourceclaims/driver", "associated-node:update", resourceNames=["other.example.com"])
ANYWHERE = rule("resourceclaims/driver", "arbitrary-node:update", resourceNames=[DRIVER])
ALLOCATES = rule("resourceclaims/binding", "update", "patch")
WHO = {
    "kubelet of worker-0": Who(node_user("worker-0"), []),
    "driver, slices+claims get only": driver(),
    "driver + resourceclaims/status": driver(STATUS),
    "driver + resourceclaims/driver associated-node:update, token of worker-0": driver(STATUS, HERE),
    "the same, token of worker-1": driver(STATUS, HERE, node="worker-1"),
    "the same, token without node": driver(STATUS, HERE, node=""),
    "driver allowed for another driver name": driver(STATUS, ELSEWHERE),
    "driver + arbitrary-node:update, token without node": driver(STATUS, ANYWHERE, node=""),
    "scheduler-like: + resourceclaims/binding": driver(STATUS, ALLOCATES),
}

# ── what ──


class What(NamedTuple):
    method: str
    path: str
    body: Json = None
    selector: str = ""


SET_DEVICES = What("PUT", f"{CLAIMS}/c/status", claim(status(devices=True)))
WHAT = {
    "create a slice for worker-0": What("POST", SLICES, device_slice("new", nodeName="worker-0")),
    "create a slice for worker-1": What("POST", SLICES, device_slice("other", nodeName="worker-1")),
    "create a slice for all nodes": What("POST", SLICES, device_slice("all", allNodes=True)),
    "create a slice for another node (RBAC cannot tell nodes apart)": What(
        "POST", SLICES, device_slice("new", nodeName="worker-1")
    ),
    "get the slice of worker-1": What("GET", f"{SLICES}/other"),
    "delete the slice of worker-1": What("DELETE", f"{SLICES}/other"),
    "list slices without selector": What("GET", SLICES),
    "list slices with spec.nodeName=worker-0": What("GET", SLICES, None, "spec.nodeName=worker-0"),
    "deletecollection with spec.nodeName=worker-1": What("DELETE", SLICES, None, "spec.nodeName=worker-1"),
    "deletecollection with spec.nodeName=worker-0,spec.driver=gpu.example.com": What(
        "DELETE", SLICES, None, "spec.nodeName=worker-0,spec.driver=gpu.example.com"
    ),
    "deletecollection of slices": What("DELETE", SLICES),
    "get a claim no pod of the node uses": What("GET", f"{CLAIMS}/c"),
    "list claims": What("GET", CLAIMS),
    "set status.devices": SET_DEVICES,
    "set status.devices of a claim on worker-0": SET_DEVICES,
    "add to reservedFor": What("PUT", f"{CLAIMS}/c/status", claim(status(others=1))),
    "clear the allocation": What("PUT", f"{CLAIMS}/c/status", claim(status(allocated=False))),
}


# ── one record ──


def differences(record: Json) -> list[str]:
    """Return what the answer to a record is otherwise; nothing if it is the same."""
    got = answer(WHO[record["who"]], WHAT[record["what"]])
    want = {word: record[word] for word in ("code", "reason", "message")}
    return [] if got == want else [f"{record['who']}: {record['what']}\n  want {want}\n  got  {got}"]


def answer(who: Who, what: What) -> Json:
    registry = world(who.rules)
    query = {"fieldSelector": [what.selector]} if what.selector else {}
    request = request_of(what.method, what.path, query)
    assert request is not None
    rights = Rights(who.user, Authorizer(registry))
    body = b"" if what.body is None else json.dumps(what.body).encode()
    try:
        rights.require(request.access)
        outcome = RequestHandlers(registry).perform(request, body, "application/json", rights)
    except StatusError as error:
        return {"code": error.code, "reason": error.reason, "message": error.message}
    return {"code": outcome.code, "reason": None, "message": None}
