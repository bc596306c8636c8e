"""Why claims cannot be allocated: what excludes each device, and which changes are enough."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devplug.dra.allocations import Allocations
from devplug.dra.allocator import Allocator
from devplug.dra.changes import Question
from devplug.dra.exclusions import Cause, Devices, Group
from devplug.dra.explanation import Explanation, explanation, outcome
from devplug.dra.objects import Claim, Device, DeviceClass, Slice
from devplug.dra.pools import AS_DOCUMENTED, LIKE_1_36, Inventory
from devplug.dra.search import AttemptError
from devplug.dra.taints import Taint, Toleration
from devplug.k8s.node_selectors import Node
from tests.dra.test_properties import claims, pools
from tests.dra.worlds import (
    CLASSES,
    GPU,
    N1,
    N2,
    NIC,
    PlainSelectors,
    claim,
    device,
    one_of,
    request,
    shared,
    slice_of,
    wanted,
)


def holder(name: str, *devices: str, **more: Any) -> Claim:
    """Return a claim that has these devices of pool n1."""
    results = [{"driver": GPU, "pool": "n1", "device": one, **more} for one in devices]
    return replace(claim(request(), name=name), allocation={"devices": {"results": results}})


def question(
    slices: list[Slice],
    *asked: Claim,
    others: tuple[Claim, ...] = (),
    nodes: tuple[Node, ...] = (N1, N2),
    classes: dict[str, DeviceClass] | None = None,
) -> Question:
    return Question(
        asked, others, tuple(slices), Inventory(slices), classes or CLASSES, nodes, PlainSelectors()
    )


def explained(*given: Any, **more: Any) -> Explanation:
    return explanation(question(*given, **more))


def told(found: Explanation, at: int = 0) -> list[tuple[int, list[str]]]:
    """Return for each group of a request how many devices it has, and why."""
    return [
        (len(one.devices), [_words(one, number) for number in range(len(one.reasons))])
        for one in found.requests[at].groups
    ]


def _words(group: Group, number: int) -> str:
    names = ", ".join(group.names[number])
    return group.reasons[number].text + (f": {names}" if names else "")


def changes(found: Explanation) -> list[str]:
    return [one.text for one in found.changes]


def test_a_device_that_another_claim_has_is_told_with_the_claim_and_freeing_it_helps() -> None:
    """D79."""
    found = explained([slice_of("s", ["d0"])], claim(request()), others=(holder("other", "d0"),))
    assert told(found) == [(1, ["held: ns/other"])]
    assert changes(found) == ["free claim ns/other: delete the pods that use it"]


def test_admin_access_minds_no_other_claim() -> None:
    """D79."""
    asked = claim(request(adminAccess=True))
    assert explained([slice_of("s", ["d0"])], asked, others=(holder("other", "d0"),)).fits == ("n1",)


def test_a_selector_is_told_with_what_it_evaluated_to() -> None:
    """D67, D72."""
    slices = [slice_of("s", [device("d0", attributes={"model": "a"}), "d1"])]
    found = explained(slices, claim(request("r0", "gpu", "model=b")))
    assert told(found) == [
        (1, ["selector `model=b` is false"]),
        (1, ["selector `model=b` is an error: CEL runtime error: no such key: model"]),
    ]
    assert changes(found) == ["drop selector `model=b` in request r0 of claim ns/c0"]


def test_the_error_that_ends_the_whole_attempt_is_told() -> None:
    """D68, D75."""
    found = explained([slice_of("s", ["d0"])], claim(request("r0", "gpu", "model=b")))
    error = "claim ns/c0: selector #0: CEL runtime error: no such key: model"
    assert found.problems == (f"the whole attempt ends, though another node might do: {error}",)


def test_a_taint_is_told_and_the_toleration_that_helps() -> None:
    """D80."""
    slices = [slice_of("s", [device("d0", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])])]
    found = explained(slices, claim(request()))
    assert told(found) == [(1, ["taint k=v:NoSchedule is not tolerated"])]
    assert changes(found) == ["tolerate the taint k=v:NoSchedule in request r0 of claim ns/c0"]


def test_a_device_of_another_node_is_told_with_its_node() -> None:
    found = explained([slice_of("s", ["d0"], "n9", nodeName="n9")], claim(request()))
    assert told(found) == [(1, ["on no node that the pod may go to: node n9"])]
    assert not found.changes


def test_counters_are_told_with_the_figures() -> None:
    """D85."""
    uses = {"consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "30Gi"}}}]}
    sets = [{"name": "set", "counters": {"memory": {"value": "40Gi"}}}]
    slices = [
        slice_of("c", [], count=2, sharedCounters=sets),
        slice_of("s", [device("d0", **uses), device("d1", **uses)], count=2),
    ]
    found = explained(slices, claim(request()), others=(holder("other", "d0"),))
    short = "too little left of the counters: 30Gi of set/memory needed, 10Gi left"
    assert told(found) == [(1, ["held: ns/other", short]), (1, [short])]
    assert changes(found) == ["free claim ns/other: delete the pods that use it"]


def test_capacity_is_told_with_the_figures() -> None:
    """D86."""
    taken = holder("other", "d0", shareID="x", consumedCapacity={"memory": "6Gi"})
    asked = claim(request(capacity={"requests": {"memory": "4Gi"}}))
    found = explained([slice_of("s", [shared("d0", memory="8Gi")])], asked, others=(taken,))
    assert told(found) == [(1, ["too little capacity: memory: 4Gi asked, 2Gi of 8Gi left"])]
    assert changes(found)[0] == "free claim ns/other: delete the pods that use it"


def test_a_constraint_is_told_with_the_values_that_the_devices_have() -> None:
    """D81."""
    slices = [slice_of("s", [device("d0", attributes={"k": "x"}), device("d1", attributes={"k": "y"}), "d2"])]
    asked = claim(request(count=2), constraints=[{"matchAttribute": f"{GPU}/k"}])
    found = explained(slices, asked)
    assert told(found)[1] == (1, [f"has no attribute {GPU}/k, which matchAttribute needs"])
    usable = "of the devices that are usable by themselves"
    assert found.problems == (f"matchAttribute {GPU}/k: {usable} {GPU}/n1 has 1 with x, 1 with y",)
    assert changes(found) == [
        "ask for 1 instead of 2 in request r0 of claim ns/c0",
        f"drop the constraint matchAttribute {GPU}/k of claim ns/c0",
    ]


def test_values_of_a_constraint_are_counted_by_type() -> None:
    """D81: the values must have one type."""
    first, second = device("d0", attributes={"k": "true"}), device("d1", attributes={"k": {"bool": True}})
    asked = claim(request(count=2), constraints=[{"matchAttribute": f"{GPU}/k"}])
    (told_of,) = explained([slice_of("s", [first, second])], asked).problems
    assert told_of.endswith("has 1 with true (string), 1 with true (bool)")


def test_values_of_a_constraint_are_not_told_of_devices_that_are_held() -> None:
    slices = [slice_of("s", [device("d0", attributes={"k": "x"})])]
    asked = claim(request(), constraints=[{"matchAttribute": f"{GPU}/k"}])
    assert explained(slices, asked, others=(holder("other", "d0"),)).problems == ()


def test_more_devices_than_a_claim_can_have_are_told_in_the_words_of_the_scheduler() -> None:
    """D57, D73."""
    found = explained([slice_of("s", [f"d{at}" for at in range(40)])], claim(request(count=33)))
    assert found.problems[0].endswith("number of requested devices 33 exceeds the claim limit of 32")
    assert changes(found) == ["ask for 32 instead of 33 in request r0 of claim ns/c0"]


def test_a_pool_whose_slices_are_not_all_there_is_told_with_their_number() -> None:
    """D77."""
    found = explained([slice_of("s", ["d0"], count=2)], claim(request()))
    text = "in a pool of which not all slices are there, or too many: gpu.example.com/n1 should have 2"
    assert told(found) == [(1, [text])]


def test_an_invalid_pool_is_told_with_its_reason() -> None:
    """D77."""
    found = explained([slice_of("s", ["d0", "d0"])], claim(request()))
    assert told(found) == [(2, [f"in an invalid pool (duplicate device name d0): {GPU}/n1"])]


def test_a_class_that_is_missing_and_a_cluster_without_slices_are_told() -> None:
    assert explained([], claim(request("r0", "no"))).problems == (
        "there is no DeviceClass no, which r0 names",
    )
    assert explained([], claim(request())).problems == (
        "the cluster has no ResourceSlice: no driver of devices has listed any",
    )


def test_a_driver_that_lists_no_devices_is_told_by_the_name_that_the_class_has() -> None:
    class AnyDriver(PlainSelectors):
        def matches(self, expression: str, device: Device) -> bool:
            return expression == f'device.driver == "{device.id.driver}"'

    classes = {"nic": DeviceClass("nic", (f'device.driver == "{NIC}"',), ())}
    asked = replace(
        question([slice_of("s", ["d0"])], claim(request("r0", "nic")), classes=classes),
        selectors=AnyDriver(),
    )
    assert explanation(asked).problems == (f"driver {NIC} has published no ResourceSlice",)


def test_a_selector_of_a_class_is_never_dropped() -> None:
    """It says which devices the class is: without it the class gives out the devices of other drivers."""
    classes = {"nic": DeviceClass("nic", ("model=nic",), ())}
    gpus = [slice_of("s", [device("d0", attributes={"model": "gpu"})])]
    found = explained(gpus, claim(request("r0", "nic")), classes=classes)
    assert not found.fits
    assert changes(found) == []


def test_where_no_single_change_is_enough_a_set_is_told_of_which_none_can_be_left_out() -> None:
    taints = [{"key": "k", "effect": "NoSchedule"}, {"key": "l", "effect": "NoExecute"}]
    found = explained([slice_of("s", [device("d0", taints=taints)])], claim(request()))
    assert found.needs_all
    assert changes(found) == [
        "tolerate the taint k:NoSchedule in request r0 of claim ns/c0",
        "tolerate the taint l:NoExecute in request r0 of claim ns/c0",
    ]


def test_a_thousand_devices_that_are_held_are_one_group() -> None:
    names = [f"d{at}" for at in range(1000)]
    found = explained([slice_of("s", names)], claim(request()), others=(holder("other", *names),))
    assert [len(one.devices) for one in found.requests[0].groups] == [1000]


def test_each_alternative_of_a_list_is_told_by_itself() -> None:
    """D84."""
    found = explained([slice_of("s", ["d0"])], claim(one_of("r0", wanted("nic"), wanted("gpu", count=2))))
    assert [one.request for one in found.requests] == ["r0/s0", "r0/s1"]
    assert changes(found)[0] == "ask for 1 instead of 2 in request r0/s1 of claim ns/c0"


# ── properties ──


@st.composite
def worlds(draw: st.DrawFn) -> Question:
    """Draw a cluster in which some claims have got devices, and one that asks."""
    slices = draw(pools())
    inventory, allocations, others = Inventory(slices), Allocations(), []
    for number in range(draw(st.integers(0, 3))):
        one = draw(claims(f"o{number}"))
        allocator = Allocator(CLASSES, inventory, allocations, PlainSelectors(), AS_DOCUMENTED)
        got = allocation_or_none(allocator, (N1, N2)[number % 2], one)
        if got is not None:
            allocations.add(got)
            others.append(replace(one, allocation=got))
    return question(slices, draw(claims("c0")), others=tuple(others))


def allocation_or_none(allocator: Allocator, node: Node, one: Claim) -> dict[str, Any] | None:
    try:
        found = allocator.allocate(node, [one]).allocations
    except AttemptError:
        return None
    return found[0] if found else None


class OnlyOne(PlainSelectors):
    """Selects one device and no other."""

    def __init__(self, wanted_device: Device) -> None:
        super().__init__()
        self.wanted = wanted_device

    def matches(self, expression: str, device: Device) -> bool:
        return device is self.wanted


@given(worlds())
def test_every_change_that_is_proposed_makes_the_allocator_succeed(world: Question) -> None:
    found = explanation(world)
    if found.fits:
        assert outcome(world)[0] == found.fits
        return
    assert not outcome(world)[0]
    if found.needs_all:
        for left_out in (None, *found.changes):
            changed = world
            for one in found.changes:
                changed = changed if one is left_out else one.apply(changed)
            assert bool(outcome(changed)[0]) == (left_out is None)
        return
    for one in found.changes:
        assert outcome(one.apply(world))[0]


@given(worlds(), st.integers(0, 30))
def test_what_stopped_looking_says_so_and_proposes_nothing_that_does_not_help(
    world: Question, most: int
) -> None:
    limited, full = explanation(world, most), explanation(world)
    assert full.stopped == ""
    if not limited.stopped:
        assert (changes(limited), limited.needs_all) == (changes(full), full.needs_all)
    elif limited.needs_all:
        for one in limited.changes:
            world = one.apply(world)
        assert outcome(world).fits
    else:
        assert set(changes(limited)) <= set(changes(full))


def test_the_trials_that_were_made_are_counted() -> None:
    slices = [slice_of("s", ["d0"]), slice_of("t", ["d0"], pool="n2", nodeName="n2")]
    others = holder("other", "d0"), holder("another", "d0", pool="n2")
    found = explanation(question(slices, claim(request()), others=others), 1)
    assert changes(found) == ["free claim ns/other: delete the pods that use it"]
    assert found.stopped == "it stopped looking after 1 trials of a node"


def test_a_search_that_was_ended_is_no_proof_that_nothing_helps() -> None:
    """D92: so many ways to choose nine of nine devices for ten requests are not tried."""
    wishes = claim(*(request(f"r{number}") for number in range(10)))
    found = explained([slice_of("s", [f"d{number}" for number in range(9)])], wishes, nodes=(N1,))
    assert re.fullmatch(r"in \d+ trials of a node it stopped looking after 20000 devices", found.stopped)


@given(worlds())
def test_a_device_is_usable_once_the_only_reason_that_is_named_is_removed(world: Question) -> None:
    """D79, D80, D81, D85, D86: and without any reason, at once; with one, not before."""
    asked = world.claims[0]
    allocations = Allocations(one.allocation for one in world.others if one.allocation)
    devices = Devices(world.inventory, world.slices, world.nodes, allocations, world.selectors, {})
    for wish in asked.requests:
        for index, what in enumerate(wish.alternatives):
            alone = replace(what, count=1, selectors=("only",))
            name = replace(wish, alternatives=(alone,), is_list=False)
            for one, reasons in devices.excluded(asked, wish, index, CLASSES[what.device_class]):
                single = replace(asked, requests=(name,))
                assert usable(world, one, single, world.others) == (not reasons)
                if len(reasons) == 1:
                    assert without(reasons[0].cause, world, one, single)


def usable(world: Question, one: Device, asked: Claim, others: tuple[Claim, ...]) -> bool:
    """Whether the allocator gives this device, and no other, to a claim."""
    tried = replace(world, claims=(asked,), others=others, selectors=OnlyOne(one), like=LIKE_1_36)
    return bool(outcome(tried)[0])


def without(cause: Cause, world: Question, one: Device, asked: Claim) -> bool:
    """Whether the device is usable when what a reason is about does not hold."""
    wish = asked.requests[0]
    what = wish.alternatives[0]
    match cause:
        case Cause.IN_USE:
            return usable(world, one, asked, tuple(o for o in world.others if not has(o, one)))
        case Cause.COUNTER:
            return usable(world, one, asked, ())
        case Cause.TAINT:
            all_of = (Toleration("", "Exists", "", ""),)
            what = replace(what, tolerations=all_of)
        case Cause.CONSTRAINT:
            asked = replace(asked, constraints=())
        case Cause.CAPACITY:
            what = replace(what, capacity={})
            return usable(world, one, replace(asked, requests=(replace(wish, alternatives=(what,)),)), ())
        case _:
            raise AssertionError(cause)
    asked = replace(asked, requests=(replace(wish, alternatives=(what,)),))
    return usable(world, one, asked, world.others)


def has(claim_of: Claim, one: Device) -> bool:
    results = (claim_of.allocation or {})["devices"].get("results", [])
    return any((r["driver"], r["pool"], r["device"]) == one.id for r in results)


def test_the_taint_of_a_device_is_written_as_kubectl_writes_it() -> None:
    assert [str(Taint("k", "", "NoSchedule")), str(Taint("k", "v", "NoSchedule"))] == [
        "k:NoSchedule",
        "k=v:NoSchedule",
    ]
