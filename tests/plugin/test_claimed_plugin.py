"""A plugin in code whose devices pods get by claims: what containers get, and get when they restart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from devplug.devices import ContainerResponse, Device, DeviceNode, Health
from devplug.dra.taints import Toleration
from devplug.driver.node_driver import NodeDriver
from devplug.driver.offer import ClaimRequest
from devplug.driver.parameters import DeviceConfig
from devplug.errors import UnhealthyDeviceError
from devplug.plugin.claimed_plugin import ClaimedPlugin
from devplug.plugin.contract import DevicePlugin
from devplug.plugin.inventory import Inventory


class Scanner(DevicePlugin):
    resource_name = "example.com/scanner"

    def __init__(self, link: Path) -> None:
        self.link = link
        self.prepared: list[str] = []

    async def prepare(self, devices: Sequence[Device], /) -> None:
        self.prepared += [device.id for device in devices]

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        return ContainerResponse(device_nodes=[DeviceNode(self.link, "/dev/scanner", "r")])


async def claimed(
    plugin: DevicePlugin,
    folder: Path,
    *devices: Device,
    evicts: bool = False,
    later: Sequence[Device] | None = None,
) -> ClaimedPlugin:
    """Return a plugin that lists these devices, and `later` others, while a pod has one of the first list."""
    inventory = Inventory(plugin.resource_name, held_ids=lambda: {one.id for one in devices})
    await inventory.replace(devices)
    if later is not None:
        await inventory.replace(later)
    driver = NodeDriver("d.example.com", "n", lambda _: (DeviceConfig(), ()), kubelet_root=folder)
    return ClaimedPlugin(plugin, inventory, driver, lambda: None, evicts=evicts)


async def test_a_claim_gets_the_kernel_s_own_node_and_a_restart_the_one_of_then(
    short_dir: Path, tmp_path: Path
) -> None:
    """CDI follows no link; what is prepared once is not prepared under a container that runs."""
    plugin = Scanner(tmp_path / "by-id")
    plugin.link.symlink_to("/dev/zero")
    one = await claimed(plugin, short_dir, Device("a"), Device("b"))
    nothing, given = ContainerResponse(), DeviceNode("/dev/zero", "/dev/scanner", "r")
    assert await one.prepare([ClaimRequest(("a", "b"))]) == [
        [ContainerResponse(device_nodes=[given]), nothing]
    ]
    plugin.link.unlink()
    plugin.link.symlink_to("/dev/full")
    given = DeviceNode("/dev/full", "/dev/scanner", "r")
    assert await one.current(["a", "b"]) == {"a": ContainerResponse(device_nodes=[given]), "b": nothing}
    assert plugin.prepared == ["a", "b"]


async def test_where_a_sick_device_is_nobody_asks_its_code(short_dir: Path, tmp_path: Path) -> None:
    devices = Device("a", health=Health.unhealthy("hot")), Device("b")
    one = await claimed(Scanner(tmp_path), short_dir, *devices)
    assert await one.current(["a"]) == {}
    assert await one.current(["a", "b"]) == {}, "what both get is one answer"


async def test_devices_without_code_of_their_own_are_followed_one_by_one(
    short_dir: Path, tmp_path: Path
) -> None:
    class Plain(DevicePlugin):
        resource_name = Scanner.resource_name

    link = tmp_path / "by-id"
    link.symlink_to("/dev/zero")
    a, b = Device("a", device_nodes=["/dev/null"]), Device("b", device_nodes=[DeviceNode(link, "/dev/b")])
    given = {
        "a": ContainerResponse(device_nodes=["/dev/null"]),
        "b": ContainerResponse(device_nodes=[DeviceNode("/dev/zero", "/dev/b")]),
    }
    one = await claimed(Plain(), short_dir, a, b)
    assert await one.prepare([ClaimRequest(("b", "a"))]) == [[given["b"], given["a"]]]
    assert await one.current(["a", "b"]) == given
    sick = a.with_health(Health.unhealthy("hot"))
    one = await claimed(Plain(), short_dir, a, b, later=[sick, b])
    assert await one.current(["a", "b", "never"]) == {"b": given["b"]}


@pytest.mark.parametrize(
    ("evicts", "tolerations", "is_prepared"),
    [
        (False, [], False),
        (False, [("", "Exists", "", "")], True),
        (False, [("devplug.io/unhealthy", "Exists", "", "NoSchedule")], True),
        (False, [("devplug.io/unhealthy", "Equal", "too-hot", "")], True),
        (False, [("devplug.io/unhealthy", "Equal", "", "")], False),
        (False, [("example.com/maintenance", "Exists", "", "")], False),
        (True, [("devplug.io/unhealthy", "Exists", "", "NoSchedule")], False),
        (True, [("x", "Exists", "", ""), ("devplug.io/unhealthy", "Exists", "", "NoExecute")], True),
    ],
)
async def test_a_sick_device_is_for_the_requests_that_tolerate_its_taint(
    short_dir: Path, *, evicts: bool, tolerations: Sequence[tuple[str, str, str, str]], is_prepared: bool
) -> None:
    devices = Device("a", health=Health.unhealthy("too hot")), Device("b")
    one = await claimed(Scanner(short_dir), short_dir, *devices, evicts=evicts)
    tolerated = tuple(Toleration(*each) for each in tolerations)
    if is_prepared:
        await one.prepare([ClaimRequest(("b",)), ClaimRequest(("a",), tolerated)])
    of_b, of_a = (tolerated, ()) if is_prepared else ((), tolerated)
    with pytest.raises(UnhealthyDeviceError, match=r'device "a" is unhealthy \(too hot\)'):
        await one.prepare([ClaimRequest(("b",), of_b), ClaimRequest(("a",), of_a)])


async def test_code_can_tell_a_sick_device_that_is_tolerated_and_refuse_it(short_dir: Path) -> None:
    class Careful(Scanner):
        async def prepare(self, devices: Sequence[Device], /) -> None:
            self.prepared += [one.id for one in devices if one.health == Health.healthy()]

        async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
            for one in devices:
                if one.health != Health.healthy() and one.health.reason == "on fire":
                    raise UnhealthyDeviceError("it burns", one)
            return await super().allocate(devices)

    plugin, anything = Careful(short_dir), (Toleration("", "Exists", "", ""),)
    ill, burning = (
        Device(id_, health=Health.unhealthy(why)) for id_, why in (("a", "hot"), ("b", "on fire"))
    )
    one = await claimed(plugin, short_dir, ill, burning, Device("c"))
    await one.prepare([ClaimRequest(("a", "c"), anything)])
    assert plugin.prepared == ["c"]
    with pytest.raises(UnhealthyDeviceError, match=r'device "b" is unhealthy \(it burns\)'):
        await one.prepare([ClaimRequest(("b",), anything)])


async def test_a_device_that_has_left_the_list_is_for_nobody(short_dir: Path) -> None:
    one = await claimed(Scanner(short_dir), short_dir, Device("a"), later=[])
    with pytest.raises(UnhealthyDeviceError, match="gone"):
        await one.prepare([ClaimRequest(("a",), (Toleration("", "Exists", "", ""),))])


async def test_annotations_that_no_container_can_get_are_told_of_once(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Annotated(Scanner):
        async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
            return ContainerResponse(annotations={"example.com/mode": devices[0].id})

    one = await claimed(Annotated(short_dir), short_dir, Device("a"), Device("b"))
    await one.prepare([ClaimRequest(("a",))])
    await one.prepare([ClaimRequest(("a",)), ClaimRequest(("b",))])
    (told,) = [record for record in caplog.records if "no annotations" in record.message]
    assert vars(told)["annotations"] == ["example.com/mode"]
