"""Admission: what the API server does to an object before it is stored, and the rules of ResourceQuota.

Pure: what it must know of other objects is given in. The order is the real server's: the namespace first,
then defaults and admission plugins, then the rules of the kind, then quotas.

Quotas follow pods.go and resource_claims.go of quota/v1/evaluator/core. Enforced are the number of pods and
of claims, `requests.<name>` of extended resources, and `<class>.deviceclass.resource.k8s.io/devices`. Each
device of a claim also counts as the extended resource of its class. `<name>` and `limits.<name>` of an
extended resource may stand in a quota, and never matter. What else a quota may limit is shown in its status,
as `kubectl describe quota` prints it, and refuses nobody. Keys that no evaluator knows are left out of the
status, as the real server does: the bare name and `limits.` of an extended resource (C101), and here also
storage and load balancers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.dra.extended_resources import ANNOTATION, IMPLICIT
from devplug.errors import DevplugError
from devplug.k8s.objects import Object, entries, fields, maps, text, whole, with_part
from devplug.k8s.pod_requests import has_ended
from devplug.k8s.quantity import Quantity, canonical
from devplug.k8s.resource_names import is_extended
from devplug.k8s.times import later, moment
from devplug.sandbox.api.defaults import defaulted, devices_defaulted, knows_priority_class
from devplug.sandbox.api.errors import forbidden, invalid, not_found
from devplug.sandbox.api.ownerreferences import controller_of
from devplug.sandbox.api.resource.allocation import rebased
from devplug.sandbox.api.resource.claims import access_errors
from devplug.sandbox.api.strategy import generated_name, meta_errors
from devplug.sandbox.api.validation import object_errors, update_errors
from devplug.sandbox.openapi.encoder import encoded
from devplug.sandbox.scheduler import PODS, amounts, shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.scheduler import Shape

_PREFIX: Final = "requests."
_OF_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
_CLAIMS: Final = "count/resourceclaims.resource.k8s.io"
_MOST_DEVICES: Final = 32
"""What a request for all devices counts (api/resource/v1 AllocationResultsMaxSize)."""

_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
_BARE: Final = ("configmaps", "resourcequotas", "secrets", "services")
"""What may be counted without `count/` before it (quota/v1/evaluator/core/registry.go)."""


# ── Admission ──


def refuse_without_namespace(
    resource: Resource, name: str, namespace: str, namespace_object: Object | None
) -> None:
    """Refuse what is made in a namespace that is not there (404) or is ending (403); NamespaceLifecycle."""
    if namespace_object is None:
        raise not_found("namespaces", namespace)
    if text(namespace_object, "metadata", "deletionTimestamp"):
        raise forbidden(
            resource.qualified,
            name,
            f"unable to create new content in namespace {namespace} because it is being terminated",
        )


def named(new: Object, suffix: str) -> Object:
    """Return a new object with a name: its own, or one made of `generateName` and five letters."""
    prefix = text(new, "metadata", "generateName")
    if text(new, "metadata", "name") or not prefix:
        return new
    return with_part(new, generated_name(prefix, suffix), "metadata", "name")


def prepared(resource: Resource, new: Object, namespace: Object | None, now: datetime) -> Object:
    """Return a new object with its defaults. Raises `StatusError` for one that breaks its kind's rules.

    `namespace` is the object of its namespace.
    """
    name = text(new, "metadata", "name")
    if resource.refusal:
        raise forbidden(resource.qualified, name, resource.refusal)
    class_name = text(new, "spec", "priorityClassName")
    if resource.kind == "Pod" and not knows_priority_class(class_name):
        raise forbidden("pods", name, f"no PriorityClass with name {class_name} was found")
    one = devices_defaulted(resource, defaulted(resource, new), now)
    errors = [
        *access_errors(resource.kind, one, None, "", fields(namespace, "metadata", "labels")),
        *meta_errors(resource, fields(new, "metadata")),
        *object_errors(resource, one),
    ]
    if errors:
        raise invalid(resource.qualified_kind, name, errors)
    return encoded(resource, one)


def changed(
    resource: Resource, new: Object, old: Object, part_name: str, namespace: Object | None, now: datetime
) -> Object:
    """Return a changed object with its defaults. Raises `StatusError` for what may not be or become so.

    `part_name` is the subresource that it is changed through, `namespace` the object of its namespace.
    """
    one = devices_defaulted(resource, defaulted(resource, new), now)
    if resource.kind == "ResourceClaim":
        one = rebased(one, old, part_name)
    final = encoded(resource, one)
    errors = [
        *access_errors(resource.kind, one, old, part_name, fields(namespace, "metadata", "labels")),
        *meta_errors(resource, fields(one, "metadata")),
        *update_errors(resource, one, old, final, part_name),
    ]
    if errors:
        raise invalid(resource.qualified_kind, text(old, "metadata", "name"), errors)
    return final


def refuse_over_quota(
    resource: Resource,
    one: Object,
    quotas: Iterable[Object],
    pods: Sequence[Object],
    claims: Iterable[Object],
    classes: Iterable[Object],
) -> None:
    """Refuse a pod or claim for which its namespace's quotas leave no room, with a 403.

    `pods` and `claims` are the others of the namespace.
    """
    limits = [
        Quota(text(one, "metadata", "name"), amounts(fields(one, "spec", "hard")))
        for one in quotas
        if not entries(one, "spec", "scopes")
    ]
    if not limits:
        return
    names = _extended_names(classes)
    used = Counter(_usage(shape(fields(pod, "spec")) for pod in pods if not has_ended(pod)))
    for claim in claims:
        used.update(_claim_usage(claim, pods, names))
    is_claim = resource.kind == "ResourceClaim"
    requested = _claim_usage(one, pods, names) if is_claim else _usage([shape(fields(one, "spec"))])
    name = text(one, "metadata", "name")
    try:
        _refuse_exceeding(name, requested, limits, used)
    except QuotaExceededError as error:
        raise forbidden(resource.qualified, name, error.why) from error


# ── Resource quotas ──


class QuotaExceededError(DevplugError):
    """A pod asks for more than its namespace may have: status 403, Forbidden, with this text as message."""

    def __init__(
        self, pod_name: str, quota: Quota, requested: Mapping[str, int], used: Mapping[str, int]
    ) -> None:
        self.pod_name = pod_name
        limited = {key: quota.hard[key] for key in requested}
        self.why = (
            f"exceeded quota: {quota.name}, requested: {_listed(requested)}, "
            f"used: {_listed({key: used.get(key, 0) for key in requested})}, limited: {_listed(limited)}"
        )
        """The message without the pod."""
        super().__init__(f'pods "{pod_name}" is forbidden: {self.why}')


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of a namespace that concern devices."""

    name: str
    hard: Mapping[str, int] = field(default_factory=dict, hash=False)
    """By key, as it stands in the quota; keys that are not kept do not matter here."""


