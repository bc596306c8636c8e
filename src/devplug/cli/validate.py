"""`devplug validate`: everything that is wrong with a file, what is odd about it, and what it finds here."""

from __future__ import annotations

import logging
import os
import platform
import sys
from typing import TYPE_CHECKING, Final

from devplug.cli.exits import BAD_INPUT, OK
from devplug.cli.machine import machine_numa_nodes
from devplug.cli.output import Printer, print_value
from devplug.daemon.config.document import SIZE_LIMIT_BYTES
from devplug.daemon.config.loader import read
from devplug.daemon.config_file import read_config_file
from devplug.daemon.inspection.matches import inspected, sound_resources
from devplug.daemon.inspection.warnings import (
    NodeOwner,
    Remark,
    file_findings,
    folder_findings,
    host_findings,
    memory_findings,
)
from devplug.daemon.placement import placement_of
from devplug.daemon.sources.host import Host
from devplug.daemon.sources.kinds import source_of
from devplug.devices import HealthState
from devplug.linux.unix_sockets import SOCKET_PATH_LIMIT_BYTES
from devplug.plugin.drivers import NODE_NAME_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.daemon.config.loader import ConfigReading
    from devplug.daemon.inspection.matches import Inspected, Match
    from devplug.daemon.sources.device import HostDevice
    from devplug.errors import Problem
    from devplug.k8s.yaml import Value

STANDARD_INPUT: Final = "-"
MATCHES_LIMIT: Final = 8
"""Most devices of one resource in the short table; `-o wide` has all."""


def validate(
    file: str,
    *,
    plugin_dir: str,
    looks_at_host: bool,
    output: str,
    color: str,
    host: Host | None = None,
) -> int:
    """Print what is wrong with `file` and what it finds on this machine; return the exit code.

    Raises `ConfigError` if the file cannot be read at all.
    """
    name, source = _source(file)
    reading = read(source)
    sound = sound_resources(reading)
    findings = [*folder_findings(plugin_dir, SOCKET_PATH_LIMIT_BYTES)]
    if reading.config is not None:
        findings += file_findings(reading.config, sound)
    rows: tuple[Inspected, ...] = ()
    if looks_at_host:
        host = host or Host()
        rows, remarks, owners = _look(reading, sound, host)
        findings += host_findings(rows, owners, remarks, machine_numa_nodes(host))
    if reading.config is not None:
        findings += memory_findings(reading.config, rows)
    warnings = sorted(set(reading.located(findings)))
    if output in {"json", "yaml"}:
        print_value(_facts(name, reading.problems, warnings, rows), output)
    else:
        _print(name, reading.problems, warnings, rows, output=output, color=color)
    return BAD_INPUT if reading.problems else OK


def _source(file: str) -> tuple[str, bytes]:
    if file == STANDARD_INPUT:
        return "stdin", sys.stdin.buffer.read(SIZE_LIMIT_BYTES + 1)
    return file, read_config_file(file)


# ── looking ───────────────────────────────────────────────────────────────────────────────────────


