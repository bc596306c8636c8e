"""What Allocate or a claim would be refused is not Healthy: the whole answer is made for the list."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.cdi.spec import CdiSpec, response_device, text
from devplug.daemon.config.types import Resource
from devplug.daemon.container_response import container_response, owner_of, share_of
from devplug.daemon.device_list import DeviceList, ScanResult
from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from devplug.devices import ContainerResponse, HealthState
from devplug.errors import DevplugError
from devplug.kubelet.pods import PodPhase
from devplug.wire.deviceplugin import ALLOCATE
from tests.daemon.hosts import link, resource
from tests.daemon.served import look_again, plugin, serving, table
from tests.kubelet.fakes import pod

Way = Literal["dra", "devicePlugin"]


def usb(serial: str, path: str = "/dev/ttyUSB0") -> HostDevice:
    return HostDevice("stick", (HostDeviceNode(path, (188, 0)),), facts={"serial": serial})


def served(expose: str, way: Way = "devicePlugin") -> Resource:
    given = resource(f'discover: {{usb: {{vendor: "0403"}}}}, expose: {{{expose}}}')
    return replace(given, serve=way)


def reason(one: Resource, found: HostDevice) -> str:
    """Why a device is listed as Unhealthy; empty if it is Healthy."""
    (device,) = DeviceList(one).update(ScanResult([found], now=0.0))
    assert (device.health.state is HealthState.HEALTHY) == (not device.health.reason)
    return device.health.reason


@pytest.mark.parametrize(
    ("expose", "serial", "why"),
    [
        ('cdiDevices: ["vendor.com/stick={serial}"]', "A B", 'CDI device name "vendor.com/stick=A B"'),
        ('cdiDevices: ["vendor.com/stick={serial}"]', "A\x1b[2J", "must read vendor/class=device"),
        ('env: {SERIAL: "{serials}"}', "A\0B", 'environment variable "SERIAL" has a NUL byte'),
        ('env: {SERIAL: "{serials}"}', "A" * 140_000, "has 140007 bytes; Linux takes 131071"),
        ('annotations: {serial: "{serials}"}', "A\ud800", "which UTF-8 cannot encode"),
        ('containerPath: "/dev/{serial}"', "A" * 300, "has a part of 300 bytes; Linux takes 255"),
        ('containerPath: "/dev/{serial}/"', "A/" * 40_000, "bytes; Linux takes"),
        ('mounts: [{hostPath: "/opt/{serial}", containerPath: /opt/x}]', "A" * 300, "a part of 300 bytes"),
    ],
)
def test_a_device_whose_texts_make_an_invalid_answer_is_unhealthy(expose: str, serial: str, why: str) -> None:
    assert why in reason(served(expose), usb(serial))
    assert reason(served(expose), usb("A1")) == ""


@pytest.mark.parametrize("rest", ["strategy: cdi, ", ""])
def test_a_device_that_makes_an_invalid_cdi_spec_is_unhealthy(rest: str) -> None:
    """As with a name of the kernel that has a control character: CDI has the kernel's path."""
    odd = HostDevice("x", (HostDeviceNode("/dev/by-id/x", (188, 0), real_path="/dev/tty\x07"),))
    way: Way = "devicePlugin" if rest else "dra"
    assert "characters that do not print" in reason(
        served(f'{rest}containerPath: "/dev/x{{index}}"', way), odd
    )
    assert reason(served('containerPath: "/dev/x{index}"'), odd) == ""


TEXTS = st.text(max_size=12) | st.text("ab/.. :@=,\0\x1b\n\udcff", max_size=8)
EXPOSES = st.sampled_from(
    [
        'cdiDevices: ["vendor.com/stick={serial}"]',
        'env: {SERIAL: "{serials}", "OF_{serial}": "1"}',
        'annotations: {"example.com/serial": "{serials}"}',
        'containerPath: "/dev/{serial}"',
        'containerPath: "/dev/{serial}/", strategy: cdi',
        'mounts: [{hostPath: "/opt/{serial}", containerPath: "/opt/sticks/{serial}"}]',
    ]
)
CDI_NAME = re.compile(r"[A-Za-z][\w.-]*/[A-Za-z][\w.-]*=[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?", re.ASCII)


