"""Devices that are not simply free or taken: tainted ones, partitions with counters, shared capacity."""

from __future__ import annotations

import pytest

from devplug.dra.allocations import Allocations
from devplug.dra.objects import Slice
from devplug.dra.pools import AS_DOCUMENTED
from tests.dra.worlds import GPU, NIC, Json, claim, cluster_of, device, in_use, request, shared, slice_of

# ── taints ──


@pytest.mark.parametrize(
    ("taint", "toleration", "is_taken"),
    [
        ({"key": "k", "effect": "NoSchedule"}, None, False),
        ({"key": "k", "effect": "NoExecute"}, None, False),
        ({"key": "k", "effect": "None"}, None, True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "k"}, False),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "effect": "NoSchedule"}, {"operator": "Exists"}, True),
        ({"key": "k", "effect": "NoSchedule"}, {"operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_a_taint_keeps_a_device_back_unless_tolerated(
    taint: Json, toleration: Json | None, *, is_taken: bool
) -> None:
    """D80."""
    cluster = cluster_of(slice_of("s", [device("a", taints=[taint])]))
    found = cluster.devices(claim(request(tolerations=[toleration] if toleration else [])))
    assert (found is not None) is is_taken


# ── counters ──


def partitions(
    *devices: tuple[str, str], driver: str = GPU, whole: str = "40Gi", name: str = "set"
) -> list[Slice]:
    """Return the slices of a pool in which each device takes so much of one counter."""
    counters = [{"name": name, "counters": {"memory": {"value": whole}}}]
    listed = [
        device(one, consumesCounters=[{"counterSet": name, "counters": {"memory": {"value": amount}}}])
        for one, amount in devices
    ]
    return [
        slice_of(f"{driver}-counters", [], driver=driver, count=2, nodeName="n1", sharedCounters=counters),
        slice_of(f"{driver}-devices", listed, driver=driver, count=2),
    ]


def test_devices_share_the_counters_of_their_pool() -> None:
    """D85."""
    cluster = cluster_of(*partitions(("whole", "40Gi"), ("p0", "20Gi"), ("p1", "20Gi"), ("p2", "20Gi")))
    assert cluster.devices(claim(request())) == [["whole"]]
    assert cluster.devices(claim(request("r0"), request("r1"))) == [["p0", "p1"]]
    assert cluster.devices(claim(request(count=3))) is None
    cluster.allocations = in_use("p1")
    assert cluster.devices(claim(request())) == [["p0"]]
    assert cluster.devices(claim(request(count=2))) is None


def test_a_candidate_refused_for_its_taint_keeps_its_counters() -> None:
    """D85a: and the result says so."""
    first, second = partitions(("bad", "40Gi"), ("ok", "40Gi"))
    taint = {"key": "k", "effect": "NoSchedule"}
    tainted = slice_of(
        second.name,
        [
            device(
                name,
                taints=taints,
                consumesCounters=[{"counterSet": "set", "counters": {"memory": {"value": "40Gi"}}}],
            )
            for name, taints in (("bad", [taint]), ("ok", []))
        ],
        count=2,
    )
    cluster = cluster_of(first, tainted)
    found = cluster.search(claim(request()))
    assert found.allocations is None
    assert found.bugs == ("D85a",)
    assert cluster.devices(claim(request()), like=AS_DOCUMENTED) == [["ok"]]


def test_of_two_drivers_with_one_pool_name_the_second_is_not_limited() -> None:
    """D85b: and the result says so."""
    cluster = cluster_of(
        *partitions(("a", "40Gi")), *partitions(("b", "1"), ("c", "1"), driver=NIC, whole="1", name="other")
    )
    both = claim(request("g"), request("n", "nic", count=2))
    assert cluster.devices(claim(request("n", "nic", count=2))) is None
    assert cluster.devices(both) == [["a", "b", "c"]]
    assert cluster.search(both).bugs == ("D85b",)
    assert cluster.devices(both, like=AS_DOCUMENTED) is None


# ── consumable capacity ──


def consumed(cluster_devices: list[Json], *wishes: Json, used: Json | None = None) -> list[Json] | None:
    cluster = cluster_of(slice_of("s", cluster_devices))
    cluster.allocations = Allocations([used] if used else ())
    found = cluster.search(claim(*wishes)).allocations
    return None if found is None else [one["consumedCapacity"] for one in found[0]["devices"]["results"]]


def asks(name: str = "r0", **amounts: str) -> Json:
    return request(name, capacity={"requests": amounts})


VALUES = {"value": "80Gi", "requestPolicy": {"default": "8Gi", "validValues": ["2Gi", "8Gi", "16Gi"]}}
RANGE = {
    "value": "40Gi",
    "requestPolicy": {"default": "4Gi", "validRange": {"min": "4Gi", "step": "4Gi", "max": "16Gi"}},
}


@pytest.mark.parametrize(
    ("capacity", "asked", "taken"),
    [
        ("10Gi", "4Gi", "4Gi"),
        ("10Gi", None, "10Gi"),
        ("10Gi", "11Gi", None),
        (VALUES, None, "8Gi"),
        (VALUES, "1Gi", "2Gi"),
        (VALUES, "3Gi", "8Gi"),
        (VALUES, "17Gi", None),
        (RANGE, None, "4Gi"),
        (RANGE, "1Gi", "4Gi"),
        (RANGE, "5Gi", "8Gi"),
        (RANGE, "16Gi", "16Gi"),
        (RANGE, "17Gi", None),
        ({"value": "10", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}}, "2500m", "2500m"),
        (
            {"value": "9000", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}},
            "3072",
            "3Ki",
        ),
        ({"value": "2", "requestPolicy": {"default": "1"}}, "2", "2"),
    ],
)
def test_what_a_share_consumes_follows_the_policy(
    capacity: object, asked: str | None, taken: str | None
) -> None:
    """D47, D86."""
    wish = asks(memory=asked) if asked else request()
    found = consumed([shared("m", memory=capacity)], wish)
    assert found == (None if taken is None else [{"memory": taken}])


def test_shares_never_take_more_than_there_is() -> None:
    """D86."""
    half = shared("m", memory="10Gi")
    assert consumed([half], asks("r0", memory="4Gi"), asks("r1", memory="6Gi")) is not None
    assert consumed([half], asks("r0", memory="4Gi"), asks("r1", memory="7Gi")) is None
    used = {"driver": GPU, "pool": "n1", "device": "m", "shareID": "x", "consumedCapacity": {"memory": "7Gi"}}
    assert consumed([half], asks(memory="4Gi"), used={"devices": {"results": [used]}}) is None
    assert consumed([half], asks(memory="3Gi"), used={"devices": {"results": [used]}}) is not None


def test_one_request_takes_a_device_at_most_once() -> None:
    """D86."""
    wish = request(count=2, capacity={"requests": {"memory": "1Gi"}})
    assert consumed([shared("m", memory="10Gi")], wish) is None
    assert cluster_of(slice_of("s", [shared("m", memory="10Gi"), shared("n", memory="10Gi")])).devices(
        claim(wish)
    ) == [["m", "n"]]


def test_a_device_of_its_own_has_to_have_the_capacity() -> None:
    """D86: and an unknown capacity is a reason to look further."""
    devices = [
        device("a", capacity={"memory": {"value": "8Gi"}}),
        device("b", capacity={"memory": {"value": "16Gi"}}),
    ]
    cluster = cluster_of(slice_of("s", devices))
    assert cluster.devices(claim(asks(memory="10Gi"))) == [["b"]]
    assert cluster.devices(claim(asks(cores="1"))) is None
