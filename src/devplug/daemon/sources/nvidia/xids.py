"""What the driver's Xid errors mean for the health of a GPU, and when such a fault is over. Pure.

Meanings: NVIDIA's "Xid Errors" (docs.nvidia.com/deploy/xid-errors). NVIDIA's own plugin keeps a GPU Unhealthy
until it is restarted (internal/rm/health.go, server.go); here every fault has a rule by which it ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from devplug.daemon.sources.nvidia.gpus import Gpu, GpuEvent, MigInstance

__all__ = ["APPLICATION_XIDS", "Fault", "fault_of", "standing", "with_event"]

APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""What a faulty program causes; the GPU is fit for others (k8s-device-plugin, internal/rm/health.go:234)."""

NEWS_XIDS: Final = frozenset({154})
"""The driver's wish for a reset has changed, also back to none: a cause to look, no fault."""

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
"""What it is, and whether only a reset mends it. Any other is one that does not need a reset."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One Xid of one GPU, or of one of its MIG instances, until it is over."""

    gpu_uuid: str
    xid: int
    seen_at_seconds: float
    """When it came last."""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    """None: the whole GPU, or the whole GPU instance."""
    was_gone: bool = False
    """Whether the GPU has not answered since, for once."""
    was_action_wanted: bool = False
    """Whether the driver has since wanted something done."""

    @property
    def needs_reset(self) -> bool:
        """Whether time alone does not mend it."""
        return _MEANINGS.get(self.xid, ("", False))[1]

    @property
    def reason(self) -> str:
        """What people see."""
        meaning = _MEANINGS.get(self.xid, ("", False))[0]
        return f"Xid {self.xid}: {meaning}" if meaning else f"Xid {self.xid}"

    def concerns(self, gpu: Gpu, instance: MigInstance | None) -> bool:
        """Whether this device has it: the GPU itself, or an instance that the fault is not kept away from."""
        if self.gpu_uuid != gpu.uuid:
            return False
        if instance is None:
            return True
        return self.gpu_instance in {None, instance.gpu_instance} and self.compute_instance in {
            None,
            instance.compute_instance,
        }


def with_event(faults: Iterable[Fault], event: GpuEvent, now: float) -> tuple[Fault, ...]:
    """Return the faults with the one that an event tells of, which starts anew if it was there before."""
    if not event.gpu_uuid or not event.xid or event.xid in NEWS_XIDS:
        return tuple(faults)
    fresh = Fault(event.gpu_uuid, event.xid, now, event.gpu_instance, event.compute_instance)
    return (*(one for one in faults if _key(one) != _key(fresh)), fresh)


def _key(fault: Fault) -> tuple[object, ...]:
    return fault.gpu_uuid, fault.gpu_instance, fault.compute_instance, fault.xid


def standing(
    faults: Iterable[Fault],
    answering: Mapping[str, Gpu],
    now: float,
    recovery_seconds: float,
) -> tuple[Fault, ...]:
    """Return the faults that are not over, after a look at which these GPUs answered.

    No fault ends while its GPU is silent or the driver wants something done to it. Else it is over

    - if it needs a reset: when the GPU was gone in between, as with its driver; when the driver wants nothing
      done any more; or `recovery_seconds` after it came last, where the driver can say what it wants;
    - if not: `recovery_seconds` after it came last;
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


def _is_over(fault: Fault, gpu: Gpu, *, is_late: bool) -> bool:
    if fault.gpu_instance is not None and not any(fault.concerns(gpu, one) for one in gpu.instances):
        return True
    if not fault.needs_reset:
        return is_late
    return fault.was_gone or fault.was_action_wanted or (is_late and gpu.action_wanted is not None)


def fault_of(
    faults: Iterable[Fault],
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
