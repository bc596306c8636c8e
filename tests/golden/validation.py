"""Plays writes of DRA's objects, and compares the answers with those of the real API server (v1.36.2).

A record has the object that is sent, the one that was there before if it is an update, and the answer, with
what was stored otherwise than it was sent. One record cannot match, `claim-status/deallocate-and-unreserve`
with its 409: a controller of the recording's cluster, which missed the pod, had meanwhile changed the object.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import Resource, resource_of_kind
from devplug.sandbox.registry import NAMESPACES, Registry
from devplug.sandbox.server.handlers import RequestHandlers
from devplug.sandbox.server.routes import Request, Verb

Json = Any
NOW = datetime(2026, 11, 22, 16, tzinfo=UTC)
VERBS = {"create": Verb.CREATE, "update": Verb.UPDATE, "update_status": Verb.UPDATE}
GENERATED = "<GENERATED>"
TOLD_OF_META = ("name", "generateName", "namespace", "labels", "annotations", "finalizers")


def differences(record: Json) -> list[str]:
    """Return what the answer to a record is otherwise; nothing if it is the same."""
    resource = resource_of_kind(record["object"]["apiVersion"], record["kind"])
    assert resource is not None
    registry = Registry(_contents(resource, record), now=lambda: NOW)
    given, old = record["object"], record.get("old", {})
    query = {"fieldValidation": [record.get("fieldValidation", "Strict")]}
    meta = (old or given)["metadata"]
    request = Request(
        VERBS[record["op"]],
        resource,
        meta.get("namespace", ""),
        meta.get("name", "") if old else "",
        "status" if record["op"] == "update_status" else "",
        query,
    )
    answer, stored = _answer(registry, request, given)
    want = record["answer"]
    if (answer, want.get("causes")) == (want, answer.get("causes")):
        return _stored_differences(record, stored)
    return [f"{record['name']}\n  want {want}\n  got  {answer}"]


def _contents(resource: Resource, record: Json) -> list[tuple[Resource, Json]]:
    admin = {"resource.kubernetes.io/admin-access": "true"}
    spaces = [{"name": "ns", "labels": admin}, {"name": "plain"}]
    contents: list[tuple[Resource, Json]] = [(NAMESPACES, {"metadata": meta}) for meta in spaces]
    if old := record.get("old"):
        meta = {**old["metadata"], "uid": "u", "resourceVersion": "1"}
        contents.append((resource, {**old, "metadata": meta}))
    return contents


def _answer(registry: Registry, request: Request, given: Json) -> tuple[Json, Json]:
    """Return the answer in a record's form, and the object that is stored then."""
    try:
        outcome = RequestHandlers(registry).perform(request, json.dumps(given).encode(), "application/json")
    except StatusError as error:
        answer = {"code": error.code, "reason": error.reason, "message": error.message}
        causes = (error.details or {}).get("causes")
        if isinstance(causes, list):
            places = ("field", "reason", "message")
            answer["causes"] = sorted(causes, key=lambda one: [one.get(word) for word in places])
        return answer, None
    return {"code": outcome.code}, outcome.value


def _stored_differences(record: Json, stored: Json) -> list[str]:
    if stored is None or record.get("fieldValidation", "Strict") != "Strict":
        return []  # what is stored of an object with unknown fields was not recorded
    found = []
    told: Json = {**record["object"], **record.get("stored", {})}
    for word in ("metadata", "spec", "status"):
        want, got = told.get(word), stored.get(word)
        if word == "metadata":
            want, got = ({key: meta[key] for key in TOLD_OF_META if key in meta} for meta in (want, got))
            assert want is not None
            assert got is not None
            if want.get("name") == GENERATED and got["name"].startswith(want["generateName"]):
                got["name"] = GENERATED
        if word == "status" and not got:
            continue  # an empty status was not recorded
        if (want := _timed(want)) != (got := _timed(got)):
            found.append(f"{record['name']} stored {word}\n  want {want}\n  got  {got}")
    return found


def _timed(value: Json) -> Json:
    """Return `value` without the times at which taints were added, which are those of the recording."""
    if isinstance(value, dict):
        return {key: "<TIME>" if key == "timeAdded" else _timed(inner) for key, inner in value.items()}
    return [_timed(one) for one in value] if isinstance(value, list) else value
