"""NVIDIA GPUs through a real NVML client against a stand-in for the driver's library, in a real process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.daemon.gpumachines import (
    DOUBLE_BIT,
    IS_LOST,
    MISMATCH,
    NOT_LOADED,
    UNKNOWN,
    GpuMachine,
    build,
    linked_machine,
    needs_no_driver,
    needs_standin,
)
from tests.daemon.hosts import link

pytestmark = needs_standin


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def eight(tmp_path: Path, library: Path) -> GpuMachine:
    return linked_machine(tmp_path / "machine", library)


@pytest.fixture
def one(tmp_path: Path, library: Path) -> GpuMachine:
    machine = GpuMachine(tmp_path / "machine", library)
    machine.add_gpu(0)
    return machine


def is_healthy(devices: dict[str, Any]) -> bool:
    return bool(devices) and {device["health"] for device in devices.values()} == {"healthy"}


def test_eight_linked_gpus_are_found_with_all_that_the_driver_says_of_them(eight: GpuMachine) -> None:
    with eight.followed(follows=False) as follower:
        devices = follower.next()
    assert list(devices) == [f"GPU-{index:08d}-aaaa-bbbb-cccc-0123456789ab" for index in range(8)]
    assert [device["numa"] for device in devices.values()] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert {device["health"] for device in devices.values()} == {"healthy"}
    name = "GPU-00000005-aaaa-bbbb-cccc-0123456789ab"
    assert devices[name]["facts"] == {
        "uuid": name,
        "model": "NVIDIA A100-SXM4-80GB",
        "serial": "1565120005",
        "pciAddress": "0000:15:00.0",
        "numaNode": 1,
        "file": "nvidia5",
        "hostPath": "/dev/nvidia5",
    }
    assert devices[name]["nodes"] == ["/dev/nvidia5"]
    assert devices[name]["shared"] == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    assert devices[name]["hardware"] == "/sys/devices/pci0000:00/0000:15:00.0"
    assert devices[name]["links"] == dict.fromkeys(sorted(devices.keys() - {name}), 12)


def test_a_gpu_that_falls_off_the_bus_is_unhealthy_and_recovers(eight: GpuMachine) -> None:
    lost = "GPU-00000003-aaaa-bbbb-cccc-0123456789ab"
    with eight.followed() as follower:
        assert len(follower.next()) == 8
        eight.event(3, 79)
        devices = follower.until(lambda now: now[lost]["health"] == "unhealthy")
        assert devices[lost]["reason"] == "Xid 79: fell off the bus"
        eight.set({"3.fails": IS_LOST})
        devices = follower.until(lambda now: "lost" in now[lost]["reason"])
        assert [name for name, device in devices.items() if device["health"] != "healthy"] == [lost]
        eight.set({}, "3.fails")
        devices = follower.until(lambda now: now[lost]["health"] == "healthy")
        assert len(devices) == 8
        follower.until_log("a GPU has recovered from a fault: Xid 79")


def test_a_gpu_comes_back_for_all_resources_of_one_process(eight: GpuMachine) -> None:
    eight.add_gpu(8, {"name": "NVIDIA L4"})
    lost = "GPU-00000003-aaaa-bbbb-cccc-0123456789ab"
    with eight.followed([{"model": "*A100*"}], [{"model": "*L4"}]) as follower:
        follower.until(lambda now: len(now) == 8)
        eight.set({"3.fails": IS_LOST})
        follower.until(lambda now: lost in now and now[lost]["health"] == "unhealthy")
        eight.set({}, "3.fails")
        follower.until(lambda now: lost in now and now[lost]["health"] == "healthy")


def test_a_gpu_that_is_not_even_counted_is_gone_until_it_is_counted_again(eight: GpuMachine) -> None:
    with eight.followed() as follower:
        assert len(follower.next()) == 8
        eight.set({"count": 7})
        link(eight.root / "dev/nvidia-modeset")
        assert len(follower.until(lambda now: len(now) < 8)) == 7
        eight.event(0, 79)
        follower.next()  # so NVML is open and has counted seven
        eight.set({"count": 8})
        assert len(follower.until(lambda now: len(now) > 7)) == 8


def test_an_event_is_told_long_before_the_resync(one: GpuMachine) -> None:
    with one.followed(options={"resync_seconds": 3600}) as follower:
        follower.next()
        one.event(0, 0x5F)
        (device,) = follower.next().values()
        assert device["reason"] == "Xid 95: uncontained ECC error"


def test_a_double_bit_error_counts_as_its_xid(one: GpuMachine) -> None:
    with one.followed(options={"resync_seconds": 3600}) as follower:
        follower.next()
        one.event(0, 0, DOUBLE_BIT)
        (device,) = follower.next().values()
        assert device["reason"] == "Xid 48: double bit ECC error"


def test_an_xid_that_needs_no_reset_is_over_after_a_time(one: GpuMachine) -> None:
    with one.followed(options={"recovery_seconds": 1.0}) as follower:
        follower.next()
        one.event(0, 94)
        assert [device["health"] for device in follower.next().values()] == ["unhealthy"]
        assert [device["health"] for device in follower.next().values()] == ["healthy"]


def test_faults_of_applications_are_ignored_unless_the_file_says_otherwise(one: GpuMachine) -> None:
    selectors: list[tuple[dict[str, list[int]], int, bool]] = [
        ({}, 31, True),
        ({"ignoreXids": [94]}, 94, True),
        ({"ignoreXids": [94]}, 31, False),
        ({"ignoreXids": []}, 13, False),
    ]
    for selector, xid, is_ignored in selectors:
        with one.followed([selector], options={"resync_seconds": 3600}) as follower:
            follower.next()
            one.event(0, xid)
            follower.until_log(f"a GPU has a fault: Xid {xid}")
            if is_ignored:
                one.event(0, 64)
            (device,) = follower.next().values()
            assert device["reason"].startswith("Xid 64" if is_ignored else f"Xid {xid}")
            one.set({}, "event")


def test_a_reset_that_the_driver_asks_for_is_seen_without_any_event(one: GpuMachine) -> None:
    one.set({"0.action": 1})
    with one.followed() as follower:
        (device,) = follower.next().values()
        assert device["reason"] == "the driver asks for a reset of this GPU"
        one.set({"0.action": 0})
        assert [device["health"] for device in follower.next().values()] == ["healthy"]
        one.set({"0.remapping_failed": 1})
        (device,) = follower.next().values()
        assert device["reason"] == "no spare memory rows are left: replace the board"


def test_mig_instances_of_a_profile_are_devices_and_their_gpu_is_none(eight: GpuMachine) -> None:
    first = eight.add_instance(1, 0, 7, "1g.10gb", (66, 67))
    second = eight.add_instance(1, 1, 8, "1g.10gb", (75, 76))
    other = eight.add_instance(1, 2, 2, "3g.40gb", (21, 22))
    with eight.followed([{"mig": "1g.10gb"}], follows=False) as follower:
        devices = follower.next()
    assert sorted(devices) == sorted([first, second])
    assert devices[second]["facts"]["uuid"] == second
    assert devices[second]["facts"]["pciAddress"] == "0000:11:00.0"
    assert devices[second]["nodes"] == ["/dev/nvidia-caps/nvidia-cap76"]
    assert devices[second]["shared"][:2] == ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap75"]
    assert devices[second]["numa"] == 0
    assert devices[first]["hardware"] != devices[second]["hardware"]
    assert devices[first]["links"] == {}
    with eight.followed([{"mig": "3g.40gb"}], follows=False) as follower:
        assert list(follower.next()) == [other]
    with eight.followed(follows=False) as follower:
        assert "GPU-00000001-aaaa-bbbb-cccc-0123456789ab" not in follower.next()


def test_memory_is_a_capacity_where_the_driver_says_it(one: GpuMachine) -> None:
    with one.followed() as follower:
        assert [device["capacity"] for device in follower.next().values()] == [{}]
        one.set({"0.mib": 81559})
        assert [device["capacity"] for device in follower.next().values()] == [{"memory": 81559 * 2**20}]
    instance = one.add_instance(0, 0, 7, "1g.10gb", (66, 67))
    one.set({"0.mig.0.mib": 9856, "0.mig.0.gpu_slices": 1, "0.mig.0.compute_slices": 1})
    with one.followed([{"mig": "1g.10gb"}], follows=False) as follower:
        (device,) = [follower.next()[instance]]
        assert device["capacity"] == {"memory": 9856 * 2**20}
        assert device["takes"] == {"memory": 9856 * 2**20, "compute-slices": 1}


def test_an_xid_of_one_mig_instance_leaves_the_others_alone(eight: GpuMachine) -> None:
    first = eight.add_instance(1, 0, 7, "1g.10gb", (66, 67))
    second = eight.add_instance(1, 1, 8, "1g.10gb", (75, 76))
    with eight.followed([{"mig": "1g.10gb"}]) as follower:
        follower.next()
        eight.event(1, 94, gi=8, ci=0)
        devices = follower.next()
        assert (devices[first]["health"], devices[second]["health"]) == ("healthy", "unhealthy")
        eight.event(1, 95)
        follower.until(lambda now: now[first]["reason"] == "Xid 95: uncontained ECC error")


def test_a_mig_instance_without_its_capability_nodes_cannot_be_given_out(eight: GpuMachine) -> None:
    name = eight.add_instance(1, 0, 7, "1g.10gb", (66, 67))
    (eight.root / "dev/nvidia-caps/nvidia-cap67").unlink()
    with eight.followed([{"mig": "1g.10gb"}]) as follower:
        assert follower.next()[name]["reason"] == (
            "/dev/nvidia-caps/nvidia-cap67 is missing; nvidia-modprobe makes it"
        )
        link(eight.root / "dev/nvidia-caps/nvidia-cap67")
        assert follower.next()[name]["health"] == "healthy"


def test_a_node_of_a_gpu_that_appears_later_is_told_by_event(one: GpuMachine) -> None:
    (one.root / "dev/nvidia0").unlink()
    with one.followed(options={"resync_seconds": 3600}) as follower:
        assert [device["health"] for device in follower.next().values()] == ["unhealthy"]
        link(one.root / "dev/nvidia0")
        assert [device["health"] for device in follower.next().values()] == ["healthy"]


@needs_no_driver
def test_without_the_drivers_library_there_are_no_gpus_and_one_line_says_why(
    one: GpuMachine, library: Path, tmp_path: Path
) -> None:
    one.library_folder = tmp_path
    with one.followed() as follower:
        assert follower.next() == {}
        assert "libnvidia-ml.so.1 was not found; run this pod with runtimeClassName" in follower.logs[0]
        place = one.root / "run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
        place.parent.mkdir(parents=True)
        place.symlink_to(library / "libnvidia-ml.so.1")
        assert len(follower.next()) == 1
        assert [line for line in follower.logs if "not found" in line] == follower.logs[:1]
        follower.until_log("NVML is available again")


def test_without_the_python_package_one_line_says_what_to_install(one: GpuMachine, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError\n")
    one.environment["PYTHONPATH"] = str(tmp_path)
    with one.followed(follows=False) as follower:
        assert follower.next() == {}
        assert "install devplug[nvidia]" in follower.logs[0]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (NOT_LOADED, "the NVIDIA driver is not loaded on this machine"),
        (MISMATCH, "restart this pod"),
        (UNKNOWN, "Unknown Error"),
    ],
)
def test_a_driver_that_fails_at_first_is_tried_again(one: GpuMachine, code: int, text: str) -> None:
    one.set({"init": code})
    with one.followed() as follower:
        assert follower.next() == {}
        assert text in follower.logs[0]
        one.set({}, "init")
        assert len(follower.next()) == 1


def test_a_driver_that_is_exchanged_takes_its_gpus_along_and_ends_their_faults(one: GpuMachine) -> None:
    with one.followed() as follower:
        follower.next()
        one.event(0, 95)
        follower.next()
        one.set({"fails": NOT_LOADED, "init": NOT_LOADED})
        assert follower.until(lambda now: not now) == {}
        one.set({}, "fails", "init")
        assert [device["health"] for device in follower.next().values()] == ["healthy"]


def test_an_old_driver_without_newer_functions_is_enough(tmp_path: Path) -> None:
    machine = linked_machine(tmp_path / "machine", build(tmp_path / "old", "-DOLD_DRIVER"))
    machine.set({}, *(f"{index}.remapping_failed" for index in range(8)), "0.serial", "0.events")
    with machine.followed() as follower:
        devices = follower.next()
        assert len(devices) == 8
        name = "GPU-00000000-aaaa-bbbb-cccc-0123456789ab"
        assert "serial" not in devices[name]["facts"]
        assert set(devices[name]["links"].values()) == {12}
        follower.until_log(f"{name} reports no faults; it is too old for that")
        machine.event(1, 79)
        follower.until(lambda now: any(device["health"] != "healthy" for device in now.values()))


def test_a_driver_that_hangs_makes_its_gpus_unhealthy_and_holds_nobody(one: GpuMachine) -> None:
    with one.followed(options={"answer_limit_seconds": 0.3}) as follower:
        follower.until(is_healthy)  # a busy machine may be late at first, too
        one.set({"hangs": 1})
        late = ["NVML does not answer"]
        follower.until(lambda now: [device["reason"] for device in now.values()] == late)
        one.set({}, "hangs")
        follower.until(is_healthy)


def test_a_look_at_a_driver_that_hangs_knows_nothing_new_and_soon_does_not_wait(one: GpuMachine) -> None:
    with one.followed(looks_at_line=True, options={"answer_limit_seconds": 0.2}) as follower:
        follower.next()
        while not is_healthy(follower.look()):
            pass  # a busy machine may be late at first, too
        one.set({"hangs": 1})
        for _ in range(2):
            assert [device["health"] for device in follower.look().values()] == ["unknown"]


def test_a_program_ends_although_the_driver_hangs(one: GpuMachine) -> None:
    one.set({"hangs": 1})
    with one.followed(follows=False, options={"answer_limit_seconds": 0.2}) as follower:
        assert follower.next() == {}
        with pytest.raises(AssertionError, match="the program has ended"):
            follower.next()


def test_a_template_that_says_the_same_of_two_gpus_still_gives_two_ids(eight: GpuMachine) -> None:
    with eight.followed([{"uuid": "GPU-0000000[12]-*"}], follows=False, id="{model}") as follower:
        assert len(follower.next()) == 2
    with eight.followed(follows=False, id="{pciAddress}") as follower:
        assert min(follower.next()) == "0000:10:00.0"
