"""The defaults of fields that authors left out, and quantities in their canonical form.

The values are those of pkg/apis/core/v1/defaults.go and apps/v1/defaults.go, and of the admission plugins
that every cluster has (Priority, DefaultTolerationSeconds). For DRA's kinds they
are those of pkg/apis/resource/v1/defaults.go; fields of gates that are off in 1.36 are dropped (dra.md D49).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, part, same, text, with_part
from devplug.k8s.quantity import Quantity, QuantityError, canonical
from devplug.k8s.times import stamp
from devplug.sandbox.api.errors import bad_request
from devplug.sandbox.api.roles import binding_defaulted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from devplug.sandbox.api.kinds import Resource

_OF_SPEC: Final[Mapping[str, object]] = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_OF_POD: Final[Mapping[str, object]] = {
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
}
_OF_CONTAINER: Final[Mapping[str, object]] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_OF_PROBE: Final[Mapping[str, object]] = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_OF_HTTP: Final[Mapping[str, object]] = {"path": "/", "scheme": "HTTP"}
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_OF_ROLLING: Final[Mapping[str, object]] = {"maxSurge": 0, "maxUnavailable": 1}
_PRIORITIES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""The priority classes that every cluster has (pkg/apis/scheduling/v1/helpers.go)."""

_MODES: Final = ("configMap", "downwardAPI", "projected", "secret")
"""Volumes whose files are readable to all, 0644."""

_OUTAGES: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_CONTAINERS: Final = ("containers", "initContainers")

_OF_GATES: Final = ("ints", "bools", "strings", "versions")
_RANGE: Final = ("min", "max", "step")
_REQUESTS: Final = ("spec", "devices", "requests")
_RESULTS: Final = ("status", "allocation", "devices", "results")


def defaulted(resource: Resource, one: Object) -> Object:
    """Return an object with its defaults; raises `StatusError` for a quantity that is none."""
    spec = fields(one, "spec")
    match resource.kind:
        case "Pod":
            return {**one, "spec": _pod(_spec(spec, resource))}
        case "DaemonSet":
            template = fields(spec, "template")
            of_pods = {**template, "spec": _spec(fields(template, "spec"), resource)}
            completed = {"revisionHistoryLimit": 10, **_present(spec), "updateStrategy": _strategy(spec)}
            return {**one, "spec": {**completed, "template": of_pods}}
        case "Node":
            one = _counted(one, resource, "status", "capacity")
            return _counted(one, resource, "status", "allocatable")
        case "ResourceQuota":
            return _counted(one, resource, "spec", "hard")
        case "ClusterRoleBinding" | "RoleBinding":
            return binding_defaulted(one)
    return one


def knows_priority_class(name: str) -> bool:
    """Whether a pod may name this class: nothing, or one that every cluster has."""
    return not name or name in _PRIORITIES


def _strategy(spec: Object) -> Object:
    strategy: Object = {"type": "RollingUpdate", **_present(fields(spec, "updateStrategy"))}
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {**_OF_ROLLING, **_present(fields(strategy, "rollingUpdate"))}
    return strategy


def qos_class(pod: Object) -> str:
    """Return the QoS class of a pod (component-helpers qos.ComputePodQOS)."""
    containers = [one for word in _CONTAINERS for one in entries(pod, "spec", word)]
    guaranteed = bool(containers)
    burstable = False
    for container in containers:
        limits, requests = (
            {name: value for name, value in fields(container, "resources", word).items() if value != "0"}
            for word in ("limits", "requests")
        )
        burstable |= any(name in owner for owner in (limits, requests) for name in ("cpu", "memory"))
        guaranteed &= all(
            name in limits and same(limits[name], requests.get(name)) for name in ("cpu", "memory")
        )
    if guaranteed:
        return "Guaranteed"
    return "Burstable" if burstable else "BestEffort"


def _present(owner: Object) -> Object:
    return {key: value for key, value in owner.items() if value is not None}


def _spec(spec: Object, resource: Resource) -> Object:
    """Return what a pod and a template have in common."""
    result = {**_OF_SPEC, **_present(spec)}
    for word in _CONTAINERS:
        if word in result:
            result[word] = [_container(one, resource) for one in entries(result, word)]
    if volumes := entries(result, "volumes"):
        result["volumes"] = [_volume(one) for one in volumes]
    return result


def _pod(spec: Object) -> Object:
    """Return what only a pod has: its requests made of its limits, its priority, and its patience."""
    result = {**_OF_POD, **_priority(spec), **spec}
    for word in _CONTAINERS:
        if word in result:
            result[word] = [_with_host_ports(_with_requests(one), spec) for one in entries(result, word)]
    tolerations = entries(result, "tolerations")
    missing = [key for key in _OUTAGES if not any(_tolerates(one, key) for one in tolerations)]
    added: list[object] = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} for key in missing
    ]
    if tolerations or added:
        result["tolerations"] = [*tolerations, *added]
    return result