class _Remarks(logging.Handler):
    """A log handler that keeps what sources log during a scan, by resource, and prints nothing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.place = 0
        self.of_place: dict[int, list[Remark]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        reason, path = (str(getattr(record, name, "")) for name in ("reason", "path"))
        self.of_place.setdefault(self.place, []).append(Remark(record.getMessage(), reason, path))


def _look(
    reading: ConfigReading, sound: Iterable[int], host: Host
) -> tuple[tuple[Inspected, ...], dict[int, list[Remark]], dict[str, NodeOwner]]:
    if reading.config is None:
        return (), {}, {}
    resources = reading.config.resources
    node_name = os.environ.get(NODE_NAME_VARIABLE) or platform.node()
    # What the labels of the Node decide on is looked for: nobody asks a cluster here.
    others = placement_of(reading.config, node_name, None).elsewhere
    looks: dict[int, Sequence[HostDevice]] = {}
    remarks = _Remarks()
    logger = logging.getLogger("devplug")
    logger.addHandler(remarks)
    try:
        for index in sound:
            if resources[index] not in others:
                remarks.place = index
                looks[index] = source_of(resources[index], host).look()
    finally:
        logger.removeHandler(remarks)
    elsewhere = [index for index, resource in enumerate(resources) if resource in others]
    rows = inspected(reading, looks, elsewhere)
    return rows, remarks.of_place, _owners(rows, host)


def _owners(rows: Iterable[Inspected], host: Host) -> dict[str, NodeOwner]:
    owners = {}
    for path in {node.host_path for row in rows for match in row.matches or () for node in match.nodes}:
        try:
            status = os.stat(host.inside(path))  # noqa: PTH116
        except OSError:
            continue
        owners[path] = NodeOwner(status.st_mode, status.st_uid, status.st_gid)
    return owners


# ── output ────────────────────────────────────────────────────────────────────────────────────────


def _print(
    name: str,
    errors: Sequence[Problem],
    warnings: Sequence[Problem],
    rows: Sequence[Inspected],
    *,
    output: str,
    color: str,
) -> None:
    printer = Printer(color=color)
    graded = [*((one, "error") for one in errors), *((one, "warning") for one in warnings)]
    for problem, grade in sorted(graded, key=lambda one: one[0]):
        place = ":".join([name, *(str(number) for number in (problem.line, problem.column) if number)])
        printer.finding(place, grade, str(problem))
    if rows and output == "wide":
        columns = ("RESOURCE", "CAPACITY", "DEVICE", "NUMA", "HEALTH", "HOST PATH", "CONTAINER PATH")
        printer.table(columns, [cells for row in rows for cells in _wide_rows(row)], folds=False)
    elif rows:
        printer.table(("RESOURCE", "CAPACITY", "MATCHES ON THIS HOST"), map(_row, rows))
    printer.line(f"{_counted(len(errors), 'error')}, {_counted(len(warnings), 'warning')}")


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _name(row: Inspected) -> str:
    return row.name or f"resources[{row.index}]"


def _capacity(row: Inspected) -> str:
    if row.is_elsewhere and not row.problem:
        return "-"
    return "?" if row.capacity is None else str(row.capacity)


def _unseen(row: Inspected) -> str:
    """Return why a row has no devices."""
    if row.problem is not None:
        return f"not looked for (line {row.problem.line})"
    return "for other machines (nodeNames)" if row.is_elsewhere else "nothing found"


def _row(row: Inspected) -> list[str]:
    matches = row.matches or ()
    lines = [_match(match, row.resource.share.replicas) for match in matches[:MATCHES_LIMIT]]
    if len(matches) > MATCHES_LIMIT:
        lines.append(f"{len(matches) - MATCHES_LIMIT} more (-o wide)")
    return [_name(row), _capacity(row), "\n".join(lines) or _unseen(row)]


def _match(match: Match, replicas: int) -> str:
    real = {node.host_path: node.real_path or node.host_path for node in match.found.nodes}
    nodes = ", ".join(real.get(node.host_path, node.host_path) for node in match.nodes)
    text = f"{match.found.name} ({nodes})" if nodes else match.found.name
    if match.owner:
        return f"{text}, belongs to {match.owner}"
    text += f" x {replicas} replicas" if replicas > 1 else ""
    return (
        text
        if match.health.state is HealthState.HEALTHY
        else f"{text}, {match.health.state.value.capitalize()}"
    )


def _wide_rows(row: Inspected) -> Iterable[list[str]]:
    if not row.matches:
        return [[_name(row), _capacity(row), _unseen(row), "", "", "", ""]]
    return [
        [
            _name(row),
            _capacity(row),
            match.found.name,
            "-" if match.found.numa_node is None else str(match.found.numa_node),
            _health(match),
            "\n".join(node.host_path for node in match.nodes) or "-",
            "\n".join(node.container_path for node in match.nodes) or "-",
        ]
        for match in row.matches
    ]


def _health(match: Match) -> str:
    if match.owner:
        return f"belongs to {match.owner}"
    state = match.health.state.value.capitalize()
    return f"{state}: {match.health.reason}" if match.health.reason else state


def _facts(
    name: str, errors: Sequence[Problem], warnings: Sequence[Problem], rows: Sequence[Inspected]
) -> Value:
    return {
        "file": name,
        "errors": [_problem_facts(one) for one in errors],
        "warnings": [_problem_facts(one) for one in warnings],
        "resources": [
            {
                "name": row.name,
                "was_looked_for": row.matches is not None,
                "is_elsewhere": row.is_elsewhere,
                "capacity": row.capacity,
                "replicas": row.resource.share.replicas,
                "devices": [_match_facts(match) for match in row.matches or ()],
            }
            for row in rows
        ],
    }


def _problem_facts(problem: Problem) -> Value:
    return {
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
    }


def _match_facts(match: Match) -> Value:
    return {
        "id": match.found.name,
        "numa_node": match.found.numa_node,
        "health": match.health.state.value,
        "reason": match.health.reason,
        "owner": match.owner,
        "device_nodes": [
            {"host": node.host_path, "container": node.container_path, "permissions": node.permissions}
            for node in match.nodes
        ],
    }
