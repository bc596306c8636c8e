"""Operations on a sandbox that is up: describe, restart, reboot, plug, unplug, end, down."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, cast

import click

from devplug.cli.exits import FAILED, OK
from devplug.devices import HEALTHY
from devplug.k8s.objects import entries, fields, part, text
from devplug.sandbox.client import NoSandboxError, SandboxClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devplug.cli.output import Printer
    from devplug.k8s.yaml import Value
    from devplug.sandbox.sandboxdir import SandboxDir

_DOWN_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02

_OF_KUBELET: Final = "io.kubernetes."
"""What the kubelet itself tells the runtime (kuberuntime/labels.go); every container has the same of it."""


def on_nodes(place: SandboxDir, node: str | None, operation: str, done: str) -> int:
    """Have an operation done on one node, or on all, one after the other."""
    client = SandboxClient(place)
    for name in (node,) if node else client.record.nodes:
        client.operate("POST", "nodes", name, operation)
        click.echo(f"{name}: {done}")
    return OK


def plug(place: SandboxDir, names: Sequence[str]) -> int:
    """Plug devices in."""
    added = entries(SandboxClient(place).operate("POST", "devices", "plug", names=list(names)), "names")
    for name in names:
        is_new = "plugged in" if name in added else "was plugged in already"
        click.echo(f"{name}: {is_new}, {place.devices / name}")
    return OK


def unplug(place: SandboxDir, names: Sequence[str]) -> int:
    """Pull devices out, or list those that are in; return 1 if one was not."""
    client = SandboxClient(place)
    if not names:
        found = entries(client.operate("GET", "devices"), "names")
        for name in found:
            click.echo(name)
        if not found:
            click.echo("devplug: no device is plugged in; plug one in: devplug sandbox plug NAME", err=True)
        return OK
    removed = entries(client.operate("POST", "devices", "unplug", names=list(names)), "names")
    for name in names:
        click.echo(f"{name}: {'pulled out' if name in removed else 'was not plugged in'}")
    return OK if set(names) <= set(removed) else FAILED


def end(place: SandboxDir, namespace: str, pod: str, container: str | None, exit_code: int) -> int:
    """End a pod's containers, or one of them."""
    client = SandboxClient(place)
    client.operate("POST", "pods", namespace, pod, "end", container=container or "", exitCode=exit_code)
    which = f"container {container} of " if container else ""
    click.echo(f"{which}pod {namespace}/{pod}: ended with exit code {exit_code}")
    return OK


def kubeconfig(place: SandboxDir) -> int:
    """Print where the kubeconfig of the sandbox that is up is."""
    SandboxClient(place)
    click.echo(place.kubeconfig)
    return OK


def down(place: SandboxDir) -> int:
    """End the sandbox; return when it has."""
    if place.running() is None:
        raise NoSandboxError(f"no sandbox is up in {place.folder}; the folder of another one goes with --dir")
    client = SandboxClient(place)
    client.operate("POST", "down")
    deadline = time.monotonic() + _DOWN_SECONDS
    while place.is_claimed():
        if time.monotonic() > deadline:
            click.echo(
                f"devplug: the sandbox has not ended within {_DOWN_SECONDS:g} s; "
                f"end its process: kill {client.record.pid}",
                err=True,
            )
            return FAILED
        time.sleep(_LOOK_SECONDS)
    click.echo(f"the sandbox in {place.folder} is down")
    return OK


# ── description ───────────────────────────────────────────────────────────────────────────────────


def describe(place: SandboxDir, node: str | None, *, output: str, color: str) -> int:
    """Print what there is to know of one node, or of all; return the exit code."""
    from devplug.cli.output import Printer, print_value

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
    stopped = " (its kubelet does not run)" if part(node, "is_kubelet_running") is False else ""
    printer.line(f"Node {text(node, 'node')}{stopped}")
    claims = [*_claim_rows(node)]
    if resources := [*_resource_rows(node)]:
        printer.table(["RESOURCE", "CAPACITY", "ALLOCATABLE"], resources)
    elif not claims:
        printer.line("no resources; start a plugin: devplug sandbox run -- ./my-plugin --dir {dir}")
    if devices := [*_device_rows(node)]:
        click.echo()
        printer.table(["RESOURCE", "DEVICE", "HEALTH", "NUMA", "HELD BY"], devices)
    if claims:
        click.echo()
        printer.table(["CLAIM", "DRIVER", "PREPARED", "USED BY"], claims)
    for pod in entries(node, "pods"):
        click.echo()
        why = text(pod, "reason")
        state = f"{text(pod, 'phase')} ({why})" if why else text(pod, "phase")
        printer.line(f"Pod {text(pod, 'namespace')}/{text(pod, 'name')}: {state}")
        for container in entries(pod, "containers"):
            _print_container(printer, container)


def _print_container(printer: Printer, container: object) -> None:
    runs = "" if part(container, "is_running") is True else ", not running"
    only = ", in name only" if part(container, "is_in_name_only") is True else ""
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
            numa = ",".join(map(str, entries(device, "numa_nodes"))) or "-"
            held_by = text(device, "held_by") or "-"
            yield [text(resource, "name"), text(device, "id"), _health(device), numa, held_by]


def _claim_rows(node: object) -> Iterator[list[str]]:
    for claim in entries(node, "claims"):
        name = f"{text(claim, 'namespace')}/{text(claim, 'name')}"
        used_by = ", ".join(map(str, entries(claim, "used_by"))) or "-"
        for driver in entries(claim, "drivers"):
            devices = [f"{text(one, 'pool')}/{text(one, 'device')}" for one in entries(driver, "devices")]
            for device in devices or ["nothing yet"]:
                yield [name, text(driver, "name"), device, used_by]


def _health(device: object) -> str:
    health = text(device, "health") or "not listed"
    is_lost = health == HEALTHY and part(device, "is_usable") is False
    return f"{health}, plugin gone" if is_lost else health


def _gift_rows(container: object) -> Iterator[list[str]]:
    for node in entries(container, "device_nodes"):
        inside = f"{text(node, 'container_path')} ({text(node, 'permissions')})"
        yield ["device", inside, text(node, "host_path")]
    for mount in entries(container, "mounts"):
        read_only = " (read-only)" if part(mount, "read_only") is True else ""
        yield ["mount", f"{text(mount, 'container_path')}{read_only}", text(mount, "host_path")]
    for variable in entries(container, "envs"):
        yield ["env", f"{text(variable, 'name')}={text(variable, 'value')}", ""]
    for name, value in sorted(fields(container, "annotations").items()):
        if not name.startswith(_OF_KUBELET):
            yield ["annotation", f"{name}={value}", ""]
    for device in entries(container, "cdi_devices"):
        yield ["cdi", str(device), ""]
