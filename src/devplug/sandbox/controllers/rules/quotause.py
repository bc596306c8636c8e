"""How much of a quota is in use, key by key, as `kubectl describe quota` tells it. Pure.

Keys that are not looked at are left out, as the real server leaves out those that no evaluator knows: the
bare name and `limits.` of an extended resource (C101), and here also storage and load balancers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.devices import resource_name_fault
from devplug.kubelet.quantities import Quantity
from devplug.sandbox.admission import has_ended
from devplug.sandbox.api.objects import entries, fields, text, whole, with_part
from devplug.sandbox.api.quantitytexts import canonical
from devplug.sandbox.api.times import later, moment
from devplug.sandbox.scheduling.quota import usage
from devplug.sandbox.scheduling.reading import shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from devplug.sandbox.api.objects import Object

__all__ = ["counts_for_quota", "quota_status", "used_by_pods"]

_PREFIX: Final = "requests."
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
_BARE: Final = ("configmaps", "resourcequotas", "secrets", "services")
"""What may be counted without `count/` before it (quota/v1/evaluator/core/registry.go)."""


def counts_for_quota(pod: Object, now: datetime) -> bool:
    """Whether what a pod asks for is in use: it has not ended, nor is it past its grace (QuotaV1Pod)."""
    if has_ended(pod):
        return False
    ends = moment(text(pod, "metadata", "deletionTimestamp"))
    return ends is None or now <= later(ends, whole(pod, "metadata", "deletionGracePeriodSeconds"))


def used_by_pods(pods: Iterable[Object], now: datetime) -> dict[str, str]:
    """Return what the pods of a namespace use, by quota key."""
    every = list(pods)
    specs = [fields(pod, "spec") for pod in every if counts_for_quota(pod, now)]
    requests = [shape(spec) for spec in specs]
    limits = [shape(_with_limits_for_requests(spec)) for spec in specs]
    found = {key: str(amount) for key, amount in usage(requests).items()}
    found["pods"] = str(len(specs))
    found["count/pods"] = str(len(every))
    for name in _NATIVE:
        found[name] = found[_PREFIX + name] = _written(name, (dict(one.requests) for one in requests))
        found[f"limits.{name}"] = _written(name, (dict(one.requests) for one in limits))
    return found


def quota_status(quota: Object, used: Mapping[str, str], counts: Mapping[str, int]) -> Object:
    """Return the status of a quota; `counts` has how many objects there are, by qualified plural.

    Quotas with scopes are not kept here, so that of these only the limits are told.
    """
    hard = fields(quota, "spec", "hard")
    if entries(quota, "spec", "scopes") or fields(quota, "spec", "scopeSelector"):
        return {"hard": hard}
    counted = {f"count/{plural}": str(count) for plural, count in counts.items()}
    counted |= {plural: str(counts.get(plural, 0)) for plural in _BARE}
    unused = {key: "0" for key in hard if _is_of_devices(key)}
    known = {**unused, **counted, **used}
    return {"hard": hard, "used": {key: known[key] for key in hard if key in known}}


def _is_of_devices(key: str) -> bool:
    return key.startswith(_PREFIX) and resource_name_fault(key.removeprefix(_PREFIX)) is None


def _written(name: str, amounts: Iterable[Mapping[str, int]]) -> str:
    total = sum(one.get(name, 0) for one in amounts)
    if name == "cpu":
        return canonical(Quantity.parse(f"{total}m"))
    if total and total % 1024 == 0:
        return canonical(Quantity.parse(f"{total // 1024}Ki"))
    return canonical(Quantity.parse(str(total)))


def _with_limits_for_requests(spec: Object) -> Object:
    """Return a spec that requests what it limits, so that limits are summed up as requests are."""
    for word in ("containers", "initContainers"):
        changed = [
            with_part(fields(one), {"requests": fields(one, "resources", "limits")}, "resources")
            for one in entries(spec, word)
        ]
        spec = {**spec, word: changed}
    return with_part(spec, {"requests": fields(spec, "resources", "limits")}, "resources")
