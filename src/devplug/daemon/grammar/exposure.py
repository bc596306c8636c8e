"""What `expose` may say: paths, names, limits, and what needs `allow`. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.claims import may_be_several
from devplug.daemon.grammar.globs import device_glob_fault, regex_fault
from devplug.daemon.grammar.mounts import container_path_faults, mount_findings
from devplug.daemon.grammar.tree import Finding
from devplug.daemon.grammar.variables import Place, template_faults
from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.daemon.grammar.config import Expose, Resource
    from devplug.daemon.grammar.templates import Template
    from devplug.daemon.grammar.tree import Keys

__all__ = ["exposure_findings"]

ENV_VALUE_LIMIT_BYTES: Final = 32 * 1024
"""A quarter of what Linux takes as one argument or variable, so that long lists of devices still fit."""

ANNOTATIONS_LIMIT_BYTES: Final = 256 * 1024
"""What Kubernetes takes for all annotations of an object."""

_ENV_NAME_WRONG: Final = re.compile(r"[^!-<>-~]")
_ANNOTATION_NAME: Final = re.compile(
    r"(?:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
)
_NODELESS_KINDS: Final = frozenset({"static", "net"})
_CHILDLESS_KINDS: Final = frozenset({"path", "bundle", "static", "net"})


def exposure_findings(resource: Resource, at: Keys) -> Iterator[Finding]:
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
    tells_apart = bool(template.variables) or template.source.endswith("/")
    if kind and not tells_apart and may_be_several(resource) and resource.share.max_per_container != 1:
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
        for fault in template_faults(name, kind, Place.ONE):
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
        for fault in template_faults(name, kind, Place.ONE):
            yield Finding(own, f"in the name: {fault}")
        if wrong := _env_name_fault(name):
            yield Finding(own, wrong)
        elif "loaderEnv" not in allow and _is_for_the_loader(name):
            message = "decides which programs and libraries run in the container; write allow: [loaderEnv]"
            yield Finding(own, f"the variable {quoted(name)} {message} if you must")
        place = Place.ONE if name.variables else Place.ALL
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
    if wrong := _ENV_NAME_WRONG.search(name.literal):
        return f"{quoted(wrong.group())} cannot stand in the name of a variable"
    if not isinstance(name.parts[0], str):
        return f"the name {quoted(name)} must start with a letter, as in PORT_{name.variables[0]}"
    return None


def _is_for_the_loader(name: Template) -> bool:
    """Whether the name is `PATH` or `LD_*`, or may become it with a device's value in it."""
    start = str(name.parts[0])
    if start.startswith("LD_") or name.source == "PATH":
        return True
    return bool(name.variables) and ("LD_".startswith(start) or "PATH".startswith(start))


def _annotation_findings(annotations: Mapping[str, Template], at: Keys, kind: str) -> Iterator[Finding]:
    for name, value in annotations.items():
        if not _ANNOTATION_NAME.fullmatch(name):
            message = f"{quoted(name)} is not an annotation's name; write one such as example.com/ports"
            yield Finding((*at, name), message)
        for fault in template_faults(value, kind, Place.ALL):
            yield Finding((*at, name), fault)
    size = sum(len(name.encode()) + len(value.source.encode()) for name, value in annotations.items())
    if size > ANNOTATIONS_LIMIT_BYTES:
        message = f"have {size} bytes together; at most {ANNOTATIONS_LIMIT_BYTES} are possible"
        yield Finding(at, message)
