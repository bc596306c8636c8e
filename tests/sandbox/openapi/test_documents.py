"""The OpenAPI documents: whole, without loose ends, of one mind with discovery and with the patch rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from devplug.sandbox.api.kinds import REFUSED, SERVED, Resource
from devplug.sandbox.api.strategicpatch import RULES
from devplug.sandbox.openapi.descriptions import FIELD_DESCRIPTIONS, PLAIN_DESCRIPTIONS
from devplug.sandbox.openapi.descriptions import TYPE_DESCRIPTIONS as TOLD
from devplug.sandbox.openapi.documents import openapi_document, openapi_v2, openapi_v3, openapi_v3_index
from devplug.sandbox.openapi.types import PLAIN, TYPES, WORDS, patch_rule, type_of
from devplug.sandbox.server.discovery import resource_list

KNOWN = [*SERVED, *REFUSED]
VERSIONS = list(dict.fromkeys((one.group, one.version) for one in KNOWN))
PATHS = [
    "/openapi/v2",
    "/openapi/v3",
    *(
        f"/openapi/v3/apis/{group}/{version}" if group else f"/openapi/v3/api/{version}"
        for group, version in VERSIONS
    ),
]
CORE = "io.k8s.api.core.v1"


def document(group: str, version: str) -> Any:
    found = openapi_v3(group, version)
    assert found is not None
    return found


def schemas(group: str = "", version: str = "v1") -> Any:
    return document(group, version)["components"]["schemas"]


def walked(value: Any) -> Iterator[tuple[str, Any]]:
    """Every field of every map inside, with its value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from walked(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walked(inner)


def operations(found: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                yield path, method, operation


def is_of(operation: Any, resource: Resource) -> bool:
    kind = operation["x-kubernetes-group-version-kind"]
    return bool(kind == {"group": resource.group, "version": resource.version, "kind": resource.kind})


def test_every_type_that_a_field_names_is_there() -> None:
    named = {field.type for one in TYPES.values() for field in one.fields.values()}
    assert named <= TYPES.keys() | PLAIN
    assert set(WORDS) <= named


@pytest.mark.parametrize(("group", "version"), VERSIONS)
def test_no_reference_of_a_document_leads_nowhere(group: str, version: str) -> None:
    found = document(group, version)
    names = {target for key, target in walked(found) if key == "$ref"}
    assert names <= {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}


def test_no_reference_of_the_old_document_leads_nowhere() -> None:
    found: Any = openapi_v2()
    names = {target for key, target in walked(found) if key == "$ref"}
    assert names <= {f"#/definitions/{name}" for name in found["definitions"]}


@pytest.mark.parametrize("resource", KNOWN, ids=lambda one: f"{one.qualified}/{one.version}")
def test_every_kind_has_one_schema_under_its_own_name(resource: Resource) -> None:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    old: Any = openapi_v2()
    for found in (schemas(resource.group, resource.version), old["definitions"]):
        named = [
            name
            for name, schema in found.items()
            if kind in schema.get("x-kubernetes-group-version-kind", [])
        ]
        assert len(named) == 1
        assert named[0].endswith(f".{resource.version}.{resource.kind}")


@pytest.mark.parametrize(("group", "version"), VERSIONS)
def test_everything_that_discovery_tells_has_a_path(group: str, version: str) -> None:
    told: Any = resource_list(group, version)
    found = document(group, version)
    for entry in told["resources"]:
        plural, _, part = entry["name"].partition("/")
        paths = [path for path, _, _ in operations(found) if f"/{plural}" in path and path.endswith(part)]
        assert paths, entry["name"]


@pytest.mark.parametrize("resource", KNOWN, ids=lambda one: f"{one.qualified}/{one.version}")
def test_kubectl_finds_that_every_change_can_be_validated_and_tried(resource: Resource) -> None:
    for found in (document(resource.group, resource.version), openapi_v2()):
        asked = {
            method: {parameter["name"] for parameter in operation["parameters"]}
            for _, method, operation in operations(found)
            if method in {"patch", "post", "put"} and is_of(operation, resource)
        }
        assert {"patch", "post"} <= asked.keys()
        assert all({"dryRun", "fieldValidation"} <= names for names in asked.values())


@pytest.mark.parametrize(("group", "version"), VERSIONS)
def test_each_operation_has_a_name_of_its_own(group: str, version: str) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document(group, version))]
    assert len(names) == len(set(names))


def test_the_steps_of_a_path_are_its_parameters() -> None:
    for path, methods in document("", "v1")["paths"].items():
        steps = {one["name"] for one in methods["parameters"] if one["in"] == "path"}
        assert steps == {step[1:-1] for step in path.split("/") if step.startswith("{")}


