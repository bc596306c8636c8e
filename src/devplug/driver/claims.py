"""The claims of a driver: what is allocated to them, and the uses of devices that they begin. Pure.

The kubelet names a claim and nothing more, so its whole object is checked here (dra.md D16). An allocation
has the same shape in v1, v1beta2 and v1beta1.

A use begins before a device is touched, and lasts until the device is released. Only the pod says which of
its containers uses which request, and a driver does not read pods. So all requests of a claim, and all claims
of a pod, count as if one container had them all.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from devplug.dra.taints import Toleration
from devplug.errors import AllocationError, quoted
from devplug.holds.hardware import Use  # noqa: TC001 -- msgspec reads it
from devplug.k8s.objects import entries, fields, maps, part, text

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Collection,
        Container,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from devplug.k8s.objects import Object
    from devplug.wire.dra import ClaimName


FROM_CLASS: Final = "FromClass"
"""The source of parameters that an administrator wrote, into a DeviceClass."""

_UID: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class ClaimRefusedError(AllocationError):
    """A claim cannot be prepared, and trying again changes nothing; the text says who must change what."""


class Parameters(Struct, frozen=True):
    """What a class or a claim configures this driver with, for one request."""

    content: Object
    """As it was written: the API server knows only that it is a map."""
    path: str
    """Where it stands in the claim, as in `status.allocation.devices.config[0].opaque.parameters`."""
    is_from_class: bool


class AllocatedDevice(Struct, frozen=True):
    """One device of this driver on this node that is allocated to a claim."""

    request: str
    """The name of the request, without the alternative of `firstAvailable` (dra.md D22)."""
    name: str
    """The device's name in its slice."""
    share_id: str | None = None
    """What tells this share of a device from others; None for all of it."""
    has_admin_access: bool = False
    """Whether it is only looked at: others may use it at the same time (dra.md D79)."""
    parameters: tuple[Parameters, ...] = ()
    """Those of its class, then those of the claim (dra.md D88)."""
    tolerations: tuple[Toleration, ...] = ()
    """The taints of a device with which its request takes it (dra.md D80)."""


def is_uid(text: str) -> bool:
    """Whether a text can be the UID of an object, so that a file may be named by it."""
    return _UID.fullmatch(text) is not None


def check_names(claim: ClaimName) -> None:
    """Raise `ClaimRefusedError` for a claim whose UID, name or namespace could lead out of a folder."""
    if not is_uid(claim.uid):
        raise ClaimRefusedError(f"{quoted(claim.uid)} is no UID of a claim")
    if not (_NAME.fullmatch(claim.namespace) and _NAME.fullmatch(claim.name)):
        raise ClaimRefusedError(f"{quoted(f'{claim.namespace}/{claim.name}')} is no name of a claim")


def allocated_devices(
    found: Object | None, asked: ClaimName, driver: str, node_name: str
) -> tuple[AllocatedDevice, ...]:
    """Return what is allocated to a claim, of this driver on this node, in the allocation's order.

    `found` is the claim's object now, None without one. Raises `ClaimRefusedError`.
    """
    claim = f"ResourceClaim {asked.namespace}/{asked.name}"
    if found is None:
        raise ClaimRefusedError(f"{claim} does not exist any more; delete the pod")
    uid = text(found, "metadata", "uid")
    if uid != asked.uid:
        raise ClaimRefusedError(
            f"{claim} is a new one, with UID {quoted(uid)} and not {quoted(asked.uid)}; delete the pod"
        )
    if not isinstance(part(found, "status", "allocation"), dict):
        raise ClaimRefusedError(
            f"{claim} is not allocated, which only a scheduler does; create the pod again without nodeName"
        )
    if not entries(found, "status", "reservedFor"):
        raise ClaimRefusedError(f"{claim} is not reserved for any pod; delete the pod")
    results = list(_results(found, driver))
    if not results:
        raise ClaimRefusedError(f"{claim} has no device of {driver}")
    for result in results:
        if (pool := text(result, "pool")) != node_name:
            device = quoted(text(result, "device"))
            raise ClaimRefusedError(
                f"device {device} of {claim} is on node {quoted(pool)}, and this is {node_name}; "
                "create the pod again without nodeName"
            )
    return tuple(_device(found, result, driver) for result in results)


def reserved_pods(found: Object | None) -> tuple[tuple[str, str], ...]:
    """Return the names and UIDs of the pods for which a claim is reserved; they are of its namespace."""
    return tuple(
        (text(one, "name"), text(one, "uid"))
        for one in maps(found, "status", "reservedFor")
        if text(one, "resource") == "pods" and not text(one, "apiGroup")
    )


def is_for_one_pod(found: Object | None) -> bool:
    """Whether a claim was made for one pod: from a template, or by the scheduler for `limits` (D91)."""
    return any(
        text(one, "kind") == "Pod" and text(one, "apiVersion") == "v1" and part(one, "controller") is True
        for one in maps(found, "metadata", "ownerReferences")
    )


