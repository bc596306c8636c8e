"""What an allocation looks like in the API: results, configuration, node selector. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from devplug.k8s.node_selectors import merged, only_node
from devplug.k8s.quantity import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from devplug.dra.objects import Claim, DeviceClass, Json, SubRequest
    from devplug.dra.pools import Place
    from devplug.k8s.quantity import Quantity

SHARE: Final = "<share>"
"""Stands for the ID of a share, which is random: see `with_share_ids`."""


class Chosen(NamedTuple):
    """One device that was chosen for a claim."""

    request: str
    """The request, or `REQUEST/ALTERNATIVE`."""
    place: Place
    what: SubRequest
    consumed: Mapping[str, Quantity]


def allocation_of(
    claim: Claim, chosen: Sequence[Chosen], classes: Sequence[tuple[int, DeviceClass]], node: str
) -> Json:
    """Return `status.allocation` without its time.

    `classes` has, for each request of the claim, the number of the chosen alternative and its class.
    """
    devices: dict[str, Any] = {}
    if chosen:
        devices["results"] = [_result(one) for one in chosen]
    if config := _config(claim, classes):
        devices["config"] = config
    allocation: dict[str, Any] = {"devices": devices}
    if selector := _node_selector(chosen, node):
        allocation["nodeSelector"] = selector
    return allocation


def with_share_ids(allocation: Json, new_id: Callable[[], str]) -> Json:
    """Return an allocation in which each share has an ID of its own."""
    results = allocation["devices"].get("results")
    if results is None:
        return allocation
    return {
        **allocation,
        "devices": {
            **allocation["devices"],
            "results": [{**one, "shareID": new_id()} if "shareID" in one else one for one in results],
        },
    }


def _result(chosen: Chosen) -> Json:
    device, what = chosen.place.device, chosen.what
    found: dict[str, Any] = {
        "request": chosen.request,
        "driver": device.id.driver,
        "pool": device.id.pool,
        "device": device.id.device,
    }
    if what.has_admin_access:
        found["adminAccess"] = True
    if what.tolerations_written:
        found["tolerations"] = list(what.tolerations_written)
    if device.binding_conditions:
        found["bindingConditions"] = list(device.binding_conditions)
    if device.binding_failure_conditions:
        found["bindingFailureConditions"] = list(device.binding_failure_conditions)
    if device.is_shareable:
        found["shareID"] = SHARE
    if chosen.consumed:
        found["consumedCapacity"] = {name: canonical(one) for name, one in chosen.consumed.items()}
    return found


def _config(claim: Claim, classes: Sequence[tuple[int, DeviceClass]]) -> list[Json]:
    """Return configuration: of each class once, then the claim's, as often as it names requests (D88)."""
    of_class: dict[str, list[str]] = {}
    entries: list[Json] = []
    for request, (index, device_class) in zip(claim.requests, classes, strict=True):
        named = of_class.setdefault(device_class.name, [])
        if not named:
            entries += [{"source": "FromClass", "requests": named, **one} for one in device_class.config]
        named.append(request.named(index))
    for one in claim.config:
        entry = {"source": "FromClaim", **one}
        wanted = one.get("requests") or ()
        if not wanted:
            entries.append(entry)
        for request, (index, _) in zip(claim.requests, classes, strict=True):
            if request.name in wanted or request.named(index) in wanted:
                entries.append(entry)
    return [{**one, "requests": list(one["requests"])} if one.get("requests") else one for one in entries]


def _node_selector(chosen: Sequence[Chosen], node: str) -> Json | None:
    """Return where the pods of a claim may run; None for everywhere (D87)."""
    selectors = []
    for one in chosen:
        owner = one.place.device if one.place.slice.is_per_device else one.place.slice
        if owner.node_name or one.place.device.binds_to_node:
            return only_node(node)
        if owner.node_selector is not None:
            selectors.append(owner.node_selector)
    return merged(selectors)
