"""A container that restarts gets its device where it is then: CDI files of claims follow their devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.cdi.spec import UNPLUGGED_PATH, CdiOwner, CdiSpec
from devplug.devices import ContainerResponse, Device, DeviceNode, Health, Mount
from devplug.driver.claim_spec import claim_spec, current_spec
from devplug.driver.claims import ClaimUse, DeviceUse
from devplug.driver.node_driver import KubeletSockets
from devplug.driver.offer import OfferedDevice
from devplug.wire.dra import PREPARE, UNPREPARE, ClaimName
from devplug.wire.sockets import connected
from tests.driver.world import DRIVER, SERIAL, FakeResource, Node, refusal, serving
from tests.virtualtime import BACKEND
from tests.waiting import until


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return BACKEND


@pytest.fixture
def node(short_dir: Path) -> Node:
    return Node(short_dir)


def paths(node: Node, claim: ClaimName) -> list[str]:
    """Return the paths on the host in the file of a claim."""
    content = (node.cdi / f"k8s.{DRIVER}-claim-{claim.uid}.yaml").read_text()
    devices: list[dict[str, Any]] = json.loads(content.partition("\n")[2])["devices"]
    return [one.get("hostPath", one["path"]) for d in devices for one in d["containerEdits"]["deviceNodes"]]


def offer(driver: KubeletSockets, **devices: Device) -> None:
    driver.offer.replace({name: OfferedDevice(SERIAL, device) for name, device in devices.items()})


async def prepared(node: Node, claim: ClaimName) -> None:
    await until(node.registration_socket().exists)
    async with connected(node.socket()) as peer:
        assert not (await peer.call(PREPARE["v1.DRAPlugin"], [claim]))[claim.uid].error


async def test_a_device_that_is_plugged_in_again_is_found_at_its_new_node(node: Node) -> None:
    claim = node.claims.allocate("c", "a", "b")
    driver = node.driver("a", "b")
    async with serving(driver):
        await prepared(node, claim)
        assert paths(node, claim) == ["/dev/a", "/dev/b"]
        node.resource.unplugged.add("a")
        offer(driver, a=Device("a", health=Health.unhealthy("unplugged")), b=Device("b"))
        await until(lambda: paths(node, claim) == [UNPLUGGED_PATH, "/dev/b"])
        node.resource.unplugged.clear()
        node.resource.nodes["a"] = "/dev/other"
        offer(driver, a=Device("a", device_nodes=["/dev/other"]), b=Device("b"))
        await until(lambda: paths(node, claim) == ["/dev/other", "/dev/b"])
        assert node.resource.prepared == [("a", "b")]
        async with connected(node.socket()) as peer:
            await peer.call(UNPREPARE["v1.DRAPlugin"], [claim])
    assert node.cdi_names() == []


async def test_what_changed_while_no_driver_ran_is_found_at_its_start(node: Node) -> None:
    claim = node.claims.allocate("c", "a")
    async with serving(node.driver("a")):
        await prepared(node, claim)
    node.resource.nodes["a"] = "/dev/other"
    driver = node.driver()
    async with serving(driver):
        await until(node.registration_socket().exists)
        assert paths(node, claim) == ["/dev/a"], "before the first list nothing is known"
        offer(driver, a=Device("a"))
        await until(lambda: paths(node, claim) == ["/dev/other"])


async def test_devices_that_are_known_before_the_claims_are_count_as_well(node: Node) -> None:
    claim = node.claims.allocate("c", "a")
    async with serving(node.driver("a")):
        await prepared(node, claim)
    node.resource.nodes["a"] = "/dev/other"
    async with serving(node.driver("a")):
        await until(lambda: paths(node, claim) == ["/dev/other"])


async def test_a_device_that_is_only_sick_keeps_its_node(node: Node) -> None:
    claim, other = node.claims.allocate("c", "a"), node.claims.allocate("d", "b")
    driver = node.driver("a", "b")
    async with serving(driver):
        await prepared(node, claim)
        await prepared(node, other)
        node.resource.sick.add("a")
        node.resource.nodes["b"] = "/dev/other"
        offer(
            driver, a=Device("a", health=Health.unhealthy("hot")), b=Device("b", device_nodes=["/dev/other"])
        )
        await until(lambda: paths(node, other) == ["/dev/other"])
        assert paths(node, claim) == ["/dev/a"]
        node.resource.sick.clear()
        node.resource.nodes["a"] = "/dev/third"
        offer(driver, a=Device("a"), b=Device("b", device_nodes=["/dev/other"]))
        await until(lambda: paths(node, claim) == ["/dev/third"])


async def test_a_device_that_is_well_is_followed_beside_a_sick_one_of_its_claim(node: Node) -> None:
    claim = node.claims.allocate("c", "a", "b")
    driver = node.driver("a", "b")
    async with serving(driver):
        await prepared(node, claim)
        node.resource.sick.add("a")
        node.resource.nodes.update(a="/dev/third", b="/dev/other")
        sick = Device("a", health=Health.unhealthy("hot"), device_nodes=["/dev/third"])
        offer(driver, a=sick, b=Device("b", device_nodes=["/dev/other"]))
        await until(lambda: paths(node, claim) == ["/dev/a", "/dev/other"])
        node.resource.sick.clear()
        offer(driver, a=Device("a"), b=Device("b", device_nodes=["/dev/other"]))
        await until(lambda: paths(node, claim) == ["/dev/third", "/dev/other"])


async def test_a_device_that_is_there_is_followed_beside_a_resource_that_has_gone(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = FakeResource("example.com/theirs")
    node.resources[theirs.resource_name] = theirs
    claim = node.claims.allocate("c", "b", "a")
    driver = node.driver("a")
    here = driver.offer.devices
    driver.offer.replace({**here, "b": OfferedDevice(theirs.resource_name, Device("b"))})
    async with serving(driver):
        await prepared(node, claim)
        del node.resources[theirs.resource_name]
        node.resource.nodes["a"] = "/dev/other"
        offer(driver, a=Device("a", device_nodes=["/dev/other"]))
        await until(lambda: paths(node, claim) == ["/dev/other", "/dev/b"])
    assert not [one for one in caplog.records if "cannot be refreshed" in one.message]


async def test_what_one_request_cannot_say_holds_up_no_other(node: Node) -> None:
    theirs = FakeResource("example.com/theirs", current_errors=[refusal()])
    node.resources[theirs.resource_name] = theirs
    claim = node.claims.allocate("c", "b", "a")
    driver = node.driver("a")
    here = driver.offer.devices
    driver.offer.replace({**here, "b": OfferedDevice(theirs.resource_name, Device("b"))})
    async with serving(driver):
        await prepared(node, claim)
        node.resource.nodes["a"] = theirs.nodes["b"] = "/dev/other"
        changed = {"a": OfferedDevice(SERIAL, Device("a", device_nodes=["/dev/other"]))}
        driver.offer.replace({**driver.offer.devices, **changed})
        await until(lambda: paths(node, claim) == ["/dev/other", "/dev/b"])
        await until(lambda: paths(node, claim) == ["/dev/other", "/dev/other"])


async def test_a_file_that_cannot_be_refreshed_is_tried_again_and_told_of_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    claim = node.claims.allocate("c", "a")
    driver = node.driver("a")
    async with serving(driver):
        await prepared(node, claim)
        node.resource.current_errors += [refusal(), refusal()]
        node.resource.nodes["a"] = "/dev/other"
        offer(driver, a=Device("a", device_nodes=["/dev/other"]))
        await until(lambda: paths(node, claim) == ["/dev/other"])
    told = [one for one in caplog.records if "cannot be refreshed" in one.message]
    assert [vars(one)["reason"] for one in told] == ["the device is on fire"]


async def test_a_file_that_another_program_removes_is_restored(node: Node) -> None:
    claim, other = node.claims.allocate("c", "a", pods=["p"]), node.claims.allocate("d", "b", pods=["q"])
    driver = node.driver("a", "b")
    async with serving(driver):
        await prepared(node, claim)
        await prepared(node, other)
        for _ in range(2):
            for path in node.cdi.iterdir():
                path.unlink()
            await until(lambda: len(node.cdi_names()) == 2)
            assert paths(node, claim) == ["/dev/a"]
        async with connected(node.socket()) as peer:
            await peer.call(UNPREPARE["v1.DRAPlugin"], [claim])
        assert node.cdi_names() == [f"k8s.{DRIVER}-claim-{other.uid}.yaml"]
    assert node.resource.prepared == [("a",), ("b",)]


async def test_a_file_that_another_program_edits_is_restored(node: Node) -> None:
    claim = node.claims.allocate("c", "a", pods=["p"])
    async with serving(node.driver("a")):
        await prepared(node, claim)
        (path,) = node.cdi.iterdir()
        content = path.read_bytes()
        for other in (b"", content.replace(b"/dev/a", b"/dev/mem")):
            path.write_bytes(other)
            await until(lambda: path.read_bytes() == content)
            spare = path.with_name("spare")
            spare.write_bytes(other)
            spare.rename(path)
            await until(lambda: path.read_bytes() == content)
        node.resource.nodes["a"] = "/dev/other"
    path.write_bytes(content.replace(b"/dev/a", b"/dev/mem"))
    async with serving(node.driver("a")):
        await until(lambda: paths(node, claim) == ["/dev/other"])
        assert b"/dev/mem" not in path.read_bytes()


async def test_a_restored_file_has_the_nodes_of_now(node: Node) -> None:
    claim = node.claims.allocate("c", "a")
    async with serving(node.driver("a")):
        await prepared(node, claim)
    (path,) = node.cdi.iterdir()
    path.unlink()
    node.resource.nodes["a"] = "/dev/other"
    async with serving(node.driver("a")):
        await until(lambda: path.exists() and paths(node, claim) == ["/dev/other"])


async def test_a_removed_file_is_no_reason_to_prepare_a_claim_again(node: Node) -> None:
    claim = node.claims.allocate("c", "a")
    async with serving(node.driver("a")):
        await prepared(node, claim)
    (path,) = node.cdi.iterdir()
    content = path.read_bytes()
    path.unlink()
    async with serving(node.driver("a")):
        await prepared(node, claim)
        assert path.read_bytes() == content
    assert node.resource.prepared == [("a",)]


# ── the rule ──


def made(counts: list[int]) -> tuple[CdiSpec, ClaimUse]:
    """Return the spec of a claim whose devices have so many nodes, each with a mount."""
    uses = tuple(DeviceUse("r", f"d{i}", SERIAL, f"D{i}") for i in range(len(counts)))
    responses = [response(f"d{i}", count) for i, count in enumerate(counts)]
    spec, use = claim_spec(DRIVER, ClaimUse("ns", "c", "u", uses), responses, [CdiOwner()] * len(uses))
    assert spec is not None
    return spec, use


def response(name: str, count: int, at: str = "/dev") -> ContainerResponse:
    return ContainerResponse(
        device_nodes=[DeviceNode(f"{at}/{name}-{i}", f"/dev/in-{name}-{i}", "r") for i in range(count)],
        mounts=[Mount(f"/sys{at}", f"/mnt/{name}")],
        envs={name: at},
    )


@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    states=st.lists(st.sampled_from(("same", "moved", "gone", "more", "sick")), min_size=3, max_size=3),
)
def test_only_paths_on_the_host_change_and_back_to_where_they_were(
    counts: list[int], states: list[str]
) -> None:
    spec, use = made(counts)

    def now(state: str, name: str, count: int) -> ContainerResponse | None:
        if state == "gone":
            return None
        return response(name, count + (state == "more"), "/run" if state == "moved" else "/dev")

    numbered = list(enumerate(zip(use.devices, counts, strict=True)))
    later = {one: now(states[i], f"d{i}", count) for i, (one, count) in numbered if states[i] != "sick"}
    current = current_spec(spec, later)
    assert current_spec(current, later) == current
    for state, old, new in zip(states, spec.devices, current.devices, strict=False):
        assert (new.name, new.envs) == (old.name, old.envs)
        assert [(one.path, one.permissions) for one in new.nodes] == [
            (one.path, one.permissions) for one in old.nodes
        ]
        roots = {"same": "/dev/d", "sick": "/dev/d", "moved": "/run/d"}
        assert all(one.host_path.startswith(roots.get(state, UNPLUGGED_PATH)) for one in new.nodes)
    before = {one: now("same", f"d{i}", count) for i, (one, count) in numbered}
    assert current_spec(current, before) == spec