def _priority(spec: Object) -> Object:
    class_name = text(spec, "priorityClassName")
    return {"priority": _PRIORITIES[class_name]} if class_name in _PRIORITIES else {}


def _tolerates(toleration: object, key: str) -> bool:
    return text(toleration, "key") in {key, ""} and text(toleration, "effect") in {"NoExecute", ""}


def _container(container: object, resource: Resource) -> Object:
    given = fields(container)
    tag = text(given, "image").rpartition("/")[2].partition("@")[0].partition(":")[2]
    pinned = "@" in text(given, "image") or tag not in {"", "latest"}
    pull: Object = {"imagePullPolicy": "IfNotPresent" if pinned else "Always"}
    result = {**pull, **_OF_CONTAINER, "resources": {}, **_present(given)}
    for word in ("limits", "requests"):
        result = _counted(result, resource, "resources", word)
    if ports := entries(result, "ports"):
        result["ports"] = [{"protocol": "TCP", **fields(port)} for port in ports]
    if variables := entries(result, "env"):
        result["env"] = [_variable(one) for one in variables]
    for word in _PROBES:
        if isinstance(part(result, word), dict):
            result[word] = _asking({**_OF_PROBE, **_given(fields(result, word))})
    for word in ("postStart", "preStop"):
        if isinstance(part(result, "lifecycle", word), dict):
            result = with_part(result, _asking(fields(result, "lifecycle", word)), "lifecycle", word)
    return result


def _given(owner: Object) -> Object:
    """Return what says something: where there are defaults, nothing and 0 are the same to the API."""
    return {key: value for key, value in owner.items() if value not in (None, 0)}


def _asking(handler: Object) -> Object:
    """Return how a container is asked, with the path and the scheme of HTTP."""
    if isinstance(part(handler, "httpGet"), dict):
        given = {key: value for key, value in fields(handler, "httpGet").items() if value}
        handler = with_part(handler, {**_OF_HTTP, **given}, "httpGet")
    if isinstance(part(handler, "grpc"), dict):
        handler = with_part(handler, {"service": "", **fields(handler, "grpc")}, "grpc")
    return handler


def _variable(variable: object) -> Object:
    given = fields(variable)
    for word, default in (("fieldRef", {"apiVersion": "v1"}), ("resourceFieldRef", {"divisor": "0"})):
        if isinstance(part(given, "valueFrom", word), dict):
            given = with_part(given, {**default, **fields(given, "valueFrom", word)}, "valueFrom", word)
    return given


def _counted(owner: Object, resource: Resource, *path: str) -> Object:
    """Return `owner` with the quantities at `path` in their one form."""
    quantities = fields(owner, *path)
    canonical_quantities = {name: canonical_quantity(value, resource) for name, value in quantities.items()}
    return with_part(owner, canonical_quantities, *path) if canonical_quantities else owner


def canonical_quantity(value: object, resource: Resource) -> str:
    """Return a quantity in its one form; raises `StatusError` for what is none."""
    written = "0" if value is None else str(value)
    try:
        return canonical(Quantity.parse(written))
    except QuantityError as error:
        version, kind = resource.version, resource.kind
        where = f'{kind} in version "{version}" cannot be handled as a {kind}'
        raise bad_request(f"{where}: {error.fault}") from error


def _with_requests(container: object) -> Object:
    given = fields(container)
    limits = fields(given, "resources", "limits")
    if not limits:
        return given
    return with_part(given, {**limits, **fields(given, "resources", "requests")}, "resources", "requests")


def _with_host_ports(container: Object, spec: Object) -> Object:
    """Return a container of a pod in its node's network, where a port is the node's too."""
    if part(spec, "hostNetwork") is not True or not entries(container, "ports"):
        return container
    ports = []
    for port in entries(container, "ports"):
        given = fields(port)
        on_node = part(given, "hostPort") or part(given, "containerPort")
        ports.append({**given, "hostPort": on_node} if on_node else given)
    return with_part(container, ports, "ports")


def _volume(volume: object) -> Object:
    given = fields(volume)
    for word in _MODES:
        if isinstance(part(given, word), dict):
            given = with_part(given, {"defaultMode": 420, **fields(given, word)}, word)
    if isinstance(part(given, "hostPath"), dict):
        given = with_part(given, {"type": "", **fields(given, "hostPath")}, "hostPath")
    return given if given.keys() - {"name"} else {**given, "emptyDir": {}}


