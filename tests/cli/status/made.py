"""Statuses to make views of, and commands that make them of real processes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from devplug.devices import HEALTHY, UNHEALTHY
from devplug.kubelet.pods import Container, Pod
from devplug.status import (
    ConfigStatus,
    DeviceStatus,
    Holder,
    NodeStatus,
    PodResourcesStatus,
    ProcessStatus,
    ResourceStatus,
    Takeover,
)
from devplug.testing import SyncKubelet
from tests.cli.programs import said_until, started

NOW = 1_800_000_000.0
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
READER = Holder("lab", "meter-0", "reader")
SERIAL = "example.com/serial"
TAKEOVER = Takeover(signs=("cut",), since=NOW, reason="another plugin registers this name")


def healthy(device_id: str, *holders: Holder, **rest: Any) -> DeviceStatus:
    told: dict[str, Any] = {"health": HEALTHY, "since": NOW - 3 * DAY}
    return DeviceStatus(id=device_id, **(told | _held(holders) | rest))


def unhealthy(device_id: str, reason: str, *holders: Holder, **rest: Any) -> DeviceStatus:
    return DeviceStatus(
        id=device_id, health=UNHEALTHY, reason=reason, **({"since": NOW - 41} | _held(holders) | rest)
    )


def _held(holders: tuple[Holder, ...]) -> dict[str, Any]:
    return {"holders": holders, "is_held": bool(holders)}


def resource(*devices: DeviceStatus, name: str = SERIAL, **rest: Any) -> ResourceStatus:
    told: dict[str, Any] = {"is_registered": True, "registered_at": NOW - 3 * DAY, "process": 7}
    return ResourceStatus(name=name, devices=devices, **(told | rest))


def daemon(*resources: ResourceStatus, problems: tuple[str, ...] = (), **rest: Any) -> ProcessStatus:
    told: dict[str, Any] = {"process": 7, "version": "1", "python": "3.13", "started_at": NOW - DAY}
    config = ConfigStatus(file="/etc/devplug/config.yaml", applied_at=NOW - 2 * HOUR, problems=problems)
    faults = tuple(f"{one.name}: {one.fault}" for one in resources if one.fault)
    return ProcessStatus(faults=faults, **({"config": config} | told | rest))


def node(*resources: ResourceStatus, **rest: Any) -> NodeStatus:
    told: dict[str, Any] = {
        "processes": (daemon(*resources),),
        "pod_resources": PodResourcesStatus(answered_at=NOW - 1),
    }
    return NodeStatus(name="worker-0", at=NOW, resources=resources, **(told | rest))


LAB = node(
    resource(
        healthy("0403:6001:A6008isP", READER, device_nodes=("/dev/ttyUSB0",), numa_nodes=(0,)),
        unhealthy("0403:6001:A7004kxQ", "unplugged", leaves_at=NOW + 9 * MINUTE + 19),
    )
)
"""The node of the first example in the manual."""


# ── real processes ────────────────────────────────────────────────────────────────────────────────


def configured(folder: Path, *more: str) -> Path:
    """Write a configuration that serves what is plugged into a folder `dev` as example.com/tty."""
    (folder / "dev").mkdir(exist_ok=True)
    file = folder / "devplug.yaml"
    lines = [f'- {{name: example.com/tty, discover: {{path: "{folder}/dev/*"}}}}', *more]
    file.write_text("version: 1\nresources:\n" + "\n".join(lines) + "\n")
    return file


def plug(folder: Path, name: str) -> None:
    (folder / "dev" / name).symlink_to("/dev/null")


def unplug(folder: Path, name: str) -> None:
    (folder / "dev" / name).unlink()


@contextmanager
def served(kubelet: SyncKubelet, file: Path, **capacity: int) -> Iterator[subprocess.Popen[str]]:
    """A daemon process that the kubelet knows, and that can be asked how it is."""
    with ExitStack() as stack:
        one = stack.enter_context(started("run", "-c", file, "--kubelet-root", kubelet.root))
        wanted = {f"example.com/{kind}": count for kind, count in capacity.items()}
        kubelet.wait(lambda: dict(kubelet.capacity) == wanted, what="the daemon has not registered")
        kubelet.wait(lambda: any(kubelet.plugin_dir.glob(".devplug/.status-*.sock")), what="no status socket")
        yield one


def meter(count: int = 1) -> Pod:
    """A pod that wants a device of example.com/tty."""
    return Pod("uid-meter-0", "meter-0", containers=(Container("reader", {"example.com/tty": count}),))


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Read what a process prints, up to and with the first line that has `text` in it."""
    return said_until(process, text, on_error=False)
