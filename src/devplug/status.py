"""The status of a node and of a plugin process at one moment: the values that every view is made from. Pure.

A process serves its own as JSON at a status socket; the folders and the names of those sockets are here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from devplug.devices import HEALTHY, UNHEALTHY, HealthState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.devices import Device


# ── values ──


class Holder(Struct, frozen=True, order=True):
    """A container that holds a device."""

    namespace: str
    pod: str
    container: str


class DeviceClaim(Struct, frozen=True, kw_only=True):
    """A ResourceClaim that uses a device."""

    namespace: str
    name: str
    request: str = ""
    """Which of its requests got the device; empty where only the kubelet was asked, here and below."""
    device: str = ""
    """The device's name in its ResourceSlice."""
    uid: str = ""
    since: float | None = None
    """Since when, as a Unix time in seconds, also over restarts: from before the device was prepared."""
    prepared_for: tuple[str, ...] = ()
    """The pods of its namespace for which it was reserved when it was prepared. Others may have come since:
    the kubelet tells nobody, and `DeviceStatus.holders` has them."""
    has_admin_access: bool = False
    """Whether it only looks at the device, which others may use at the same time."""


class DeviceStatus(Struct, frozen=True, kw_only=True):
    """One device of a list."""

    id: str
    health: str
    """The word that was advertised: `Healthy` or `Unhealthy`; `Unknown` where it is not known."""
    reason: str = ""
    """Why it is not healthy."""
    since: float | None = None
    """Since when it is listed with this health; None where only the kubelet was asked."""
    numa_nodes: tuple[int, ...] = ()
    device_nodes: tuple[str, ...] = ()
    """Its files in `/dev` on the machine."""
    attributes: dict[str, str] = field(default_factory=dict)
    is_held: bool = False
    """Whether a container holds it, or may hold it."""
    holders: tuple[Holder, ...] = ()
    """The containers that hold it; empty if they are not known yet, or if it only may be held."""
    claims: tuple[DeviceClaim, ...] = ()
    """The claims that use it; none where a device plugin gave it out."""
    taint: str = ""
    """The effect of its taint in its ResourceSlice, as in `NoSchedule`; empty without one."""
    leaves_at: float | None = None
    """When it leaves the list unless it comes back."""
    is_outdated: bool = False
    """Whether its holders' answer is out of date; only a new pod gets the new one."""

    @property
    def is_healthy(self) -> bool:
        """Whether the kubelet may give it out."""
        return self.health == HEALTHY


class Takeover(Struct, frozen=True):
    """The sign that another plugin has the name of a resource of ours, or fights for it."""

    signs: tuple[str, ...]
    """Its signs: `listed`, `cut`; see docs/threat-model.md."""
    since: float
    reason: str
    """The signs as a sentence, and what to do about them: it names the sockets of other plugins."""
    device_ids: tuple[str, ...] = ()
    """The other plugin's devices, as far as the kubelet lists them."""
    is_lost: bool = False
    """Whether what the kubelet lists under the name is the other plugin's; then it is a fault, too."""


class ResourceStatus(Struct, frozen=True, kw_only=True):
    """One resource, with all devices that are listed, by ID."""

    name: str
    devices: tuple[DeviceStatus, ...] = ()
    is_registered: bool | None = None
    """Whether a kubelet has accepted it and listens; None where only the kubelet was asked."""
    registered_at: float | None = None
    """Since when that is so."""
    fault: str = ""
    """What keeps it from being ready; empty if nothing does."""
    takeover: Takeover | None = None
    """The suspected other plugin with its name; None if there is no sign of one."""
    replicas: int = 1
    """How many devices stand for each one that was found."""
    is_retired: bool = False
    """Whether it was removed from the configuration and only waits for its holders."""
    driver: str = ""
    """The DRA driver by which pods get its devices; empty for a device plugin."""
    process: int | None = None
    """Which process serves it, by its ID where that runs; None for another plugin's."""
    given_at: float | None = None
    """When a device of it was last given out, as its process knows; None if none was since that began."""

    @property
    def is_ready(self) -> bool:
        """Whether nothing keeps it from being given out."""
        return not self.fault

    @property
    def capacity(self) -> int:
        """How many devices the node has, healthy or not; at least, unless `is_whole`."""
        return len(self.devices)

    @property
    def is_whole(self) -> bool:
        """Whether all its devices are known: the kubelet's answers have no unhealthy one that is free."""
        return self.is_registered is not None

    @property
    def allocatable(self) -> int:
        """How many of them are healthy."""
        return sum(device.is_healthy for device in self.devices)

    @property
    def held(self) -> int:
        """How many of them a container holds, or may hold."""
        return sum(device.is_held for device in self.devices)


class ConfigStatus(Struct, frozen=True, kw_only=True):
    """The status of the configuration file."""

    file: str
    applied_at: float
    """When what is served now was read."""
    problems: tuple[str, ...] = ()
    """What is wrong with the file as it is now, and why it is not served; empty if it is."""
    waiting: tuple[str, ...] = ()
    """The edits that are not in effect yet, and what answers until then."""

    def lines(self) -> tuple[str, ...]:
        """Return the problems, each with the file's name before it."""
        return tuple(
            one if one.startswith(f"{self.file}:") else f"{self.file}: {one}" for one in self.problems
        )


