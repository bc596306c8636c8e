"""GPUs as the NVIDIA driver describes them, and what its Xid errors mean for their health. Pure.

Meanings: NVIDIA's "Xid Errors" (docs.nvidia.com/deploy/xid-errors). NVIDIA's own plugin keeps a GPU Unhealthy
until it is restarted (internal/rm/health.go, server.go); here every fault has a rule by which it ends.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.attributes import Partition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_NO_LINKS: Mapping[str, int] = MappingProxyType({})

APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""What a faulty program causes; the GPU is fit for others (k8s-device-plugin, internal/rm/health.go:234)."""

NEWS_XIDS: Final = frozenset({154})
"""The recovery action that the driver wants has changed, also to none: a cause to scan, and no fault."""

_MEANINGS: Final[Mapping[int, tuple[str, bool]]] = MappingProxyType(
    {
        13: ("graphics engine exception", False),
        31: ("memory page fault", False),
        43: ("a program's work was stopped", False),
        45: ("clean-up after an earlier error", False),
        46: ("the GPU stopped working", True),
        48: ("double bit ECC error", True),
        61: ("internal micro-controller breakpoint", True),
        62: ("internal micro-controller halt", True),
        63: ("a bad memory row was replaced", False),
        64: ("a bad memory row could not be replaced", True),
        68: ("video processor exception", False),
        74: ("NVLink error", True),
        79: ("fell off the bus", True),
        92: ("many single bit ECC errors", False),
        94: ("contained ECC error", False),
        95: ("uncontained ECC error", True),
        109: ("context switch timeout", False),
        110: ("security fault", True),
        119: ("the GPU's system processor does not answer", True),
        120: ("error of the GPU's system processor", True),
        140: ("unrecovered ECC error", True),
        143: ("initialization error", True),
    }
)
"""By Xid: what it is, and whether it needs a reset. An Xid that is not here needs none."""


# ── values ────────────────────────────────────────────────────────────────────────────────────────


class MigInstance(Struct, frozen=True):
    """One MIG device: a compute instance within a GPU instance."""

    uuid: str
    profile: str
    """As in `1g.10gb` or `1c.3g.20gb`: what the MIG user guide calls the device's name."""
    gpu_instance: int
    compute_instance: int
    memory_bytes: int = 0
    """0 if the driver does not say it. Compute instances of one GPU instance share it."""
    gpu_slices: int = 0
    """Of the seven slices of a GPU, those of its GPU instance; 0 if the driver does not say it."""
    compute_slices: int = 0
    """Those of them that are its own."""


class Gpu(Struct, frozen=True):
    """One GPU that answered."""

    uuid: str
    pci_address: str
    """As sysfs writes it, `0000:3b:00.0`."""
    minor: int | None = None
    """The N of `/dev/nvidiaN`; None where the driver has no such node, as in some virtual machines."""
    model: str = ""
    serial: str = ""
    """Empty for boards without one: all but those for data centres."""
    memory_bytes: int = 0
    """0 where it has none of its own, or the driver does not say it."""
    mig_slices: int = 0
    """How many instances it can be divided into; 0 if it cannot."""
    is_in_mig_mode: bool = False
    instances: tuple[MigInstance, ...] = ()
    links: Mapping[str, int] = field(default_factory=lambda: _NO_LINKS)
    """The number of active NVLinks by the PCI address at their other end: a GPU or a switch; "" for a switch
    without one."""
    action_wanted: str | None = None
    """What the driver wants done before the GPU is used again; empty: nothing; None: it cannot say."""
    has_failed_memory: bool = False
    """Whether there was no spare row left for a defect one; only another board helps then."""

    def __hash__(self) -> int:
        """Return the hash of what identifies it: mappings have none."""
        return hash(self.uuid)


class GpuReading(Struct, frozen=True):
    """The driver's answers at one moment."""

    gpus: tuple[Gpu, ...] = ()
    unanswered: tuple[str, ...] = ()
    """The errors of GPUs that did not answer, one each; the driver does not say which GPUs they are."""
    missing: str = ""
    """Why the driver could not be asked at all, and what to do; nothing else is given then."""


