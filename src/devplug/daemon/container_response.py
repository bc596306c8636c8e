"""The container response: from found devices to what a container gets, with replicas and templates. Pure.

`discover` has found the nodes; `expose` chooses among them, and under which paths a container gets them.
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from devplug.cdi.spec import CdiOwner, device_faults, device_name, response_device
from devplug.container_rules import container_path_fault, loads_code
from devplug.daemon.config.globs import covers
from devplug.daemon.config.templates import Missing, Template, Writing, parse_template, render_all, render_one
from devplug.devices import DEVICE_ID_LIMIT_BYTES, ContainerResponse, Device, DeviceNode, Mount
from devplug.errors import AllocationError, InvalidRequestError, PluginError, UnhealthyDeviceError, quoted
from devplug.holds.hardware import MEMORY_MAJOR, REPLICA_MARK, Use, number_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from devplug.daemon.config.types import ChildNodes, Expose, Resource
    from devplug.daemon.sources.device import HostDevice, HostDeviceNode

FALLBACK_SUBSYSTEMS: Final = frozenset({"usb", "vfio", "vfio-dev"})
"""The raw ways to a device: the bus node of a USB device, the group of a function. They are for containers
that bring a driver of their own, so they are given only if there is nothing else, or by name."""

RESPONSES_LIMIT: Final = 256
"""For how many sets of device IDs a resource keeps its response: most containers have one device each."""

_NVIDIA_VARIABLE: Final = parse_template("NVIDIA_VISIBLE_DEVICES")
_PCI_ADDRESSES: Final = parse_template("{pciAddresses}")

_T = TypeVar("_T")


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────


class MissingNode(Struct, frozen=True):
    """Why no container can get a device, in one line for its health."""

    reason: str


class ChosenNode(Struct, frozen=True):
    """One node that a container gets, with its settings in the file; its path is rendered later."""

    node: HostDeviceNode
    name: str
    """Its name in `{containerPath.NAME}`."""
    container_path: Template | None
    permissions: str


def chosen_nodes(found: HostDevice, expose: Expose) -> list[ChosenNode] | MissingNode:
    """Return the nodes of a device that `expose` chooses, or what the device lacks.

    Nodes that belong to its driver come last, so that the first one is always the device's own.
    """
    chosen = (
        _all_of(found, expose)
        if expose.device_nodes is None
        else _asked_for(found, expose.device_nodes, expose)
    )
    if isinstance(chosen, MissingNode):
        return chosen
    once: dict[HostDeviceNode, ChosenNode] = {}
    for one in chosen:
        once.setdefault(one.node, one)
    return sorted(once.values(), key=lambda one: one.node.is_shared)


def _all_of(found: HostDevice, expose: Expose) -> list[ChosenNode]:
    own = [node for node in found.nodes if not node.is_shared]
    children = [node for node in own if node.subsystem not in FALLBACK_SUBSYSTEMS]
    return [
        ChosenNode(node, node.name or node.subsystem, expose.container_path, expose.permissions)
        for node in found.nodes
        if not (children and node.subsystem in FALLBACK_SUBSYSTEMS)
    ]


def _asked_for(
    found: HostDevice, asked: Sequence[ChildNodes], expose: Expose
) -> list[ChosenNode] | MissingNode:
    chosen = []
    for one in asked:
        matching = [node for node in found.nodes if _matches(node, one)]
        if not any(not node.is_shared for node in matching) and not one.optional:
            return MissingNode(f"it has no {_wording(one)} node")
        chosen += [
            ChosenNode(
                node,
                one.name or node.name or node.subsystem,
                one.container_path or expose.container_path,
                one.permissions or expose.permissions,
            )
            for node in matching
        ]
    return chosen


def _matches(node: HostDeviceNode, asked: ChildNodes) -> bool:
    return (asked.subsystem is None or node.subsystem == asked.subsystem) and (
        asked.file is None or covers(asked.file, node.file_name)
    )


def _wording(asked: ChildNodes) -> str:
    return " ".join(word for word in (asked.subsystem, asked.file) if word)


def paths_of(
    chosen: Sequence[ChosenNode],
    facts: Mapping[str, str | int],
) -> Iterator[str] | MissingNode:
    """Return the path in the container of each chosen node, or why there is none.

    Without a template it is the kernel's own path, which programs look for, also where the host's path is a
    stable link. A node that its driver shares out always keeps it.
    """
    paths: list[str] = []
    for one in chosen:
        path = one.node.real_path or one.node.host_path
        if one.container_path is not None and not one.node.is_shared:
            text = render_one(one.container_path, facts, Writing.PATH)
            if isinstance(text, Missing):
                return MissingNode(text.reason)
            path = text + one.node.file_name if text.endswith("/") else text
            if one.container_path.variables and (fault := container_path_fault(path)):
                return MissingNode(f"its path in the container would be {quoted(path)}, which {fault}")
        if path in paths:
            return MissingNode(
                f"two of its nodes would be {path} in the container; let containerPath end in /, "
                "or give each of expose.deviceNodes one of its own",
            )
        paths.append(path)
    return iter(paths)


# ── the response ──────────────────────────────────────────────────────────────────────────────────


def found_name(device_id: str, replicas: int) -> str:
    """Return the name of the found device behind a device ID: replicas share one."""
    return device_id.rpartition(REPLICA_MARK)[0] or device_id if replicas > 1 else device_id


def device_ids(name: str, replicas: int) -> list[str]:
    """Return the device IDs that stand for a found device: its name, or `ID::0` and on."""
    return [f"{name}{REPLICA_MARK}{number}" for number in range(replicas)] if replicas > 1 else [name]


def with_room_for_replicas(found: HostDevice, replicas: int) -> HostDevice:
    """Return `found` under a name that is a device ID with the number of its last replica, too."""
    room = DEVICE_ID_LIMIT_BYTES - len(f"{REPLICA_MARK}{replicas - 1}")
    if replicas == 1 or len(found.name) <= room:
        return found
    digest = hashlib.sha256(found.name.encode()).hexdigest()[:10]
    return replace(found, name=f"{found.name[: room - 11]}-{digest}")


class Share(Struct, frozen=True):
    """The part of one device in a container's response."""

    found: HostDevice
    index: int
    """Its rank among the container's devices of this resource."""
    device_nodes: tuple[DeviceNode, ...]
    mounts: tuple[Mount, ...]
    envs: Mapping[str, str]
    cdi_devices: tuple[str, ...]
    facts: Mapping[str, str | int]


