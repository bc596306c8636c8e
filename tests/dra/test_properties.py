"""What holds of every cluster and every sequence of claims, drawn at random."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devplug.dra.allocations import Allocations
from devplug.dra.allocator import Allocator
from devplug.dra.objects import Claim, DeviceID, Slice
from devplug.dra.pools import AS_DOCUMENTED, LIKE_1_36, Inventory, Like
from devplug.dra.search import AttemptError
from devplug.k8s.quantity import Quantity
from tests.dra.worlds import (
    CLASSES,
    GPU,
    N1,
    N2,
    Json,
    PlainSelectors,
    claim,
    device,
    one_of,
    request,
    slice_of,
    wanted,
)

WHOLE = 40


@st.composite
def devices(draw: st.DrawFn, name: str) -> Json:
    """Draw a device: of its own, a partition, or one to share."""
    attributes = {"k": draw(st.sampled_from("xyz"))} if draw(st.booleans()) else {}
    more: dict[str, Any] = {"attributes": attributes}
    match draw(st.sampled_from(["plain", "partition", "shared", "tainted"])):
        case "partition":
            amount = str(draw(st.integers(1, WHOLE)))
            more["consumesCounters"] = [{"counterSet": "set", "counters": {"memory": {"value": amount}}}]
        case "shared":
            more |= {
                "allowMultipleAllocations": True,
                "capacity": {"memory": {"value": str(draw(st.integers(1, 9)))}},
            }
        case "tainted":
            more["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    return device(name, **more)


@st.composite
def pools(draw: st.DrawFn) -> list[Slice]:
    """Draw a pool on each of two nodes, and one that both reach; each has counters of its own."""
    found = []
    for pool, where in (("n1", {"nodeName": "n1"}), ("n2", {"nodeName": "n2"}), ("net", {"allNodes": True})):
        listed = [draw(devices(f"{pool}-{number}")) for number in range(draw(st.integers(0, 4)))]
        counters = [{"name": "set", "counters": {"memory": {"value": str(WHOLE)}}}]
        found += [
            slice_of(f"{pool}-c", [], pool, count=2, sharedCounters=counters, **where),
            slice_of(f"{pool}-d", listed, pool, count=2, **where),
        ]
    return found


@st.composite
def claims(draw: st.DrawFn, name: str) -> Claim:
    """Draw a claim of one or two requests."""

    def wish() -> Json:
        more: dict[str, Any] = {"count": draw(st.integers(1, 3))}
        if draw(st.booleans()):
            more["capacity"] = {"requests": {"memory": str(draw(st.integers(1, 5)))}}
        if draw(st.booleans()):
            more["tolerations"] = [{"operator": "Exists"}]
        return more

    wishes = []
    for number in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            wishes.append(request(f"r{number}", "any", **wish()))
        else:
            wishes.append(one_of(f"r{number}", wanted("any", **wish()), wanted("any", **wish())))
    constraint = draw(st.sampled_from([None, "matchAttribute", "distinctAttribute"]))
    return claim(*wishes, name=name, constraints=[{constraint: f"{GPU}/k"}] if constraint else None)


def allocated(slices: list[Slice], wanted_claims: list[Claim], like: Like) -> list[Json | None]:
    """Allocate claims one after the other, on the two nodes in turn."""
    inventory, allocations, found = Inventory(slices), Allocations(), []
    for number, one in enumerate(wanted_claims):
        allocator = Allocator(CLASSES, inventory, allocations, PlainSelectors(), like)
        try:
            given_to = allocator.allocate((N1, N2)[number % 2], [one]).allocations
        except AttemptError:
            given_to = None
        found.append(given_to[0] if given_to else None)
        if given_to:
            allocations.add(given_to[0])
    return found


SEQUENCES = st.integers(1, 5).flatmap(lambda count: st.tuples(*(claims(f"c{at}") for at in range(count))))


@given(pools(), SEQUENCES, st.sampled_from([LIKE_1_36, AS_DOCUMENTED]))
def test_no_device_of_its_own_is_in_two_allocations(
    slices: list[Slice], asked: tuple[Claim, ...], like: Like
) -> None:
    """D79."""
    used = Counter(
        one["device"]
        for allocation in allocated(slices, list(asked), like)
        for one in (allocation or {"devices": {}})["devices"].get("results", [])
        if "shareID" not in one
    )
    assert not [name for name, count in used.items() if count > 1]


@given(pools(), SEQUENCES, st.sampled_from([LIKE_1_36, AS_DOCUMENTED]))
def test_no_capacity_is_exceeded(slices: list[Slice], asked: tuple[Claim, ...], like: Like) -> None:
    """D86."""
    has = {
        one.id.device: one.capacity["memory"].value.number
        for s in slices
        for one in s.devices
        if one.capacity
    }
    used: defaultdict[str, Fraction] = defaultdict(Fraction)
    for allocation in allocated(slices, list(asked), like):
        for one in (allocation or {"devices": {}})["devices"].get("results", []):
            if "consumedCapacity" in one:
                used[one["device"]] += Quantity.parse(one["consumedCapacity"]["memory"]).number
    assert all(amount <= has[name] for name, amount in used.items())


@given(pools(), SEQUENCES, st.sampled_from([LIKE_1_36, AS_DOCUMENTED]))
def test_no_counter_is_exceeded(slices: list[Slice], asked: tuple[Claim, ...], like: Like) -> None:
    """D85: its two bugs keep too much back, or need two drivers."""
    takes = {one.id: one.consumes[0].counters["memory"] for s in slices for one in s.devices if one.consumes}
    used: defaultdict[str, Fraction] = defaultdict(Fraction)
    for allocation in allocated(slices, list(asked), like):
        for one in (allocation or {"devices": {}})["devices"].get("results", []):
            used[one["pool"]] += takes.get(DeviceID(one["driver"], one["pool"], one["device"]), Fraction())
    assert all(amount <= WHOLE for amount in used.values())


@given(pools(), SEQUENCES, st.randoms(use_true_random=False))
def test_the_order_in_which_slices_came_decides_nothing(
    slices: list[Slice], asked: tuple[Claim, ...], random: Any
) -> None:
    """D100."""
    shuffled = list(slices)
    random.shuffle(shuffled)
    assert allocated(slices, list(asked), LIKE_1_36) == allocated(shuffled, list(asked), LIKE_1_36)


@given(pools(), SEQUENCES)
def test_what_was_allocated_and_released_leaves_no_trace(
    slices: list[Slice], asked: tuple[Claim, ...]
) -> None:
    """D63, D79: and the same claims get the same devices again."""
    first = allocated(slices, list(asked), LIKE_1_36)
    given_to = [one for one in first if one is not None]
    counted = Allocations()
    for one in given_to:
        counted.add(one)
    assert counted.in_use() == Allocations(given_to).in_use()
    for one in given_to:
        counted.remove(one)
    assert counted.in_use() == Allocations().in_use()
    assert allocated(slices, list(asked), LIKE_1_36) == first


@given(pools(), SEQUENCES)
def test_a_bug_is_named_only_where_the_result_differs_without_it(
    slices: list[Slice], asked: tuple[Claim, ...]
) -> None:
    """D78, D82, D85."""
    inventory = Inventory(slices)
    for one in asked:
        both = []
        for like in (LIKE_1_36, AS_DOCUMENTED):
            try:
                both.append(
                    Allocator(CLASSES, inventory, Allocations(), PlainSelectors(), like).allocate(N1, [one])
                )
            except AttemptError:
                return
        assert bool(both[0].bugs) == (both[0].allocations != both[1].allocations)
