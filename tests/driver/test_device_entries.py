"""What a slice says of a device: the API server of the sandbox takes all of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devplug import Device, Health, Version
from devplug.attributes import AttributeValue
from devplug.driver.device_entries import device_attributes, device_entry, device_name
from devplug.k8s.objects import Object, fields, maps
from devplug.sandbox.api.resource.slices import slice_errors

DRIVER = "devices.example.com"
RESOURCE = "example.com/serial"

VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=80),
    st.sampled_from([Version("1.2.3"), Version("0.0.1-rc.1+b")]),
)
NAMES = st.one_of(
    st.sampled_from(
        [
            "model",
            f"{DRIVER}/model",
            "resource",
            "a/b/c",
            "",
            "/",
            "x" * 33,
            "resource.kubernetes.io/pcieRoot",
        ]
    ),
    st.from_regex(r"[a-z]{1,2}", fullmatch=True),
    st.text(max_size=70),
)
HEALTHS = st.one_of(
    st.just(Health.healthy()), st.just(Health.unknown("x")), st.text(max_size=100).map(Health.unhealthy)
)


def slice_of(*entries: Object) -> Object:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    return {"spec": {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": list(entries)}}


def taken(attributes: dict[str, AttributeValue]) -> dict[str, object]:
    return device_attributes(DRIVER, RESOURCE, attributes)[0]


@given(
    st.dictionaries(NAMES, VALUES, max_size=40),
    st.dictionaries(NAMES, st.integers(0, 2**63 - 1), max_size=20),
    HEALTHS,
    st.booleans(),
    st.integers(0, 3) | st.integers(0, 2000),
)
def test_the_api_server_takes_every_entry(
    attributes: dict[str, AttributeValue],
    capacity: dict[str, int],
    health: Health,
    evicts: bool,
    shares: int,
) -> None:
    """D42–D47: a device that it refuses would cost the whole slice."""
    device = Device("a", attributes=attributes, capacity=capacity, health=health, share_of="b")
    entry = device_entry(DRIVER, RESOURCE, device, shares=shares, evicts=evicts)
    assert [*slice_errors(slice_of(entry.content), None)] == []


@given(st.dictionaries(NAMES, VALUES, max_size=40))
def test_an_attribute_is_told_or_named_as_left_out(attributes: dict[str, AttributeValue]) -> None:
    told, dropped = device_attributes(DRIVER, RESOURCE, attributes)
    assert len(told) + len(dropped) == len(attributes) + 1
    assert len(told) <= 32
    assert dropped.keys() <= attributes.keys()


def test_each_type_stays_what_it_is() -> None:
    attributes: dict[str, AttributeValue] = {"a": True, "b": 1, "c": "1.2.3", "d": Version("1.2.3"), "e": ""}
    assert taken(attributes) == {
        "resource": {"string": RESOURCE},
        "a": {"bool": True},
        "b": {"int": 1},
        "c": {"string": "1.2.3"},
        "d": {"version": "1.2.3"},
        "e": {"string": ""},
    }


def test_a_name_in_the_drivers_domain_is_the_same_without_it() -> None:
    """D46: both are one name to a claim."""
    told, dropped = device_attributes(DRIVER, RESOURCE, {f"{DRIVER}/model": "x", "model": "y"})
    assert told["model"] == {"string": "x"}
    assert dropped == {"model": "is there already"}


def test_the_drivers_own_attribute_cannot_be_set() -> None:
    told, dropped = device_attributes(DRIVER, RESOURCE, {"resource": "other"})
    assert told["resource"] == {"string": RESOURCE}
    assert "the driver needs itself" in dropped["resource"]


def test_a_device_has_its_id_as_an_attribute_unless_it_brings_one() -> None:
    def attribute(device: Device, shares: int = 0) -> object:
        return fields(device_entry(DRIVER, RESOURCE, device, shares=shares).content, "attributes").get("id")

    assert attribute(Device("a")) == {"string": "a"}
    assert attribute(Device("a::0", share_of="a"), shares=2) == {"string": "a"}
    assert attribute(Device("a", attributes={"id": 7})) == {"int": 7}
    assert attribute(Device("a", attributes={f"{DRIVER}/id": "x"})) == {"string": "x"}
    assert attribute(Device("a", attributes={f"n{i}": i for i in range(31)})) is None


def test_an_unhealthy_device_has_a_taint_that_says_why() -> None:
    """D80: NoSchedule keeps new claims away, NoExecute also ends pods."""
    device = Device("a", health=Health.unhealthy("exit code 1: no echo!"))
    (kept,) = maps(device_entry(DRIVER, RESOURCE, device).content, "taints")
    assert kept == {"key": "devplug.io/unhealthy", "effect": "NoSchedule", "value": "exit-code-1-no-echo"}
    (ended,) = maps(device_entry(DRIVER, RESOURCE, device, evicts=True).content, "taints")
    assert ended["effect"] == "NoExecute"


def test_a_device_of_unknown_health_has_no_taint() -> None:
    assert "taints" not in device_entry(DRIVER, RESOURCE, Device("a", health=Health.unknown("x"))).content


def test_a_capacity_is_written_as_the_api_server_tells_it() -> None:
    capacity = {"memory": 81559 * 2**20, "size": 1000, f"{DRIVER}/units": 7, "a b": 1}
    entry = device_entry(DRIVER, RESOURCE, Device("a", capacity=capacity))
    assert entry.content["capacity"] == {
        "memory": {"value": "81559Mi"},
        "size": {"value": "1k"},
        "units": {"value": "7"},
    }
    assert [*entry.dropped] == ["a b"]


def test_of_a_capacity_that_is_shared_out_each_share_takes_its_part() -> None:
    """D86: without a policy the first claim would take all of it."""
    device = Device("a::0", capacity={"memory": 8 * 2**30}, share_of="a")
    entry: Any = device_entry(DRIVER, RESOURCE, device, shares=4).content
    assert entry["capacity"]["memory"] == {"value": "8Gi", "requestPolicy": {"default": "2Gi"}}


def test_what_is_shared_out_has_as_many_shares_as_devices_stand_for_it() -> None:
    """D86: who asks for no capacity takes the default, and who asks for less takes the least."""
    entry = device_entry(DRIVER, RESOURCE, Device("a::0", share_of="a"), shares=4).content
    assert entry["name"] == device_name(RESOURCE, "a")
    assert entry["allowMultipleAllocations"] is True
    assert entry["capacity"] == {
        "shares": {
            "value": "4",
            "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}},
        }
    }


def test_a_number_of_shares_is_written_as_the_api_server_tells_it() -> None:
    """Else it would be another number at each look."""
    entry: Any = device_entry(DRIVER, RESOURCE, Device("a::0", share_of="a"), shares=1000).content
    assert entry["capacity"]["shares"]["value"] == "1k"