def shares_of(
    devices: Sequence[Device], found: Mapping[str, HostDevice], resource: Resource, first_index: int = 0
) -> list[Share]:
    """Return the shares of the found devices behind `devices`, in the order of their names.

    `found` has these found devices by name; replicas share one. `first_index` is more than 0 where a
    container may have other devices of the resource by another request. Raises `AllocationError` if there are
    more devices than one container may have, or one of them lacks what a template or a node needs.
    """
    limit = resource.share.max_per_container
    if limit is not None and len(devices) > limit:
        raise InvalidRequestError(
            f"{len(devices)} devices of {resource.name} are asked for; one container may have {limit}",
        )
    indexed = enumerate(sorted(found), first_index)
    try:
        return [share_of(found[name], index, resource.expose) for index, name in indexed]
    except PluginError as error:
        raise InvalidRequestError(str(error)) from error


def container_response(
    shares: Sequence[Share],
    resource: Resource,
    *,
    cdi_devices: Sequence[str] = (),
    device_nodes: Sequence[DeviceNode] | None = None,
) -> ContainerResponse:
    """Return the response for a container with these shares.

    `device_nodes` takes the place of those of the shares. Raises `AllocationError` if two devices would be
    one file in the container.
    """
    expose = resource.expose
    facts_of_all = [share.facts for share in shares]
    envs = {name: value for share in shares for name, value in share.envs.items()}
    for name, template in {**_usual_env(resource), **expose.env}.items():
        if not name.variables:
            envs[name.literal] = render_all(template, facts_of_all)
    if device_nodes is None:
        device_nodes = [node for share in shares for node in share.device_nodes]
        device_nodes += [DeviceNode(folder, folder, expose.permissions) for folder in expose.directories]
    try:
        return ContainerResponse(
            device_nodes=device_nodes,
            mounts=[mount for share in shares for mount in share.mounts],
            envs=envs,
            annotations={
                key: render_all(template, facts_of_all) for key, template in expose.annotations.items()
            },
            cdi_devices=[*(name for share in shares for name in share.cdi_devices), *cdi_devices],
        )
    except PluginError as error:
        raise InvalidRequestError(str(error)) from error