def _usage(shapes: Iterable[Shape]) -> dict[str, int]:
    """Return what pods use, by quota key. The caller leaves out who has ended, or hangs past its grace."""
    used: dict[str, int] = {PODS: 0}
    for one in shapes:
        used[PODS] += 1
        for name, amount in one.requests:
            if is_extended(name):
                used[_PREFIX + name] = used.get(_PREFIX + name, 0) + amount
    return used


def admit(pod_name: str, shape: Shape, quotas: Iterable[Quota], existing: Iterable[Shape]) -> None:
    """Let a pod be made beside those that exist in its namespace. Raises `QuotaExceededError`.

    The error names the first quota that the pod exceeds, with all that it exceeds there.
    """
    _refuse_exceeding(pod_name, _usage([shape]), quotas, _usage(existing))


def _refuse_exceeding(
    name: str, requested: Mapping[str, int], quotas: Iterable[Quota], used: Mapping[str, int]
) -> None:
    for quota in sorted(quotas, key=lambda one: one.name):
        exceeded = {
            key: amount
            for key, amount in requested.items()
            if key in quota.hard and used.get(key, 0) + amount > quota.hard[key]
        }
        if exceeded:
            raise QuotaExceededError(name, quota, exceeded, used)


def _extended_names(classes: Iterable[Object]) -> dict[str, str]:
    """Return the extended resources that device classes serve, by class."""
    return {text(one, "metadata", "name"): text(one, "spec", "extendedResourceName") for one in classes}


def _claim_usage(claim: Object, pods: Iterable[Object], extended: Mapping[str, str]) -> Counter[str]:
    """Return what a claim uses, by quota key; of alternatives the most of each class.

    The claim for a pod's extended resources does not count what its pod counts.
    """
    counted: Counter[str] = Counter()
    for request in maps(claim, "spec", "devices", "requests"):
        most: Counter[str] = Counter()
        for asked in maps(request, "firstAvailable") or [fields(request, "exactly")]:
            most |= Counter({text(asked, "deviceClassName"): _device_count(asked)})
        counted += most
    asked_by_pod = _asked_by_owner(claim, pods)
    used = Counter({_CLAIMS: 1})
    asked_by_pod = _asked_by_owner(claim, pods)
    for name, count in counted.items():
        used[name + _OF_CLASS] += count
        for resource in {IMPLICIT + name, extended.get(name, "")} - {""} - asked_by_pod:
            used[_PREFIX + resource] += count
    return used


def _device_count(asked: Object) -> int:
    return _MOST_DEVICES if text(asked, "allocationMode") == "All" else whole(asked, "count")


def _asked_by_owner(claim: Object, pods: Iterable[Object]) -> set[str]:
    """Return the resources that the pod asks for which a claim for extended resources was made for."""
    if text(claim, "metadata", "annotations", ANNOTATION) != "true":
        return set()
    owner = text(fields(controller_of(claim)), "uid")
    specs = [fields(pod, "spec") for pod in pods if text(pod, "metadata", "uid") == owner]
    return {name for spec in specs for name, _ in shape(spec).requests}


def _listed(amounts: Mapping[str, int]) -> str:
    return ",".join(f"{key}={amounts[key]}" for key in sorted(amounts))


# ── The status of a quota: how much of it is in use ──


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
    found = {key: str(amount) for key, amount in _usage(requests).items()}
    found["pods"] = str(len(specs))
    found["count/pods"] = str(len(every))
    for name in _NATIVE:
        found[name] = found[_PREFIX + name] = _written(name, (dict(one.requests) for one in requests))
        found[f"limits.{name}"] = _written(name, (dict(one.requests) for one in limits))
    return found


def used_by_claims(
    claims: Iterable[Object], pods: Sequence[Object], classes: Iterable[Object]
) -> Counter[str]:
    """Return what the claims of a namespace use, by quota key."""
    names = _extended_names(classes)
    used: Counter[str] = Counter()
    for claim in claims:
        used.update(_claim_usage(claim, pods, names))
    return used


def quota_status(quota: Object, used: Mapping[str, str], counts: Mapping[str, int]) -> Object:
    """Return the status of a quota; `counts` has how many objects there are, by qualified plural.

    Quotas with scopes are not kept here, so the status of these has only the limits.
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
    return key.endswith(_OF_CLASS) or (key.startswith(_PREFIX) and is_extended(key.removeprefix(_PREFIX)))


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
