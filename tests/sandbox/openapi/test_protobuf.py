"""Bodies in Kubernetes' protobuf form.

The recordings were made by the Go encoders of k8s.io/api 0.36: of each kind one object without any field, one
with every field, and twelve with random fields, each also as Go writes it in JSON.
"""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import BETAS, SERVED
from devplug.sandbox.openapi.protobuf import PROTOBUF_MEDIA_TYPE, object_of_protobuf
from devplug.sandbox.server.bodies import decoded_object, delete_options

RECORDS = [
    json.loads(line)
    for line in lzma.decompress(
        (Path(__file__).parents[1] / "data" / "protobuf.jsonl.xz").read_bytes()
    ).splitlines()
]
KINDS = sorted({(record["apiVersion"], record["kind"]) for record in RECORDS})
MAGIC = b"k8s\0"


def read(body: bytes, kind: str, api_version: str = "v1") -> dict[str, Any]:
    return decoded_object(body, PROTOBUF_MEDIA_TYPE, kind, api_version).object


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def part(number: int, content: bytes | int) -> bytes:
    """Encode one field: a varint or a length with content."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def parts(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Split a message into its fields."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = number()
        value = number()
        if tag & 7 == 2:
            at += value
            yield tag >> 3, message[at - value : at]
        else:
            yield tag >> 3, value


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    type_meta = part(1, api_version.encode()) + part(2, kind.encode())
    return MAGIC + part(1, type_meta) + part(2, raw)


def body_of(record: dict[str, Any]) -> bytes:
    return base64.b64decode(record["protobuf"])


def raw_of(record: dict[str, Any]) -> bytes:
    raw = dict(parts(body_of(record)[len(MAGIC) :]))[2]
    assert isinstance(raw, bytes)
    return raw


# ── what Go sends ──


@pytest.mark.parametrize(("api_version", "kind"), KINDS)
def test_an_object_is_read_as_the_json_of_the_same_client(api_version: str, kind: str) -> None:
    for record in RECORDS:
        if (record["apiVersion"], record["kind"]) == (api_version, kind):
            sent = {"kind": kind, "apiVersion": api_version, **record["json"]}
            assert object_of_protobuf(body_of(record), api_version, kind) == sent


def test_every_served_kind_is_recorded() -> None:
    served = {(one.api_version, one.kind) for one in (*SERVED, *BETAS)}
    assert served <= set(KINDS)


@given(st.sampled_from(RECORDS), st.randoms())
def test_the_order_of_fields_does_not_matter(record: dict[str, Any], random: Any) -> None:
    fields = list(parts(raw_of(record)))
    order = sorted({number for number, _ in fields}, key=lambda _: random.random())
    moved = b"".join(part(*field) for number in order for field in fields if field[0] == number)
    api_version, kind = record["apiVersion"], record["kind"]
    sent = {"kind": kind, "apiVersion": api_version, **record["json"]}
    assert object_of_protobuf(envelope(api_version, kind, moved), api_version, kind) == sent


def test_a_message_that_comes_in_two_pieces_is_merged() -> None:
    metadata = part(1, part(1, b"n")) + part(1, part(11, part(1, b"a") + part(2, b"1")))
    metadata += part(1, part(11, part(1, b"b") + part(2, b"2")))
    one = read(envelope("v1", "ConfigMap", metadata), "ConfigMap")
    assert one["metadata"] == {"name": "n", "labels": {"a": "1", "b": "2"}}


def test_numbers_of_a_list_may_be_packed() -> None:
    groups = part(14, part(4, varint(7) + varint(300)) + part(4, 9))
    pod = read(envelope("v1", "Pod", part(2, groups)), "Pod")
    assert pod["spec"]["securityContext"]["supplementalGroups"] == [7, 300, 9]


# ── what is not known ──


@given(
    st.sampled_from(RECORDS), st.integers(200, 400), st.one_of(st.integers(1, 2**63), st.binary(min_size=1))
)
def test_an_unknown_field_is_named(record: dict[str, Any], number: int, content: int | bytes) -> None:
    api_version, kind = record["apiVersion"], record["kind"]
    body = envelope(api_version, kind, raw_of(record) + part(number, content))
    with pytest.raises(StatusError) as refused:
        object_of_protobuf(body, api_version, kind)
    assert refused.value.code == 400
    assert f"{kind} in version" in str(refused.value)
    assert f"unknown field number {number} in {kind};" in str(refused.value)


def test_an_unknown_field_is_named_with_the_way_to_it() -> None:
    device = part(1, b"gpu-0") + part(2, part(1, b"model") + part(2, part(15, 1)))
    body = envelope("resource.k8s.io/v1", "ResourceSlice", part(2, part(6, b"") + part(6, device)))
    with pytest.raises(
        StatusError, match=r"number 15 in spec\.devices\[1\]\.attributes\.value \(DeviceAttri"
    ):
        read(body, "ResourceSlice", "resource.k8s.io/v1")


def test_an_unknown_field_without_content_is_skipped() -> None:
    """A newer Go client writes zero values of fields that are no pointers."""
    body = envelope("v1", "Namespace", part(1, part(1, b"n") + part(99, 0)) + part(98, b""))
    assert read(body, "Namespace")["metadata"] == {"name": "n"}


def test_another_kind_is_refused_by_name() -> None:
    with pytest.raises(StatusError, match=r"Pod in version .* cannot be handled as a Namespace"):
        read(envelope("v1", "Pod", b""), "Namespace")
    with pytest.raises(StatusError, match='no kind "Gadget" is registered'):
        read(envelope("example.com/v1", "Gadget", b""), "Namespace")


def test_another_version_is_refused() -> None:
    with pytest.raises(StatusError, match="does not match the expected API version"):
        read(envelope("resource.k8s.io/v1beta1", "DeviceClass", b""), "DeviceClass", "resource.k8s.io/v1")


def test_of_a_kind_without_support_only_the_metadata_is_read() -> None:
    body = envelope("v1", "Secret", part(1, part(1, b"n")) + part(2, b"content"))
    assert read(body, "Secret") == {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "n"}}


@pytest.mark.parametrize(
    ("kind", "raw", "fault"),
    [
        ("Namespace", part(1, 1), "the field metadata of Namespace has the wire type 0"),
        (
            "DeleteOptions",
            part(1, b"x" * 3),
            "the field gracePeriodSeconds of DeleteOptions has the wire type 2",
        ),
        ("Event", part(6, part(1, 2**62)), "firstTimestamp is beyond the year 9999"),
    ],
)
def test_a_field_with_a_wrong_value_is_named(kind: str, raw: bytes, fault: str) -> None:
    with pytest.raises(StatusError, match=fault):
        object_of_protobuf(envelope("v1", kind, raw), "v1", kind)


def test_opaque_parameters_that_are_not_json_are_named() -> None:
    opaque = part(1, b"gpu.example.com") + part(2, part(1, b"{"))
    config = part(3, part(2, part(1, opaque)))
    body = envelope("resource.k8s.io/v1", "ResourceClaim", part(2, part(1, config)))
    place = r"spec\.devices\.config\[0\]\.opaque\.parameters is not JSON"
    with pytest.raises(StatusError, match=place):
        read(body, "ResourceClaim", "resource.k8s.io/v1")


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (part(3, b"gzip"), 'the content encoding "gzip" is not supported'),
        (part(4, b"application/json"), 'has content of the type "application/json"'),
    ],
)
def test_an_envelope_with_other_content_is_refused(more: bytes, fault: str) -> None:
    with pytest.raises(StatusError, match=fault):
        read(envelope("v1", "Namespace", b"") + more, "Namespace")


# ── bytes that are no object ──


def code_of(body: bytes, api_version: str, kind: str) -> int:
    """Return the HTTP status of a refusal, 0 for a body that is read."""
    try:
        read(body, kind, api_version)
    except StatusError as error:
        return error.code
    return 0


@given(st.sampled_from(RECORDS), st.data())
def test_a_body_that_is_cut_off_is_refused_or_read(record: dict[str, Any], data: st.DataObject) -> None:
    body = body_of(record)
    cut = body[: data.draw(st.integers(0, len(body)))]
    assert code_of(cut, record["apiVersion"], record["kind"]) in {0, 400}


@given(st.binary(max_size=60), st.sampled_from(KINDS))
def test_any_bytes_are_read_or_refused(raw: bytes, known: tuple[str, str]) -> None:
    api_version, kind = known
    for body in (raw, MAGIC + raw, envelope(api_version, kind, raw)):
        assert code_of(body, api_version, kind) in {0, 400}


# ── deletions ──


def test_options_of_a_deletion_are_read_in_any_group() -> None:
    raw = part(1, 0) + part(2, part(1, b"u")) + part(5, b"All")
    options = delete_options(envelope("resource.k8s.io/v1", "DeleteOptions", raw), PROTOBUF_MEDIA_TYPE, {})
    assert (options.grace_seconds, options.dry_run) == (0, True)
    assert options.preconditions is not None
    assert options.preconditions.uid == "u"


def test_a_deletion_with_another_kind_is_refused() -> None:
    with pytest.raises(StatusError, match="cannot be converted to DeleteOptions"):
        delete_options(envelope("v1", "Pod", b""), PROTOBUF_MEDIA_TYPE, {})
