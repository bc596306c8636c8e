"""Refusals: the Status that is answered, and what kubectl was recorded to print of the same."""

from __future__ import annotations

import pytest

from devplug.sandbox.api import errors
from devplug.sandbox.api.names import label_errors, label_key_errors, subdomain_errors
from tests.sandbox.jsons import as_kubectl, printed

PART = "spec.containers[0].resources"


def both(name: str, value: str, *details: str) -> list[errors.FieldError]:
    return [
        errors.invalid_field(f"{PART}.{field}[{name}]", value, detail)
        for field in ("limits", "requests")
        for detail in details
    ]


def domain_fault(name: str) -> str:
    return f"prefix part {subdomain_errors(name.partition('/')[0])[0]}"


@pytest.mark.parametrize(
    ("file", "pod", "found"),
    [
        ("30-invalid-fraction.txt", "frac", both("example.com/resource", "500m", "must be an integer")),
        (
            "31-invalid-overcommit.txt",
            "over",
            [
                errors.invalid_field(
                    f"{PART}.requests", "1", "must be equal to example.com/resource limit of 2"
                )
            ],
        ),
        (
            "32-requests-only.txt",
            "reqonly",
            [errors.required_field(f"{PART}.limits", "Limit must be set for non overcommitable resources")],
        ),
        (
            "33-invalid-noslash.txt",
            "noslash",
            both(
                "widget",
                "widget",
                "must be a standard resource type or fully qualified",
                "must be a standard resource for containers",
            ),
        ),
        (
            "35-invalid-upper.txt",
            "upper",
            both(
                "Example.com/widget",
                "Example.com/widget",
                domain_fault("Example.com/widget"),
                "doesn't follow extended resource name standard",
            ),
        ),
        (
            "36-invalid-negative.txt",
            "neg",
            both("example.com/resource", "-1", "must be greater than or equal to 0"),
        ),
    ],
)
def test_faults_read_as_they_were_recorded(file: str, pod: str, found: list[errors.FieldError]) -> None:
    assert as_kubectl(errors.invalid("Pod", pod, found)) == printed(file)


def test_an_exceeded_quota_reads_as_it_was_recorded() -> None:
    amount = "requests.example.com/resource=1"
    why = f"exceeded quota: q, requested: {amount}, used: {amount}, limited: {amount}"
    refusal = errors.forbidden("pods", "overquota", why)
    told = f'Error from server ({refusal.reason}): error when creating "oq.yaml": {refusal}'
    assert told == printed("41-quota-exceeded.txt")


def test_a_status_says_what_it_is_about_in_fields_of_its_own() -> None:
    assert errors.not_found("daemonsets.apps", "plugin").status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'daemonsets.apps "plugin" not found',
        "reason": "NotFound",
        "details": {"name": "plugin", "group": "apps", "kind": "daemonsets"},
        "code": 404,
    }


def test_several_faults_are_one_sentence_and_the_same_one_is_told_once() -> None:
    found = [errors.required_field("a"), errors.forbidden_field("b", "no"), errors.required_field("a")]
    refusal = errors.invalid("Pod", "p", found)
    assert str(refusal) == 'Pod "p" is invalid: [a: Required value, b: Forbidden: no]'
    assert len(refusal.status["details"]["causes"]) == 3  # type: ignore[index]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (errors.required_field("f"), "f: Required value"),
        (errors.required_field("f", "why"), "f: Required value: why"),
        (errors.duplicate_field("f", "x"), 'f: Duplicate value: "x"'),
        (
            errors.unsupported_field("f", "x", ["a", "b"]),
            'f: Unsupported value: "x": supported values: "a", "b"',
        ),
        (errors.invalid_field("f", 0, "why"), "f: Invalid value: 0: why"),
        (
            errors.invalid_field("f", {"b": True, "a": ["<"]}, "why"),
            r'f: Invalid value: {"a":["\u003c"],"b":true}: why',
        ),
    ],
)
def test_each_fault_has_its_words(fault: errors.FieldError, told: str) -> None:
    assert str(fault) == told


@pytest.mark.parametrize(
    ("refusal", "code", "reason", "told"),
    [
        (errors.already_exists("pods", "p"), 409, "AlreadyExists", 'pods "p" already exists'),
        (
            errors.conflict("pods", "p"),
            409,
            "Conflict",
            (
                'Operation cannot be fulfilled on pods "p": the object has been modified; please apply your '
                "changes to the latest version and try again"
            ),
        ),
        (errors.forbidden("pods", "", "why"), 403, "Forbidden", "pods is forbidden: why"),
        (errors.unauthorized(), 401, "Unauthorized", "Unauthorized"),
        (errors.bad_request("why"), 400, "BadRequest", "why"),
        (
            errors.method_not_supported("bindings", "get"),
            405,
            "MethodNotAllowed",
            'get is not supported on resources of kind "bindings"',
        ),
        (
            errors.not_acceptable(["application/json"]),
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json",
        ),
        (errors.expired(3, 7), 410, "Expired", "too old resource version: 3 (7)"),
        (
            errors.too_large_resource_version(9, 7),
            504,
            "Timeout",
            "Timeout: Too large resource version: 9, current: 7",
        ),
        (errors.internal_error("why"), 500, "InternalError", "Internal error occurred: why"),
    ],
    ids=lambda one: one.reason if isinstance(one, errors.StatusError) else "",
)
def test_each_refusal_has_its_code_its_reason_and_its_words(
    refusal: errors.StatusError, code: int, reason: str, told: str
) -> None:
    status = refusal.status
    assert (status["code"], status["reason"], status["message"]) == (code, reason, told)


def test_a_refusal_without_a_word_has_none() -> None:
    assert "reason" not in errors.unclassified("why").status


def test_the_success_of_a_deletion_names_what_is_gone() -> None:
    answer = errors.success("daemonsets.apps", "plugin", "u")
    assert answer["status"] == "Success"
    assert answer["details"] == {"name": "plugin", "group": "apps", "kind": "daemonsets", "uid": "u"}


@pytest.mark.parametrize("name", ["a", "a-1", "0", "a" * 63])
def test_a_label_that_is_right_has_no_errors(name: str) -> None:
    assert label_errors(name) == subdomain_errors(f"{name}.{name}") == label_key_errors(f"x.y/{name}") == []


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("a.b", "must not contain dots"),
        ("A", "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"),
        ("a" * 64, "must be no more than 63 characters"),
        ("a\n", "a lowercase RFC 1123 label must consist"),
    ],
)
def test_a_label_that_is_wrong_is_told_by_its_first_fault(name: str, begins: str) -> None:
    assert label_errors(name)[0].startswith(begins)


def test_a_key_with_two_domains_is_told_how_keys_are() -> None:
    assert label_key_errors("a/b/c") == [
        (
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and "
            "end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used "
            "for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain "
            "prefix and '/' (e.g. 'example.com/MyName')"
        )
    ]
