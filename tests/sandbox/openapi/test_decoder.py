"""The decoder: nothing about right objects, the real sentences about wrong ones, and zero values for null.

The sentences are what sigs.k8s.io/json of 2025-07-30 says of the same, with the types of k8s.io/api v0.36.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import Object
from devplug.k8s.times import micro_stamp, stamp
from devplug.sandbox.api.kinds import REFUSED, SERVED, Resource, resource_of_kind
from devplug.sandbox.openapi.decoder import FieldReport, field_report, with_zeros
from devplug.sandbox.openapi.types import TYPES, WORDS, Field, Form, type_of
from tests.sandbox.jsons import KUBECTL

SUMS = st.sampled_from(["1", "500m", "1Gi", "1e3", "0.5", 2, 0.5])
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 30)).map(lambda one: one.replace(tzinfo=UTC))  # noqa: DTZ001
TEXTS = st.sampled_from(["", "a", "é", "spec.foo", '"'])

PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "FieldsV1": st.dictionaries(TEXTS, TEXTS, max_size=2),
    "IntOrString": st.integers(-(2**31), 2**31 - 1) | TEXTS,
    "MicroTime": MOMENTS.map(micro_stamp),
    "Quantity": SUMS,
    "RawExtension": st.dictionaries(TEXTS, TEXTS, max_size=2),
    "ResourceList": st.dictionaries(TEXTS, SUMS, max_size=2),
    "Time": MOMENTS.map(stamp) | st.just("2026-01-02T03:04:05.678+01:00"),
    "UID": TEXTS,
    "bool": st.booleans(),
    "bytes": st.sampled_from(["", "aGk=", "AAA\n="]),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "string": TEXTS,
    **dict.fromkeys(WORDS, TEXTS),
}

SERVED_KINDS = st.sampled_from(SERVED)


def _values(field: Field, depth: int) -> st.SearchStrategy[Any]:
    one = PLAIN.get(field.type)
    if one is None:
        one = objects(field.type, depth - 1)
    match field.form:
        case Form.LIST:
            return st.lists(one | st.none(), max_size=3)
        case Form.MAP:
            return st.dictionaries(TEXTS, one | st.none(), max_size=2)
    return one


def objects(type_name: str, depth: int = 4) -> st.SearchStrategy[dict[str, Any]]:
    """Maps with a few of the fields of a type, down to some depth, and null now and then."""
    fields = list(TYPES[type_name].fields.values())
    if depth <= 0:
        fields = [field for field in fields if field.type in PLAIN]
    if not fields:
        return st.just({})

    @st.composite
    def made(draw: st.DrawFn) -> dict[str, Any]:
        chosen = draw(st.lists(st.sampled_from(fields), max_size=4, unique_by=lambda field: field.name))
        return {field.name: draw(_values(field, depth) | st.none()) for field in chosen}

    return made()


@st.composite
def served_objects(draw: st.DrawFn) -> tuple[Any, dict[str, Any]]:
    """A resource, and an object of it."""
    resource = draw(SERVED_KINDS)
    type_ = type_of(resource)
    assert type_ is not None
    return resource, draw(objects(type_.name))


NOTHING = FieldReport((), "")
MIDNIGHT = "2026-02-28T00:00:00Z"
QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def recorded_objects() -> list[Any]:
    found = []
    for path in sorted(KUBECTL.iterdir()):
        text = path.read_text()
        if path.suffix == ".yaml":
            found += [pytest.param(one, id=path.name) for one in yaml.safe_load_all(text)]
        elif path.suffix == ".json" or path.name.endswith("-json.txt"):
            one = json.loads(text[text.index("{") :])
            if one.get("kind") in {served.kind for served in SERVED}:
                found.append(pytest.param(one, id=path.name))
    return found


def kind(api_version: str, name: str) -> Resource:
    found = resource_of_kind(api_version, name)
    assert found is not None
    return found


def report(name: str, body: Any, api_version: str = "v1") -> FieldReport:
    return field_report(kind(api_version, name), body)


def container(**fields: Any) -> Any:
    return {"spec": {"containers": [{"name": "a"}, fields]}}


@pytest.mark.parametrize("one", recorded_objects())
def test_nothing_is_said_of_what_a_real_cluster_took_and_told(one: Any) -> None:
    assert field_report(kind(one["apiVersion"], one["kind"]), one) == NOTHING


def test_the_recorded_objects_are_many() -> None:
    kinds = [one.values[0]["kind"] for one in recorded_objects()]
    assert len(kinds) >= 16
    assert {"Pod", "Node", "ResourceQuota"} <= set(kinds)


@given(served_objects())
def test_nothing_is_said_of_what_is_made_after_the_types(made: tuple[Resource, Any]) -> None:
    assert field_report(*made) == NOTHING


@pytest.mark.parametrize(
    ("name", "body", "path"),
    [
        ("Pod", {"foo": 1}, "foo"),
        ("Pod", container(imagine="x"), "spec.containers[1].imagine"),
        ("Pod", container(resources={"limit": {}}), "spec.containers[1].resources.limit"),
        ("Pod", {"spec": {"Containers": []}}, "spec.Containers"),
        ("Pod", {"spec": {"volumes": [{"hostPath": {"paht": "/"}}]}}, "spec.volumes[0].hostPath.paht"),
        ("Node", {"spec": {"taint": []}}, "spec.taint"),
        ("ResourceQuota", {"spec": {"hards": {}}}, "spec.hards"),
        ("Pod", {'q"': 1}, 'q\\"'),
    ],
)
def test_a_misspelt_field_is_told_with_its_path(name: str, body: Any, path: str) -> None:
    assert report(name, body) == FieldReport((f'unknown field "{path}"',), "")


def test_unknown_fields_are_told_in_the_order_of_the_object_and_nothing_inside_them() -> None:
    body = {"z": {"y": 1}, "spec": {"b": 1, "a": 2}}
    assert [one.split('"')[1] for one in report("Pod", body).unknown] == ["z", "spec.b", "spec.a"]


def test_no_more_than_100_unknown_fields_are_told() -> None:
    assert len(report("Pod", {f"f{number}": 1 for number in range(101)}).unknown) == 100


@given(served_objects(), st.data())
def test_one_field_too_many_is_found_wherever_it_is(made: tuple[Resource, Any], data: st.DataObject) -> None:
    resource, one = made
    type_ = type_of(resource)
    assert type_ is not None
    places: list[tuple[str, Any]] = [("", one)]
    metadata = one.get("metadata")
    if isinstance(metadata, dict):
        places.append(("metadata.", metadata))
        owners = metadata.get("ownerReferences") or []
        places += [(f"metadata.ownerReferences[{at}].", it) for at, it in enumerate(owners) if it is not None]
    path, place = data.draw(st.sampled_from(places))
    place["misspelt"] = data.draw(st.sampled_from([None, 1, {"a": 1}]))
    assert field_report(resource, one) == FieldReport((f'unknown field "{path}misspelt"',), "")


CONTAINERS = """
number Container.spec.containers.name string: {name: 3}
string Container.spec.containers.stdin bool: {stdin: "yes"}
string Container.spec.containers.args []string: {args: -v}
number Container.spec.containers.args string: {args: [1]}
string ContainerPort.spec.containers.ports.containerPort int32: {ports: [{containerPort: "80"}]}
number 80.5 ContainerPort.spec.containers.ports.containerPort int32: {ports: [{containerPort: 80.5}]}
array ResourceRequirements.spec.containers.resources.limits v1.ResourceList: {resources: {limits: []}}
object ExecAction.spec.containers.livenessProbe.ProbeHandler.exec.command []string:
  livenessProbe: {exec: {command: {}}}
