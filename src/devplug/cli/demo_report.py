"""The report of the demo: lines and tables for people, one JSON object for machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import click
from rich.table import Table
from rich.text import Text

from devplug.cli.output import TerminalConsole

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

Facts = dict[str, Any]

ROWS_PER_RESOURCE = 4
ROOMY_COLUMNS = 75


class Reporter(Protocol):
    """Shows each step of the demo as it ends, with its facts."""

    def doing(self, what: str) -> None:
        """Say what is under way."""

    def found(self, devices: list[Facts]) -> None:
        """Show the machine's devices."""

    def registered(self, facts: Facts) -> None:
        """Show the registration and the node's numbers."""

    def pod_runs(self, facts: Facts) -> None:
        """Show what a running pod got."""

    def pod_refused(self, facts: Facts) -> None:
        """Show the kubelet's words to a pod that asked for too much."""

    def hot_plugged(self, facts: Facts) -> None:
        """Show the times of a device that came and went."""

    def restarted(self, facts: Facts) -> None:
        """Show the way back after a kubelet restart."""

    def stopped(self, facts: Facts) -> None:
        """Show the end."""

    def is_good(self) -> bool:
        """Whether everything went as promised."""

    def close(self) -> None:
        """Leave the terminal as it was, however the demo ended."""


class _Promises:
    """Whether the last three steps kept the promises; shared by both reporters."""

    def __init__(self) -> None:
        self._broken = False

    def judge(self, *promises: bool) -> bool:
        """Note whether promises were kept; return it."""
        kept = all(promises)
        self._broken = self._broken or not kept
        return kept

    def is_good(self) -> bool:
        """Whether every promise so far was kept."""
        return not self._broken


class JsonReporter(_Promises):
    """Prints one JSON object at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._story: Facts = {}

    def doing(self, what: str) -> None:
        """Print nothing: programs wait for the end."""

    def close(self) -> None:
        """Do nothing: there is no spinner."""

    def found(self, devices: list[Facts]) -> None:
        """Show the machine's devices."""
        self._story["devices"] = devices

    def registered(self, facts: Facts) -> None:
        """Show the registration and the node's numbers."""
        self._story["registration"] = facts

    def pod_runs(self, facts: Facts) -> None:
        """Show what a running pod got."""
        self._story["pods"] = [facts]

    def pod_refused(self, facts: Facts) -> None:
        """Show the kubelet's words to a pod that asked for too much."""
        self._story["pods"].append(facts)

    def hot_plugged(self, facts: Facts) -> None:
        """Show the times of a device that came and went."""
        self._story["hot_plug"] = facts

    def restarted(self, facts: Facts) -> None:
        """Show the way back after a kubelet restart."""
        self.judge(bool(facts["kept"]), facts["phase"] == "Running")
        self._story["restart"] = facts

    def stopped(self, facts: Facts) -> None:
        """Show the end."""
        self.judge(facts["exit_code"] == 0, not facts["left_behind"])
        self._story["stop"] = facts
        self._story["ok"] = self.is_good()
        click.echo(json.dumps(self._story, indent=2))