def is_free(
    found: Object | None, uid: str, driver: str, node_name: str, device_names: Collection[str]
) -> bool:
    """Whether the claim of this UID is reserved for no pod, or has none of these devices any more.

    `found` is its object now, None if there is none.
    """
    is_allocated = any(still_holds(found, uid, driver, node_name, name) for name in device_names)
    return not (is_allocated and entries(found, "status", "reservedFor"))


def still_holds(found: Object | None, uid: str, driver: str, node_name: str, device_name: str) -> bool:
    """Whether a device is allocated to the claim of this UID; `found` is its object now, if there is one."""
    return text(found, "metadata", "uid") == uid and any(
        (text(result, "pool"), text(result, "device")) == (node_name, device_name)
        for result in _results(found, driver)
    )


def _results(found: Object | None, driver: str) -> Iterator[Object]:
    for result in maps(found, "status", "allocation", "devices", "results"):
        if text(result, "driver") == driver:
            yield result


def _device(found: Object, result: Object, driver: str) -> AllocatedDevice:
    named = text(result, "request")
    request = named.partition("/")[0]
    return AllocatedDevice(
        request,
        text(result, "device"),
        text(result, "shareID") or None,
        part(result, "adminAccess") is True,
        tuple(_parameters(found, driver, {named, request})),
        tuple(map(Toleration.of, maps(result, "tolerations"))),
    )


def _parameters(found: Object, driver: str, names: set[str]) -> Sequence[Parameters]:
    """Return the parameters for a request; those that name none are for all."""
    path = ("status", "allocation", "devices", "config")
    kept = [
        Parameters(
            fields(one, "opaque", "parameters"),
            f"{'.'.join(path)}[{index}].opaque.parameters",
            text(one, "source") == FROM_CLASS,
        )
        for index, one in enumerate(maps(found, *path))
        if text(one, "opaque", "driver") == driver
        and (not entries(one, "requests") or not names.isdisjoint(map(str, entries(one, "requests"))))
    ]
    return sorted(kept, key=lambda one: not one.is_from_class)


Response = TypeVar("Response")


# ── uses of devices ──


class DeviceUse(Struct, frozen=True):
    """The use of one device by a claim."""

    request: str
    name: str
    """In the slice."""
    resource_name: str
    device_id: str
    share_id: str | None = None
    has_admin_access: bool = False
    cdi_names: tuple[str, ...] = ()
    """What a runtime is given for it, once it is prepared."""
    first_index: int = 0
    """The `{index}` of the first device of its request."""
    use: Use | None = None
    """What containers get of the device; None if the plugin or an older version did not record it."""

    def is_same(self, other: DeviceUse) -> bool:
        """Whether the other is this one, prepared or not."""
        prepared = {"cdi_names": (), "first_index": 0, "use": None}
        return replace(self, **prepared) == replace(other, **prepared)

    def is_of(self, other: DeviceUse) -> bool:
        """Whether both are of one device."""
        return (self.resource_name, self.device_id) == (other.resource_name, other.device_id)

    def is_of_hardware(self, other: DeviceUse) -> bool:
        """Whether both are of one device, or of two replicas of one."""
        if self.is_of(other) or self.use is None or other.use is None:
            return self.is_of(other)
        return (self.resource_name, self.use.name) == (other.resource_name, other.use.name)

    def meets(self, other: DeviceUse) -> bool:
        """Whether both are of one device, and neither by admin access (D79)."""
        return self.is_of(other) and not (self.has_admin_access or other.has_admin_access)

    def excludes(self, other: DeviceUse) -> bool:
        """Whether one claim cannot have this, and another claim the other, at the same time (D79, D86)."""
        return self.meets(other) and (self.share_id is None or other.share_id is None)


class ClaimUse(Struct, frozen=True):
    """A claim that uses devices on this node, from before the prepare until the release."""

    namespace: str
    name: str
    uid: str
    devices: tuple[DeviceUse, ...]
    since: int = 0
    """When it began, in seconds since 1970."""
    boot_id: str = ""
    """The boot of the machine in which it was prepared; empty before that."""
    pods: tuple[str, ...] = ()
    """The pods for which the claim was reserved when it began, by name; they are of its namespace."""
    pod_uids: tuple[str, ...] = ()
    """The UIDs of these pods. Earlier releases of ours did not note them."""
    is_for_one_pod: bool = False
    """Whether the claim was made for one pod, so that no other pod comes to use it."""
    owner: str = ""
    """What has prepared the claim: `devplug.holds.ledger_store.IN_CODE`, or empty for a daemon."""
    is_released: bool = False
    """Whether no container has the devices any more, and they only have to be cleaned up. An older version
    takes it for a claim in use, until the API server shows that it is not."""

    def __str__(self) -> str:
        """Return `NAMESPACE/NAME`, the form for messages."""
        return f"{self.namespace}/{self.name}"

    def uses_as(self, other: ClaimUse) -> bool:
        """Whether another use is of the same devices, in the same way."""
        return len(self.devices) == len(other.devices) and all(
            map(DeviceUse.is_same, self.devices, other.devices)
        )


