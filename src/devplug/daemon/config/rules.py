"""Rules for what several keys must be together, on a decoded configuration. Pure: no host is looked at.

Rules for `discover` are in `discover_rules`. Here are those for `expose` (paths, names, limits, and what
needs `allow`) and for all the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.container_rules import ENV_VALUE_LIMIT_BYTES, loads_code
from devplug.daemon.config.discover_rules import claim_findings, discover_findings, may_be_several
from devplug.daemon.config.globs import device_glob_fault, regex_fault
from devplug.daemon.config.host_paths import container_path_faults, mount_findings
from devplug.daemon.config.templates import TemplatePlace, template_faults
from devplug.daemon.config.tree import Finding
from devplug.devices import Device, stable_id
from devplug.errors import quoted
from devplug.wire.values import LIST_LIMIT_BYTES, list_size_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from devplug.daemon.config.templates import Template
    from devplug.daemon.config.tree import Keys
    from devplug.daemon.config.types import Config, Expose, HealthRule, Resource

ANNOTATIONS_LIMIT_BYTES: Final = 256 * 1024
"""What Kubernetes takes for all annotations of an object."""

# Patterns as texts: `re` compiles and keeps them at their first use, which most daemons never have.
_ENV_NAME_WRONG: Final = r"[^!-<>-~]"
_ANNOTATION_NAME: Final = (
    r"(?:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
_NODELESS_KINDS: Final = frozenset({"static", "net"})
_CHILDLESS_KINDS: Final = frozenset({"path", "bundle", "static", "net"})

_NOT_IN_IDS: Final = r"[^A-Za-z0-9._:@+-]"

# Kubernetes: apimachinery, pkg/util/validation/validation.go, IsQualifiedName and IsValidLabelValue.
_LABEL_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_LABEL_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_NAME_LIMIT: Final = 63
_LABEL_DOMAIN_LIMIT: Final = 253


# ── `expose` ──────────────────────────────────────────────────────────────────────────────────────


def _exposure_findings(resource: Resource, at: Keys) -> Iterator[Finding]:
    """Yield what is wrong with `expose` of one resource."""
    expose, kind = resource.expose, resource.discover.kind
    at = (*at, "expose")
    yield from _device_node_findings(expose, at, kind)
    yield from _container_path_findings(resource, at)
    yield from _permission_findings(expose, at, resource.allow)
    yield from _cdi_findings(expose, at, kind)
    yield from mount_findings(expose, at, kind, resource.allow)
    yield from _env_findings(expose.env, (*at, "env"), kind, resource.allow)
    yield from _annotation_findings(expose.annotations, (*at, "annotations"), kind)


# ── device nodes ──────────────────────────────────────────────────────────────────────────────────


def _device_node_findings(expose: Expose, at: Keys, kind: str) -> Iterator[Finding]:
    if kind in _CHILDLESS_KINDS and expose.device_nodes is not None:
        message = f"discover.{kind} says already which nodes a device has; leave deviceNodes out"
        yield Finding((*at, "deviceNodes"), message)
    for number, nodes in enumerate(expose.device_nodes or ()):
        own = (*at, "deviceNodes", number)
        if nodes.file is not None and (fault := regex_fault(nodes.file)):
            yield Finding((*own, "file"), fault)
        if nodes.container_path is not None:
            for fault in container_path_faults(nodes.container_path, kind):
                yield Finding((*own, "containerPath"), fault)
    for number, folder in enumerate(expose.directories):
        if wrong := device_glob_fault(folder, ["/dev"]):
            yield Finding((*at, "directories", number), wrong)


def _container_path_findings(resource: Resource, at: Keys) -> Iterator[Finding]:
    template, kind = resource.expose.container_path, resource.discover.kind
    if template is None:
        return
    if kind in _NODELESS_KINDS:
        message = (
            "discover.static has no device nodes; leave containerPath out"
            if kind == "static"
            else f"discover.{kind} gives its nodes under the host's paths; leave containerPath out"
        )
        yield Finding((*at, "containerPath"), message)
        return
    for fault in container_path_faults(template, kind):
        yield Finding((*at, "containerPath"), fault)
    paths_differ = bool(template.variables) or template.source.endswith("/")
    if kind and not paths_differ and may_be_several(resource) and resource.share.max_per_container != 1:
        message = (
            f"two devices in one container would both be {quoted(template)}; add {{index}}, "
            "end it with / for a folder, or write share.maxPerContainer: 1"
        )
        yield Finding((*at, "containerPath"), message)


def _permission_findings(expose: Expose, at: Keys, allow: tuple[str, ...]) -> Iterator[Finding]:
    if "mknod" in allow:
        return
    message = "m lets the container make device nodes of its own; write rw, or allow: [mknod]"
    if "m" in expose.permissions:
        yield Finding((*at, "permissions"), message)
    for number, nodes in enumerate(expose.device_nodes or ()):
        if nodes.permissions and "m" in nodes.permissions:
            yield Finding((*at, "deviceNodes", number, "permissions"), message)


def _cdi_findings(expose: Expose, at: Keys, kind: str) -> Iterator[Finding]:
    for number, name in enumerate(expose.cdi_devices):
        own = (*at, "cdiDevices", number)
        for fault in template_faults(name, kind, TemplatePlace.ONE):
            yield Finding(own, fault)
        vendor_and_class, equals, device = name.source.partition("=")
        if not (equals and device and vendor_and_class.count("/") == 1):
            yield Finding(own, f"{quoted(name)} is not a CDI device; write vendor.com/class=name")
        elif any(len(part) == 1 for part in vendor_and_class.split("/")):
            # container-device-interface pkg/parser/parser.go, in the runtimes up to 1.1.0
            yield Finding(own, f"{quoted(name)} has a vendor or class of one letter, on which runtimes crash")
    if expose.strategy != "cdi":
        for key in ("owner", "mode"):
            if getattr(expose, key) is not None:
                yield Finding(
                    (*at, key), "needs strategy: cdi; a plain device node stays as it is on the host"
                )


# ── environment and annotations ───────────────────────────────────────────────────────────────────


def _env_findings(
    env: Mapping[Template, Template],
    at: Keys,
    kind: str,
    allow: tuple[str, ...],
) -> Iterator[Finding]:
    for name, value in env.items():
        own = (*at, name.source)
        for fault in template_faults(name, kind, TemplatePlace.ONE):
            yield Finding(own, f"in the name: {fault}")
        if wrong := _env_name_fault(name):
            yield Finding(own, wrong)
        elif "loaderEnv" not in allow and _is_for_the_loader(name):
            message = "decides which programs and libraries run in the container; write allow: [loaderEnv]"
            yield Finding(own, f"the variable {quoted(name)} {message} if you must")
        place = TemplatePlace.ONE if name.variables else TemplatePlace.ALL
        for fault in template_faults(value, kind, place):
            yield Finding(own, fault)
        if "\0" in value.source:
            yield Finding(own, "has a NUL byte")
        if len(value.source.encode()) > ENV_VALUE_LIMIT_BYTES:
            size = len(value.source.encode())
            yield Finding(own, f"is {size} bytes long; at most {ENV_VALUE_LIMIT_BYTES} are possible")


def _env_name_fault(name: Template) -> str | None:
    if not name.source:
        return "the name of the variable is empty"
    if wrong := re.search(_ENV_NAME_WRONG, name.literal):
        return f"{quoted(wrong.group())} cannot stand in the name of a variable"
    if not isinstance(name.parts[0], str):
        return f"the name {quoted(name)} must start with a letter, as in PORT_{name.variables[0]}"
    return None


def _is_for_the_loader(name: Template) -> bool:
    """Whether the name is `PATH`, `LD_*` or the like, or may become it with a device's value in it.

    What a value makes of a longer start is looked at when it is known: see `container_response`.
    """
    start = str(name.parts[0])
    if not name.variables:
        return loads_code(name.source)
    return start.startswith("LD_") or "LD_".startswith(start) or "PATH".startswith(start)


def _annotation_findings(annotations: Mapping[str, Template], at: Keys, kind: str) -> Iterator[Finding]:
    for name, value in annotations.items():
        if not re.fullmatch(_ANNOTATION_NAME, name):
            message = f"{quoted(name)} is not an annotation's name; write one such as example.com/ports"
            yield Finding((*at, name), message)
        for fault in template_faults(value, kind, TemplatePlace.ALL):
            yield Finding((*at, name), fault)
    size = sum(len(name.encode()) + len(value.source.encode()) for name, value in annotations.items())
    if size > ANNOTATIONS_LIMIT_BYTES:
        message = f"have {size} bytes together; at most {ANNOTATIONS_LIMIT_BYTES} are possible"
        yield Finding(at, message)


# ── all keys ──────────────────────────────────────────────────────────────────────────────────────


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
        yield from _exposure_findings(resource, at)
        yield from _serve_findings(resource, at, config.driver)
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


def _serve_findings(resource: Resource, at: Keys, driver: str | None) -> Iterator[Finding]:
    """Yield the keys that do not go with the way in which a resource is served."""
    if resource.serve != "dra":
        if resource.when_unhealthy == "evict":
            yield Finding((*at, "whenUnhealthy"), "evict needs serve: dra; a device plugin cannot evict pods")
        return
    if driver is None:
        message = (
            "dra needs a driver; write driver: devices.example.com above resources, in a domain of yours"
        )
        yield Finding((*at, "serve"), message)
    if resource.prefer not in {"auto", "none"}:
        yield Finding(
            (*at, "prefer"), "with serve: dra the scheduler chooses; write constraints in the claim"
        )
    if resource.when_none == "wait":
        yield Finding((*at, "whenNone"), "wait is for device plugins; with serve: dra write empty or fail")
    if resource.expose.annotations:
        message = "with serve: dra devices reach containers by CDI, which has no annotations; leave them out"
        yield Finding((*at, "expose", "annotations"), message)


def _id_findings(resource: Resource, at: Keys) -> Iterator[Finding]:
    template, discover = resource.id, resource.discover
    if template is None:
        return
    if discover.static:
        yield Finding((*at, "id"), "discover.static lists the IDs themselves; leave id out")
        return
    for fault in template_faults(template, discover.kind, TemplatePlace.ID):
        yield Finding((*at, "id"), fault)
    if wrong := re.search(_NOT_IN_IDS, template.literal):
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
        for fault in template_faults(rule.file, kind, TemplatePlace.PROBE):
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
        yield Finding(at, "equals, min and max go with attribute or file only; leave them out")
    if not (reads or rule.exec or rule.open):
        yield Finding((*at, "open"), "false checks nothing; write true, or leave the rule out")
    if rule.min is not None and rule.max is not None and rule.min > rule.max:
        yield Finding((*at, "min"), "is greater than max; nothing would be healthy")
    if rule.equals is not None and (fault := regex_fault(rule.equals)):
        yield Finding((*at, "equals"), fault)


def _command_findings(command: tuple[Template, ...], at: Keys, kind: str) -> Iterator[Finding]:
    for number, argument in enumerate(command):
        for fault in template_faults(argument, kind, TemplatePlace.PROBE):
            yield Finding((*at, "command", number), fault)
    if command and (command[0].variables or not command[0].source.startswith("/")):
        message = f"{quoted(command[0])} is not the absolute path of a program; no shell and no PATH are used"
        yield Finding((*at, "command", 0), message)


# ── labels of a nodeSelector ───────────────────────────────────────────────────────────────────────


def selector_faults(selector: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each label that no machine can have: its key, and what is wrong with that or with the value."""
    for key, value in selector.items():
        if fault := _label_key_fault(key):
            yield key, fault
        if fault := _label_value_fault(value):
            yield key, fault


def _label_key_fault(key: str) -> str:
    domain, slash, name = key.rpartition("/")
    if slash and (len(domain) > _LABEL_DOMAIN_LIMIT or not re.fullmatch(_LABEL_DOMAIN, domain)):
        return (
            f"{quoted(domain)} cannot stand before the / of a label; "
            f"write a domain in small letters, at most {_LABEL_DOMAIN_LIMIT} of them"
        )
    if len(name) > _LABEL_NAME_LIMIT or not re.fullmatch(_LABEL_NAME, name):
        return (
            f"{quoted(name)} is not the name of a label; write 1 to {_LABEL_NAME_LIMIT} letters, digits and "
            "-_. that begin and end with a letter or digit"
        )
    return ""


def _label_value_fault(value: str) -> str:
    if value and (len(value) > _LABEL_NAME_LIMIT or not re.fullmatch(_LABEL_NAME, value)):
        return (
            f"{quoted(value)} is not a value that a label can have, and no glob; write at most "
            f"{_LABEL_NAME_LIMIT} letters, digits and -_. that begin and end with a letter or digit"
        )
    return ""
