"""What one asks of the sandbox that is up: restart, reboot, plug, unplug, end, down."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from devplug.cli.exits import FAILED, OK
from devplug.sandbox.api.objects import entries
from devplug.sandbox.client import NoSandboxError, SandboxClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.sandbox.place import Place

__all__ = ["down", "end", "kubeconfig", "on_nodes", "plug", "unplug"]

_DOWN_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02


def on_nodes(place: Place, node: str | None, operation: str, done: str) -> int:
    """Have an operation done on one node, or on all, one after the other."""
    client = SandboxClient(place)
    for name in (node,) if node else client.record.nodes:
        client.operate("POST", "nodes", name, operation)
        click.echo(f"{name}: {done}")
    return OK


def plug(place: Place, names: Sequence[str]) -> int:
    """Plug devices in."""
    added = entries(SandboxClient(place).operate("POST", "devices", "plug", names=list(names)), "names")
    for name in names:
        is_new = "plugged in" if name in added else "was plugged in already"
        click.echo(f"{name}: {is_new}, {place.devices / name}")
    return OK


def unplug(place: Place, names: Sequence[str]) -> int:
    """Pull devices out, or list those that are in; return 1 if one was not."""
    client = SandboxClient(place)
    if not names:
        found = entries(client.operate("GET", "devices"), "names")
        for name in found:
            click.echo(name)
        if not found:
            click.echo("devplug: nothing is plugged in; devplug sandbox plug NAME does it", err=True)
        return OK
    removed = entries(client.operate("POST", "devices", "unplug", names=list(names)), "names")
    for name in names:
        click.echo(f"{name}: {'pulled out' if name in removed else 'was not plugged in'}")
    return OK if set(names) <= set(removed) else FAILED


def end(place: Place, namespace: str, pod: str, container: str | None, exit_code: int) -> int:
    """End a pod's containers, or one of them."""
    client = SandboxClient(place)
    client.operate("POST", "pods", namespace, pod, "end", container=container or "", exitCode=exit_code)
    which = f"container {container} of " if container else ""
    click.echo(f"{which}pod {namespace}/{pod}: ended with exit code {exit_code}")
    return OK


def kubeconfig(place: Place) -> int:
    """Print where the kubeconfig of the sandbox that is up is."""
    SandboxClient(place)
    click.echo(place.kubeconfig)
    return OK


def down(place: Place) -> int:
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
