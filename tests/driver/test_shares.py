"""Devices that several claims use at once: which of their shares a claim has, published in either way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug import Device, Health
from devplug.driver.claims import ClaimUse, DeviceUse
from devplug.driver.device_entries import device_name
from devplug.driver.offer import OfferedDevice, SharesInUse, offered_devices, shares_in_use, with_shares
from devplug.kubelet.pods import PodPhase
from devplug.wire.dra import PREPARE, UNPREPARE
from devplug.wire.sockets import connected
from tests.driver.apiserver import Cluster, cluster
from tests.driver.test_publisher import current, errors, publishing
from tests.driver.world import SERIAL, FakeResource, Node, serving
from tests.driver.world import Cluster as KubeletCluster
from tests.kubelet.dra_driver import pod, running
from tests.waiting import until

SHARES = [Device(f"a::{number}", share_of="a") for number in range(3)]
IDS = tuple(one.id for one in SHARES)
OFFERED = offered_devices({SERIAL: SHARES})
WHOLE = device_name(SERIAL, "a")


def replica(number: int) -> str:
    return device_name(SERIAL, IDS[number])


def share(uid: str, share_id: str | None = "s", request: str = "r") -> ClaimUse:
    return ClaimUse("ns", uid, uid, (DeviceUse(request, WHOLE, SERIAL, IDS[0], share_id),))


def alone(uid: str, number: int) -> ClaimUse:
    return ClaimUse("ns", uid, uid, (DeviceUse("r", replica(number), SERIAL, IDS[number]),))


def ids(use: ClaimUse) -> list[str]:
    return [one.device_id for one in use.devices]


# ── which share a claim has ──


def test_what_is_shared_out_is_offered_as_a_whole_and_share_by_share() -> None:
    """Claims of both kinds are prepared, whatever slices say now."""
    assert OFFERED[WHOLE].share_ids == IDS
    assert {name: one.device.id for name, one in OFFERED.items() if name != WHOLE} == {
        replica(number): IDS[number] for number in range(3)
    }


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=30))
def test_no_two_claims_have_one_share_while_there_are_enough(steps: list[tuple[bool, int]]) -> None:
    claims: dict[str, ClaimUse] = {}
    for begins, number in steps:
        uid = f"u{number}"
        if not begins:
            claims.pop(uid, None)
        elif uid in claims or len(claims) < len(SHARES):
            used = with_shares(share(uid), OFFERED, claims)
            assert ids(used) == ids(claims.get(uid, used)), "the same claim keeps its share"
            claims[uid] = used
    held = [one for use in claims.values() for one in ids(use)]
    assert len(held) == len({*held})


def test_two_requests_of_a_claim_have_a_share_each() -> None:
    """D86: two requests may share one device."""
    both = ClaimUse("ns", "u", "u", (*share("u", "s", "r").devices, *share("u", "t", "q").devices))
    assert ids(with_shares(both, OFFERED, {})) == [IDS[0], IDS[1]]


def test_who_only_looks_takes_no_share() -> None:
    seen = DeviceUse("r", WHOLE, SERIAL, IDS[0], "s", has_admin_access=True)
    claims = {"admin": with_shares(ClaimUse("ns", "admin", "admin", (seen,)), OFFERED, {})}
    assert ids(with_shares(share("u"), OFFERED, claims)) == [IDS[0]]


def test_a_share_too_many_is_one_that_another_claim_still_has_as_a_share() -> None:
    """D28: that one was let go, and is unprepared later. One used as a device of its own is not touched."""
    claims = {
        "alone": alone("alone", 0),
        "u": with_shares(share("u"), OFFERED, {"alone": alone("alone", 0)}),
    }
    claims["v"] = with_shares(share("v"), OFFERED, claims)
    assert ids(with_shares(share("w"), OFFERED, claims)) == [IDS[1]]


def test_uses_are_told_apart_by_how_they_were_allocated() -> None:
    claims = [alone("u", 2), with_shares(share("v"), OFFERED, {})]
    assert shares_in_use(claims, OFFERED) == SharesInUse(
        frozenset({(SERIAL, IDS[2])}), frozenset({(SERIAL, IDS[0])})
    )


# ── prepare ──


async def test_pods_share_a_device_and_each_has_its_own_cdi_name_and_share_id(short_dir: Path) -> None:
    node = Node(short_dir)
    for number in range(3):
        node.claims.allocate(f"c{number}", WHOLE, share=f"share-{number}", pods=[f"u{number}"])
    driver = node.driver()
    driver.offer.replace(OFFERED)
    async with running(node.root, KubeletCluster(node)) as kubelet, serving(driver):
        await until(lambda: driver.is_registered)
        for number in range(3):
            running_pod = await kubelet.run_pod(pod(f"u{number}", f"c{number}"))
            assert running_pod.phase is PodPhase.RUNNING
    assert node.resource.prepared == [(one,) for one in IDS]
    assert len(node.cdi_names()) == 3


async def test_the_answer_of_a_share_is_the_same_again_and_it_is_released_once(short_dir: Path) -> None:
    """D24; the resource counts by ID which shares are left, as for a device plugin."""
    node = Node(short_dir)
    first, second = (node.claims.allocate(one, WHOLE, share=f"of-{one}") for one in ("c", "d"))
    driver = node.driver()
    driver.offer.replace(OFFERED)
    async with serving(driver):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            prepare, unprepare = PREPARE["v1.DRAPlugin"], UNPREPARE["v1.DRAPlugin"]
            answers = await peer.call(prepare, [first, second])
            assert await peer.call(prepare, [first, second]) == answers
            told = [one for uid in (first.uid, second.uid) for one in answers[uid].devices]
            assert [(one.device_name, one.share_id) for one in told] == [(WHOLE, "of-c"), (WHOLE, "of-d")]
            assert len({name for one in told for name in one.cdi_device_ids}) == 2
            assert driver.store.held_ids(SERIAL) == {IDS[0], IDS[1]}
            await peer.call(unprepare, [first])
            assert node.resource.released == [IDS[0]]
            third = node.claims.allocate("e", WHOLE, share="of-e")
            await peer.call(prepare, [third])
            assert driver.store.held_ids(SERIAL) == {IDS[0], IDS[1]}


async def test_claims_that_are_prepared_at_once_have_a_share_each(short_dir: Path) -> None:
    node = Node(short_dir)
    claims = [node.claims.allocate(f"c{number}", WHOLE, share=f"s{number}") for number in range(3)]
    driver = node.driver()
    driver.offer.replace(OFFERED)
    async with serving(driver):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer, asyncio.TaskGroup() as tasks:
            for claim in claims:
                tasks.create_task(peer.call(PREPARE["v1.DRAPlugin"], [claim]))
    assert sorted(node.resource.prepared) == [(one,) for one in IDS]


@dataclass
class Watched(FakeResource):
    """A resource that notes, when shares are released, which others are in use."""

    others: Callable[[], frozenset[str]] = frozenset
    seen: list[frozenset[str]] = field(default_factory=list)

    async def release(self, device_ids: Sequence[str], *, is_again: bool = False) -> None:
        self.seen.append(self.others() - {*device_ids})
        await asyncio.sleep(0)  # others have their turn, as while a command runs
        await super().release(device_ids, is_again=is_again)


async def test_of_shares_that_end_at_once_the_last_one_sees_that_it_is_the_last(short_dir: Path) -> None:
    """Else nobody would clean up the device: `onRelease` is for the last one."""
    resource = Watched()
    node = Node(short_dir, resource=resource)
    claims = [
        node.claims.allocate(f"c{number}", WHOLE, share=f"s{number}", pods=["u"]) for number in range(3)
    ]
    driver = node.driver()
    driver.offer.replace(OFFERED)
    resource.others = lambda: driver.store.held_ids(SERIAL)
    async with serving(driver):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            await peer.call(PREPARE["v1.DRAPlugin"], claims)
            assert await peer.call(UNPREPARE["v1.DRAPlugin"], claims) == {one.uid: "" for one in claims}
    assert sorted(map(len, resource.seen)) == [0, 1, 2]


# ── slices ──


async def test_where_the_api_server_knows_shares_they_are_one_device(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(short_dir) as server, publishing(server, *SHARES) as publisher:
        await until(lambda: publisher.status.generation)
        assert [*server.devices()] == [WHOLE]
        assert server.devices()[WHOLE]["capacity"]["shares"]["value"] == "3"
        publisher.note_shares(SharesInUse(shared=frozenset({(SERIAL, IDS[0])})))
        assert publisher.status.stale_since is None, "a claim of a share changes no slice"
        await current(publisher, [*SHARES, Device("b")])
        assert {*server.devices()} == {WHOLE, device_name(SERIAL, "b")}
        await current(publisher, [one.with_health(Health.unhealthy("x")) for one in SHARES])
        assert server.devices()[WHOLE]["taints"]
    assert errors(caplog) == []


async def test_where_the_api_server_drops_shares_each_is_a_device(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D49: stored without the fields, the one device would be the first claim's alone. It never is stored."""
    stored: list[str] = []
    async with cluster(short_dir) as server:
        server.dropped = ("allowMultipleAllocations",)
        server.before_write = lambda: stored.extend(server.devices())
        async with publishing(server, *SHARES) as publisher:
            await until(lambda: publisher.status.generation)
            assert [*server.devices()] == [replica(number) for number in range(3)]
    assert stored == []
    (told,) = errors(caplog)
    assert "each replica is published as a device" in told


