"""`devplug discover` as people meet it, on the machine that runs the tests and on one made of files."""

from __future__ import annotations

import json
import os
import pty
from pathlib import Path

import pytest
import yaml

from devplug.cli.discover import discover
from devplug.daemon.sources.host import Host
from tests.cli.programs import devplug
from tests.daemon.hosts import needs_mknod
from tests.daemon.machines import Machine
from tests.daemon.populated import BY_ID, populated


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return populated(tmp_path_factory.mktemp("machine")).host


def said(host: Host, capsys: pytest.CaptureFixture[str], **options: object) -> str:
    usual = {"output": "table", "color": "never", "is_all": False, "is_proposal": False}
    discover(host=host, **{**usual, **options})  # type: ignore[arg-type]
    return capsys.readouterr().out


# ── on this machine ───────────────────────────────────────────────────────────────────────────────


def test_all_shows_what_is_hidden_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(said(Host(), capsys, output="json"))
    everything = json.loads(said(Host(), capsys, output="json", is_all=True))
    assert everything["hidden"] == {}
    assert not any(device["is_hidden"] for device in facts["devices"])
    shown = [device["id"] for device in facts["devices"]]
    assert set(shown) <= {device["id"] for device in everything["devices"]}


def test_a_terminal_that_is_opened_is_listed_among_all(capsys: pytest.CaptureFixture[str]) -> None:
    primary, secondary = pty.openpty()
    try:
        facts = json.loads(said(Host(), capsys, output="json", is_all=True))
        path = os.ttyname(secondary)
    finally:
        os.close(primary)
        os.close(secondary)
    (device,) = [one for one in facts["devices"] if path in [node["host_path"] for node in one["nodes"]]]
    assert (device["kind"], device["is_hidden"], device["found_by"]) == ("terminals", True, f"path: {path}")


def test_what_is_proposed_here_is_valid_here_and_finds_what_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = devplug("discover", "--propose")
    shown = json.loads(said(Host(), capsys, output="json"))["devices"]
    if not shown:
        assert (ran.returncode, ran.stdout) == (1, "")
        pytest.skip("this machine has nothing that a pod would want")
    file = tmp_path / "devplug.yaml"
    file.write_text(ran.stdout)
    checked = devplug("validate", "-o", "json", file)
    assert checked.returncode == 0
    facts = json.loads(checked.stdout)
    found = [device["id"] for resource in facts["resources"] for device in resource["devices"]]
    assert sorted(found) == sorted(device["id"] for device in shown)


# ── on a machine made of files ────────────────────────────────────────────────────────────────────


@needs_mknod
def test_each_device_has_a_line_with_its_nodes_and_what_finds_it(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(host, capsys) == (
        "DEVICE                      NODES            NUMA  FOUND BY\n"
        '0403:6001:A6008isP          ttyUSB0          -     usb: {vendor: "0403", product: "6001"}\n'
        '0403:6001:A7004kxQ          ttyUSB1          -     usb: {vendor: "0403", product: "6001"}\n'
        '046d:082d:3F0A11DE          video0, video1   -     usb: {vendor: "046d", product: "082d"}\n'
        '0bda:2838@0000:00:14.0-4.2  bus/usb/001/007  -     usb: {vendor: "0bda", product: "2838"}\n'
        '0000:3b:00.0                dfl-port.0       1     pci: {class: "1200", driver: dfl-pci}\n'
        "0000:5e:00.1                vfio/40          -     "
        'pci: {virtualFunctionOf: "0000:5e:00.0", driver: vfio-pci}\n'
        "0000:5e:00.2                vfio/41          -     "
        'pci: {virtualFunctionOf: "0000:5e:00.0", driver: vfio-pci}\n'
        "dsp0                        dsp0             -     path: /dev/dsp0\n"
        "kvm                         kvm              -     path: /dev/kvm\n"
        '0000:00:02.0.renderD0       renderD128       -     sysfs: {subsystem: drm, name: "renderD*"}\n'
        "tpmrm0                      tpmrm0           -     sysfs: {subsystem: tpmrm}\n"
        "ttyS1                       ttyS1            -     sysfs: {subsystem: tty, name: ttyS1}\n"
        "12 of 30 shown; hidden: 8 loop, 4 terminals, 2 PCI functions, 1 disk, 1 input device, "
        "1 network interface, 1 other (--all)\n"
        "Config to start from: devplug discover --propose > devplug.yaml\n"
    )


@needs_mknod
def test_the_wide_table_has_the_paths_that_an_answer_carries(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = [line for line in said(host, capsys, output="wide").splitlines() if "A6008isP " in line]
    assert row.split()[:5] == ["0403:6001:A6008isP", BY_ID, "-", "Healthy", "serial"]


@needs_mknod
@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_get_all_facts_of_a_device(
    host: Host, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    text = said(host, capsys, output=output)
    facts = json.loads(text) if output == "json" else yaml.safe_load(text)
    (device,) = [one for one in facts["devices"] if one["id"] == "0000:3b:00.0"]
    assert (device["kind"], device["numa_node"], device["health"]) == ("fpga", 1, "healthy")
    assert device["facts"]["attr.driver"] == "dfl-pci"
    assert [node["host_path"] for node in device["nodes"]] == ["/dev/dfl-port.0"]
    assert facts["hidden"]["loop"] == 8


@needs_mknod
def test_two_looks_say_the_same(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(host, capsys, is_all=True, output="json") == said(host, capsys, is_all=True, output="json")


def test_nothing_to_propose_is_said_and_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = discover(output="table", color="never", is_all=False, is_proposal=True, host=Host(tmp_path))
    said = capsys.readouterr()
    assert (code, said.out) == (1, "")
    assert (
        said.err == "devplug: this machine has no device that a pod would want; "
        "devplug discover --all shows all devices\n"
    )


def test_an_nvidia_gpu_without_its_driver_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path)
    machine.pci("0000:3b:00.0", **{"class": "0x030200", "vendor": "0x10de"})
    text = said(machine.host, capsys)
    assert text.startswith("0 of 1 shown; hidden: 1 PCI function (--all)\nAn NVIDIA GPU is here, but ")