LENGTHS = st.sampled_from([1, 1, 1, 300, 140_000])


def is_taken(answer: ContainerResponse) -> bool:
    """Whether the kubelet, CDI and the kernel take an answer, by their rules and not by ours."""
    try:
        ALLOCATE.response.encode([answer])
    except (DevplugError, UnicodeError):
        return False
    paths = [path for one in answer.device_nodes for path in (one.container_path, one.host_path)]
    paths += [path for one in answer.mounts for path in (one.container_path, one.host_path)]
    variables = [f"{name}={value}" for name, value in answer.envs.items()]
    return (
        all(CDI_NAME.fullmatch(name) for name in answer.cdi_devices)
        and not any("\0" in one or len(one.encode()) > 131_071 for one in variables)
        and all(path[0] == "/" and path[:2] != "//" and path.isprintable() for path in paths)
        and not any({"..", "."} & set(path.split("/")) for path in paths)
        and not any(len(part.encode()) > 255 for path in paths for part in path.split("/"))
    )


@given(serial=TEXTS, times=LENGTHS, expose=EXPOSES, way=st.sampled_from(["dra", "devicePlugin"]))
def test_what_is_listed_healthy_has_an_answer_that_everybody_takes(
    serial: str, times: int, expose: str, way: Way
) -> None:
    one, found = served(expose, way), usb(serial * times)
    if not reason(one, found):
        answer = container_response([share_of(found, 0, one.expose)], one)
        assert is_taken(answer)
        spec = CdiSpec("vendor.com/stick", (response_device("x1", answer, owner_of(one)),))
        assert json.loads(text(spec))["devices"][0]["name"] == "x1"


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_device_that_others_could_replace_is_listed_unhealthy(short_dir: Path) -> None:
    path = link(short_dir / "by-id" / "x0")
    path.parent.chmod(0o777)
    async with serving(short_dir, plugin(short_dir)) as kubelet:
        assert table(kubelet) == {"x0": "Unhealthy"}
        path.parent.chmod(0o755)
        look_again(short_dir)
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Healthy"})


async def test_a_device_of_which_a_mount_would_be_refused_is_listed_unhealthy(short_dir: Path) -> None:
    link(short_dir / "by-id" / "x0")
    (short_dir / "data").mkdir(mode=stat.S_IRWXU)
    (short_dir / "data").chmod(0o777)
    mounts = f"expose: {{mounts: [{{hostPath: {short_dir}/data/x, containerPath: /opt/x}}]}}"
    async with serving(short_dir, plugin(short_dir, mounts)) as kubelet:
        assert table(kubelet) == {"x0": "Unhealthy"}


async def test_a_device_with_a_health_rule_is_listed_unhealthy_for_its_path(short_dir: Path) -> None:
    path = link(short_dir / "by-id" / "x0")
    path.parent.chmod(0o777)
    async with serving(short_dir, plugin(short_dir, "health: [{open: true}]")) as kubelet:
        assert table(kubelet) == {"x0": "Unhealthy"}


async def test_a_path_that_becomes_unsafe_fails_one_pod_and_no_other(short_dir: Path) -> None:
    path = link(short_dir / "by-id" / "x0")
    async with serving(short_dir, plugin(short_dir)) as kubelet:
        assert table(kubelet) == {"x0": "Healthy"}
        path.parent.chmod(0o777)
        status = await kubelet.admit(pod("p"))
        assert (status.phase, "could be replaced by everybody" in status.message) == (PodPhase.FAILED, True)
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Unhealthy"})
        path.parent.chmod(0o755)
        look_again(short_dir)
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Healthy"})
