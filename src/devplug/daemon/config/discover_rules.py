"""Rules for `discover`: valid selectors, and no device in two resources. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.daemon.config.globs import (
    covers,
    covers_whole_root,
    device_glob_fault,
    has_wildcard,
    regex_fault,
)
from devplug.daemon.config.host_paths import dangerous_fault
from devplug.daemon.config.selectors import PathSelector
from devplug.daemon.config.tree import Finding
from devplug.devices import device_id_fault
from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from devplug.daemon.config.selectors import BundleSelector
    from devplug.daemon.config.tree import Keys
    from devplug.daemon.config.types import Config, Resource

_GLOBS_OF_KIND = {
    "usb": ("serial",),
    "pci": ("driver", "address"),
    "sysfs": ("name",),
    "net": ("interface", "driver", "address"),
    "nvidia": ("model", "uuid"),
}


PAIRS_LIMIT: Final = 1_000_000
"""Globs times paths: a thousand of each, which are compared within half a second."""


def discover_findings(resource: Resource, at: Keys, roots: Collection[str]) -> Iterator[Finding]:
    """Yield what is wrong with the selectors of one resource."""
    discover = resource.discover
    at = (*at, "discover")
    for number, path in enumerate(discover.path):
        yield from _path_findings(path, (*at, "path", number), resource.allow, roots)
    for number, bundle in enumerate(discover.bundle):
        yield from _bundle_findings(bundle, (*at, "bundle", number), resource.allow, roots)
    for kind, keys in _GLOBS_OF_KIND.items():
        for number, selector in enumerate(getattr(discover, kind)):
            for key in keys:
                glob = getattr(selector, key)
                if glob is not None and (fault := regex_fault(glob) or (None if glob else "is empty")):
                    yield Finding((*at, kind, number, key), fault)
    for number, sysfs in enumerate(discover.sysfs):
        for name, glob in sysfs.attributes.items():
            if fault := regex_fault(glob):
                yield Finding((*at, "sysfs", number, "attributes", name), fault)
    yield from _static_findings(resource, (*at, "static"))


def may_be_several(resource: Resource) -> bool:
    """Whether the resource may have more than one device, as far as its file says."""
    discover = resource.discover
    if discover.path:
        return len(discover.path) > 1 or has_wildcard(discover.path[0].glob)
    return len(discover.bundle) != 1


def _path_findings(
    path: PathSelector,
    at: Keys,
    allow: Collection[str],
    roots: Collection[str],
) -> Iterator[Finding]:
    if fault := device_glob_fault(path.glob, roots):
        yield Finding((*at, "glob"), fault)
    elif covers_whole_root(path.glob, roots) and "wholeDev" not in allow:
        message = f"{quoted(path.glob)} is every device of the machine; narrow it, or write allow: [wholeDev]"
        yield Finding((*at, "glob"), message)
    elif fault := dangerous_fault(path.glob, path.exclude, roots, raw_disks_allowed="rawDisks" in allow):
        yield Finding((*at, "glob"), fault)
    for number, glob in enumerate(path.exclude):
        if fault := device_glob_fault(glob, roots):
            yield Finding((*at, "exclude", number), fault)
        elif glob == path.glob:
            yield Finding((*at, "exclude", number), f"{quoted(glob)} leaves nothing of the glob")


def _bundle_findings(
    bundle: BundleSelector,
    at: Keys,
    allow: Collection[str],
    roots: Collection[str],
) -> Iterator[Finding]:
    first_of_path: dict[str, int] = {}
    for number, member in enumerate(bundle.paths):
        own = (*at, "paths", number)
        fault = device_glob_fault(member.path, roots)
        if not fault and has_wildcard(member.path):
            fault = f"{quoted(member.path)} is a glob; a bundle lists its nodes one by one"
        disks = "rawDisks" in allow
        if fault := fault or dangerous_fault(member.path, (), roots, raw_disks_allowed=disks):
            yield Finding((*own, "path"), fault)
        first = first_of_path.setdefault(member.path, number)
        if first != number:
            message = f"{quoted(member.path)} stands here twice"
            yield Finding((*own, "path"), message, (*at, "paths", first, "path"))
    if bundle.paths and all(member.optional for member in bundle.paths):
        yield Finding((*at, "paths"), "all are optional; at least one node must say that the device is there")


def _static_findings(resource: Resource, at: Keys) -> Iterator[Finding]:
    replicas = resource.share.replicas
    suffix = f"::{replicas - 1}" if replicas > 1 else ""
    first_of_id: dict[str, Keys] = {}
    for number, static in enumerate(resource.discover.static):
        for index, device_id in enumerate(static.ids):
            own = (*at, number, "ids", index)
            if fault := device_id_fault(device_id):
                yield Finding(own, f"{quoted(device_id)} {fault.partition('; use devplug')[0]}")
            elif suffix and "::" in device_id:
                yield Finding(own, f'{quoted(device_id)} has "::", which separates the number of a replica')
            elif suffix and device_id_fault(device_id + suffix):
                message = f"{quoted(device_id)} is too long with {quoted(suffix)} for the last replica"
                yield Finding(own, f"{message}; at most {63 - len(suffix)} characters fit")
            first = first_of_id.setdefault(device_id, own)
            if first != own:
                yield Finding(own, f"the ID {quoted(device_id)} exists already", first)
        for device_id in static.numa_nodes:
            if device_id not in static.ids:
                message = f"{quoted(device_id)} is not among the ids"
                yield Finding((*at, number, "numaNodes", device_id), message)


# ── claims ────────────────────────────────────────────────────────────────────────────────────────


def claim_findings(config: Config, broken: Collection[Keys]) -> Iterator[Finding]:
    """Yield each device that two resources claim and that not both of them share.

    Found are equal paths and globs, and a path that the other's glob covers. Whether two globs meet, only
    the host knows. Selectors that `broken` has the keys of are left out.
    """
    first_claims: dict[str, tuple[int, Keys]] = {}
    globs: list[tuple[int, Keys, PathSelector]] = []
    literals: list[tuple[int, Keys, str]] = []
    for index, keys, selector in _claims(config):
        if keys in broken:
            continue
        first_index, first_keys = first_claims.setdefault(selector.glob, (index, keys))
        if first_index != index:
            if not _shared(config, first_index, index):
                yield _claimed(keys, selector.glob, first_keys)
        elif has_wildcard(selector.glob):
            globs.append((index, keys, selector))
        else:
            literals.append((index, keys, selector.glob))
    # A glob at a time, which is understood once however many there are.
    claimed: set[Keys] = set()
    pairs = 0
    for other_index, other_keys, selector in globs:
        pairs += len(literals) * (1 + len(selector.exclude))
        if pairs > PAIRS_LIMIT:
            message = f"there are too many globs and paths to compare them all; at most {PAIRS_LIMIT:,} pairs"
            yield Finding(other_keys, message)
            return
        for index, keys, path in literals:
            if (
                keys not in claimed
                and other_index != index
                and covers(selector.glob, path)
                and not any(covers(left_out, path) for left_out in selector.exclude)
                and not _shared(config, other_index, index)
            ):
                claimed.add(keys)
                later, earlier = (keys, other_keys) if index > other_index else (other_keys, keys)
                yield _claimed(later, path, earlier)


def _claims(config: Config) -> Iterator[tuple[int, Keys, PathSelector]]:
    for index, resource in enumerate(config.resources):
        at: Keys = ("resources", index, "discover")
        for number, path in enumerate(resource.discover.path):
            yield index, (*at, "path", number, "glob"), path
        for number, bundle in enumerate(resource.discover.bundle):
            for place, member in enumerate(bundle.paths):
                keys: Keys = (*at, "bundle", number, "paths", place, "path")
                yield index, keys, PathSelector(glob=member.path)


def _shared(config: Config, one: int, other: int) -> bool:
    return config.resources[one].overlap == config.resources[other].overlap == "shared"


def _claimed(keys: Keys, path: str, other: Keys) -> Finding:
    message = (
        f"{quoted(path)} belongs to another resource already; write overlap: shared in both, or exclude it"
    )
    return Finding(keys, message, other)
