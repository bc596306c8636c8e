"""What several keys must be together: rules on a decoded configuration. Pure; nothing is looked up on a host.

Rules for `discover` are in `claims`, those for `expose` in `exposure`; here is the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.claims import claim_findings, discover_findings, may_be_several
from devplug.daemon.grammar.exposure import exposure_findings
from devplug.daemon.grammar.globs import regex_fault
from devplug.daemon.grammar.tree import Finding
from devplug.daemon.grammar.variables import Place, template_faults
from devplug.daemon.placement import selector_faults
from devplug.devices import LIST_LIMIT_BYTES, Device, list_size_bytes, stable_id
from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from devplug.daemon.grammar.config import Config, HealthRule, Resource
    from devplug.daemon.grammar.templates import Template
    from devplug.daemon.grammar.tree import Keys

__all__ = ["rule_findings"]

_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9._:@+-]")


def rule_findings(config: Config, roots: Collection[str]) -> Iterator[Finding]:
    """Yield every rule that `config` breaks. Device nodes must be below one of `roots`."""
    first_of_name: dict[str, int] = {}
    broken: set[Keys] = set()
    for index, resource in enumerate(config.resources):
        at: Keys = ("resources", index)
        first = first_of_name.setdefault(resource.name, index)
        if first != index:
            message = f"the resource {quoted(resource.name)} exists already"
            yield Finding((*at, "name"), message, ("resources", first, "name"))
        discover = list(discover_findings(resource, at, roots))
        broken.update(finding.keys for finding in discover)
        yield from discover
        yield from exposure_findings(resource, at)
        yield from _id_findings(resource, at)
        yield from _share_findings(resource, at)
        for number, rule in enumerate(resource.health):
            yield from _health_findings(rule, (*at, "health", number), resource.discover.kind)
        for key, action in (("onRelease", resource.on_release), ("onLost", resource.on_lost)):
            if action is not None:
                yield from _command_findings(action.exec.command, (*at, key, "exec"), resource.discover.kind)
        for number, glob in enumerate(resource.node_names):
            if fault := regex_fault(glob):
                yield Finding((*at, "nodeNames", number), fault)
        for key, fault in selector_faults(resource.node_selector):
            yield Finding((*at, "nodeSelector", key), fault)
    yield from claim_findings(config, broken)


def _id_findings(resource: Resource, at: Keys) -> Iterator[Finding]:
    template, discover = resource.id, resource.discover
    if template is None:
        return
    if discover.static:
        yield Finding((*at, "id"), "discover.static lists the IDs themselves; leave id out")
        return
    for fault in template_faults(template, discover.kind, Place.ID):
        yield Finding((*at, "id"), fault)
    if wrong := _NOT_IN_IDS.search(template.literal):
        message = f"{quoted(wrong.group())} cannot stand in a device ID; use letters, digits and ._:@+-"
        yield Finding((*at, "id"), message)
    if not template.variables and discover.kind and may_be_several(resource):
        message = "all devices would have this one ID; add a variable, as in dev-{file}"
        yield Finding((*at, "id"), message)


def _share_findings(resource: Resource, at: Keys) -> Iterator[Finding]:
    """Yield a number of replicas that no ListAndWatch message can carry."""
    replicas = resource.share.replicas
    numa = {key: node for one in resource.discover.static for key, node in one.numa_nodes.items()}
    ids = {one for static in resource.discover.static for one in static.ids} or {_shortest_id(resource)}
    suffix = f"::{replicas - 1}" if replicas > 1 else ""
    devices = [_sized(f"{one}{suffix}", numa.get(one, -1)) for one in ids]
    fit = LIST_LIMIT_BYTES // max(1, list_size_bytes(devices))
    if replicas > fit:
        of_what = f"{len(ids)} devices" if len(ids) > 1 else "one device"
        length = max(len(device.id) for device in devices)
        message = (
            f"{replicas} replicas of {of_what} are more than the kubelet takes in one list (4 MiB); "
            f"at most {fit} fit with IDs of {length} bytes"
        )
        yield Finding((*at, "share", "replicas"), message)


def _shortest_id(resource: Resource) -> str:
    """Return the shortest ID that the one device can have."""
    if resource.id is None and resource.discover.path and not may_be_several(resource):
        return stable_id(resource.discover.path[0].glob.rpartition("/")[2])
    return "x"


def _sized(device_id: str, numa_node: int) -> Device:
    """Return a device as large as one with this ID, which need not be a valid one."""
    return Device(
        "x" * min(63, max(1, len(device_id))), numa_nodes=[numa_node] if 0 <= numa_node < 1024 else []
    )


def _health_findings(rule: HealthRule, at: Keys, kind: str) -> Iterator[Finding]:
    yield from _judgement_findings(rule, at)
    if rule.timeout_seconds > rule.period_seconds:
        yield Finding((*at, "timeout"), "is longer than period; write a shorter one")
    if rule.attribute == "":
        yield Finding((*at, "attribute"), "is empty; write the name of a file in the device's sysfs folder")
    if rule.file is not None:
        for fault in template_faults(rule.file, kind, Place.PROBE):
            yield Finding((*at, "file"), fault)
        if not rule.file.source.startswith("/"):
            yield Finding((*at, "file"), f"{quoted(rule.file)} is not absolute; write the path from / on")
    if rule.exec is not None:
        yield from _command_findings(rule.exec.command, (*at, "exec"), kind)


def _judgement_findings(rule: HealthRule, at: Keys) -> Iterator[Finding]:
    """Yield why a rule cannot tell healthy from not."""
    reads = rule.attribute is not None or rule.file is not None
    judges = rule.equals is not None or rule.min is not None or rule.max is not None
    if reads and not judges:
        yield Finding(at, "does not say what is healthy; add equals, min or max")
    if judges and not reads:
        yield Finding(at, "equals, min and max judge what attribute or file has; leave them out")
    if not (reads or rule.exec or rule.open):
        yield Finding((*at, "open"), "false looks at nothing; write true, or leave the rule out")
    if rule.min is not None and rule.max is not None and rule.min > rule.max:
        yield Finding((*at, "min"), "is greater than max; nothing would be healthy")
    if rule.equals is not None and (fault := regex_fault(rule.equals)):
        yield Finding((*at, "equals"), fault)


def _command_findings(command: tuple[Template, ...], at: Keys, kind: str) -> Iterator[Finding]:
    for number, argument in enumerate(command):
        for fault in template_faults(argument, kind, Place.PROBE):
            yield Finding((*at, "command", number), fault)
    if command and (command[0].variables or not command[0].source.startswith("/")):
        message = f"{quoted(command[0])} is not the absolute path of a program; no shell and no PATH are used"
        yield Finding((*at, "command", 0), message)
