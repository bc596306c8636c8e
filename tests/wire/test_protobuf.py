"""Our codec against google.protobuf: its layouts are those of the .proto texts, its verdicts the same."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from devplug.wire import deviceplugin, protobuf
from devplug.wire.codecs import MalformedMessageError
from devplug.wire.protobuf import DEPTH_LIMIT, Field, Kind, Layout, decode, encode
from devplug.wire.values import AdvertisedDevice
from devplug.wire.wireformat import MalformedError, varint
from tests.wire.messy import messy
from tests.wire.referee import LAYOUTS, NAMES, Tree, agree, descriptor, plain, verdict, written


def fields(layout: Layout[Any]) -> list[Any]:
    """All that a layout says of bytes."""
    return [
        (one.number, one.name, one.kind, one.is_repeated, one.is_optional, one.layout and fields(one.layout))
        for one in layout.fields
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_shape_is_what_the_proto_text_says(name: str) -> None:
    assert fields(LAYOUTS[name]) == fields(plain(name))
    assert LAYOUTS[name].name == descriptor(name).name


# ── what is like protobuf ─────────────────────────────────────────────────────────────────────────


def ours(layout: Layout[Tree], content: bytes) -> tuple[Tree | None, str]:
    try:
        return decode(layout, content), ""
    except MalformedError as error:
        return None, str(error)


@pytest.mark.parametrize("name", NAMES)
def test_every_verdict_on_messy_bytes_is_that_of_protobuf(name: str) -> None:
    random, layout = Random(f"messy {name}"), plain(name)
    taken = 0
    for _ in range(1500):
        content = messy(random, layout)
        found, why = ours(layout, content)
        assert agree(found, verdict(name, content), why), content.hex()
        if found is not None:
            taken += 1
            again = encode(layout, found)
            assert verdict(name, again) == found
            if not has_map(layout):  # the order of pairs is protobuf's own, and means nothing
                assert again == written(name, content)
    assert taken > 150


def has_map(layout: Layout[Any]) -> bool:
    return any(one.kind is Kind.MAP or (one.layout and has_map(one.layout)) for one in layout.fields)


@pytest.mark.parametrize("depth", [DEPTH_LIMIT - 1, DEPTH_LIMIT, DEPTH_LIMIT + 1])
def test_groups_may_lie_as_deep_in_each_other_as_in_protobuf(depth: int) -> None:
    content = b"\xbb\x06" * depth + b"\xbc\x06" * depth
    name = "v1beta1.AllocateRequest"
    found, _ = ours(plain(name), content)
    assert found == verdict(name, content)


def test_a_later_message_is_merged_into_an_earlier_one() -> None:
    name = "v1beta1.RegisterRequest"
    content = b"\x22\x02\x08\x01" + b"\x22\x02\x10\x01" + b"\x0a\x01a" + b"\x0a\x01b"
    assert ours(plain(name), content)[0] == ("b", "", "", (True, True)) == verdict(name, content)


# ── our own ───────────────────────────────────────────────────────────────────────────────────────


def test_a_number_that_does_not_fit_is_refused_when_it_is_written() -> None:
    layout: Layout[tuple[int]] = Layout(
        "M", (Field(1, "n", Kind.INT32),), lambda value: value, lambda n: (n,)
    )
    assert decode(layout, encode(layout, (-1,))) == (-1,)
    with pytest.raises(ValueError, match="is no int32"):
        encode(layout, (1 << 31,))


def lists() -> list[list[AdvertisedDevice]]:
    random = Random("lists")
    ids = ("", "a", "x" * 200, "é", "GPU-1::2")
    return [
        [
            AdvertisedDevice(
                random.choice(ids),
                random.choice(("Healthy", "Unhealthy", "")),
                random.choice((None, (), (0,), (0, 1), (-1,))),
            )
            for _ in range(random.randrange(6))
        ]
        for _ in range(300)
    ]


def test_the_fast_ways_of_a_list_are_the_slow_ones() -> None:
    layout = deviceplugin.LAYOUTS[2]
    for devices in lists():
        content = deviceplugin.DEVICE_LIST.encode(devices)
        assert content == encode(layout, devices)
        assert deviceplugin.DEVICE_LIST.decode(content) == tuple(devices) == decode(layout, content)


def test_the_fast_way_of_reading_a_list_is_not_led_astray() -> None:
    """By an ID after the first one, by what is cut off, by text that is not UTF-8."""
    random, layout = Random("astray"), deviceplugin.LAYOUTS[2]
    name = "v1beta1.ListAndWatchResponse"
    for _ in range(3000):
        entries = [messy(random, plain("v1beta1.Device")) for _ in range(random.randrange(4))]
        content = b"".join(b"\x0a" + varint(len(entry)) + entry for entry in entries)
        slow, why = _list(layout, content)
        try:
            fast: object = deviceplugin.DEVICE_LIST.decode(content)
        except MalformedMessageError:
            fast = None
        assert fast == slow, content.hex()
        theirs = verdict(name, content)
        assert (slow is None) == (theirs is None) or why == "a field without a number"


def _list(layout: Layout[Any], content: bytes) -> tuple[object, str]:
    try:
        return protobuf.decode(layout, content), ""
    except MalformedError as error:
        return None, str(error)