class TextReporter(_Promises):
    """Prints a table and a few lines, each as soon as it is known; a spinner between them on a terminal."""

    def __init__(self, *, color: str) -> None:
        super().__init__()
        never = color == "never"
        self._console: Console = TerminalConsole(
            highlight=False, no_color=never or None, force_terminal=False if never else None
        )
        self._status: Status | None = None

    def doing(self, what: str) -> None:
        """Say what is under way."""
        self.close()
        self._status = self._console.status(f"{what} ...")
        self._status.start()

    def close(self) -> None:
        """Take the spinner away."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _say(self, head: str, text: str, style: str = "") -> None:
        """Print a headed paragraph, folded below its own first column."""
        self.close()
        grid = Table.grid(padding=(0, 2))
        grid.add_column(width=11, no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(head, "bold"), Text(text, style))
        self._print(grid)

    def _print(self, shown: RenderableType) -> None:
        """Print; without the padding that tables have, where a file or another program reads it."""
        if self._console.is_terminal:
            self._console.print(shown)
            return
        with self._console.capture() as captured:
            self._console.print(shown)
        lines = [line.rstrip() for line in captured.get().removesuffix("\n").split("\n")]
        click.echo("\n".join(lines))

    def found(self, devices: list[Facts]) -> None:
        """Show the machine's devices."""
        is_roomy = self._console.width >= ROOMY_COLUMNS
        table = Table(box=None, pad_edge=False, padding=(0, 2 if is_roomy else 1, 0, 0), header_style="bold")
        for column in ("RESOURCE", "DEVICE", "NODE", "NUMA", "HEALTH", "SHARED"):
            table.add_column(column, overflow="fold", no_wrap=column != "DEVICE", min_width=len(column))
        replicas = "x {} replicas" if is_roomy else "x {}"
        by_resource: dict[str, list[Facts]] = {}
        for device in devices:
            by_resource.setdefault(device["resource"], []).append(device)
        for resource, rows in by_resource.items():
            for row in rows[:ROWS_PER_RESOURCE]:
                numa = "-" if row["numa_node"] is None else str(row["numa_node"])
                shared = replicas.format(row["replicas"]) if row["replicas"] > 1 else ""
                table.add_row(resource, row["device"], row["node"], numa, row["health"], shared)
            if len(rows) > ROWS_PER_RESOURCE:
                table.add_row(resource, f"{len(rows) - ROWS_PER_RESOURCE} more", "", "", "", "")
        self._print(Text("Found on this machine:"))
        self._print(table)
        self._print(Text())

    def registered(self, facts: Facts) -> None:
        """Show the registration and the node's numbers."""
        noun = "resource" if facts["resources"] == 1 else "resources"
        self._say(
            "registered",
            f"{facts['resources']} {noun}, {facts['ms_after_start']} ms after the daemon's start",
        )
        numbers = [
            f"{name}  capacity {count}, allocatable {facts['allocatable'][name]}"
            for name, count in facts["capacity"].items()
        ]
        self._say("node", "\n".join(numbers))

    def pod_runs(self, facts: Facts) -> None:
        """Show what a running pod got."""
        lines = [f"{facts['phase']}, asked for {_limits(facts['limits'])}; in its container:"]
        lines += [
            f"device {n['container']} ({n['permissions']}) from {n['host']}" for n in facts["device_nodes"]
        ]
        lines += [f"env    {name}={value}" for name, value in facts["env"].items()]
        lines += [
            f"mount  {m['container']}{' (read-only)' if m['read_only'] else ''} from {m['host']}"
            for m in facts["mounts"]
        ]
        self._say(facts["name"], "\n".join(lines))

    def pod_refused(self, facts: Facts) -> None:
        """Show the kubelet's words to a pod that asked for too much."""
        self._say(
            facts["name"],
            f"{facts['phase']}, asked for {_limits(facts['limits'])}\n{facts['reason']}: {facts['message']}",
        )

    def hot_plugged(self, facts: Facts) -> None:
        """Show the times of a device that came and went."""
        self._say(
            "hot-plug",
            f"{facts['path']}, from the kernel's event to the kubelet's table: "
            f"plugged {facts['plugged_ms']} ms, unplugged {facts['unplugged_ms']} ms",
        )

    def restarted(self, facts: Facts) -> None:
        """Show the way back after a kubelet restart."""
        kept = ", ".join(facts["kept"])
        is_good = self.judge(bool(kept), facts["phase"] == "Running")
        self._say(
            "restart",
            f"kubelet back, all registered in {facts['registered_ms']} ms; "
            + (
                f"{facts['pod']} is {facts['phase']} and kept {kept}"
                if is_good
                else f"{facts['pod']} lost its devices"
            ),
            "" if is_good else "red",
        )

    def stopped(self, facts: Facts) -> None:
        """Show the end."""
        is_good = self.judge(facts["exit_code"] == 0, not facts["left_behind"])
        left = ", ".join(facts["left_behind"]) or "nothing"
        self._say(
            "stop",
            f"{'clean' if is_good else 'not clean'}: exit code {facts['exit_code']} in {facts['ms']} ms, "
            f"{left} left behind",
            "" if is_good else "red",
        )


def _limits(limits: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in limits.items())