def in_the_way(use: ClaimUse, claims: Mapping[str, ClaimUse], ending: Container[str]) -> ClaimUse | None:
    """Return another claim that has a device which this use needs alone, or that is being released.

    `ending` has the UIDs of the claims that are being released.
    """
    for other in claims.values():
        if other.uid != use.uid and any(
            device.excludes(wanted) or (other.uid in ending and device.meets(wanted))
            for device in other.devices
            for wanted in use.devices
        ):
            return other
    return None


def to_clean(use: ClaimUse, released: Iterable[ClaimUse]) -> ClaimUse | None:
    """Return a claim that has released a device of this use, which has to be cleaned up first."""
    wanted = [device for device in use.devices if not device.has_admin_access]
    for other in released:
        if any(device.is_of_hardware(one) for device in other.devices for one in wanted):
            return other
    return None


def for_pods(use: ClaimUse, pods: Sequence[tuple[str, str]]) -> ClaimUse:
    """Return a use for the pods of these names and UIDs."""
    return replace(use, pods=tuple(name for name, _ in pods), pod_uids=tuple(uid for _, uid in pods))


def meets(use: ClaimUse, other: ClaimUse) -> bool:
    """Whether a container may have devices of both claims: a pod has both."""
    if use.namespace != other.namespace or use.uid == other.uid:
        return False
    if use.pod_uids and other.pod_uids:
        return not set(use.pod_uids).isdisjoint(other.pod_uids)
    return not set(use.pods).isdisjoint(other.pods)


def numbered(use: ClaimUse, meeting: Iterable[ClaimUse]) -> ClaimUse:
    """Return a use in which no two devices of a resource have the same `{index}` in a container.

    `meeting` are the other claims that a container may have; their indexes stay.
    """
    taken: dict[str, set[int]] = {}
    for other in meeting:
        firsts = {(one.resource_name, one.request): one.first_index for one in other.devices}
        for name, requests in by_request(other.devices).items():
            for request, ids in requests.items():
                first = firsts[name, request]
                taken.setdefault(name, set()).update(range(first, first + len(ids)))
    found: dict[tuple[str, str], int] = {}
    for name, requests in by_request(use.devices).items():
        used = taken.setdefault(name, set())
        for request, ids in requests.items():
            first = next(n for n in count() if used.isdisjoint(range(n, n + len(ids))))
            used.update(range(first, first + len(ids)))
            found[name, request] = first
    return replace(
        use,
        devices=tuple(replace(one, first_index=found[one.resource_name, one.request]) for one in use.devices),
    )


def facts_of(use: ClaimUse) -> dict[str, object]:
    """Return what audit lines say of a use."""
    return {
        "claim": str(use),
        "claim_uid": use.uid,
        "devices": [device.name for device in use.devices],
        "pods": list(use.pods),
    }


def last_used(use: ClaimUse, claims: Mapping[str, ClaimUse], ending: Container[str]) -> Sequence[DeviceUse]:
    """Return the devices of a use that no claim uses after it. Admin access does not count (D79).

    `ending` has the UIDs of claims that are being released.
    """
    used = {
        (device.resource_name, device.device_id)
        for other in claims.values()
        if other.uid not in ending
        for device in other.devices
        if not device.has_admin_access
    }
    return [
        device
        for device in use.devices
        if not (device.has_admin_access or (device.resource_name, device.device_id) in used)
    ]


def used_devices(uses: Iterable[ClaimUse], resource_name: str) -> Iterator[DeviceUse]:
    """Yield the devices of a resource that claims use. Admin access does not count (D79)."""
    for use in uses:
        for device in use.devices:
            if device.resource_name == resource_name and not device.has_admin_access:
                yield device


def is_use_of(use: ClaimUse, allocated: Sequence[AllocatedDevice]) -> bool:
    """Whether a use is of what is allocated to its claim now."""
    return [(one.request, one.name, one.share_id, one.has_admin_access) for one in use.devices] == [
        (one.request, one.name, one.share_id, one.has_admin_access) for one in allocated
    ]


def by_request(devices: Sequence[DeviceUse]) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the IDs of the devices of each request, by resource and request; each ID once."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in devices:
        ids = found.setdefault(one.resource_name, {}).setdefault(one.request, [])
        if one.device_id not in ids:
            ids.append(one.device_id)
    return found


def by_resource(devices: Sequence[DeviceUse]) -> Mapping[str, Sequence[str]]:
    """Return the IDs of the devices of each resource, each ID once."""
    found: dict[str, dict[str, None]] = {}
    for one in devices:
        found.setdefault(one.resource_name, {})[one.device_id] = None
    return {name: tuple(ids) for name, ids in found.items()}


async def asked(
    use: ClaimUse,
    ask: Callable[[str, Mapping[str, Sequence[str]]], Awaitable[Sequence[Sequence[Response]]]],
) -> Sequence[Response]:
    """Ask each resource of a claim for the devices of each request, by name; return the answers by device."""
    found: dict[tuple[str, str, str], Response] = {}
    for name, requests in by_request(use.devices).items():
        answers = await ask(name, requests)
        for (request, ids), of_devices in zip(requests.items(), answers, strict=True):
            found.update(zip(((name, request, id_) for id_ in ids), of_devices, strict=True))
    return [found[device.resource_name, device.request, device.device_id] for device in use.devices]
