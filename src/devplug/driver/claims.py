"""A ResourceClaim as its driver reads it: the devices of this node, with their parameters. Pure.

An allocation has the same shape in v1, v1beta2 and v1beta1. The kubelet names a claim and nothing more, so
all that it must be is checked here (dra.md D16).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from devplug.dra.taints import Toleration
from devplug.errors import AllocationError, quoted
from devplug.k8s.objects import entries, fields, maps, part, text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

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
    """Whether a device is allocated to the claim of this UID, by its object now; None if there is none."""
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
