"""The shares of devices that several claims may use at once: who has which of them.

A slice has such a device as one entry where the API server knows how, and else each share as a device of its
own. Claims of both kinds are prepared at any time, as the API server may be another one by then. A share of
the one entry becomes the ID of one of its shares, so that nothing else has to know of the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from devplug.driver.device_names import device_name
from devplug.driver.offer import OfferedDevice
from devplug.driver.pool_entries import SharesInUse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from devplug.devices import Device
    from devplug.driver.claim_uses import ClaimUse, DeviceUse


def offered_devices(lists: Mapping[str, Collection[Device]]) -> dict[str, OfferedDevice]:
    """Return what claims may be for, by name in slices: each device, and what some are shares of.

    `lists` has the devices of each resource.
    """
    found: dict[str, OfferedDevice] = {}
    for resource_name, devices in lists.items():
        shares: dict[str, list[Device]] = {}
        for device in devices:
            found[device_name(resource_name, device.id)] = OfferedDevice(resource_name, device)
            if device.share_of:
                shares.setdefault(device.share_of, []).append(device)
        for name, of_one in shares.items():
            ids = tuple(device.id for device in of_one)
            found[device_name(resource_name, name)] = OfferedDevice(resource_name, of_one[0], ids)
    return found


def with_shares(
    use: ClaimUse, offered: Mapping[str, OfferedDevice], claims: Mapping[str, ClaimUse]
) -> ClaimUse:
    """Return a use with the IDs of the shares that it gets: those that it has, else free ones.

    `claims` are all uses, by UID. If none is free, some claim has let go of its share, and is unprepared only
    later (dra.md D28): then two have one ID for that time. A share that is used as a device is never taken.
    """
    if not any(one.share_ids for one in map(offered.get, _names(use)) if one is not None):
        return use
    others = [one for uid, claim in claims.items() if uid != use.uid for one in claim.devices]
    before = claims.get(use.uid)
    kept = {_result(one): one.device_id for one in before.devices} if before is not None else {}
    used = {one for one in others if not one.has_admin_access}
    taken = {(one.resource_name, one.device_id) for one in used}
    alone = {(one.resource_name, one.device_id) for one in used if one.share_id is None}
    devices = []
    for device in use.devices:
        ids = _share_ids(device, offered)
        if ids:
            free = [one for one in ids if (device.resource_name, one) not in taken]
            usable = free or [one for one in ids if (device.resource_name, one) not in alone] or ids
            own = kept.get(_result(device))
            device = replace(device, device_id=own if own in ids else usable[0])  # noqa: PLW2901
            if not device.has_admin_access:
                taken.add((device.resource_name, device.device_id))
        devices.append(device)
    return replace(use, devices=tuple(devices))


def shares_in_use(claims: Iterable[ClaimUse], offered: Mapping[str, OfferedDevice]) -> SharesInUse:
    """Return the shares that claims use now, in the one way and in the other."""
    alone: set[tuple[str, str]] = set()
    shared: set[tuple[str, str]] = set()
    for device in (device for claim in claims for device in claim.devices):
        one = offered.get(device.name)
        if one is not None and one.device.share_of and not device.has_admin_access:
            (shared if one.share_ids else alone).add((device.resource_name, device.device_id))
    return SharesInUse(frozenset(alone), frozenset(shared))


def _names(use: ClaimUse) -> Iterable[str]:
    return (device.name for device in use.devices)


def _share_ids(device: DeviceUse, offered: Mapping[str, OfferedDevice]) -> Sequence[str]:
    one = offered.get(device.name)
    return one.share_ids if one is not None else ()


def _result(device: DeviceUse) -> tuple[object, ...]:
    """Return what identifies a result of an allocation."""
    return device.request, device.name, device.share_id