class PodResourcesStatus(Struct, frozen=True, kw_only=True):
    """The status of the questions to the kubelet's PodResources."""

    answered_at: float | None = None
    """When it last answered; None if it never did."""
    trouble: str = ""
    """Why it does not answer, for people; empty if it does or nobody has asked."""
    errors: dict[str, int] = field(default_factory=dict)
    """How often it did not answer since the start, by the kind of trouble."""


class DriverStatus(Struct, frozen=True, kw_only=True):
    """The status of a DRA driver: what the kubelet and the API server have of it."""

    name: str
    is_registered: bool
    """Whether a kubelet has accepted it, and is there."""
    fault: str = ""
    """What keeps it from being ready; empty if nothing does."""
    kubelet_api: str = ""
    """The version by which the kubelet calls, as in `v1.DRAPlugin`; empty before its first call."""
    resource_api: str = ""
    """The version of resource.k8s.io in which slices are published; empty before it is known."""
    slices: int = 0
    devices: int = 0
    """How many devices the slices have."""
    generation: int | None = None
    """That of the node's pool; None while it has no slices."""
    stale_since: float | None = None
    """Since when the slices may not say what there is, as a Unix time in seconds; None if they do."""
    claims: int = 0
    """How many claims use devices on this node."""


class ProcessStatus(Struct, frozen=True, kw_only=True):
    """One process that serves plugins of ours."""

    process: int
    """Its ID, as it is where the process runs: in a container another one than outside."""
    version: str
    python: str
    started_at: float
    resources: tuple[ResourceStatus, ...] = ()
    """By name; in a node's status none, as they are there among the node's."""
    faults: tuple[str, ...] = ()
    """Why it is not ready; none if it is. A bad edit is no reason: what was served, is."""
    config: ConfigStatus | None = None
    """None for a plugin without a file."""
    pod_resources: PodResourcesStatus | None = None
    """None where nobody asks."""
    drivers: tuple[DriverStatus, ...] = ()
    """By name; none where all devices are those of device plugins."""


class NodeStatus(Struct, frozen=True, kw_only=True):
    """The status of a node, from its plugins and its kubelet."""

    name: str
    at: float
    """When this was so."""
    resources: tuple[ResourceStatus, ...] = ()
    """By name: of all plugins, ours and others'."""
    processes: tuple[ProcessStatus, ...] = ()
    """Ours that answer."""
    pod_resources: PodResourcesStatus = field(default_factory=PodResourcesStatus)
    """The status of the kubelet's PodResources, asked from here."""
    problems: tuple[str, ...] = ()
    """Facts that could not be read, and what to do about that."""


# ── words ──

NAMES_SHOWN: Final = 5
"""Of resources with the same fault: the kubelet is away for all of them, or for none."""


def health_word(device: Device) -> str:
    """Return the advertised health of a device: `Healthy` or `Unhealthy`."""
    return HEALTHY if device.health.state is HealthState.HEALTHY else UNHEALTHY


def faults_of(resources: Iterable[ResourceStatus]) -> tuple[str, ...]:
    """Return the faults of these resources, with their names; see `grouped_faults`."""
    return grouped_faults((one.name, one.fault) for one in resources if one.fault)


def grouped_faults(faults: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return each reason once, with the resource names before it, the first five of them.

    `faults` are pairs of a resource name and what keeps it from being ready.
    """
    names: dict[str, list[str]] = {}
    for name, fault in faults:
        names.setdefault(fault, []).append(name)
    return tuple(f"{_some(those)}: {fault}" for fault, those in names.items())


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


# ── JSON ──


def text_of(status: ProcessStatus | NodeStatus) -> bytes:
    """Return a status as one line of JSON, its keys named as the fields are."""
    import msgspec  # here and below: a plugin that nobody asks does without

    return msgspec.json.encode(status)


def process_of(text: bytes) -> ProcessStatus:
    """Read what `text_of` wrote, of this version or a later one; raises `ValueError` for anything else."""
    import msgspec

    return msgspec.json.decode(text, type=ProcessStatus)


def node_value(status: NodeStatus) -> dict[str, object]:
    """Return a status in values that JSON and YAML have, for programs that read it."""
    import msgspec

    value: dict[str, object] = msgspec.to_builtins(status)
    return value


# ── status sockets ──

STATUS_SOCKETS: Final = ".devplug/.status-*.sock"
"""Below the folder in which a process has its plugins' sockets, as a glob: each process has one of its own.
The plugin watcher passes over names that begin with a dot, and asks at every other socket below
`plugins_registry` (plugin_watcher.go)."""


def status_socket_name(process: int, token: str) -> str:
    """Return the file name of a process's status socket; `token` keeps a successor with its ID apart."""
    return f".status-{process}-{token}.sock"
