"""ResourceClaims, their templates and DeviceClasses: what the API server takes and refuses of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.sandbox.api.errors import StatusError
from tests.sandbox.resource.writes import (
    CLAIMS,
    CLASSES,
    TEMPLATES,
    Cluster,
    claim,
    exactly,
    refusals,
    update_refusals,
)

REQUEST = "spec.devices.requests[0]"
NO_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def template(**metadata: Any) -> Any:
    spec = claim()["spec"]
    return {"metadata": {"name": "t", "namespace": "ns"}, "spec": {"metadata": metadata, "spec": spec}}


def device_class(**spec: Any) -> Any:
    return {"metadata": {"name": "gpu"}, "spec": spec}


def opaque(parameters: Any) -> Any:
    return {"opaque": {"driver": "gpu.example.com", "parameters": parameters}}


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ({}, {"allocationMode": "ExactCount", "count": 1}),
        ({"count": 0}, {"allocationMode": "ExactCount", "count": 1}),
        ({"count": 3}, {"allocationMode": "ExactCount", "count": 3}),
        ({"allocationMode": "All"}, {"allocationMode": "All"}),
        (
            {"allocationMode": "All", "tolerations": [{"key": "a"}], "adminAccess": False, "selectors": []},
            {
                "allocationMode": "All",
                "tolerations": [{"key": "a", "operator": "Equal"}],
                "adminAccess": False,
            },
        ),
    ],
)
def test_a_request_is_stored_with_its_defaults_and_without_what_is_empty(sent: Any, stored: Any) -> None:
    """D55."""
    request = Cluster().create(CLAIMS, claim(exactly(**sent)))["spec"]["devices"]["requests"][0]
    assert request == {"name": "r0", "exactly": {"deviceClassName": "gpu", **stored}}


def test_a_claim_without_requests_is_stored_with_null() -> None:
    """D56."""
    nothing = {"metadata": {"name": "c", "namespace": "ns"}, "spec": {}}
    assert Cluster().create(CLAIMS, nothing)["spec"] == {"devices": {"requests": None}}


@pytest.mark.parametrize(
    ("mode", "count", "told"),
    [
        ("ExactCount", -1, [(f"{REQUEST}.exactly.count", "Invalid value: -1: must be greater than zero")]),
        ("ExactCount", 2**63 - 1, []),
        (
            "All",
            1,
            [
                (
                    f"{REQUEST}.exactly.count",
                    "Invalid value: 1: must not be specified when allocationMode is 'All'",
                )
            ],
        ),
        (
            "Some",
            1,
            [
                (
                    f"{REQUEST}.exactly.allocationMode",
                    'Unsupported value: "Some": supported values: "All", "ExactCount"',
                )
            ],
        ),
    ],
)
def test_the_count_fits_the_mode_and_has_no_upper_bound(mode: str, count: int, told: Any) -> None:
    """D55, D57."""
    assert refusals(CLAIMS, claim(exactly(allocationMode=mode, count=count))) == told


def test_a_request_is_for_one_sort_of_devices_or_for_choices() -> None:
    """D55."""
    choice = {"name": "s0", "deviceClassName": "gpu"}
    both = {**exactly(), "firstAvailable": [choice]}
    one_sort = "exactly one of `exactly` or `firstAvailable` is required"
    assert refusals(CLAIMS, claim({"name": "r0", "firstAvailable": [choice]})) == []
    assert refusals(CLAIMS, claim({"name": "r0"})) == [(REQUEST, f"Required value: {one_sort}")]
    assert refusals(CLAIMS, claim(both)) == [
        (REQUEST, f"Invalid value: null: {one_sort}, but multiple fields are set")
    ]


@given(
    st.sampled_from(["requests", "constraints", "config", "firstAvailable", "selectors"]), st.integers(0, 40)
)
def test_the_lists_of_a_claim_have_limits(place: str, count: int) -> None:
    """D54, D55."""
    items: Any = {
        "requests": [{**exactly(), "name": f"r{number}"} for number in range(count)],
        "constraints": [{"matchAttribute": "a.example/b"}] * count,
        "config": [opaque({})] * count,
        "firstAvailable": [{"name": f"s{number}", "deviceClassName": "gpu"} for number in range(count)],
        "selectors": [{"cel": {"expression": "true"}}] * count,
    }[place]
    limit = 8 if place == "firstAvailable" else 32
    match place:
        case "requests":
            found = refusals(CLAIMS, claim(*items)) if items else []
        case "firstAvailable":
            found = refusals(CLAIMS, claim({"name": "r0", place: items})) if items else []
        case "selectors":
            found = refusals(CLAIMS, claim(exactly(selectors=items)))
        case _:
            found = refusals(CLAIMS, claim(**{place: items}))
    told = [message for _, message in found]
    assert told == ([f"Too many: {count}: must have at most {limit} items"] if count > limit else [])


@pytest.mark.parametrize(
    ("name", "is_known"),
    [("r0", True), ("r1/s0", True), ("r1", True), ("r0/s0", False), ("zz", False), ("r1/s0/x", False)],
)
def test_a_constraint_names_requests_of_its_claim(name: str, *, is_known: bool) -> None:
    """D55, D81."""
    choices = {"name": "r1", "firstAvailable": [{"name": "s0", "deviceClassName": "gpu"}]}
    constraint = {"requests": [name], "matchAttribute": "gpu.example.com/numa"}
    found = refusals(CLAIMS, claim(exactly(), choices, constraints=[constraint]))
    fault = ("spec.devices.constraints[0].requests[0]", f'Invalid value: "{name}": {NO_REQUEST}')
    assert found == ([] if is_known else [fault])


@pytest.mark.parametrize(
    ("constraint", "count"),
    [
        ({"matchAttribute": "a.example/b"}, 0),
        ({"distinctAttribute": "a.example/b"}, 0),
        ({"matchAttribute": "a.example/b", "distinctAttribute": "unqualified"}, 0),
        ({"matchAttribute": "b"}, 1),
        ({}, 1),
    ],
)
def test_a_constraint_is_about_a_qualified_attribute_and_the_first_one_counts(
    constraint: Any, count: int
) -> None:
    """D56."""
    assert len(refusals(CLAIMS, claim(constraints=[constraint]))) == count


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({}, None),
        ({"k": "x" * 10232}, None),
        ({"k": "x" * 10233}, "Too long: may not be more than 10240 bytes"),
        ([], 'Invalid value: "<value omitted>": must be a valid JSON object'),
        (None, "Required value"),
    ],
)
def test_the_parameters_of_a_driver_are_an_object_of_limited_size(parameters: Any, told: str | None) -> None:
    """D54."""
    found = [message for _, message in refusals(CLASSES, device_class(config=[opaque(parameters)]))]
    assert found == ([told] if told else [])


NESTED = "device.attributes.all(a, " * 5 + "true" + ")" * 5


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ('device.driver == "gpu.example.com"', None),
        ("1", 'Invalid value: "1": must evaluate to bool or the unknown type, not int'),
        (
            "foo",
            (
                'Invalid value: "foo": compilation failed: ERROR: <input>:1:1: undeclared reference to '
                "'foo' (in container '')\n | foo\n | ^"
            ),
        ),
        (NESTED, "Forbidden: too complex, exceeds cost limit"),
    ],
)
def test_an_expression_compiles_to_a_bool_and_is_not_too_complex(expression: str, told: str | None) -> None:
    """D67, D71."""
    pytest.importorskip("cel_expr_python")
    selectors = [{"cel": {"expression": expression}}]
    place = "selectors[0].cel.expression"
    for resource, one, where in (
        (CLASSES, device_class(selectors=selectors), f"spec.{place}"),
        (CLAIMS, claim(exactly(selectors=selectors)), f"{REQUEST}.exactly.{place}"),
    ):
        assert refusals(resource, one) == ([(where, told)] if told else [])


def test_an_expression_has_at_most_10_kib() -> None:
    """D71."""
    long = {"cel": {"expression": '"' + "x" * 10239 + '"'}}
    assert refusals(CLASSES, device_class(selectors=[long])) == [
        ("spec.selectors[0].cel.expression", "Too long: may not be more than 10240 bytes")
    ]


@given(st.sampled_from([True, False, None]), st.sampled_from(["ns", "plain"]), st.booleans())
def test_admin_access_needs_a_label_of_the_namespace(
    access: bool | None, namespace: str, is_template: bool
) -> None:
    """D58."""
    one: Any = claim(exactly(adminAccess=access), namespace=namespace)
    if is_template:
        one["spec"] = {"spec": one["spec"]}
    label = "the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
    told = [(f"{REQUEST}.adminAccess", f"Forbidden: admin access to devices requires {label}")]
    found = refusals(TEMPLATES if is_template else CLAIMS, one)
    assert found == (told if access and namespace == "plain" else [])


def test_a_spec_is_immutable_and_told_as_a_go_struct() -> None:
    """D55."""
    assert update_refusals(CLAIMS, claim(), [], "spec", "devices", "requests") == [
        (
            "spec",
            'Invalid value: {"Devices":{"Requests":[],"Constraints":null,"Config":null}}: field is immutable',
        )
    ]
    assert update_refusals(CLAIMS, claim(), {"a": "b"}, "metadata", "labels") == []
    changed = update_refusals(TEMPLATES, template(), 2, "spec", "metadata", "labels", "a")
    assert [field for field, _ in changed] == [""]  # a label is a text
    renamed = update_refusals(TEMPLATES, template(), {"a": "b"}, "spec", "metadata", "labels")
    assert [message[:24] for _, message in renamed] == ['Invalid value: {"Spec":{']


def test_only_labels_and_annotations_stand_in_a_templates_metadata() -> None:
    """D60."""
    assert refusals(TEMPLATES, template(labels={"a": "b"}, annotations={"a": "b"})) == []
    assert refusals(TEMPLATES, template(name="n", finalizers=["a/b"])) == [
        ("spec.metadata.name", "Forbidden: cannot be set"),
        ("spec.metadata.finalizers", "Forbidden: cannot be set"),
    ]


@pytest.mark.parametrize(
    ("toleration", "told"),
    [
        ({"operator": "Exists"}, None),
        ({"operator": "Exists", "value": "x"}, 'Invalid value: "x": must be empty for operator `Exists`'),
        ({"operator": "Gt"}, 'Unsupported value: "Gt": supported values: "Equal", "Exists"'),
        ({"effect": "x"}, 'Unsupported value: "x": supported values: "NoExecute", "NoSchedule", "None"'),
    ],
)
def test_a_toleration_has_an_operator_and_an_effect_that_there_are(toleration: Any, told: str | None) -> None:
    """D55, D80."""
    found = [message for _, message in refusals(CLAIMS, claim(exactly(tolerations=[toleration])))]
    assert found == ([told] if told else [])


@pytest.mark.parametrize(("name", "is_right"), [("example.com/gpu", True), ("cpu", False), ("a/b/c", False)])
def test_a_class_can_stand_for_an_extended_resource(name: str, *, is_right: bool) -> None:
    """D54, D91."""
    assert (refusals(CLASSES, device_class(extendedResourceName=name)) == []) is is_right


def test_a_class_may_be_empty_and_change() -> None:
    """D54."""
    cluster = Cluster()
    stored = cluster.create(CLASSES, {"metadata": {"name": "gpu"}})
    assert (stored["spec"], stored["metadata"]["generation"]) == ({}, 1)
    changed = cluster.update(CLASSES, {**stored, "spec": {"extendedResourceName": "example.com/gpu"}})
    assert changed["metadata"]["generation"] == 2


def test_a_field_of_an_older_version_is_unknown() -> None:
    """D01, D48."""
    with pytest.raises(StatusError) as refused:
        Cluster().create(CLAIMS, claim({"name": "r0", "deviceClassName": "gpu"}))
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")
    assert 'unknown field "spec.devices.requests[0].deviceClassName"' in refused.value.message
