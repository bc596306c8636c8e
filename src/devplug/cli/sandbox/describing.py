"""`devplug sandbox describe`: what the nodes know of devices and pods, as tables or for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import click

from devplug.cli.exits import OK
from devplug.cli.printing import Printer, print_value
from devplug.devices import HEALTHY
from devplug.sandbox.api.objects import entries, fields, part, text
from devplug.sandbox.client import SandboxClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.place import Place
    from devplug.yamltext import Value

__all__ = ["describe"]

_OF_KUBELET: Final = "io.kubernetes."
"""What the kubelet itself tells the runtime (kuberuntime/labels.go); every container has the same of it."""


def describe(place: Place, node: str | None, *, output: str, color: str) -> int:
    """Print what there is to know of one node, or of all; return the exit code."""
    client = SandboxClient(place)
    if node is None:
        nodes = entries(client.operate("GET", "nodes"), "nodes")
    else:
        nodes = [client.operate("GET", "nodes", node)]
    if output != "table":
        print_value(cast("Value", {"nodes": nodes}), output)
        return OK
    printer = Printer(color=color)
    for number, one in enumerate(nodes):
        if number:
            click.echo()
        _print_node(printer, one)
    return OK


def _print_node(printer: Printer, node: object) -> None:
    stopped = " (its kubelet does not run)" if part(node, "kubeletRunning") is False else ""
    printer.line(f"Node {text(node, 'node')}{stopped}")
    if resources := [*_resource_rows(node)]:
        printer.table(["RESOURCE", "CAPACITY", "ALLOCATABLE"], resources)
    else:
        printer.line("no resources; start a plugin: devplug sandbox run -- ./my-plugin --dir {dir}")
    if devices := [*_device_rows(node)]:
        click.echo()
        printer.table(["RESOURCE", "DEVICE", "HEALTH", "NUMA", "HELD BY"], devices)
    for pod in entries(node, "pods"):
        click.echo()
        why = text(pod, "reason")
        told = f"{text(pod, 'phase')} ({why})" if why else text(pod, "phase")
        printer.line(f"Pod {text(pod, 'namespace')}/{text(pod, 'name')}: {told}")
        for container in entries(pod, "containers"):
            _print_container(printer, container)


def _print_container(printer: Printer, container: object) -> None:
    runs = "" if part(container, "isRunning") is True else ", not running"
    only = ", in name only" if part(container, "isInNameOnly") is True else ""
    rows = [[f"    {kind}", *rest] for kind, *rest in _gift_rows(container)]
    printer.line(f"  container {text(container, 'name')}{runs or only}{'' if rows else ': nothing given'}")
    if rows:
        printer.table(["    WHAT", "IN THE CONTAINER", "ON THE NODE"], rows)


def _resource_rows(node: object) -> Iterator[list[str]]:
    capacity, allocatable = fields(node, "capacity"), fields(node, "allocatable")
    for name in sorted(capacity.keys() | allocatable.keys()):
        if "/" in name:  # cpu, memory and the like are kubectl's to tell
            yield [name, str(capacity.get(name, "-")), str(allocatable.get(name, "-"))]


def _device_rows(node: object) -> Iterator[list[str]]:
    for resource in entries(node, "resources"):
        for device in entries(resource, "devices"):
            numa = ",".join(map(str, entries(device, "numaNodes"))) or "-"
            held_by = text(device, "heldBy") or "-"
            yield [text(resource, "name"), text(device, "id"), _health(device), numa, held_by]


def _health(device: object) -> str:
    health = text(device, "health") or "not listed"
    is_lost = health == HEALTHY and part(device, "isUsable") is False
    return f"{health}, plugin gone" if is_lost else health


def _gift_rows(container: object) -> Iterator[list[str]]:
    for node in entries(container, "deviceNodes"):
        inside = f"{text(node, 'containerPath')} ({text(node, 'permissions')})"
        yield ["device", inside, text(node, "hostPath")]
    for mount in entries(container, "mounts"):
        read_only = " (read-only)" if part(mount, "readOnly") is True else ""
        yield ["mount", f"{text(mount, 'containerPath')}{read_only}", text(mount, "hostPath")]
    for variable in entries(container, "envs"):
        yield ["env", f"{text(variable, 'name')}={text(variable, 'value')}", ""]
    for name, value in sorted(fields(container, "annotations").items()):
        if not name.startswith(_OF_KUBELET):
            yield ["annotation", f"{name}={value}", ""]
    for device in entries(container, "cdiDevices"):
        yield ["cdi", str(device), ""]
