"""Objects in protobuf: what kubectl 1.32 sent, byte by byte, and what is no such thing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.protobuf import object_of_protobuf

META = "1a0022002a003200380042"
"""Namespace, selfLink, uid, version, generation and time of creation: kubectl sends them empty."""


@pytest.mark.parametrize(
    ("command", "body", "sent"),
    [
        (
            "create ns lab",
            f"6b3873000a0f0a02763112094e616d657370616365121b0a130a036c61621200{META}0012001a020a001a002200",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab"}},
        ),
        (
            "create configmap c --from-literal=a=b",
            f"6b3873000a0f0a0276311209436f6e6669674d6170121b0a110a01631200{META}0012060a01611201621a002200",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}},
        ),
        (
            "create quota q --hard=requests.example.com/fpga=1,pods=2",
            (
                f"6b3873000a130a027631120d5265736f7572636551756f746112460a110a01711200{META}00122f0a0b0a04706f64731203"
                "0a01320a200a1972657175657374732e6578616d706c652e636f6d2f6670676112030a01311a001a002200"
            ),
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "q"},
                "spec": {"hard": {"requests.example.com/fpga": "1", "pods": "2"}},
            },
        ),
        (
            "create deployment d --image=x",
            (
                f"6b3873000a150a07617070732f7631120a4465706c6f796d656e74129b010a1b0a01641200{META}005a080a03617070120164"
                "126e0801120a0a080a036170701201641a560a1a0a0012001a0022002a003200380042005a080a03617070120164123812"
                "1a0a01781201782a0042006a007200800100880100900100a201001a00320042004a0052005800600068008201008a0100"
                "9a0100c2010022020a00280038001a0c0800100018002000280038001a002200"
            ),
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "d", "labels": {"app": "d"}},
            },
        ),
    ],
    ids=lambda one: one if isinstance(one, str) and " " in one else "",
)
def test_what_kubectl_sent_is_read(command: str, body: str, sent: dict[str, Any]) -> None:
    assert object_of_protobuf(bytes.fromhex(body)) == sent, command


def envelope(version: str, kind: str, raw: bytes) -> bytes:
    def part(number: int, content: bytes) -> bytes:
        assert len(content) < 128
        return bytes([number << 3 | 2, len(content)]) + content

    return b"k8s\0" + part(1, part(1, version.encode()) + part(2, kind.encode())) + part(2, raw)


def test_the_options_of_a_deletion_are_read() -> None:
    raw = b"\x08\x00\x12\x03\x0a\x01u\x2a\x03All"
    assert object_of_protobuf(envelope("v1", "DeleteOptions", raw)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
        "dryRun": ["All"],
    }


def test_a_negative_number_and_data_that_are_no_text_are_read() -> None:
    minus_one = b"\x08" + b"\xff" * 9 + b"\x01"
    assert object_of_protobuf(envelope("v1", "DeleteOptions", minus_one))["gracePeriodSeconds"] == -1
    binary = b"\x1a\x06\x0a\x01k\x12\x01\xff\x20\x01"
    read = object_of_protobuf(envelope("v1", "ConfigMap", binary))
    assert (read["binaryData"], read["immutable"]) == ({"k": "/w=="}, True)


@pytest.mark.parametrize("raw", [b"\x0a\x01\xff", b"\x0a\x05a", b"\x08\x01", b"\x0b", b"\x0a" + b"\xff" * 11])
def test_bytes_that_are_no_message_are_a_bad_request(raw: bytes) -> None:
    with pytest.raises(StatusError) as refused:
        object_of_protobuf(envelope("v1", "Namespace", b"\x0a" + bytes([len(raw)]) + raw))
    assert (refused.value.code, str(refused.value)) == (400, "the body of the request is malformed protobuf")


def test_a_number_that_is_none_is_a_bad_request() -> None:
    with pytest.raises(StatusError):
        object_of_protobuf(envelope("v1", "DeleteOptions", b"\x0a\x00"))


def test_a_kind_that_is_not_read_is_asked_for_as_json() -> None:
    with pytest.raises(StatusError) as refused:
        object_of_protobuf(envelope("v1", "Pod", b""))
    assert refused.value.code == 415
    assert 'takes objects of the kind "Pod" as JSON and not as protobuf' in str(refused.value)


@given(st.binary(max_size=40), st.sampled_from(["ConfigMap", "Namespace", "ResourceQuota", "DeleteOptions"]))
def test_any_bytes_are_read_or_refused(raw: bytes, kind: str) -> None:
    for body in (raw, b"k8s\0" + raw, envelope("v1", kind, raw)):
        try:
            object_of_protobuf(body)
        except StatusError as error:
            assert_refused(error)


def assert_refused(error: StatusError) -> None:
    assert error.code in {400, 415}