def test_lists_are_merged_as_the_server_merges_them() -> None:
    schema = schemas()[f"{CORE}.PodSpec"]["properties"]
    assert schema["containers"]["x-kubernetes-patch-strategy"] == "merge"
    assert schema["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert schema["volumes"]["x-kubernetes-patch-strategy"] == "merge,retainKeys"
    assert "x-kubernetes-patch-strategy" not in schema["tolerations"]
    assert "x-kubernetes-patch-merge-key" not in schemas()[f"{CORE}.NodeSpec"]["properties"]["podCIDRs"]


def test_every_patch_rule_is_told_of_a_field_that_exists() -> None:
    told = {
        (rule.merged, rule.key, rule.retains_keys, name)
        for one in TYPES.values()
        for name in one.fields
        if (rule := patch_rule(one, name)) is not None
    }
    for type_name, rules in RULES.items():
        for name, rule in rules.items():
            assert (rule.merged, rule.key, rule.retains_keys, name) in told
            if type_name in TYPES:
                assert name in TYPES[type_name].fields
            if rule.type in TYPES:
                owners = [one for one in TYPES.values() if patch_rule(one, name) is rule]
                named = {one.fields[name].type.removeprefix("Ephemeral") for one in owners}
                assert rule.type in named


def test_ephemeral_containers_are_patched_as_containers_are() -> None:
    ports = schemas()[f"{CORE}.EphemeralContainer"]["properties"]["ports"]
    assert ports["x-kubernetes-patch-merge-key"] == "containerPort"


def test_every_description_is_of_something_that_exists() -> None:
    assert set(PLAIN_DESCRIPTIONS) <= PLAIN
    assert set(TOLD) <= set(TYPES)
    for name in FIELD_DESCRIPTIONS:
        type_name, _, field = name.partition(".")
        assert type_name == "*" or field in TYPES[type_name].fields, name


def test_the_fields_that_devices_are_seen_in_are_told() -> None:
    found = schemas()
    assert found[f"{CORE}.NodeStatus"]["properties"]["allocatable"]["additionalProperties"]["$ref"].endswith(
        ".resource.Quantity"
    )
    assert "allocatedResourcesStatus" in found[f"{CORE}.ContainerStatus"]["properties"]
    assert "extendedResourceClaimStatus" in found[f"{CORE}.PodStatus"]["properties"]
    assert found[f"{CORE}.PodSpec"]["required"] == ["containers"]
    assert found[f"{CORE}.EphemeralContainer"]["properties"].keys() >= {"image", "targetContainerName"}


def test_a_quantity_is_a_text_or_a_number() -> None:
    name = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    assert schemas()[name]["oneOf"] == [{"type": "string"}, {"type": "number"}]


def test_the_index_names_each_document_and_a_hash_of_it() -> None:
    paths: Any = openapi_v3_index()["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/batch/v1", "apis/events.k8s.io/v1"} <= set(paths)
    for place, entry in paths.items():
        where, _, digest = entry["serverRelativeURL"].partition("?hash=")
        assert where == f"/openapi/v3/{place}"
        assert len(digest) == 64


@pytest.mark.parametrize("path", PATHS)
def test_every_document_is_json_of_less_than_two_megabytes(path: str) -> None:
    answer = openapi_document(path, "application/json, */*")
    assert answer is not None
    body, media_type = answer
    assert media_type == "application/json"
    assert json.loads(body)
    assert len(body) < 2_000_000
    again = openapi_document(path, "")
    assert again is not None
    assert again[0] is body


def test_the_old_document_is_protobuf_for_those_who_ask_for_it_first() -> None:
    for name in ("v2@v1.0", "v2.v1.0"):
        media_type = f"application/com.github.proto-openapi.spec.{name}+protobuf"
        answer = openapi_document("/openapi/v2", f"{media_type}, application/json")
        assert answer is not None
        assert answer[1] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        assert answer[0].startswith(b"\x0a\x032.0")
        assert openapi_document("/openapi/v3/api/v1", media_type) is None


def read(body: bytes) -> dict[int, list[bytes]]:
    """The fields of a protobuf message by their numbers; all of ours are lengths with bytes, or flags."""
    found: dict[int, list[bytes]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(body):
        tag = varint()
        length = varint()
        if tag & 7 == 2:
            found.setdefault(tag >> 3, []).append(body[at : at + length])
            at += length
    assert at == len(body)
    return found


def test_the_protobuf_form_tells_the_parameters_of_a_patch() -> None:
    answer = openapi_document("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
    assert answer is not None
    whole = read(answer[0])
    paths = {read(one)[1][0].decode(): read(read(one)[2][0]) for one in read(whole[8][0])[2]}
    old: Any = openapi_v2()
    assert set(paths) == set(old["paths"])
    patch = read(paths["/api/v1/namespaces/{namespace}/pods/{name}"][8][0])
    extensions = {read(one)[1][0]: read(read(one)[2][0])[2][0] for one in patch[13]}
    assert json.loads(extensions[b"x-kubernetes-group-version-kind"])["kind"] == "Pod"
    asked = [read(read(one)[1][0]) for one in patch[8]]
    queries = {read(read(one[2][0])[3][0])[4][0] for one in asked if 2 in one}
    assert queries == {b"dryRun", b"fieldManager", b"fieldValidation"}
    assert [read(one[1][0])[2] for one in asked if 1 in one] == [[b"body"]]
    definitions = {read(one)[1][0].decode(): read(read(one)[2][0]) for one in read(whole[9][0])[1]}
    assert set(definitions) == set(old["definitions"])
    assert definitions[f"{CORE}.PodSpec"][19] == [b"containers"]


@pytest.mark.parametrize("path", ["/openapi/v4", "/openapi/v3/api/v2", "/openapi/v3/apis/apps", "/openapi"])
def test_what_is_not_there_is_not_answered(path: str) -> None:
    assert openapi_document(path, "*/*") is None


def test_a_form_that_is_not_there_is_not_answered() -> None:
    assert openapi_document("/openapi/v3", "application/yaml") is None


def test_a_refused_kind_says_why() -> None:
    schema = schemas("batch", "v1")["io.k8s.api.batch.v1.Job"]
    assert "the devplug sandbox runs pods and DaemonSets" in schema["description"]
    assert type_of(REFUSED[0]) is None
