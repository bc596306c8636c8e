"""What bodies say, how they are wrong, and what becomes of fields that a kind does not have."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from devplug.k8s.objects import Object
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.options import FieldValidation
from devplug.sandbox.api.patch import MERGE_PATCH, STRATEGIC_PATCH
from devplug.sandbox.openapi.decoder import FieldReport
from devplug.sandbox.registry import PODS
from devplug.sandbox.server.bodies import (
    Decoded,
    DeleteOptions,
    FieldCheck,
    decoded_json,
    decoded_object,
    delete_options,
    of_body,
    of_patch,
)
from tests.sandbox.jsons import VALUES

JSON = "application/json"


def pod_of(body: bytes, content_type: str = JSON) -> Decoded:
    return decoded_object(body, content_type, "Pod", "v1")


def fault_of(body: bytes, content_type: str = JSON) -> str:
    with pytest.raises(StatusError) as error:
        pod_of(body, content_type)
    assert error.value.code == (415 if content_type != JSON else 400)
    return str(error.value)


@given(VALUES)
def test_what_json_says_is_read_as_it_is(value: object) -> None:
    assert decoded_json(json.dumps(value).encode()) == Decoded(value)


def test_an_object_may_leave_out_what_the_path_says() -> None:
    assert pod_of(b'{"metadata":{"name":"a"}}').object == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "a"},
    }
    assert pod_of(b"null", "").object == {"kind": "Pod", "apiVersion": "v1"}


def test_an_object_of_another_kind_is_refused_as_the_api_words_it() -> None:
    assert fault_of(b'{"apiVersion":"v1","kind":"ConfigMap"}') == (
        'ConfigMap in version "v1" cannot be handled as a Pod: '
        "converting (v1.ConfigMap) to (core.Pod): unknown conversion"
    )
    assert fault_of(b'{"apiVersion":"v1","kind":"Widget"}').startswith(
        'Widget in version "v1" cannot be handled as a Pod: '
        'no kind "Widget" is registered for version "v1" in scheme'
    )
    assert fault_of(b'{"apiVersion":"v2","kind":"Pod"}') == (
        "the API version in the data (v2) does not match the expected API version (v1)"
    )
    assert "kind is no string" in fault_of(b'{"kind":7}')


UNRECOGNISED = "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; "


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "json parse error: unexpected end of JSON input (<empty>)"),
        (b'{"a":', 'json parse error: unexpected end of JSON input ({"a":)'),
        (
            b'{bad": 1}',
            "json parse error: invalid character 'b' looking for beginning of object key string ({bad\": 1})",
        ),
        (b'{"a" 1}', "json parse error: invalid character '1' after object key ({\"a\" 1})"),
        (b"hello", "json parse error: invalid character 'h' looking for beginning of value (68656c6c6f)"),
        (b"[" * 1000 + b"]" * 1000, f"json parse error: exceeded max depth ({(b'[' * 30).hex()} ...)"),
        (b"7", "json parse error: json: cannot unmarshal number into Go value of type struct (37)"),
    ],
)
def test_what_is_no_object_is_refused_with_how_it_begins(body: bytes, fault: str) -> None:
    assert fault_of(body) == UNRECOGNISED + fault


def test_a_body_of_too_many_elements_is_refused() -> None:
    """As the protobuf form is: 900,000 empty maps fit into the 3 MiB of a body."""
    too_many = b'{"apiVersion":"v1","kind":"Pod","x":[' + b"{}," * 900_000 + b"{}]}"
    assert fault_of(too_many) == "the body of the request has more than 262144 elements"
    texts = json.dumps({"apiVersion": "v1", "kind": "Pod", "x": '",[{\\"' * 200_000})
    assert decoded_object(texts.encode(), "application/json", "Pod", "v1").value == json.loads(texts)


@pytest.mark.parametrize(
    "body", [b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": %s}' % (b"9" * 5000)]
)
def test_numbers_that_json_has_not_are_refused(body: bytes) -> None:
    assert fault_of(body).startswith(UNRECOGNISED)


def test_half_a_character_becomes_the_mark_for_it_and_can_be_told_again() -> None:
    assert decoded_json(b'{"\\ud800": ["\\udc00x", "\\ud83d\\ude00"]}').value == {
        "\ufffd": ["\ufffdx", "\U0001f600"]
    }
    assert decoded_json(b'"\xff"').value == "\ufffd"


def test_yaml_is_not_read_and_the_refusal_says_what_is() -> None:
    assert fault_of(b"kind: Pod", "application/yaml") == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/vnd.kubernetes.protobuf"
    )


def test_fields_that_stand_twice_are_told_with_their_way_and_the_last_one_counts() -> None:
    found = pod_of(
        b'{"spec":{"a":1,"a":{"b":1},"containers":[{"name":"c","name":"d","name":"e"}]},"spec2":{}}'
    )
    assert found.duplicates == ('duplicate field "spec.a"', 'duplicate field "spec.containers[0].name"')
    assert found.object["spec"] == {"a": {"b": 1}, "containers": [{"name": "e"}]}


# ── fields that are not there ──


def finds(*unknown: str, unreadable: str = "") -> FieldCheck:
    return lambda _resource, _body: FieldReport(
        tuple(f'unknown field "{one}"' for one in unknown), unreadable
    )


def test_unknown_fields_are_refused_warned_of_or_left_alone() -> None:
    given_ = Decoded({"spec": {"foo": 1}}, ('duplicate field "spec.x"',))
    check = finds("spec.foo")
    warnings = ('duplicate field "spec.x"', 'unknown field "spec.foo"')
    assert of_body(PODS, given_, FieldValidation.WARN, check) == warnings
    assert of_body(PODS, given_, FieldValidation.IGNORE, check) == ()
    with pytest.raises(StatusError) as error:
        of_body(PODS, given_, FieldValidation.STRICT, check)
    assert (error.value.code, str(error.value)) == (
        400,
        (
            'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
            'duplicate field "spec.x", unknown field "spec.foo"'
        ),
    )


def test_what_cannot_be_read_is_refused_however_fields_are_validated() -> None:
    check = finds(unreadable="json: cannot unmarshal number into Go struct field x of type string")
    with pytest.raises(StatusError, match=r'^Pod in version "v1" cannot be handled as a Pod: json: cannot'):
        of_body(PODS, Decoded({}), FieldValidation.IGNORE, check)


def test_a_patch_answers_for_the_fields_that_it_brings_and_for_no_others() -> None:
    old: Object = {"spec": {"old": 1}}
    new: Object = {"spec": {"old": 1, "new": 2}}
    patch = Decoded({"spec": {"new": 2, "on": True, "none": None, "list": ["a", 1]}})

    def check(_resource: object, body: object) -> FieldReport:
        return FieldReport(
            ('unknown field "spec.old"', *(['unknown field "spec.new"'] if body == new else []))
        )

    def patched(media_type: str, wanted: FieldValidation) -> tuple[str, ...]:
        return of_patch(PODS, old, new, media_type, patch, wanted, check)

    assert patched(MERGE_PATCH, FieldValidation.WARN) == ('unknown field "spec.new"',)
    with pytest.raises(StatusError) as error:
        patched(STRATEGIC_PATCH, FieldValidation.STRICT)
    assert (error.value.code, str(error.value)) == (
        422,
        (
            ' "" is invalid: patch: Invalid value: "map[spec:map[list:[a 1] new:2 none:<nil> on:true]]": '
            'strict decoding error: unknown field "spec.new"'
        ),
    )
    with pytest.raises(StatusError, match=r'Invalid value: "\{\\"spec\\":'):
        patched(MERGE_PATCH, FieldValidation.STRICT)


# ── deletions ──


def test_a_deletion_asks_in_its_body_or_in_its_query() -> None:
    body = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
        "propagationPolicy": "Orphan",
        "dryRun": ["All"],
    }
    asked = delete_options(json.dumps(body).encode(), JSON, {})
    assert (asked.grace_seconds, asked.policy, asked.dry_run) == (0, "Orphan", True)
    assert asked.preconditions is not None
    assert asked.preconditions.uid == "u"
    query = {"gracePeriodSeconds": ["5"], "propagationPolicy": ["Background"]}
    assert delete_options(b"", "", query) == DeleteOptions(5, policy="Background")
    assert delete_options(b"", "", {"orphanDependents": ["true"]}) == DeleteOptions(policy="Orphan")
    assert delete_options(b'{"orphanDependents": false}', JSON, {}) == DeleteOptions(policy="Background")
    assert delete_options(b"null", JSON, query) == DeleteOptions()


@pytest.mark.parametrize(
    ("body", "code", "sentence"),
    [
        (
            {"propagationPolicy": "Sometimes"},
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy',
        ),
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            422,
            'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be',
        ),
        ({"dryRun": ["Some"]}, 422, "dryRun: Unsupported value"),
        ({"gracePeriodSeconds": "5"}, 400, "gracePeriodSeconds must be a whole number of seconds"),
        ({"kind": "Pod"}, 400, "cannot be converted to DeleteOptions"),
        ([], 400, "cannot be converted to DeleteOptions"),
    ],
)
def test_a_deletion_that_makes_no_sense_is_refused(body: object, code: int, sentence: str) -> None:
    with pytest.raises(StatusError) as error:
        delete_options(json.dumps(body).encode(), JSON, {})
    assert error.value.code == code
    assert sentence in str(error.value)