class ContainerShares(Struct, frozen=True, dict=True):
    """The shares of one container, and the response that is made of them."""

    resource: Resource
    found: Mapping[str, HostDevice]
    """The found devices that they were made of, by name."""
    shares: Sequence[Share]

    @cached_property
    def response(self) -> ContainerResponse:
        """The response with their device nodes; raises as `container_response`."""
        return container_response(self.shares, self.resource)


class Responses:
    """The responses of one resource, for as long as it is served: each is made once.

    A response says what the file and the found devices say, so it is the same while these are.
    """

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._made: dict[tuple[tuple[str, ...], int], ContainerShares] = {}
        """By device IDs and first index."""

    def of(
        self, devices: Sequence[Device], found: Mapping[str, HostDevice], first_index: int = 0
    ) -> ContainerShares:
        """Return what a container with these devices gets; raises as `shares_of`."""
        key = tuple([device.id for device in devices]), first_index
        made = self._made.get(key)
        if made is None or made.found != found:
            shares = shares_of(devices, found, self._resource, first_index)
            made = ContainerShares(self._resource, found, shares)
            if len(self._made) >= RESPONSES_LIMIT:
                self._made.clear()
            self._made[key] = made
        return made


def _usual_env(resource: Resource) -> Mapping[Template, Template]:
    """Return the environment variables that programs for a kind of hardware read.

    NVIDIA's runtime adds driver files for what NVIDIA_VISIBLE_DEVICES names; where a CDI spec does that, it
    must not (`void`). PCIDEVICE_* is what programs written for the SR-IOV plugin read.
    """
    match resource.discover.kind:
        case "nvidia":
            has_spec = bool(resource.expose.cdi_devices) or resource.expose.strategy == "cdi"
            return {_NVIDIA_VARIABLE: parse_template("void" if has_spec else "{uuids}")}
        case "net":
            return {parse_template(pcidevice_variable(resource.name)): _PCI_ADDRESSES}
    return {}


def pcidevice_variable(resource_name: str) -> str:
    """Return the variable that has the PCI addresses of a resource, named as the SR-IOV plugin names it."""
    return "PCIDEVICE_" + re.sub(r"[^A-Z0-9]", "_", resource_name.upper())


