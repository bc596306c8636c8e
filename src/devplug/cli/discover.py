"""`devplug discover`: what is on this machine, which selector finds it, and a configuration to start from."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

import click

from devplug.cli.exits import FAILED, OK
from devplug.cli.output import Printer, print_value
from devplug.daemon.config.types import Expose
from devplug.daemon.container_response import MissingNode, chosen_nodes
from devplug.daemon.inspection.device_kinds import OTHERS, named_devices
from devplug.daemon.inspection.proposal import finder_of, proposals_of, proposed_text
from devplug.daemon.inspection.survey import survey
from devplug.daemon.sources.host import Host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.daemon.inspection.device_kinds import NamedDevice, Survey
    from devplug.daemon.inspection.proposal import Proposal
    from devplug.daemon.sources.device import HostDevice, HostDeviceNode
    from devplug.k8s.yaml import Value

NODES_LIMIT: Final = 4
"""Most nodes of one device that fit into a table; `-o wide` has all."""

NVIDIA_VENDOR: Final = "0x10de"


def discover(*, output: str, color: str, is_all: bool, is_proposal: bool, host: Host | None = None) -> int:
    """Show the devices of this machine, or propose a configuration; return the exit code."""
    # Why a source left something out is no news here, where everything is shown.
    logging.getLogger("devplug").addHandler(logging.NullHandler())
    seen = survey(host or Host())
    sights = named_devices(seen)
    proposals = proposals_of(sights, seen)
    if is_proposal:
        return _propose(proposals)
    shown = [sight for sight in sights if is_all or not sight.hidden]
    hidden = Counter(sight.hidden for sight in sights if sight.hidden and not is_all)
    finders = [finder_of(sight, proposals, seen) for sight in shown]
    if output in {"json", "yaml"}:
        print_value(_facts(shown, finders, hidden), output)
        return OK
    printer = Printer(color=color)
    if shown:
        rows = [_row(sight, finder, output) for sight, finder in zip(shown, finders, strict=True)]
        more = ["HEALTH", "KIND"] if output == "wide" else []
        printer.table(["DEVICE", "NODES", "NUMA", *more, "FOUND BY"], rows, folds=output != "wide")
    printer.line(_count(len(shown), hidden))
    if fault := _nvidia_fault(seen):
        printer.line(fault)
    if proposals:
        printer.line("Config to start from: devplug discover --propose > devplug.yaml")
    return OK


def _propose(proposals: Sequence[Proposal]) -> int:
    if not proposals:
        click.echo(
            (
                "devplug: this machine has no device that a pod would want; devplug discover --all shows "
                "all devices"
            ),
            err=True,
        )
        return FAILED
    click.echo(proposed_text(proposals), nl=False)
    return OK


def _row(sight: NamedDevice, finder: str, output: str) -> list[str]:
    found = sight.found
    numa = "-" if found.numa_node is None else str(found.numa_node)
    nodes = _nodes(found)
    if output == "wide":
        paths = ", ".join(node.host_path for node in nodes) or "-"
        health = found.health.state.value.capitalize()
        reason = f" ({found.health.reason})" if found.health.reason else ""
        return [found.name, paths, numa, f"{health}{reason}", sight.kind or sight.hidden, finder]
    names = [_short(node) for node in nodes]
    more = f", {len(names) - NODES_LIMIT} more" if len(names) > NODES_LIMIT else ""
    return [found.name, ", ".join(names[:NODES_LIMIT]) + more or "-", numa, finder]


def _short(node: HostDeviceNode) -> str:
    """Return the kernel's name of a node; where that is a mere number, the path below /dev."""
    name = node.file_name
    return (node.real_path or node.host_path).removeprefix("/dev/") if name.isdecimal() else name


def _nodes(found: HostDevice) -> list[HostDeviceNode]:
    """Return what a container would get with the device if its resource says nothing more."""
    chosen = chosen_nodes(found, Expose())
    return [] if isinstance(chosen, MissingNode) else [one.node for one in chosen if not one.node.is_shared]


def _count(shown: int, hidden: Counter[str]) -> str:
    words = sorted(hidden, key=lambda word: (word == OTHERS, -hidden[word], word))
    counted = ", ".join(f"{hidden[word]} {_numbered(word, hidden[word])}" for word in words)
    return f"{shown} of {shown + hidden.total()} shown" + (f"; hidden: {counted} (--all)" if counted else "")


def _numbered(word: str, number: int) -> str:
    return word if number > 1 else word.removesuffix("s")


def _nvidia_fault(seen: Survey) -> str:
    """Return why there are no NVIDIA GPUs in the list although the machine has some; empty if it has none."""
    has_gpu = any(
        found.facts.get("attr.vendor") == NVIDIA_VENDOR
        and str(found.facts.get("attr.class", "")).startswith("0x03")
        for found in seen.pci
    )
    return f"An NVIDIA GPU is here, but {seen.nvidia_fault}" if has_gpu and seen.nvidia_fault else ""


def _facts(shown: Sequence[NamedDevice], finders: Sequence[str], hidden: Counter[str]) -> Value:
    return {
        "devices": [
            {
                "id": sight.found.name,
                "kind": sight.kind or sight.hidden,
                "is_hidden": bool(sight.hidden),
                "found_by": finder,
                "numa_node": sight.found.numa_node,
                "health": sight.found.health.state.value,
                "reason": sight.found.health.reason,
                "hardware": sight.found.hardware,
                "nodes": [
                    {
                        "host_path": node.host_path,
                        "real_path": node.real_path or node.host_path,
                        "number": f"{node.number[0]}:{node.number[1]}",
                        "is_block": node.is_block,
                        "subsystem": node.subsystem,
                    }
                    for node in sight.found.nodes
                ],
                "facts": dict(sorted(sight.found.facts.items())),
            }
            for sight, finder in zip(shown, finders, strict=True)
        ],
        "hidden": dict(sorted(hidden.items())),
    }
