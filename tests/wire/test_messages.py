"""Values ⇄ bytes: what goes in comes out, strange bytes are refused, newer fields are let through."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.devices import ContainerResponse, DeviceNode, Mount
from devplug.exchange import AdvertisedDevice, PluginOptions, PreferenceRequest, RegisterRequest
from devplug.wire import messages
from devplug.wire.messages import Codec, MalformedMessageError

texts = st.text(max_size=20)
ids = st.lists(texts, max_size=5).map(tuple)
options = st.builds(PluginOptions, st.booleans(), st.booleans())
numa_nodes = st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple)


def as_received(value_class: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values as a peer may send them: any text in any field."""
    return st.fixed_dictionaries(fields).map(lambda found: value_class.as_received(**found))


nodes = as_received(DeviceNode, host_path=texts, container_path=texts, permissions=texts)
mounts = as_received(Mount, host_path=texts, container_path=texts, read_only=st.booleans())
responses = as_received(
    ContainerResponse,
    device_nodes=st.lists(nodes, max_size=3).map(tuple),
    mounts=st.lists(mounts, max_size=3).map(tuple),
    envs=st.dictionaries(texts, texts, max_size=3),
    annotations=st.dictionaries(texts, texts, max_size=3),
    cdi_devices=ids,
)

VALUES: dict[str, tuple[Codec[Any], st.SearchStrategy[Any]]] = {
    "Empty": (messages.EMPTY, st.none()),
    "DevicePluginOptions": (messages.OPTIONS, options),
    "RegisterRequest": (
        messages.REGISTER_REQUEST,
        st.builds(RegisterRequest, texts, texts, texts, options),
    ),
    "ListAndWatchResponse": (
        messages.DEVICE_LIST,
        st.lists(st.builds(AdvertisedDevice, texts, texts, numa_nodes), max_size=5).map(tuple),
    ),
    "PreferredAllocationRequest": (
        messages.PREFERENCE_REQUEST,
        st.lists(
            st.builds(PreferenceRequest, ids, ids, st.integers(-(2**31), 2**31 - 1)),
            max_size=3,
        ).map(tuple),
    ),
    "PreferredAllocationResponse": (
        messages.PREFERENCE_RESPONSE,
        st.lists(ids, max_size=3).map(tuple),
    ),
    "AllocateRequest": (messages.ALLOCATE_REQUEST, st.lists(ids, max_size=3).map(tuple)),
    "AllocateResponse": (messages.ALLOCATE_RESPONSE, st.lists(responses, max_size=3).map(tuple)),
    "ContainerAllocateResponse": (messages.CONTAINER_RESPONSE, responses),
    "PreStartContainerRequest": (messages.PRE_START_REQUEST, ids),
    "PreStartContainerResponse": (messages.PRE_START_RESPONSE, st.none()),
}
CODECS = [codec for codec, _ in VALUES.values()]

TRUNCATED = b"\x0a\x05ab"
BAD_VARINT = b"\xff" * 11
BAD_UTF8 = b"\x0a\x01\xff"
DEEP_GROUPS = b"\xbb\x06" * 200
FIELD_99 = b"\x9a\x06\x03new"


@pytest.mark.parametrize("message", VALUES)
@given(data=st.data())
def test_what_is_encoded_is_decoded_the_same(message: str, data: st.DataObject) -> None:
    codec, values = VALUES[message]
    value = data.draw(values)
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize("message", VALUES)
@given(data=st.data())
def test_equal_values_have_equal_bytes(message: str, data: st.DataObject) -> None:
    codec, values = VALUES[message]
    value = data.draw(values)
    assert codec.encode(codec.decode(codec.encode(value))) == codec.encode(value)


@pytest.mark.parametrize("codec", CODECS, ids=list(VALUES))
@given(content=st.binary(max_size=60))
def test_any_bytes_are_a_value_or_malformed(codec: Codec[Any], content: bytes) -> None:
    try:
        codec.decode(content)
    except MalformedMessageError as error:
        assert str(error) == f"malformed {codec.message}"  # noqa: PT017 -- both ends of the claim are fine


@pytest.mark.parametrize("codec", CODECS, ids=list(VALUES))
@pytest.mark.parametrize("content", [TRUNCATED, BAD_VARINT, DEEP_GROUPS])
def test_broken_bytes_are_malformed(codec: Codec[Any], content: bytes) -> None:
    with pytest.raises(MalformedMessageError, match=f"^malformed {codec.message}$"):
        codec.decode(content)


@pytest.mark.parametrize(
    "codec",
    [messages.REGISTER_REQUEST, messages.PRE_START_REQUEST],
    ids=lambda codec: codec.message,
)
def test_text_that_is_not_utf8_is_malformed(codec: Codec[Any]) -> None:
    with pytest.raises(MalformedMessageError):
        codec.decode(BAD_UTF8)


@pytest.mark.parametrize("message", VALUES)
@given(data=st.data())
def test_fields_of_a_newer_api_are_let_through(message: str, data: st.DataObject) -> None:
    codec, values = VALUES[message]
    value = data.draw(values)
    assert codec.decode(codec.encode(value) + FIELD_99) == value


def test_a_missing_topology_differs_from_an_empty_one() -> None:
    sent = (AdvertisedDevice("a", "Healthy", None), AdvertisedDevice("b", "Healthy", ()))
    assert messages.DEVICE_LIST.decode(messages.DEVICE_LIST.encode(sent)) == sent


@pytest.mark.parametrize(
    ("codec", "value", "content"),
    [
        (messages.EMPTY, None, b""),
        (messages.OPTIONS, PluginOptions(pre_start_required=True), b"\x08\x01"),
        (messages.OPTIONS, PluginOptions(preferred_allocation_available=True), b"\x10\x01"),
        (
            messages.REGISTER_REQUEST,
            RegisterRequest("v1beta1", "x.sock", "a.io/b"),
            b"\x0a\x07v1beta1\x12\x06x.sock\x1a\x06a.io/b\x22\x00",
        ),
        (
            messages.DEVICE_LIST,
            (AdvertisedDevice("a", "Healthy", (0, 1)),),
            b"\x0a\x14\x0a\x01a\x12\x07Healthy\x1a\x06\x0a\x00\x0a\x02\x08\x01",
        ),
        (messages.ALLOCATE_REQUEST, (("a", "b"),), b"\x0a\x06\x0a\x01a\x0a\x01b"),
        (
            messages.CONTAINER_RESPONSE,
            ContainerResponse(device_nodes=[DeviceNode("/dev/a", "/dev/b", "r")], envs={"K": "v"}),
            b"\x0a\x06\x0a\x01K\x12\x01v\x1a\x13\x0a\x06/dev/b\x12\x06/dev/a\x1a\x01r",
        ),
    ],
)
def test_a_value_has_these_bytes_on_the_wire(codec: Codec[Any], value: Any, content: bytes) -> None:
    assert codec.encode(value) == content
    assert codec.decode(content) == value


def test_a_received_container_response_is_not_judged() -> None:
    sent = ContainerResponse.as_received(
        device_nodes=(DeviceNode.as_received(host_path="x", container_path="", permissions="zz"),),
        mounts=(Mount.as_received(host_path="", container_path="..", read_only=True),),
        envs={"A=B": "\0"},
        annotations={"": ""},
        cdi_devices=("not a CDI name",),
    )
    assert messages.CONTAINER_RESPONSE.decode(messages.CONTAINER_RESPONSE.encode(sent)) == sent