def share_of(found: HostDevice, index: int, expose: Expose) -> Share:
    """Return the share of a device; raises `UnhealthyDeviceError` if it lacks what the file asks for."""
    facts: dict[str, str | int] = {**found.facts, "id": found.name, "index": index}
    chosen = _whole(chosen_nodes(found, expose), found)
    own = [one for one in chosen if not one.node.is_shared]
    if own and expose.device_nodes is not None:
        facts |= {"file": own[0].node.file_name, "hostPath": own[0].node.host_path}
    paths = list(_whole(paths_of(chosen, facts), found))
    for one, path in zip(chosen, paths, strict=True):
        if not one.node.is_shared:
            facts.setdefault("containerPath", path)
        if one.name:
            facts.setdefault(f"containerPath.{one.name}", path)

    def rendered(template: Template, writing: Writing = Writing.TEXT) -> str:
        text = render_one(template, facts, writing)
        if isinstance(text, Missing):
            raise UnhealthyDeviceError(text.reason, Device(found.name))
        return text

    mounts = []
    for mount in expose.mounts:
        host_path = rendered(mount.host_path, Writing.PATH)
        inside = rendered(mount.container_path, Writing.PATH) if mount.container_path else host_path
        template = mount.container_path or mount.host_path
        if template.variables and (fault := container_path_fault(inside)):
            text = f"a mount of it would be at {quoted(inside)} in the container, which {fault}"
            raise UnhealthyDeviceError(text, Device(found.name))
        mounts.append(Mount(host_path, inside, read_only=mount.read_only))
    envs = {
        rendered(name, Writing.NAME): rendered(template)
        for name, template in expose.env.items()
        if name.variables
    }
    # A start such as LD_ stands in the file, with the `allow` that it needs.
    if wrong := [name for name in envs if loads_code(name) and not name.startswith("LD_")]:
        text = f"a variable would be named {quoted(wrong[0])}, which decides what runs in the container"
        raise UnhealthyDeviceError(text, Device(found.name))
    return Share(
        found,
        index,
        tuple(
            DeviceNode(one.node.host_path, path, one.permissions)
            for one, path in zip(chosen, paths, strict=True)
        ),
        tuple(mounts),
        envs,
        tuple(rendered(name) for name in expose.cdi_devices),
        facts,
    )


def _whole(result: _T | MissingNode, found: HostDevice) -> _T:
    if isinstance(result, MissingNode):
        raise UnhealthyDeviceError(result.reason, Device(found.name))
    return result


def use_of(share: Share, resource: Resource, boot: str) -> Use:
    """Return what a container has with a share of a device."""
    host_paths = {node.host_path for node in share.device_nodes}
    nodes = [node for node in share.found.nodes if node.host_path in host_paths and not node.is_shared]
    is_resolved = resource.serve == "dra" or resource.expose.strategy == "cdi"
    return Use(
        share.found.name,
        share.found.identity,
        tuple(
            number_key(node.number, is_block=node.is_block)
            for node in nodes
            if node.is_block or node.number[0] != MEMORY_MAJOR
        ),
        tuple((node.real_path if is_resolved else "") or node.host_path for node in nodes),
        boot,
        resource.overlap == "shared",
        resource.on_release is not None,
    )


def refusal_of(found: HostDevice, resource: Resource) -> str | None:
    """Return why no container can get a device, or None: the whole answer for it alone is made.

    A template may need what it lacks; its texts may make a path, a name or a value that no runtime takes.
    """
    try:
        share = share_of(found, 0, resource.expose)
        response = container_response([share], resource)
    except UnhealthyDeviceError as error:
        return error.reason
    except (AllocationError, PluginError) as error:
        return str(error)
    if resource.serve != "dra" and resource.expose.strategy != "cdi":
        return None
    given = response_device(device_name(found.name), response, owner_of(resource))
    # CDI follows no link: a spec has the kernel's own paths.
    kernel_paths = {node.host_path: node.real_path for node in found.nodes if node.real_path}
    if kernel_paths:
        nodes = tuple(
            replace(one, host_path=kernel_paths.get(one.host_path, one.host_path)) for one in given.nodes
        )
        given = replace(given, nodes=nodes)
    return next(device_faults(given), None) if given.nodes or given.mounts or given.envs else None


def owner_of(resource: Resource) -> CdiOwner:
    """Return who owns the nodes of a resource in containers."""
    owner, mode = resource.expose.owner, resource.expose.mode
    return CdiOwner(
        owner.uid if owner else None,
        owner.gid if owner else None,
        int(mode, 8) if mode else None,
    )
