"""Devices of this kernel, from the moment they appear to the moment they are gone, at a kubelet's end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from devplug.daemon.context import DaemonContext
from devplug.daemon.daemon import plugin_of
from tests.daemon.hosts import resource
from tests.daemon.served import container, serving, table
from tests.kerneldevices import (
    KernelDevice,
    loop_device,
    macvtap_device,
    needs_uevents,
    tap_device,
    vcs_device,
    veth_device,
    zram_device,
)


@contextmanager
def pty() -> Iterator[KernelDevice]:
    """A terminal, of which no uevent tells: only inotify sees it."""
    ends = os.openpty()
    try:
        yield KernelDevice(os.path.basename(os.ttyname(ends[1])), "", os.ttyname(ends[1]))  # noqa: PTH119
    finally:
        for end in ends:
            os.close(end)


@contextmanager
def macvtap() -> Iterator[KernelDevice]:
    with veth_device() as lower, macvtap_device(lower) as device:
        yield device


WITH_NODES = {
    "a loop device by path": (loop_device, 'path: "{node}"', ""),
    "a loop device by subsystem": (
        loop_device,
        'sysfs: {{subsystem: block, name: "{name}"}}',
        "allow: [rawDisks]",
    ),
    "a zram device by path": (zram_device, 'path: "{node}"', ""),
    "a console by path": (vcs_device, 'path: "{node}"', ""),
    "a console by subsystem": (vcs_device, 'sysfs: {{subsystem: vc, name: "{name}"}}', ""),
    "a terminal by path": (pty, 'path: "{node}"', ""),
    "a macvtap by subsystem": (macvtap, 'sysfs: {{subsystem: macvtap, name: "{name}"}}', ""),
}


@needs_uevents
@pytest.mark.parametrize(("made", "discover", "rest"), WITH_NODES.values(), ids=WITH_NODES)
async def test_a_real_device_appears_is_given_out_and_vanishes(
    short_dir: Path, made: Callable[[], AbstractContextManager[KernelDevice]], discover: str, rest: str
) -> None:
    """It is made first, to learn its name, and again while a kubelet looks on."""
    with made() as device:
        name, node = device.name, device.node
    found = discover.format(name=_any_number(name), node=_any_number(node))
    plugin = plugin_of(resource(f"discover: {{{found}}}, {rest}".rstrip(", ")), DaemonContext())
    async with serving(short_dir, plugin) as kubelet:
        before = set(table(kubelet))
        with contextlib.ExitStack() as stack:
            device = stack.enter_context(made())
            await kubelet.wait(lambda: set(table(kubelet)) - before)
            (device_id,) = set(table(kubelet)) - before
            assert table(kubelet)[device_id] == "Healthy"
            given = await container(kubelet, len(before) + 1)
            assert device.node in {one.host_path for one in given.device_nodes}
            stack.close()
            await kubelet.wait(lambda: table(kubelet)[device_id] == "Unhealthy")


def _any_number(text: str) -> str:
    return text.rstrip("0123456789") + "[0-9]*"


@needs_uevents
@pytest.mark.parametrize("made", [tap_device, veth_device])
async def test_a_real_interface_appears_is_given_out_and_vanishes(
    short_dir: Path, made: Callable[[str], AbstractContextManager[KernelDevice]]
) -> None:
    name = f"dpr{os.getpid() % 100_000}"
    one = resource(f'discover: {{net: {{interface: {name}}}}}, expose: {{env: {{NIC: "{{interfaces}}"}}}}')
    plugin = plugin_of(one, DaemonContext())
    async with serving(short_dir, plugin) as kubelet:
        assert table(kubelet) == {}
        with contextlib.ExitStack() as stack:
            stack.enter_context(made(name))
            await kubelet.wait(lambda: table(kubelet) == {name: "Healthy"})
            assert (await container(kubelet)).envs["NIC"] == name
            stack.close()
            await kubelet.wait(lambda: table(kubelet) == {name: "Unhealthy"})