class GpuEvent(Struct, frozen=True):
    """An event that the driver sent."""

    gpu_uuid: str = ""
    """The GPU; empty if unknown, so that all have to be scanned."""
    xid: int = 0
    """0 for an event that only makes a scan due."""
    gpu_instance: int | None = None
    compute_instance: int | None = None


def known_after(known: Mapping[str, Gpu], reading: GpuReading) -> tuple[dict[str, Gpu], dict[str, str]]:
    """Return the GPUs that are there after a reading, by UUID, and why some of them do not answer.

    A lost GPU still counts and has no UUID. So while some GPU cannot be asked, each known one that does not
    answer is lost; one that the driver no longer counts is gone.
    """
    answered = {gpu.uuid: gpu for gpu in reading.gpus}
    if not reading.unanswered:
        return answered, {}
    silent = {uuid: gpu for uuid, gpu in known.items() if uuid not in answered}
    return {**answered, **silent}, dict.fromkeys(silent, reading.unanswered[0])


def links_between(gpus: Iterable[Gpu]) -> dict[str, dict[str, int]]:
    """Return how many NVLinks join each GPU with each other one, by UUIDs; pairs without any are left out.

    Direct links count as they are. Through a switch, two GPUs have as many as the one with fewer has to it.
    """
    present = {gpu.pci_address: gpu for gpu in gpus}
    joined: dict[str, dict[str, int]] = {gpu.uuid: {} for gpu in present.values()}
    for address, one in present.items():
        for other_address, other in present.items():
            if other is one:
                continue
            count = max(one.links.get(other_address, 0), other.links.get(address, 0)) + sum(
                min(number, other.links.get(end, 0))
                for end, number in one.links.items()
                if end not in present
            )
            if count:
                joined[one.uuid][other.uuid] = count
    return joined


def pci_address(bus_id: str) -> str:
    """Return NVML's `00000000:3B:00.0` as sysfs writes it, `0000:3b:00.0`; other text in lower case."""
    domain, colon, rest = bus_id.lower().partition(":")
    try:
        return f"{int(domain, 16):04x}{colon}{rest}"
    except ValueError:
        return bus_id.lower()


def partition_of(gpu: Gpu, instance: MigInstance | None) -> Partition | None:
    """Return what a GPU, or an instance, takes of the GPU; None where the driver does not say it.

    A GPU takes all. Compute instances share the memory of their GPU instance, and each counts for its part:
    so what can exist side by side never takes more than there is.
    """
    whole = {"memory": gpu.memory_bytes, "compute-slices": gpu.mig_slices}
    if not all(whole.values()):
        return None
    takes = whole
    if instance is not None:
        if not (instance.memory_bytes and instance.gpu_slices and instance.compute_slices):
            return None
        memory = instance.memory_bytes * instance.compute_slices // instance.gpu_slices
        takes = {"memory": memory, "compute-slices": instance.compute_slices}
    return Partition(gpu.uuid, {name: min(takes[name], whole[name]) for name in whole}, whole)


