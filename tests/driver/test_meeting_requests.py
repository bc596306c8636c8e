"""Requests and claims that one container may have together: each device has a path and index of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.devices import Device
from devplug.driver.claims import ClaimUse, DeviceUse, meets, numbered
from devplug.driver.offer import OfferedDevice
from devplug.kubelet.pods import PodPhase
from devplug.wire.dra import PREPARE, UNPREPARE, ClaimName, PreparedClaim
from devplug.wire.sockets import connected
from tests.driver.world import SERIAL, Cluster, FakeResource, Node, events, serving
from tests.kubelet.dra_driver import pod, running
from tests.virtualtime import on_virtual_time
from tests.waiting import until

anyio_backend = on_virtual_time

INDEXED, FIXED = "/dev/serial{index}", "/dev/serial"


@pytest.fixture
def node(short_dir: Path) -> Node:
    made = Node(short_dir)
    made.resource.inside = INDEXED
    return made


def nodes_of(node: Node, *answers: PreparedClaim, request: str = "") -> dict[str, str]:
    """Return what a container gets that has these claims, or a request of each, as a runtime merges it."""
    edits = {}
    for path in node.cdi.glob("*.yaml"):
        spec = json.loads(path.read_text().partition("\n")[2])
        edits.update({f"{spec['kind']}={one['name']}": one["containerEdits"] for one in spec["devices"]})
    names = [
        name
        for answer in answers
        for one in answer.devices
        if not request or request in one.request_names
        for name in one.cdi_device_ids
    ]
    given = (each for name in names for each in edits[name]["deviceNodes"])
    return {one["path"]: one.get("hostPath", one["path"]) for one in given}


async def prepared(node: Node, *claims: ClaimName) -> Sequence[PreparedClaim]:
    """Return the answers of one call, in the order of the claims."""
    await until(node.registration_socket().exists)
    async with connected(node.socket()) as peer:
        answers = await peer.call(PREPARE["v1.DRAPlugin"], [*claims])
    return [answers[claim.uid] for claim in claims]


async def unprepared(node: Node, claim: ClaimName) -> None:
    async with connected(node.socket()) as peer:
        await peer.call(UNPREPARE["v1.DRAPlugin"], [claim])


# ── one claim ──


async def test_the_index_goes_on_over_the_requests_of_a_claim(node: Node) -> None:
    claim = node.claims.allocate("c", "b", "c", "a", requests=["q", "q", "r"])
    async with serving(node.driver("a", "b", "c")):
        (answer,) = await prepared(node, claim)
    assert answer.error == ""
    assert nodes_of(node, answer) == {
        "/dev/serial0": "/dev/b",
        "/dev/serial1": "/dev/c",
        "/dev/serial2": "/dev/a",
    }
    assert nodes_of(node, answer, request="r") == {"/dev/serial2": "/dev/a"}


async def test_an_init_container_gets_the_devices_of_two_app_containers(node: Node) -> None:
    """D91: its `limits` of 2 are met by the requests of the containers after it."""
    requests = ["container-1-request-0", "container-2-request-0"]
    claim = node.claims.allocate("c", "a", "b", requests=requests, is_for_one_pod=True)
    async with serving(node.driver("a", "b")):
        (answer,) = await prepared(node, claim)
    assert nodes_of(node, answer) == {"/dev/serial0": "/dev/a", "/dev/serial1": "/dev/b"}


async def test_each_resource_has_an_index_of_its_own(node: Node) -> None:
    theirs = FakeResource("example.com/theirs", inside="/dev/theirs{index}")
    node.resources[theirs.resource_name] = theirs
    claim = node.claims.allocate("c", "a", "x", requests=["q", "r"])
    driver = node.driver("a")
    here = driver.offer.devices
    driver.offer.replace({**here, "x": OfferedDevice(theirs.resource_name, Device("x"))})
    async with serving(driver):
        (answer,) = await prepared(node, claim)
    assert nodes_of(node, answer) == {"/dev/serial0": "/dev/a", "/dev/theirs0": "/dev/x"}


async def test_two_requests_at_one_path_are_refused_with_what_to_write(node: Node) -> None:
    node.resource.inside = FIXED
    claim = node.claims.allocate("c", "a", "b", requests=["q", "r"])
    async with serving(node.driver("a", "b")):
        (answer,) = await prepared(node, claim)
    assert answer.error == (
        "/dev/a and /dev/b would both be /dev/serial in a container that has both; write a containerPath "
        'with {index}, as in "/dev/serial{index}", or one that ends in /'
    )
    assert node.cdi_names() == []


# ── claims of one pod ──


@pytest.mark.parametrize("is_one_call", [True, False], ids=["one call", "two calls"])
async def test_the_index_goes_on_over_the_claims_of_a_pod(node: Node, *, is_one_call: bool) -> None:
    """As of one template that a pod names twice; in the order in which the pod names them."""
    claims = [node.claims.allocate(name, name[-1], is_for_one_pod=True) for name in ("z-b", "y-a", "x-c")]
    async with serving(node.driver("a", "b", "c")):
        if is_one_call:
            answers = [*await prepared(node, *claims)]
        else:
            answers = [answer for claim in claims for answer in await prepared(node, claim)]
    assert nodes_of(node, *answers) == {
        "/dev/serial0": "/dev/b",
        "/dev/serial1": "/dev/a",
        "/dev/serial2": "/dev/c",
    }


async def test_the_index_goes_on_after_a_restart_and_stays_when_asked_again(node: Node) -> None:
    first, second = (node.claims.allocate(name, name, is_for_one_pod=True) for name in ("a", "b"))
    async with serving(node.driver("a", "b")):
        (before,) = await prepared(node, first)
    async with serving(node.driver("a", "b")):
        (after,) = await prepared(node, second)
        assert await prepared(node, second, first) == [after, before]
    assert nodes_of(node, before, after) == {"/dev/serial0": "/dev/a", "/dev/serial1": "/dev/b"}


async def test_a_file_that_is_refreshed_keeps_the_index(node: Node) -> None:
    first, second = (node.claims.allocate(name, name, is_for_one_pod=True) for name in ("a", "b"))
    driver = node.driver("a", "b")
    async with serving(driver):
        answers = await prepared(node, first, second)
        node.resource.nodes["b"] = "/dev/other"
        driver.offer.replace(
            {
                **driver.offer.devices,
                "b": OfferedDevice(SERIAL, Device("b", device_nodes=["/dev/other"])),
            }
        )
        moved = {"/dev/serial0": "/dev/a", "/dev/serial1": "/dev/other"}
        await until(lambda: nodes_of(node, *answers) == moved)
    assert node.resource.asked_again == [(("b",), 1)]


async def test_a_claim_takes_the_index_of_one_that_has_ended(node: Node) -> None:
    first, second = (node.claims.allocate(name, name, is_for_one_pod=True) for name in ("a", "b"))
    async with serving(node.driver("a", "b")):
        await prepared(node, first)
        await unprepared(node, first)
        (answer,) = await prepared(node, second)
    assert nodes_of(node, answer) == {"/dev/serial0": "/dev/b"}


@pytest.mark.parametrize("is_one_call", [True, False], ids=["one call", "two calls"])
async def test_claims_of_a_pod_at_one_path_are_refused_with_the_other_s_name(
    node: Node, *, is_one_call: bool
) -> None:
    node.resource.inside = FIXED
    claims = [node.claims.allocate(name, name, is_for_one_pod=True) for name in ("a", "b")]
    async with serving(node.driver("a", "b")):
        if is_one_call:
            answers = [*await prepared(node, *claims)]
        else:
            answers = [answer for claim in claims for answer in await prepared(node, claim)]
    first, second = answers
    assert first.error == ""
    assert "/dev/a of ResourceClaim ns/a and /dev/b would both be /dev/serial" in second.error


async def test_claims_of_two_pods_begin_at_one_path_each(node: Node) -> None:
    node.resource.inside = FIXED
    claims = [node.claims.allocate(name, name, pods=[f"pod-{name}"], is_for_one_pod=True) for name in "ab"]
    async with serving(node.driver("a", "b")):
        answers = await prepared(node, *claims)
    assert [one.error for one in answers] == ["", ""]


async def test_a_pod_of_the_same_name_as_a_dead_one_begins_at_0(node: Node) -> None:
    """As one of a StatefulSet, where the kubelet unprepares the claim of the dead pod late (D28)."""
    first, second = (node.claims.allocate(name, name, is_for_one_pod=True) for name in ("a", "b"))
    node.claims.objects["ns", "b"]["status"]["reservedFor"][0]["uid"] = "another"
    async with serving(node.driver("a", "b")):
        await prepared(node, first)
        (answer,) = await prepared(node, second)
    assert nodes_of(node, answer) == {"/dev/serial0": "/dev/b"}


async def test_two_shares_of_one_device_may_be_at_one_path(node: Node) -> None:
    node.resource.inside = FIXED
    claims = [node.claims.allocate(n, "a", share=n, is_for_one_pod=True) for n in ("one", "two")]
    async with serving(node.driver("a")):
        answers = await prepared(node, *claims)
    assert nodes_of(node, *answers) == {"/dev/serial": "/dev/a"}


async def test_a_claim_that_only_looks_has_an_index_of_its_own(node: Node) -> None:
    """D79: `adminAccess`."""
    used = node.claims.allocate("used", "a", pods=["p"], is_for_one_pod=True)
    mine = node.claims.allocate("mine", "b", is_for_one_pod=True)
    look = node.claims.allocate("look", "a", admin=True, is_for_one_pod=True)
    async with serving(node.driver("a", "b")):
        _, *answers = await prepared(node, used, mine, look)
    assert nodes_of(node, *answers) == {"/dev/serial0": "/dev/b", "/dev/serial1": "/dev/a"}


# ── claims that pods share ──


async def test_a_shared_claim_meets_the_other_claims_of_each_of_its_pods(node: Node) -> None:
    """D23: the second pod comes to it without a call."""
    shared = node.claims.allocate("shared", "s", pods=["one"])
    first = node.claims.allocate("first", "a", pods=["one"], is_for_one_pod=True)
    second = node.claims.allocate("second", "b", pods=["two"], is_for_one_pod=True)
    async with serving(node.driver("s", "a", "b")):
        of_shared, of_first = await prepared(node, shared, first)
        node.claims.allocate("shared", "s", pods=["one", "two"])
        (of_second,) = await prepared(node, second)
    assert nodes_of(node, of_shared, of_first) == {"/dev/serial0": "/dev/s", "/dev/serial1": "/dev/a"}
    assert nodes_of(node, of_shared, of_second) == {"/dev/serial0": "/dev/s", "/dev/serial1": "/dev/b"}


async def test_a_pod_that_joins_two_prepared_claims_at_one_path_is_refused_if_asked(node: Node) -> None:
    one, two = (node.claims.allocate(name, name, pods=[name]) for name in ("a", "b"))
    async with serving(node.driver("a", "b")):
        before = await prepared(node, one, two)
        for name in ("a", "b"):
            node.claims.allocate(name, name, pods=[name, "both"])
        for answer in await prepared(node, one, two):
            assert "would both be /dev/serial0" in answer.error
        for name in ("a", "b"):
            node.claims.allocate(name, name, pods=[name])
        assert await prepared(node, one, two) == before


# ── a kubelet ──


async def test_a_kubelet_starts_a_pod_with_two_claims_and_explains_one_that_cannot(node: Node) -> None:
    for name in "abcd":
        node.claims.allocate(name, name, pods=["u" if name < "c" else "v"])
    driver = node.driver(*"abcd")
    async with running(node.root, Cluster(node)) as kubelet, serving(driver):
        await until(lambda: driver.is_registered)
        assert (await kubelet.run_pod(pod("u", "a", "b"))).phase is PodPhase.RUNNING
        node.resource.inside = FIXED
        assert (await kubelet.run_pod(pod("v", "c", "d"))).phase is PodPhase.PENDING
        (event,) = events(kubelet)
        assert 'write a containerPath with {index}, as in "/dev/serial{index}"' in event


# ── the rule ──

PODS = st.lists(st.sampled_from("pqrs"), min_size=1, max_size=2, unique=True)
DEVICES = st.lists(
    st.tuples(st.sampled_from(("r1", "r2", "r3")), st.sampled_from((SERIAL, "example.com/x"))), max_size=4
)


@given(st.lists(st.tuples(PODS, DEVICES), max_size=5))
def test_no_two_devices_that_a_container_may_have_have_one_index(
    claims: list[tuple[list[str], list[tuple[str, str]]]],
) -> None:
    """Held against all pairs of devices, each with the index that its place in the request gives it."""
    uses: list[ClaimUse] = []
    for number, (pods, devices) in enumerate(claims):
        of_claim = tuple(
            DeviceUse(request, f"d{number}-{i}", name, f"D{number}-{i}")
            for i, (request, name) in enumerate(devices)
        )
        use = ClaimUse("ns", f"c{number}", f"u{number}", of_claim, pods=tuple(pods), pod_uids=tuple(pods))
        uses.append(numbered(use, [one for one in uses if meets(use, one)]))
    places = [(use, one, _index(use, one)) for use in uses for one in use.devices]
    for (use, one, index), (other, two, its) in combinations(places, 2):
        may_meet = use is other or set(use.pods) & set(other.pods)
        if may_meet and one.resource_name == two.resource_name:
            assert index != its
    for use in uses[:1]:
        for name in {one.resource_name for one in use.devices}:
            found = sorted(_index(use, one) for one in use.devices if one.resource_name == name)
            assert found == list(range(len(found))), "a claim alone counts without a gap"


def _index(use: ClaimUse, device: DeviceUse) -> int:
    same = [
        one
        for one in use.devices
        if (one.resource_name, one.request) == (device.resource_name, device.request)
    ]
    return device.first_index + same.index(device)


def test_a_claim_of_another_namespace_never_meets() -> None:
    one = ClaimUse("ns", "c", "u1", (), pods=("p",))
    assert meets(one, ClaimUse("ns", "d", "u2", (), pods=("p",)))
    assert not meets(one, ClaimUse("other", "d", "u2", (), pods=("p",)))
