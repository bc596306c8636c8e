"""What the NVIDIA driver says of its GPUs, as values, and what follows from them alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "Gpu",
    "GpuEvent",
    "MigInstance",
    "Reading",
    "known_after",
    "links_between",
    "mig_profile",
    "pci_address",
]

_NO_LINKS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MigInstance:
    """One MIG device: a compute instance within a GPU instance."""

    uuid: str
    profile: str
    """As in `1g.10gb` or `1c.3g.20gb`: what the MIG user guide calls the device's name."""
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that answered."""

    uuid: str
    pci_address: str
    """As sysfs writes it, `0000:3b:00.0`."""
    minor: int | None = None
    """The N of `/dev/nvidiaN`; None where the driver has no such node, as in some virtual machines."""
    model: str = ""
    serial: str = ""
    """Empty for boards without one: all but those for data centres."""
    is_in_mig_mode: bool = False
    instances: tuple[MigInstance, ...] = ()
    links: Mapping[str, int] = field(default_factory=lambda: _NO_LINKS, hash=False)
    """How many active NVLinks go to which PCI address: another GPU, or a switch. Empty: a nameless switch."""
    action_wanted: str | None = None
    """What the driver wants done before the GPU is used again; empty: nothing; None: it cannot say."""
    has_failed_memory: bool = False
    """Whether there was no spare row left for a defect one; only another board helps then."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All that the driver said at one moment."""

    gpus: tuple[Gpu, ...] = ()
    unanswered: tuple[str, ...] = ()
    """Why a GPU could not be asked, once for each that the driver counts; it does not say which they are."""
    missing: str = ""
    """Why the driver could not be asked at all, and what to do; nothing else is given then."""


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """What the driver told unasked."""

    gpu_uuid: str = ""
    """Empty: nobody knows of which GPU; look at all of them."""
    xid: int = 0
    """0: only that a look is due."""
    gpu_instance: int | None = None
    compute_instance: int | None = None


def known_after(known: Mapping[str, Gpu], reading: Reading) -> tuple[dict[str, Gpu], dict[str, str]]:
    """Return the GPUs that are there after a reading, by UUID, and why some of them do not answer.

    A GPU that is lost has no UUID any more, only a place in the count. So whoever was known and is silent
    while somebody cannot be asked is taken for lost; a GPU that is not even counted is gone.
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