def mig_profile(name: str, gpu_slices: int, compute_slices: int, memory_mib: int, total_mib: int) -> str:
    """Return the profile of a MIG device: the end of its name, else made of its share of the GPU.

    The memory is rounded as NVIDIA does it (go-nvlib, pkg/nvlib/device/mig_profile.go): the share up to the
    next eighth, of the GPU's whole GiB.
    """
    _, is_named, profile = f" {name}".rpartition(" MIG ")
    if is_named and profile:
        return profile.lower()
    if not (gpu_slices and total_mib):
        return ""
    eighths = -(-8 * memory_mib // total_mib)
    gigabytes = (eighths * -(-total_mib // 1024) + 4) // 8
    part = "" if compute_slices == gpu_slices else f"{compute_slices}c."
    return f"{part}{gpu_slices}g.{gigabytes}gb"


# ── Xid errors ────────────────────────────────────────────────────────────────────────────────────


class GpuFault(Struct, frozen=True):
    """One Xid of one GPU, or of one of its MIG instances, until it is over."""

    gpu_uuid: str
    xid: int
    seen_at_seconds: float
    """When it came last."""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    """None for the whole GPU, or the whole GPU instance."""
    was_gone: bool = False
    """Whether the GPU has failed to answer once since then."""
    was_action_wanted: bool = False
    """Whether the driver has wanted a recovery action since then."""

    @property
    def needs_reset(self) -> bool:
        """Whether it lasts until a reset."""
        return _MEANINGS.get(self.xid, ("", False))[1]

    @property
    def reason(self) -> str:
        """The health reason."""
        meaning = _MEANINGS.get(self.xid, ("", False))[0]
        return f"Xid {self.xid}: {meaning}" if meaning else f"Xid {self.xid}"

    def concerns(self, gpu: Gpu, instance: MigInstance | None) -> bool:
        """Whether this device has it: the GPU, or an instance that the fault affects."""
        if self.gpu_uuid != gpu.uuid:
            return False
        if instance is None:
            return True
        return self.gpu_instance in {None, instance.gpu_instance} and self.compute_instance in {
            None,
            instance.compute_instance,
        }


def with_event(faults: Iterable[GpuFault], event: GpuEvent, now: float) -> tuple[GpuFault, ...]:
    """Return the faults with the one of an event; a fault that was there before starts anew."""
    if not event.gpu_uuid or not event.xid or event.xid in NEWS_XIDS:
        return tuple(faults)
    fresh = GpuFault(event.gpu_uuid, event.xid, now, event.gpu_instance, event.compute_instance)
    return (*(one for one in faults if _key(one) != _key(fresh)), fresh)


def _key(fault: GpuFault) -> tuple[object, ...]:
    return fault.gpu_uuid, fault.gpu_instance, fault.compute_instance, fault.xid


def standing(
    faults: Iterable[GpuFault],
    answering: Mapping[str, Gpu],
    now: float,
    recovery_seconds: float,
) -> tuple[GpuFault, ...]:
    """Return the faults that last, after a scan in which these GPUs answered.

    No fault ends while its GPU does not answer or the driver wants a recovery action. Else it ends

    - if it needs a reset: when the GPU was gone in between, as when its driver was unloaded; when the driver
      no longer wants a recovery action; or `recovery_seconds` after its last event, if the driver can say
      what it wants;
    - if not: `recovery_seconds` after its last event;
    - in any case if its MIG instance no longer exists.
    """
    left = []
    for fault in faults:
        gpu = answering.get(fault.gpu_uuid)
        if gpu is None:
            left.append(replace(fault, was_gone=True))
        elif gpu.action_wanted:
            left.append(replace(fault, was_action_wanted=True))
        elif not _is_over(fault, gpu, is_late=now - fault.seen_at_seconds >= recovery_seconds):
            left.append(fault)
    return tuple(left)


def _is_over(fault: GpuFault, gpu: Gpu, *, is_late: bool) -> bool:
    if fault.gpu_instance is not None and not any(fault.concerns(gpu, one) for one in gpu.instances):
        return True
    if not fault.needs_reset:
        return is_late
    return fault.was_gone or fault.was_action_wanted or (is_late and gpu.action_wanted is not None)


def fault_of(
    faults: Iterable[GpuFault],
    gpu: Gpu,
    instance: MigInstance | None,
    ignored: Collection[int],
) -> str | None:
    """Return what is wrong with a device that answers, the worst and latest first, or None."""
    own = [one for one in faults if one.xid not in ignored and one.concerns(gpu, instance)]
    if own:
        return max(own, key=lambda one: (one.needs_reset, one.seen_at_seconds, one.xid)).reason
    if gpu.action_wanted:
        return f"the driver asks for {gpu.action_wanted}"
    if gpu.has_failed_memory:
        return "no spare memory rows are left: replace the board"
    return None
