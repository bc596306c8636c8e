"""DRA's objects as clients write them, and what the API server answers: one function for each."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from devplug.k8s.objects import with_part
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import Resource, resource_of_kind
from devplug.sandbox.registry import NAMESPACES, Registry
from devplug.sandbox.server.handlers import RequestHandlers
from devplug.sandbox.server.routes import Request, Verb

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Json = Any


def kind(name: str) -> Resource:
    found = resource_of_kind("resource.k8s.io/v1", name)
    assert found is not None
    return found


SLICES, CLASSES = kind("ResourceSlice"), kind("DeviceClass")
CLAIMS, TEMPLATES = kind("ResourceClaim"), kind("ResourceClaimTemplate")


class Cluster:
    """An API server without a socket, with the namespaces `ns`, which has admin access, and `plain`."""

    def __init__(self) -> None:
        labels = {"resource.kubernetes.io/admin-access": "true"}
        metas = [{"name": "ns", "labels": labels}, {"name": "plain"}]
        self.registry = Registry(((NAMESPACES, {"metadata": meta}) for meta in metas), now=lambda: NOW)
        self._handlers = RequestHandlers(self.registry)

    def create(self, resource: Resource, one: Json) -> Json:
        """Create an object, with unknown fields refused; raises `StatusError`."""
        namespace = one["metadata"].get("namespace", "") if resource.namespaced else ""
        return self._perform(Verb.CREATE, resource, one, namespace, "")

    def update(self, resource: Resource, one: Json, part_name: str = "") -> Json:
        """Replace an object, or its status; raises `StatusError`."""
        namespace = one["metadata"].get("namespace", "")
        return self._perform(Verb.UPDATE, resource, one, namespace, one["metadata"]["name"], part_name)

    def delete_many(self, resource: Resource, selector: str) -> None:
        """Delete the objects that a field selector matches."""
        query = {"fieldSelector": [selector]}
        self._handlers.perform(Request(Verb.DELETE_MANY, resource, "", "", "", query), b"", "")

    def _perform(
        self, verb: Verb, resource: Resource, one: Json, namespace: str, name: str, part_name: str = ""
    ) -> Json:
        query = {"fieldValidation": ["Strict"]}
        request = Request(verb, resource, namespace, name, part_name, query)
        body = json.dumps({"apiVersion": resource.api_version, "kind": resource.kind, **one})
        return self._handlers.perform(request, body.encode(), "application/json").value


def devices_of_node(devices: Json = None, **spec: Any) -> Json:
    """A ResourceSlice of the node n1."""
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    owner = {"driver": "gpu.example.com", "pool": pool, "nodeName": "n1"}
    listed = [{"name": "d0"}] if devices is None else devices
    return {"metadata": {"name": "s"}, "spec": {**owner, "devices": listed, **spec}}


def claim(*requests: Json, namespace: str = "ns", **devices: Any) -> Json:
    """A ResourceClaim; without requests it asks for one device of the class gpu."""
    listed = list(requests) or [{"name": "r0", "exactly": {"deviceClassName": "gpu"}}]
    meta = {"name": "c", "namespace": namespace}
    return {"metadata": meta, "spec": {"devices": {"requests": listed, **devices}}}


def exactly(**fields: Any) -> Json:
    """A request for devices of the class gpu."""
    return {"name": "r0", "exactly": {"deviceClassName": "gpu", **fields}}


RESULT = {"request": "r0", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}


def allocated(**status: Any) -> Json:
    """The status of a claim that has got a device."""
    return {"allocation": {"devices": {"results": [RESULT]}}, **status}


def refusals(resource: Resource, one: Json, cluster: Cluster | None = None) -> list[tuple[str, str]]:
    """The field and the sentence of each fault for which a new object is refused; none if it is stored."""
    return _faults(lambda: (cluster or Cluster()).create(resource, one))


def status_refusals(*statuses: Json) -> list[tuple[str, str]]:
    """The faults of the last of these statuses, which are written into a claim one after the other."""
    cluster = Cluster()
    stored = cluster.create(CLAIMS, claim())
    for status in statuses[:-1]:
        stored = cluster.update(CLAIMS, {**stored, "status": status}, "status")
    return _faults(lambda: cluster.update(CLAIMS, {**stored, "status": statuses[-1]}, "status"))


def update_refusals(resource: Resource, one: Json, value: Json, *path: str) -> list[tuple[str, str]]:
    """The faults of a change of one field."""
    cluster = Cluster()
    stored = cluster.create(resource, one)
    return _faults(lambda: cluster.update(resource, with_part(stored, value, *path)))


def _faults(write: Any) -> list[tuple[str, str]]:
    try:
        write()
    except StatusError as error:
        causes: Any = (error.details or {}).get("causes", [{"field": "", "message": error.message}])
        return [(one["field"], one["message"]) for one in causes]
    return []
