"""The values of the wire: what the kubelet, plugins and monitors send each other, validated by nobody. Pure.

What an author makes, and what both ends reason about, is in `devices`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from devplug.devices import UNHEALTHY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.devices import Device

SocketIdentity: TypeAlias = tuple[int, int, int]
"""Device, inode and time of making of a socket file: what tells it from others under the same name."""

LIST_LIMIT_BYTES: Final = 4 * 1024 * 1024 - 64 * 1024
"""The largest list we send: the kubelet's gRPC client refuses messages over 4 MiB and drops the stream."""


# ── device plugins (deviceplugin v1beta1) ─────────────────────────────────────────────────────────


class AdvertisedDevice(Struct, frozen=True):
    """One device of a ListAndWatch list, as the kubelet receives it: the API's Device, unvalidated.

    `health` counts as healthy only if it is exactly `Healthy`. `numa_nodes` is None without a topology
    message, which differs from an empty one.
    """

    id: str
    health: str
    numa_nodes: tuple[int, ...] | None = None


class PluginOptions(Struct, frozen=True):
    """The optional calls that the kubelet may make: the API's DevicePluginOptions."""

    pre_start_required: bool = False
    preferred_allocation_available: bool = False


class RegisterRequest(Struct, frozen=True):
    """The registration of a plugin. The kubelet ignores `options` here and asks for them itself."""

    version: str
    endpoint: str
    """File name of the plugin's socket, inside the plugin folder."""
    resource_name: str
    options: PluginOptions = PluginOptions()


class PreferenceRequest(Struct, frozen=True):
    """One container's part of GetPreferredAllocation."""

    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


# ── plugins_registry (pluginregistration v1) ──────────────────────────────────────────────────────


class PluginInfo(Struct, frozen=True):
    """The answer of a plugin in `plugins_registry` to the kubelet's GetInfo."""

    type: str
    """`DevicePlugin`; others are `CSIPlugin` and `DRAPlugin`."""
    name: str
    """For a device plugin its resource name."""
    endpoint: str
    """Absolute path of the socket that serves it; empty for the one on which the kubelet asked."""
    supported_versions: tuple[str, ...]


class RegistrationStatus(Struct, frozen=True):
    """The outcome of such a registration, as the kubelet sends it."""

    plugin_registered: bool
    error: str = ""
    """Why not; the kubelet tries again as long as the socket exists."""


# ── who holds what (podresources v1 and v1alpha1) ─────────────────────────────────────────────────


class ContainerDevices(Struct, frozen=True):
    """Devices of one resource. The kubelet sends one per device and NUMA node, so each has one ID."""

    resource_name: str
    device_ids: tuple[str, ...]
    numa_nodes: tuple[int, ...] | None = None
    """None without a topology message; v1alpha1 has none at all."""


class ContainerMemory(Struct, frozen=True):
    """A block of memory or of huge pages on NUMA nodes."""

    memory_type: str
    """`memory` or `hugepages-<size>`."""
    size_bytes: int
    numa_nodes: tuple[int, ...] | None = None


class ClaimResource(Struct, frozen=True):
    """One device that a DRA driver has prepared for a claim."""

    driver_name: str
    pool_name: str
    device_name: str
    cdi_devices: tuple[str, ...] = ()
    share_id: str | None = None


class DynamicResource(Struct, frozen=True):
    """One resource claim of a container, served by DRA."""

    claim_name: str
    claim_namespace: str
    claim_resources: tuple[ClaimResource, ...] = ()


class ContainerResources(Struct, frozen=True):
    """The devices and other resources of one container."""

    name: str
    devices: tuple[ContainerDevices, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    """CPUs of its own; none where it uses the shared ones."""
    memory: tuple[ContainerMemory, ...] = ()
    dynamic_resources: tuple[DynamicResource, ...] = ()


class PodResources(Struct, frozen=True):
    """The resources of one pod; v1alpha1 has only devices, without NUMA nodes."""

    name: str
    namespace: str
    containers: tuple[ContainerResources, ...] = ()


class AllocatableResources(Struct, frozen=True):
    """The resources that the node can allocate, held or not."""

    devices: tuple[ContainerDevices, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[ContainerMemory, ...] = ()


class PodName(Struct, frozen=True):
    """The pod that Get asks for."""

    name: str
    namespace: str


# ── how much a list weighs ────────────────────────────────────────────────────────────────────────


def list_size_bytes(devices: Iterable[Device]) -> int:
    """Return the size of these devices as a ListAndWatch message with all of them Unhealthy.

    That is the largest it can get, so a list that fits now still fits when everything fails at once.
    """
    # Most differ in nothing that has a size.
    alike = Counter((len(device.id), device.numa_nodes) for device in devices)
    return sum(count * _field_size(_device_size_bytes(*one)) for one, count in alike.items())


def _device_size_bytes(id_size: int, numa_nodes: tuple[int, ...]) -> int:
    size = _field_size(id_size) + _field_size(len(UNHEALTHY))
    if numa_nodes:
        nodes = sum(_field_size(1 + _varint_size(node) if node else 0) for node in numa_nodes)
        size += _field_size(nodes)
    return size


def _field_size(length: int) -> int:
    """Size of a length-delimited field with a tag below 16: tag, length, content."""
    return 1 + _varint_size(length) + length


def _varint_size(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)