# ── resource.k8s.io ──


def devices_defaulted(resource: Resource, one: Object, now: datetime) -> Object:
    """Return an object of one of DRA's kinds with its defaults; raises `StatusError` for a wrong quantity.

    A taint without a time gets `now` (D80).
    """

    def quantity(value: object) -> str:
        return canonical_quantity(value, resource)

    match resource.kind:
        case "ResourceClaim":
            one = _mapped(one, lambda request: _request(request, quantity), *_REQUESTS)
            return _mapped(one, lambda result: _result(result, quantity), *_RESULTS)
        case "ResourceClaimTemplate":
            return _mapped(one, lambda request: _request(request, quantity), "spec", *_REQUESTS)
        case "DeviceTaintRule":
            return with_part(one, _timed(fields(one, "spec", "taint"), now), "spec", "taint")
        case "ResourceSlice":
            one = _mapped(one, lambda device: _device(device, quantity, now), "spec", "devices")
            return _mapped(one, lambda counters: _with_counters(counters, quantity), "spec", "sharedCounters")
    return one


def _mapped(owner: Object, change: Callable[[Object], Object], *path: str) -> Object:
    """Return `owner` with each map of the list at `path` changed."""
    found = entries(owner, *path)
    if not found:
        return owner
    return with_part(owner, [change(fields(one)) for one in found], *path)


# ── claims ──


def _request(request: Object, quantity: Callable[[object], str]) -> Object:
    if isinstance(part(request, "exactly"), dict):
        request = {**request, "exactly": _choice(fields(request, "exactly"), quantity)}
    return _mapped(request, lambda one: _choice(one, quantity), "firstAvailable")


def _choice(choice: Object, quantity: Callable[[object], str]) -> Object:
    mode = text(choice, "allocationMode") or "ExactCount"
    choice = {**choice, "allocationMode": mode}
    if mode == "ExactCount" and not part(choice, "count"):
        choice["count"] = 1
    if asked := fields(choice, "capacity", "requests"):
        choice = with_part(choice, _quantities(asked, quantity), "capacity", "requests")
    return _mapped(choice, _toleration, "tolerations")


def _toleration(toleration: Object) -> Object:
    return {**toleration, "operator": text(toleration, "operator") or "Equal"}


def _result(result: Object, quantity: Callable[[object], str]) -> Object:
    result = _mapped(result, _toleration, "tolerations")
    if consumed := fields(result, "consumedCapacity"):
        result = {**result, "consumedCapacity": _quantities(consumed, quantity)}
    return result


# ── slices and taints ──


def _timed(taint: Object, now: datetime) -> Object:
    return taint if text(taint, "timeAdded") else {**taint, "timeAdded": stamp(now)}


def _device(device: Object, quantity: Callable[[object], str], now: datetime) -> Object:
    device = {key: value for key, value in device.items() if key != "nodeAllocatableResourceMappings"}
    for word, change in (("attributes", _attribute), ("capacity", lambda one: _capacity(one, quantity))):
        if found := fields(device, word):
            device[word] = {key: change(fields(one)) for key, one in found.items()}
    device = _mapped(device, lambda taint: _timed(taint, now), "taints")
    return _mapped(device, lambda one: _with_counters(one, quantity), "consumesCounters")


def _attribute(attribute: Object) -> Object:
    return {key: value for key, value in attribute.items() if key not in _OF_GATES}


def _capacity(capacity: Object, quantity: Callable[[object], str]) -> Object:
    capacity = {**capacity, "value": quantity(part(capacity, "value"))}
    policy = part(capacity, "requestPolicy")
    if not isinstance(policy, dict):
        return capacity
    policy = _canonical(policy, ("default",), quantity)
    if values := entries(policy, "validValues"):
        policy["validValues"] = [quantity(one) for one in values]
    if limits := fields(policy, "validRange"):
        policy["validRange"] = _canonical(limits, _RANGE, quantity)
    return {**capacity, "requestPolicy": policy}


def _with_counters(counters: Object, quantity: Callable[[object], str]) -> Object:
    found = {
        key: {**fields(one), "value": quantity(part(one, "value"))}
        for key, one in fields(counters, "counters").items()
    }
    return {**counters, "counters": found} if found else counters


def _canonical(owner: Object, words: tuple[str, ...], quantity: Callable[[object], str]) -> Object:
    written = {word: quantity(value) for word in words if (value := part(owner, word)) is not None}
    return {**owner, **written}


def _quantities(owner: Object, quantity: Callable[[object], str]) -> Object:
    return {key: quantity(value) for key, value in owner.items()}
