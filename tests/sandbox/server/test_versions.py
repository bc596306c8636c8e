"""The older versions of resource.k8s.io over real HTTP: one object, in each version in its own shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from devplug.dra.versions import API_VERSIONS
from devplug.sandbox.api.kinds import BETAS
from tests.sandbox.server.beds import Server, served

APIS = "/apis/resource.k8s.io"
SLICES = f"{APIS}/v1beta1/resourceslices"
CLAIMS = f"{APIS}/v1beta1/namespaces/default/resourceclaims"

OLD: Any = {"name": "a", "basic": {"attributes": {"index": {"int": 1}}}}
NEW: Any = {"name": "a", "attributes": {"index": {"int": 1}}}


@pytest.fixture
def server() -> Iterator[Server]:
    with served(betas=BETAS) as running:
        yield running


def a_slice(*devices: object, version: str = "v1beta1") -> Any:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {"driver": "gpu.example.com", "nodeName": "n", "pool": pool, "devices": list(devices)},
    }


def a_claim(**request: object) -> Any:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", **request}]}}}


def told(server: Server, path: str, method: str = "GET", body: object = None, form: str = "") -> Any:
    answer = server.ask(method, path, body, {"Content-Type": form} if form else None)
    assert answer.code < 300, answer.body
    return answer.json


def devices_of(one: Any) -> Any:
    return one["spec"]["devices"]


def test_a_slice_of_v1beta1_is_read_in_each_version_in_its_shape(server: Server) -> None:
    made = told(server, SLICES, "POST", a_slice(OLD))
    assert (made["apiVersion"], devices_of(made)) == ("resource.k8s.io/v1beta1", [OLD])
    for version, device in (("v1", NEW), ("v1beta2", NEW), ("v1beta1", OLD)):
        path = f"{APIS}/{version}/resourceslices"
        found, listed = told(server, f"{path}/s"), told(server, path)
        assert (found["apiVersion"], devices_of(found)) == (f"resource.k8s.io/{version}", [device])
        assert (listed["apiVersion"], devices_of(listed["items"][0])) == (found["apiVersion"], [device])
        assert found["metadata"] == made["metadata"]


def test_a_change_by_any_version_is_one_of_the_object_that_all_have(server: Server) -> None:
    made = told(server, SLICES, "POST", a_slice(OLD))
    other = {"name": "b", "basic": {}}
    changed = told(server, f"{SLICES}/s", "PUT", {**made, "spec": a_slice(OLD, other)["spec"]})
    assert devices_of(changed) == [OLD, other]
    merge = {"spec": {"devices": [other]}}
    told(server, f"{SLICES}/s", "PATCH", merge, "application/merge-patch+json")
    assert devices_of(told(server, f"{APIS}/v1/resourceslices/s")) == [{"name": "b"}]
    step = [{"op": "add", "path": "/spec/devices/0/basic/attributes", "value": {"x": {"bool": True}}}]
    told(server, f"{SLICES}/s", "PATCH", step, "application/json-patch+json")
    found = told(server, f"{APIS}/v1/resourceslices/s")
    assert devices_of(found) == [{"name": "b", "attributes": {"x": {"bool": True}}}]
    assert found["metadata"]["generation"] == 4


def test_a_watch_tells_in_the_version_that_watches(server: Server) -> None:
    with server.follow(
        f"{SLICES}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan"
    ) as answer:
        mark = json.loads(answer.readline())
        assert (mark["type"], mark["object"]["apiVersion"]) == ("BOOKMARK", "resource.k8s.io/v1beta1")
        told(server, f"{APIS}/v1/resourceslices", "POST", a_slice(NEW, version="v1"))
        told(server, f"{APIS}/v1/resourceslices/s", "DELETE")
        for change in ("ADDED", "DELETED"):
            event = json.loads(answer.readline())
            assert (event["type"], devices_of(event["object"])) == (change, [OLD])
            assert event["object"]["apiVersion"] == "resource.k8s.io/v1beta1"


def test_a_claim_of_v1beta1_asks_directly_and_gets_the_defaults_of_v1(server: Server) -> None:
    made = told(server, CLAIMS, "POST", a_claim(deviceClassName="gpu"))
    asked = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    assert made["spec"]["devices"]["requests"] == [{"name": "r", **asked}]
    found = told(server, f"{CLAIMS}/c".replace("v1beta1", "v1"))
    assert found["spec"]["devices"]["requests"] == [{"name": "r", "exactly": asked}]
    holder = {"resource": "pods", "name": "p", "uid": "u"}
    result = {"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "a"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [holder]}
    merge = "application/merge-patch+json"
    changed = told(server, f"{CLAIMS}/c/status", "PATCH", {"status": status}, merge)
    assert changed["spec"] == made["spec"]
    assert changed["status"] == told(server, f"{CLAIMS}/c".replace("v1beta1", "v1beta2"))["status"] == status


def test_v1beta1_reports_fields_that_only_v1_has_and_drops_them(server: Server) -> None:
    answer = server.ask("POST", SLICES, a_slice(NEW))
    assert 'unknown field \\"spec.devices[0].attributes\\"' in answer.headers["warning"]
    assert devices_of(answer.json) == [{"name": "a", "basic": {}}]
    strict = server.ask("POST", f"{CLAIMS}?fieldValidation=Strict", a_claim(exactly={"deviceClassName": "g"}))
    assert (strict.code, b"spec.devices.requests[0].exactly" in strict.body) == (400, True)
    other = server.ask("POST", SLICES, a_slice(OLD, version="v1"))
    assert (other.code, b"does not match the expected API version" in other.body) == (400, True)


def test_discovery_lists_the_versions_with_v1_preferred(server: Server) -> None:
    group = told(server, APIS)
    assert [one["version"] for one in group["versions"]] == [*API_VERSIONS]
    assert group["preferredVersion"]["version"] == "v1"
    listed = [told(server, f"{APIS}/{version}")["resources"] for version in API_VERSIONS]
    only_there = [one for one in listed[1] if one["kind"] == "DeviceTaintRule"]
    assert listed[0] == listed[2] == [one for one in listed[1] if one not in only_there]
    assert [one["name"] for one in only_there] == ["devicetaintrules", "devicetaintrules/status"]
    groups = {one["name"]: one["versions"] for one in told(server, "/apis")["groups"]}
    assert groups["resource.k8s.io"] == group["versions"]


def test_without_being_told_to_a_server_has_only_taint_rules_in_an_older_version() -> None:
    with served() as server:
        assert server.ask("GET", SLICES).code == 404
        assert [one["version"] for one in told(server, APIS)["versions"]] == ["v1", "v1beta2"]
        kinds = {one["kind"] for one in told(server, f"{APIS}/v1beta2")["resources"]}
        assert kinds == {"DeviceTaintRule"}
