"""A node's status as tables: of resources, of devices with their holders, and of all there is. Pure.

Replicas of one device are one row. `devplug top` draws the same rows, and programs read the same facts
as JSON, YAML or CSV.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from devplug.cli.status.views.problems import closing
from devplug.cli.status.views.text import (
    NOTHING,
    Cell,
    Line,
    Row,
    Tone,
    age,
    capacity,
    claims,
    files,
    folded,
    holder,
    holders,
    kubelet,
    laid_out,
    numa,
    timestamp,
    why_unhealthy,
)
from devplug.devices import HEALTHY, UNHEALTHY
from devplug.errors import one_line, printable
from devplug.monitor.node_view import physical_devices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from devplug.status import DeviceStatus, NodeStatus, ResourceStatus

RESOURCE_COLUMNS: Final = ("RESOURCE", "CAPACITY", "ALLOCATABLE", "HELD", "KUBELET")
RESOURCE_COLUMNS_WIDE: Final = (
    "RESOURCE",
    "CAPACITY",
    "ALLOCATABLE",
    "HELD",
    "REPLICAS",
    "PROCESS",
    "KUBELET",
)

DEVICE_COLUMNS: Final = ("DEVICE", "NODE", "NUMA", "HEALTH", "AGE", "HELD BY")
DEVICE_COLUMNS_WIDE: Final = (
    "RESOURCE", "DEVICE", "NODE", "NUMA", "HEALTH", "AGE", "SINCE", "REASON", "HELD BY", "CLAIMS",
    "ATTRIBUTES",
)  # fmt: skip

CSV_COLUMNS: Final = (
    "node", "resource", "device", "health", "reason", "since", "numa_nodes", "device_nodes", "held",
    "holders", "outdated", "leaves_at", "registered", "process", "attributes", "claims", "taint",
)  # fmt: skip

NO_RESOURCE: Final = "no plugin has listed a resource here"


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class DeviceGroup:
    """A device as it was found: itself, or all replicas that stand for it."""

    resource_name: str
    name: str
    replicas: int
    devices: tuple[DeviceStatus, ...]

    @cached_property
    def is_healthy(self) -> bool:
        """Whether all of its replicas are healthy."""
        return all(device.is_healthy for device in self.devices)

    @cached_property
    def is_held(self) -> bool:
        """Whether any of its replicas is held, or may be."""
        return any(device.is_held for device in self.devices)

    @cached_property
    def health(self) -> str:
        """The health of all its replicas, or how many of them have the worse one."""
        words = {device.health for device in self.devices}
        if len(words) == 1:
            return words.pop()
        sick = [device.health for device in self.devices if not device.is_healthy]
        return f"{len(sick)} of {len(self.devices)} {'/'.join(sorted({*sick}))}"

    @cached_property
    def since(self) -> float | None:
        """The Unix time of its last change of health."""
        return max((device.since for device in self.devices if device.since is not None), default=None)

    @cached_property
    def first_holder(self) -> str:
        """What it is sorted by among the held ones."""
        return min((holder(one) for device in self.devices for one in device.holders), default="")

    @property
    def title(self) -> str:
        """Its name, with the number of its replicas beside it."""
        return f"{self.name} x {self.replicas} replicas" if self.replicas > 1 else self.name


def groups(resource: ResourceStatus) -> list[DeviceGroup]:
    """Return the devices of a resource as they were found, in the order in which they are listed."""
    return [
        DeviceGroup(
            resource.name, one.id, len(one.devices) if one.devices[0].id != one.id else 1, one.devices
        )
        for one in physical_devices(resource)
    ]


def is_chosen(resource_name: str, globs: Sequence[str]) -> bool:
    """Whether a resource is asked for: by its whole name or by its kind; every one is without globs."""
    kind = resource_name.rpartition("/")[2]
    return not globs or any(fnmatchcase(resource_name, one) or fnmatchcase(kind, one) for one in globs)


def chosen(node: NodeStatus, globs: Sequence[str]) -> NodeStatus:
    """Return a node with the resources that are asked for, and with all that is said of the node itself."""
    if not globs:
        return node
    return replace(node, resources=tuple(one for one in node.resources if is_chosen(one.name, globs)))


def _only_unhealthy(resources: Iterable[ResourceStatus]) -> tuple[ResourceStatus, ...]:
    """Return resources with those of their devices that are not healthy."""
    return tuple(
        replace(one, devices=tuple(device for device in one.devices if device.health != HEALTHY))
        for one in resources
    )


# ── tables ────────────────────────────────────────────────────────────────────────────────────────


def node_lines(
    node: NodeStatus,
    now: float,
    folder: str,
    *,
    width: int | None,
    wide: bool = False,
    unhealthy: bool = False,
) -> list[Line]:
    """Return all that `devplug status` prints of one node.

    `folder` is the plugin folder, as people name it; `width` is the terminal's, None for other readers.
    With `unhealthy`, only such devices are listed; the counts of their resources stay.
    """
    lines: list[Line] = []
    resources = _only_unhealthy(node.resources) if unhealthy else node.resources
    if node.resources and wide:
        lines += laid_out(RESOURCE_COLUMNS_WIDE, [_resource_wide(one, now) for one in node.resources], None)
        if rows := [_device_wide(one, device, now) for one in resources for device in one.devices]:
            lines += laid_out(DEVICE_COLUMNS_WIDE, rows, None)
    elif node.resources:
        lines += laid_out(RESOURCE_COLUMNS, [_resource(one, now) for one in node.resources], width)
        if rows := [*_devices(resources, now)]:
            lines += laid_out(DEVICE_COLUMNS, rows, width)
    else:
        lines += folded(Cell(NO_RESOURCE), width)
    for one in closing(node, now, folder):
        lines += folded(one, width)
    return lines


# ── resources ─────────────────────────────────────────────────────────────────────────────────────


def _resource(resource: ResourceStatus, now: float) -> Row:
    found = len(groups(resource))
    counted = capacity(resource)
    if resource.replicas > 1 and found:
        counted = f"{counted} ({found} x {resource.replicas} replicas)"
    return Row(_cells(resource.name, counted, *_counts(resource), kubelet(resource, now)))


def _resource_wide(resource: ResourceStatus, now: float) -> Row:
    process = NOTHING if resource.process is None else str(resource.process)
    counts = (capacity(resource), *_counts(resource))
    return Row(_cells(resource.name, *counts, str(resource.replicas), process, kubelet(resource, now)))


def _counts(resource: ResourceStatus) -> tuple[str, str]:
    return str(resource.allocatable), str(resource.held)


def _cells(*texts: str | Cell) -> tuple[Cell, ...]:
    return tuple(one if isinstance(one, Cell) else Cell(one) for one in texts)


# ── devices ───────────────────────────────────────────────────────────────────────────────────────


def _devices(resources: Sequence[ResourceStatus], now: float) -> Iterator[Row]:
    """Yield a row for each device that was found; with several resources, each begins with its name."""
    shown = [one for one in resources if one.devices]
    for resource in shown:
        for number, group in enumerate(groups(resource)):
            is_headed = len(shown) > 1 and number == 0
            yield Row(
                device_row(group, now),
                below=(
                    *(Cell(text, _tone(group)) for text in reasons(group, now)),
                    *(Cell(text, Tone.DIM) for text in claims(group.devices, now)),
                ),
                above=(Cell(f"{resource.name}:", Tone.HEAD),) if is_headed else (),
            )


def device_row(group: DeviceGroup, now: float) -> tuple[Cell, ...]:
    """Return the cells of `DEVICE_COLUMNS` of a device as it was found."""
    first = group.devices[0]
    return _cells(
        group.title,
        files(first.device_nodes),
        numa(first.numa_nodes),
        Cell(group.health, _tone(group)),
        age(now, group.since),
        holders(group.devices),
    )


def _tone(group: DeviceGroup) -> Tone:
    if group.is_healthy:
        return Tone.GOOD
    if not any(device.health == UNHEALTHY for device in group.devices):
        return Tone.DIM
    return Tone.BAD if group.is_held else Tone.WARN


def reasons(group: DeviceGroup, now: float) -> tuple[str, ...]:
    """Return what there is to say of a device that is not healthy, each thing once; none if it is."""
    said = (why_unhealthy(device, now) for device in group.devices if not device.is_healthy)
    return tuple(dict.fromkeys(one for one in said if one))


def _device_wide(resource: ResourceStatus, device: DeviceStatus, now: float) -> Row:
    group = DeviceGroup(resource.name, device.id, 1, (device,))
    attributes = " ".join(f"{name}={value}" for name, value in sorted(device.attributes.items()))
    return Row(
        _cells(
            resource.name,
            device.id,
            ",".join(device.device_nodes) or NOTHING,
            numa(device.numa_nodes),
            Cell(device.health, _tone(group)),
            age(now, device.since),
            timestamp(device.since) or NOTHING,
            why_unhealthy(device, now) or NOTHING,
            holders(group.devices, limit=len(device.holders)),
            "; ".join(claims((device,), now, limit=len(device.claims))) or NOTHING,
            attributes or NOTHING,
        )
    )


# ── programs ──────────────────────────────────────────────────────────────────────────────────────


def csv_text(nodes: Sequence[NodeStatus], *, unhealthy: bool = False) -> str:
    """Return one line per device below a line of headings, as RFC 4180 has it.

    What is several stands in one field with spaces between, holders as `NAMESPACE/POD/CONTAINER`. Times are
    those of RFC 3339.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(CSV_COLUMNS)
    for node in nodes:
        for resource in _only_unhealthy(node.resources) if unhealthy else node.resources:
            for device in resource.devices:
                writer.writerow(map(printable, _record(node, resource, device)))
    return text.getvalue()


def _record(node: NodeStatus, resource: ResourceStatus, device: DeviceStatus) -> list[str]:
    registered = resource.is_registered
    return [
        node.name,
        resource.name,
        device.id,
        device.health,
        one_line(device.reason),
        timestamp(device.since),
        " ".join(map(str, device.numa_nodes)),
        " ".join(device.device_nodes),
        _word(device.is_held),
        " ".join(f"{one.namespace}/{one.pod}/{one.container}" for one in device.holders),
        _word(device.is_outdated),
        timestamp(device.leaves_at),
        "" if registered is None else _word(registered),
        "" if resource.process is None else str(resource.process),
        " ".join(f"{name}={value}" for name, value in sorted(device.attributes.items())),
        " ".join(f"{one.namespace}/{one.name}/{one.request}" for one in device.claims),
        device.taint,
    ]


def _word(is_so: bool) -> str:  # noqa: FBT001 -- it is the only thing that is said
    return "true" if is_so else "false"
