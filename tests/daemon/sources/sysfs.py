"""A source of a kernel subsystem for tests, and what it finds."""

from __future__ import annotations

from devplug.daemon.sources.device import HostDevice
from devplug.daemon.sources.host import Host
from devplug.daemon.sources.sysfs import SysfsSource
from tests.daemon.hosts import resource
from tests.daemon.machines import Machine

SHORT = "allow: [rawDisks]"


def source(host: Host, rest: str) -> SysfsSource:
    one = resource(rest)
    return SysfsSource(one.name, one.discover.sysfs, one.id, one.allow, host)


def find(machine: Machine, selector: str, more: str = SHORT) -> tuple[HostDevice, ...]:
    return source(machine.host, f"discover: {{sysfs: {selector}}}, {more}").look()


def names(found: tuple[HostDevice, ...]) -> list[str]:
    return [one.name for one in found]


def paths(found: tuple[HostDevice, ...]) -> list[list[str]]:
    return [[node.host_path for node in one.nodes] for one in found]