async def test_an_api_server_that_is_another_one_after_a_reconnect_is_asked_again(short_dir: Path) -> None:
    """A share that is used in the one way is not given out in the other."""
    async with cluster(short_dir) as server:
        server.dropped = ("allowMultipleAllocations",)
        async with publishing(server, *SHARES) as publisher:
            await until(lambda: publisher.status.generation)
            used = SharesInUse(alone=frozenset({(SERIAL, IDS[1])}))
            publisher.note_shares(used)
            await anew(server, ())
            await until(lambda: publisher.status.stale_since is None)
            assert len(server.devices()) == 3, "a claim has one of them as a device"
            publisher.note_shares(SharesInUse())
            await until(lambda: [*server.devices()] == [WHOLE])

            publisher.note_shares(SharesInUse(shared=frozenset({(SERIAL, IDS[1])})))
            await anew(server, ("allowMultipleAllocations",))
            await until(lambda: {*server.devices()} == {replica(0), replica(2)})
            publisher.note_shares(SharesInUse())
            await until(lambda: len(server.devices()) == 3)


async def anew(server: Cluster, dropped: tuple[str, ...]) -> None:
    """Have the API server end, and begin as one that does not know these fields."""
    await server.stop()
    server.dropped = dropped
    server.start()


def test_an_offer_without_shares_is_as_it_was() -> None:
    device = Device("b")
    assert offered_devices({SERIAL: [device]}) == {device_name(SERIAL, "b"): OfferedDevice(SERIAL, device)}


async def test_the_next_driver_finds_its_numbers_as_it_would_write_them(short_dir: Path) -> None:
    """The API server tells quantities in one form; another one would be written at each look."""
    capacity = {"memory": 81559 * 2**20, "size": 3_000_000, "odd": 1025}
    devices = [Device(one.id, capacity=capacity, share_of="a") for one in SHARES]
    async with cluster(short_dir) as server:
        for _ in range(2):
            async with publishing(server, *devices) as publisher:
                await until(lambda: publisher.status.generation)
                assert publisher.status.generation == 1
        assert server.writes == ["POST", "POST", "POST"], "a question, the slice, a question"
