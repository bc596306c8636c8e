"""The parts of the lab that need no guest: what it boots from, what it claims, what it says of failures."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.config.loader import load
from lab.guest import paths_fault
from lab.hardware import PLUGGABLE, Sockets, arguments
from lab.initrd import load_order, packed
from lab.packages import UnavailableError, missing_packages, prepare
from lab.report import Report, Row, as_text
from lab.stories import STORIES, config_text

SWITCHED_INSIDE = {"functions", "tpm", "camera"}


# ── what the guest starts with ────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(shutil.which("busybox") is None, reason="no busybox, whose cpio unpacks the archive")
def test_the_archive_that_the_kernel_gets_is_unpacked_with_all_its_files(tmp_path: Path) -> None:
    files = {"init": b"#!/bin/busybox sh\n", "lib/a/b.ko": bytes(range(7)), "lib/empty": b""}
    subprocess.run(["busybox", "cpio", "-id"], input=packed(files, ["proc"]), cwd=tmp_path, check=True)
    assert {name: (tmp_path / name).read_bytes() for name in files} == files
    assert (tmp_path / "proc").is_dir()
    assert (tmp_path / "init").stat().st_mode & 0o777 == 0o755


def test_a_module_is_loaded_after_all_that_it_needs() -> None:
    dependencies = "k/nvme.ko: k/nvme-core.ko k/pi.ko\nk/nvme-core.ko: k/pi.ko\nk/pi.ko:\nk/other.ko:\n"
    assert load_order(dependencies, ["nvme"]) == ["k/pi.ko", "k/nvme-core.ko", "k/nvme.ko"]


@pytest.mark.parametrize("name", ["usb-storage", "usb_storage"])
def test_a_module_is_found_by_either_spelling_of_its_name(name: str) -> None:
    assert load_order("k/usb-storage.ko.xz:\n", [name]) == ["k/usb-storage.ko.xz"]


def test_what_is_built_into_the_kernel_is_not_loaded() -> None:
    assert load_order("k/a.ko:\n", ["tpm_tis"]) == []


@given(st.dictionaries(st.integers(0, 9), st.sets(st.integers(0, 9))), st.lists(st.integers(0, 9)))
def test_every_needed_module_comes_once_and_before(needs: dict[int, set[int]], wanted: list[int]) -> None:
    # As in the kernel, nothing needs what comes after it.
    lower = {one: {other for other in needs.get(one, set()) if other < one} for one in range(10)}
    text = "\n".join(f"m{one}.ko: {' '.join(f'm{other}.ko' for other in lower[one])}" for one in range(10))
    order = [int(file[1]) for file in load_order(text, [f"m{one}" for one in wanted])]
    assert len(order) == len(set(order))
    assert set(wanted) <= set(order)
    assert all(other in order[: order.index(one)] for one in order for other in lower[one])


# ── what is claimed ───────────────────────────────────────────────────────────────────────────────


def test_the_stories_are_a_configuration_that_the_daemon_takes() -> None:
    names = [resource.name for resource in load(config_text(STORIES), "lab.yaml").resources]
    assert names == [story.resource_name for story in STORIES]


def test_every_device_of_the_stories_can_be_plugged() -> None:
    plugs = {device.plug for story in STORIES for device in story.devices}
    assert plugs == {*PLUGGABLE, *SWITCHED_INSIDE}


def test_what_is_plugged_fits_into_the_machine(tmp_path: Path) -> None:
    sockets = Sockets(tmp_path / "q", tmp_path / "t", tmp_path / "tpm")
    machine = arguments(kernel=tmp_path, initrd=tmp_path, console=tmp_path, sockets=sockets)
    made = {part.partition("=")[2] for text in machine for part in text.split(",") if "=" in part}
    parts = [
        str(device[key])
        for device in PLUGGABLE.values()
        for key in ("bus", "drive", "chardev")
        if key in device
    ]
    assert {part.removesuffix(".0") for part in parts} <= made


@pytest.mark.parametrize(
    ("paths", "is_wrong"),
    [
        (["/dev/vfio/7", "/dev/vfio/vfio"], False),
        (["/dev/vfio/vfio", "/dev/vfio/12"], False),
        (["/dev/vfio/7"], True),
        (["/dev/vfio/7", "/dev/vfio/8", "/dev/vfio/vfio"], True),
        ([], True),
    ],
)
def test_a_pod_has_to_get_exactly_one_node_for_each_glob(paths: list[str], is_wrong: bool) -> None:
    assert bool(paths_fault(("/dev/vfio/[0-9]*", "/dev/vfio/vfio"), paths)) is is_wrong


# ── what is said ──────────────────────────────────────────────────────────────────────────────────


def test_a_run_proves_nothing_unless_the_guest_came_to_its_end() -> None:
    assert not Report().holds
    assert Report(has_ended=True).holds
    assert not Report(faults=["no"], has_ended=True).holds


def test_the_table_shows_what_a_device_did_not_get_to() -> None:
    rows = [Row("TPM", "tpmrm0", None, 12.4, 3.5, 14.6), Row("VFIO group", "0000:83:00.0", 1, 7.0)]
    assert as_text(Report(rows, ["VFIO group: why"])).splitlines() == [
        "DEVICE      ID            NUMA  FOUND  LOST  FOUND AGAIN",
        "TPM         tpmrm0           -  12 ms  4 ms        15 ms",
        "VFIO group  0000:83:00.0     1   7 ms     -            -",
        "FAIL VFIO group: why",
    ]


def test_where_nothing_can_be_installed_the_lab_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_packages() == ["qemu-system-x86", "swtpm", "busybox-static"]
    with pytest.raises(UnavailableError, match="qemu-system-x86, swtpm, busybox-static, linux-image-amd64"):
        prepare(tmp_path / "lab")
    assert not (tmp_path / "lab").exists()


def test_a_busybox_that_needs_libraries_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "busybox"
    program.write_bytes(b"\x7fELF" + b"\0" * 60 + b"/lib64/ld-linux-x86-64.so.2\0")
    program.chmod(0o755)
    assert "busybox-static" in missing_packages()
    program.write_bytes(b"\x7fELF" + b"\0" * 60)
    assert "busybox-static" not in missing_packages()