bool HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port int32:
  livenessProbe: {httpGet: {port: true}}
"""
PODS = """
number HostPathVolumeSource.spec.volumes.VolumeSource.hostPath.type v1.HostPathType:
  spec: {volumes: [{hostPath: {type: 1}}]}
bool PodSpec.spec.restartPolicy v1.RestartPolicy: {spec: {restartPolicy: true}}
object PodSpec.spec.containers []v1.Container: {spec: {containers: {}}}
number 2147483648 PodSpec.spec.priority int32: {spec: {priority: 2147483648}}
array Pod.spec v1.PodSpec: {spec: []}
number ObjectMeta.metadata.labels string: {metadata: {labels: {a: 1}}}
string ObjectMeta.metadata.labels map[string]string: {metadata: {labels: a}}
number ObjectMeta.metadata.uid types.UID: {metadata: {uid: 1}}
number ObjectMeta.metadata.creationTimestamp string: {metadata: {creationTimestamp: 5}}
"""
"""What came, in which field of which type, and the pod in which it came."""


@pytest.mark.parametrize(
    ("wrong", "body"),
    [
        *((wrong, container(**fields)) for wrong, fields in yaml.safe_load(CONTAINERS).items()),
        *yaml.safe_load(PODS).items(),
    ],
)
def test_a_value_of_another_type_is_told_in_the_words_of_go(wrong: str, body: Any) -> None:
    value, field, type_ = wrong.rsplit(" ", 2)
    told = f"json: cannot unmarshal {value} into Go struct field {field} of type {type_}"
    assert report("Pod", body) == FieldReport((), told)


def test_what_is_no_object_is_told_so() -> None:
    told = "json: cannot unmarshal string into Go value of type v1.Pod"
    assert report("Pod", "x") == FieldReport((), told)


@pytest.mark.parametrize("value", ["x", [1, 256], 5])
def test_bytes_are_a_text_in_base64_or_a_list_of_bytes(value: Any) -> None:
    assert report("ConfigMap", {"binaryData": {"a": [1, 255]}}) == NOTHING
    assert report("ConfigMap", {"binaryData": {"a": value}}) != NOTHING


@pytest.mark.parametrize(
    ("quantity", "sentence"),
    [("two", QUANTITY), (True, QUANTITY), ("2Q", QUANTITY), ("2mm", "unable to parse quantity's suffix")],
)
def test_a_text_that_is_no_quantity_says_why(quantity: object, sentence: str) -> None:
    assert report("Node", {"status": {"capacity": {"a.b/c": quantity}}}) == FieldReport((), sentence)


@pytest.mark.parametrize(
    ("time", "sentence"),
    [
        ("now", '"now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006"'),
        ("2026-02-29T00:00:00Z", '"2026-02-29T00:00:00Z": day out of range'),
        ("2026-02-28T24:00:00Z", '"2026-02-28T24:00:00Z": hour out of range'),
        ("2026-02-28T00:00:00Zé", '"2026-02-28T00:00:00Z\\xc3\\xa9": extra text: "\\xc3\\xa9"'),
    ],
)
def test_a_text_that_is_no_time_says_why(time: str, sentence: str) -> None:
    body = {"metadata": {"creationTimestamp": time}}
    assert report("Node", body) == FieldReport((), f"parsing time {sentence}")


def test_a_time_of_an_event_has_microseconds() -> None:
    layout = "2006-01-02T15:04:05.000000Z07:00"
    assert report("Event", {"eventTime": MIDNIGHT}).unreadable == (
        f'parsing time "{MIDNIGHT}" as "{layout}": cannot parse "Z" as ".000000"'
    )


@pytest.mark.parametrize(
    ("content", "place"),
    [("a*b=", 1), ("YWJj\nYQ", 5), ("YQ=", 3), ("YQ=x", 2), ("YQ==\nYQ==", 5), ("=Q==", 0)],
)
def test_a_text_that_is_no_base64_says_where(content: str, place: int) -> None:
    told = f"illegal base64 data at input byte {place}"
    assert report("ConfigMap", {"binaryData": {"a": content}}) == FieldReport((), told)


def test_the_first_wrong_value_is_told_and_no_unknown_field_beside_it() -> None:
    body = {"foo": 1, "spec": {"hostPID": 1, "priority": "x"}}
    told = "json: cannot unmarshal number into Go struct field PodSpec.spec.hostPID of type bool"
    assert report("Pod", body) == FieldReport((), told)


def test_a_wrong_quantity_goes_before_a_wrong_type_that_stands_before_it() -> None:
    body = {"spec": {"unschedulable": 1}, "status": {"capacity": {"cpu": "x"}}}
    assert report("Node", body).unreadable == QUANTITY


@pytest.mark.parametrize("resource", [*SERVED, *REFUSED], ids=lambda one: one.qualified)
def test_null_is_no_fault_anywhere(resource: Resource) -> None:
    type_ = type_of(resource)
    body = dict.fromkeys(type_.fields) if type_ else None
    assert field_report(resource, body) == NOTHING


@pytest.mark.parametrize("resource", REFUSED, ids=lambda one: one.qualified)
def test_nothing_is_said_of_what_is_refused_anyway(resource: Resource) -> None:
    assert field_report(resource, {"spec": 1, "foo": 2}) == NOTHING


def test_both_versions_of_events_have_their_own_fields() -> None:
    assert report("Event", {"note": "x"}).unknown == ('unknown field "note"',)
    assert report("Event", {"note": "x"}, "events.k8s.io/v1") == NOTHING


@pytest.mark.parametrize(
    ("spec", "read"),
    [
        ({"nodeName": None, "priority": 5}, {"priority": 5}),
        ({"tolerations": [None, {"key": None}]}, {"tolerations": [{}, {}]}),
        ({"nodeSelector": {"zone": None}}, {"nodeSelector": {"zone": ""}}),
        ({"overhead": {"cpu": None}}, {"overhead": {"cpu": "0"}}),
        ({"containers": [{"command": [None], "env": None}]}, {"containers": [{"command": [""]}]}),
        (
            {"securityContext": {"supplementalGroups": [None]}},
            {"securityContext": {"supplementalGroups": [0]}},
        ),
        ({"noSuchField": [None]}, {"noSuchField": [None]}),
        ({"tolerations": "no list"}, {"tolerations": "no list"}),
    ],
)
def test_null_is_the_zero_value_of_its_type(spec: Any, read: Any) -> None:
    assert with_zeros(kind("v1", "Pod"), {"spec": spec}) == {"spec": read}


def test_times_stay_null() -> None:
    event: Object = {"metadata": {"name": "a"}, "eventTime": None, "firstTimestamp": None, "reason": None}
    told = {"metadata": {"name": "a"}, "eventTime": None, "firstTimestamp": None}
    assert with_zeros(kind("v1", "Event"), event) == told


def test_what_is_only_refused_is_left_alone() -> None:
    assert with_zeros(kind("apps/v1", "Deployment"), {"spec": None}) == {"spec": None}
