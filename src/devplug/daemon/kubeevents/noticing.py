"""What is worth an Event between two looks at the daemon: devices, their health, edits of the file. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.daemon.kubeevents.values import MESSAGE_LIMIT_BYTES, Notice, Reason
from devplug.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from devplug.status.values import ConfigStatus, DeviceStatus, ProcessStatus, ResourceStatus

__all__ = ["NAMED_LIMIT", "config_notices", "device_notices", "named", "notice"]

NAMED_LIMIT: Final = 5
"""Most devices that one message names; of the others it says how many there are."""


def notice(reason: Reason, subject: str, message: str, *, is_warning: bool = False) -> Notice:
    """Return a notice whose message begins with its subject, and is as short as an Event's has to be."""
    return Notice(reason, subject, one_line(f"{subject}: {message}", MESSAGE_LIMIT_BYTES), is_warning)


def named(devices: Sequence[DeviceStatus]) -> str:
    """Return the names of a few devices, with what is wrong with each and who holds it."""
    told = [_named(device) for device in devices[:NAMED_LIMIT]]
    more = len(devices) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


def _named(device: DeviceStatus) -> str:
    pods = sorted({f"{holder.namespace}/{holder.pod}" for holder in device.holders})
    facts = [device.reason] * bool(device.reason) + [f"held by {', '.join(pods)}"] * bool(pods)
    return f"{device.id} ({'; '.join(facts)})" if facts else device.id


def device_notices(before: ProcessStatus, after: ProcessStatus, known: Collection[str]) -> Iterator[Notice]:
    """Yield what became of the devices of the resources `known`: those that a kubelet has had a list of.

    Others are only being found, and retired ones are Unhealthy because the file has them no longer.
    """
    olds = {one.name: one for one in before.resources}
    for resource in after.resources:
        old = olds.get(resource.name)
        if old is not None and resource.name in known and not resource.is_retired:
            yield from _device_notices(old, resource)


def _device_notices(old: ResourceStatus, new: ResourceStatus) -> Iterator[Notice]:
    if old.devices == new.devices:
        return
    before = {device.id: device for device in old.devices}
    added = [device for device in new.devices if device.id not in before]
    worse = [
        device
        for device in new.devices
        if not device.is_healthy and (device.id not in before or before[device.id].is_healthy)
    ]
    better = [
        device
        for device in new.devices
        if device.is_healthy and device.id in before and not before[device.id].is_healthy
    ]
    removed = sorted(before.keys() - {device.id for device in new.devices})
    if added:
        yield notice(Reason.DEVICE_ADDED, new.name, f"{_counted(len(added))} added: {named(added)}")
    if worse:
        told = f"{_counted(len(worse))} Unhealthy: {named(worse)}"
        yield notice(Reason.DEVICE_UNHEALTHY, new.name, told, is_warning=True)
    if better:
        told = f"{_counted(len(better))} Healthy again: {named(better)}"
        yield notice(Reason.DEVICE_HEALTHY, new.name, told)
    if removed:
        gone = [before[id_] for id_ in removed]
        told = ", ".join(removed[:NAMED_LIMIT])
        more = f" and {len(gone) - NAMED_LIMIT} more" if len(gone) > NAMED_LIMIT else ""
        yield notice(Reason.DEVICE_REMOVED, new.name, f"{_counted(len(gone))} removed: {told}{more}")


def _counted(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def config_notices(before: ConfigStatus | None, after: ConfigStatus | None) -> Iterator[Notice]:
    """Yield what became of an edit of the file."""
    if before is None or after is None:
        return
    if after.problems and after.problems != before.problems:
        told = "not applied, what was served before stays: " + "; ".join(after.problems)
        yield notice(Reason.CONFIG_REFUSED, after.file, told, is_warning=True)
    elif after.applied_at != before.applied_at and not after.problems:
        yield notice(Reason.CONFIG_APPLIED, after.file, "applied")
