"""The validation of specs and statuses, field by field, where devices are concerned.

The rules and sentences are those of pkg/apis/core/validation/validation.go (kubelet.md 8.6). Images, volumes
and the like are not looked at beyond their being there. Objects have their defaults by then (`defaults`).
"""

from __future__ import annotations

import json
import re
from difflib import unified_diff
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, part, same, text, whole
from devplug.k8s.quantity import Quantity, canonical
from devplug.k8s.resource_names import is_extended
from devplug.sandbox.api.errors import (
    duplicate_field,
    forbidden_field,
    invalid_field,
    required_field,
    unsupported_field,
)
from devplug.sandbox.api.labelselectors import SelectorError, selector_of_object
from devplug.sandbox.api.names import label_errors, label_key_errors
from devplug.sandbox.api.resource.allocation import status_errors
from devplug.sandbox.api.resource.claims import claim_errors, class_errors, template_errors
from devplug.sandbox.api.resource.devices import taint_rule_errors
from devplug.sandbox.api.resource.pods import pod_claim_errors, pod_status_errors, used_claim_errors
from devplug.sandbox.api.resource.slices import slice_errors
from devplug.sandbox.api.roles import GROUP, rbac_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.api.errors import FieldError
    from devplug.sandbox.api.kinds import Resource

_STANDARD: Final = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.+")
"""What a container may ask for under a name without a domain (helpers.go IsStandardContainerResourceName)."""

_COUNTED: Final = re.compile(
    r"pods|services(\.loadbalancers|\.nodeports)?|replicationcontrollers|resourcequotas|secrets|configmaps|"
    r"persistentvolumeclaims",
)
"""What quotas count by the piece (helpers.go integerResources)."""

_OF_QUOTAS: Final = re.compile(
    rf"{_COUNTED.pattern}|((requests|limits)\.)?(cpu|memory|ephemeral-storage)|requests\.storage|"
    r"(requests\.)?hugepages-.+",
)
"""What a quota may limit under a name without a domain (helpers.go IsStandardQuotaResourceName)."""

_LARGEST_PORT: Final = 65535
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_SECONDS: Final = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds")
_PROBE_NUMBERS: Final = (*_SECONDS, "successThreshold", "failureThreshold")
_HEADER: Final = re.compile(r"[-A-Za-z0-9]+")
_UPDATES: Final = ("OnDelete", "RollingUpdate")
_RESTARTS: Final = ("Always", "OnFailure", "Never")
_CHANGEABLE: Final = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
)


def object_errors(resource: Resource, one: Object) -> list[FieldError]:
    """Return what is wrong with an object, in the order of its fields."""
    match resource.kind:
        case "Pod":
            return list(_spec_errors(fields(one, "spec"), "spec", _RESTARTS))
        case "DaemonSet":
            return list(_daemon_errors(one))
        case "Node":
            return list(_node_errors(one))
        case "ResourceQuota":
            return list(_quota_errors(one))
        case "DeviceClass":
            return list(class_errors(one))
        case "DeviceTaintRule":
            return list(taint_rule_errors(one))
        case "ResourceClaim":
            return list(claim_errors(one, None, is_changed=False))
        case "ResourceClaimTemplate":
            return list(template_errors(one, None, is_changed=False))
        case "ResourceSlice":
            return list(slice_errors(one, None))
    return list(rbac_errors(one, None)) if resource.group == GROUP else []


def update_errors(
    resource: Resource, new: Object, old: Object, final: Object, part_name: str
) -> list[FieldError]:
    """Return what is wrong with a changed object, and with the change.

    `final` is `new` in the form in which objects are kept; `part_name` is the subresource.
    """
    match resource.kind:
        case "DeviceClass":
            return list(class_errors(new))
        case "DeviceTaintRule":
            return [] if part_name == "status" else list(taint_rule_errors(new))
        case "ResourceClaim" if part_name == "status":
            is_changed = not same(part(final, "status", "allocation"), part(old, "status", "allocation"))
            return list(status_errors(new, old, is_changed=is_changed))
        case "ResourceClaim":
            return list(claim_errors(new, old, is_changed=not same(final["spec"], old["spec"])))
        case "ResourceClaimTemplate":
            return list(template_errors(new, old, is_changed=not same(final["spec"], old["spec"])))
        case "ResourceSlice":
            return list(slice_errors(new, old))
        case _ if resource.group == GROUP:
            return list(rbac_errors(new, old))
        case "Pod" if part_name == "status":
            return list(pod_status_errors(new))
    return [*object_errors(resource, new), *change_errors(resource, new, old)]


def change_errors(resource: Resource, new: Object, old: Object) -> list[FieldError]:
    """Return what is wrong with a change, where the object itself is right."""
    if resource.kind == "Pod":
        return list(_pod_change_errors(fields(new, "spec"), fields(old, "spec")))
    if resource.kind == "DaemonSet":
        before, after = part(old, "spec", "selector"), part(new, "spec", "selector")
        return [] if same(before, after) else [invalid_field("spec.selector", after, "field is immutable")]
    return []


# ── pods ──


def _spec_errors(spec: Object, place: str, restarts: tuple[str, ...]) -> Iterator[FieldError]:
    names: set[str] = set()
    yield from pod_claim_errors(spec, place)
    if not entries(spec, "containers"):
        yield required_field(f"{place}.containers")
    for word in ("containers", "initContainers"):
        for number, container in enumerate(entries(spec, word)):
            here = f"{place}.{word}[{number}]"
            yield from _container_errors(fields(container), here)
            yield from used_claim_errors(fields(container, "resources"), f"{here}.resources", spec)
            if (name := text(container, "name")) in names:
                yield duplicate_field(f"{here}.name", name)
            names.add(name)
    for path in (("overhead",), ("resources", "limits"), ("resources", "requests")):
        for name, value in sorted(fields(spec, *path).items()):
            yield from _quantity_errors(name, value, ".".join((place, *path, name)))
    if (restart := text(spec, "restartPolicy")) not in restarts:
        yield unsupported_field(f"{place}.restartPolicy", restart, restarts)
    for key in fields(spec, "nodeSelector"):
        yield from (invalid_field(f"{place}.nodeSelector", key, fault) for fault in label_key_errors(key))


def _container_errors(container: Object, place: str) -> Iterator[FieldError]:
    if name := text(container, "name"):
        yield from (invalid_field(f"{place}.name", name, fault) for fault in label_errors(name))
    else:
        yield required_field(f"{place}.name")
    if not text(container, "image"):
        yield required_field(f"{place}.image")
    for number, port in enumerate(entries(container, "ports")):
        for word in ("containerPort", "hostPort"):
            if word == "containerPort" or part(port, word):
                yield from _port_errors(part(port, word), f"{place}.ports[{number}].{word}")
    yield from _process_errors(container, place)
    yield from _resource_errors(fields(container, "resources"), f"{place}.resources")
    for word in _PROBES:
        yield from _probe_errors(fields(container, word), f"{place}.{word}")


def _port_errors(port: object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with a port (IsValidPortNum); a probe may name one of the container's."""
    if isinstance(port, str) and port:
        if not re.search("[a-z]", port):
            yield invalid_field(place, port, "must contain at least one letter (a-z)")
    elif not port:
        yield required_field(place)
    elif not isinstance(port, int) or not 1 <= port <= _LARGEST_PORT:
        yield invalid_field(place, port, f"must be between 1 and {_LARGEST_PORT}, inclusive")


def _process_errors(container: Object, place: str) -> Iterator[FieldError]:
    """Yield what Linux cannot give a process: text with a NUL byte (execve(2)).

    The API server takes it, and the container runtime fails each time.
    """
    texts = [("workingDir", container.get("workingDir"))]
    for path in (("command",), ("args",), *((word, "exec", "command") for word in _PROBES)):
        where = ".".join(path)
        texts += [(f"{where}[{at}]", one) for at, one in enumerate(entries(container, *path))]
    for at, variable in enumerate(entries(container, "env")):
        if not text(variable, "name"):
            yield required_field(f"{place}.env[{at}].name")
        texts += [(f"env[{at}].{word}", part(variable, word)) for word in ("name", "value")]
    for where, value in texts:
        if isinstance(value, str) and "\0" in value:
            yield invalid_field(f"{place}.{where}", value, "must not have a NUL byte")


def _probe_errors(probe: Object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with a probe (validateProbe)."""
    for action in ("httpGet", "tcpSocket", "grpc"):
        if isinstance(probe.get(action), dict):
            yield from _port_errors(part(probe, action, "port"), f"{place}.{action}.port")
    if isinstance(probe.get("exec"), dict) and not entries(probe, "exec", "command"):
        yield required_field(f"{place}.exec.command")
    for at, header in enumerate(entries(probe, "httpGet", "httpHeaders")):
        if not _HEADER.fullmatch(text(header, "name")):
            fault = "a valid HTTP header must consist of alphanumeric characters or '-'"
            yield invalid_field(f"{place}.httpGet.httpHeaders[{at}]", text(header, "name"), fault)
    for word in _PROBE_NUMBERS:
        if whole(probe, word) < 0:
            yield invalid_field(f"{place}.{word}", whole(probe, word), "must be greater than or equal to 0")


def _resource_errors(resources: Object, place: str) -> Iterator[FieldError]:
    limits, requests = fields(resources, "limits"), fields(resources, "requests")
    for name, value in sorted(limits.items()):
        yield from _name_errors(name, f"{place}.limits[{name}]")
        yield from _quantity_errors(name, value, f"{place}.limits[{name}]")
    for name, value in sorted(requests.items()):
        yield from _name_errors(name, f"{place}.requests[{name}]")
        yield from _quantity_errors(name, value, f"{place}.requests[{name}]")
        shared = _is_native(name) and not name.startswith("hugepages-")
        if name not in limits:
            if not shared:
                yield required_field(f"{place}.limits", "Limit must be set for non overcommitable resources")
            continue
        asked, limit = _read(value), _read(limits[name])
        word = "less than or equal" if shared else "equal"
        if asked.number > limit.number or (not shared and asked.number != limit.number):
            detail = f"must be {word} to {name} limit of {canonical(limit)}"
            yield invalid_field(f"{place}.requests", canonical(asked), detail)


def _name_errors(name: str, place: str) -> Iterator[FieldError]:
    """Yield what keeps a container from asking for something of this name (validateContainerResourceName)."""
    wrong = label_key_errors(name)
    yield from (invalid_field(place, name, fault) for fault in wrong)
    if "/" not in name:
        if not _STANDARD.fullmatch(name):
            if not wrong and not _is_standard(name):
                yield invalid_field(place, name, "must be a standard resource type or fully qualified")
            yield invalid_field(place, name, "must be a standard resource for containers")
    elif not _is_native(name) and not is_extended(name):
        yield invalid_field(place, name, "doesn't follow extended resource name standard")


def _quantity_errors(name: str, value: object, place: str) -> Iterator[FieldError]:
    quantity = _read(value)
    if quantity.number < 0:
        yield invalid_field(place, canonical(quantity), "must be greater than or equal to 0")
    if not quantity.is_whole and (is_extended(name) or _COUNTED.fullmatch(name)):
        yield invalid_field(place, canonical(quantity), "must be an integer")


def _pod_change_errors(new: Object, old: Object) -> Iterator[FieldError]:
    for word in ("containers", "initContainers"):
        if len(entries(new, word)) != len(entries(old, word)):
            yield forbidden_field(f"spec.{word}", "pod updates may not add or remove containers")
            return
    held = entries(new, "tolerations")
    if not all(any(same(one, other) for other in held) for one in entries(old, "tolerations")):
        yield forbidden_field(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )
    old = {field: value for field, value in old.items() if value is not None}
    left = _without_changeable(new, old)
    if not same(left, old):
        message = f"pod updates may not change fields other than {','.join(_CHANGEABLE)}"
        yield forbidden_field("spec", f"{message}\n{_difference(old, left)}")


def _without_changeable(new: Object, old: Object) -> Object:
    """Return a pod's spec with what may be changed as it was (mungedPodSpec)."""
    free = ("activeDeadlineSeconds", "schedulingGates", "tolerations")
    left = {field: value for field, value in new.items() if field not in free and value is not None}
    left |= {field: old[field] for field in free if field in old}
    for word in {"containers", "initContainers"} & left.keys():
        pairs = zip(entries(new, word), entries(old, word), strict=True)
        left[word] = [_with_image_of(fields(before), fields(one)) for one, before in pairs]
    return left


def _with_image_of(before: Object, container: Object) -> Object:
    rest = {key: value for key, value in container.items() if key != "image"}
    return rest | {key: before[key] for key in ("image",) if key in before}


def _difference(old: Object, new: Object) -> str:
    """Return how two specs differ, as apimachinery util/diff tells it, but in the API's names for Go's."""
    before, after = (json.dumps(one, indent=1, sort_keys=True).splitlines() for one in (old, new))
    return "".join(f"{line}\n" for line in [*unified_diff(before, after, lineterm="")][2:])


# ── other kinds ──


def _daemon_errors(daemons: Object) -> Iterator[FieldError]:
    spec = fields(daemons, "spec")
    labels = fields(spec, "selector", "matchLabels")
    if not labels and not entries(spec, "selector", "matchExpressions"):
        yield required_field("spec.selector")
    held = fields(spec, "template", "metadata", "labels")
    try:
        is_match = selector_of_object(part(spec, "selector")).matches(held)
    except SelectorError as error:
        yield invalid_field("spec.selector", part(spec, "selector"), str(error))
    else:
        if not is_match:
            yield invalid_field(
                "spec.template.metadata.labels", held, "`selector` does not match template `labels`"
            )
    yield from _spec_errors(fields(spec, "template", "spec"), "spec.template.spec", ("Always",))
    for word in ("minReadySeconds", "revisionHistoryLimit"):
        if whole(spec, word) < 0:
            yield invalid_field(f"spec.{word}", whole(spec, word), "must be greater than or equal to 0")
    yield from _strategy_errors(fields(spec, "updateStrategy"), "spec.updateStrategy")


def _strategy_errors(strategy: Object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with how pods follow their template (apps/validation ValidateDaemonSet...)."""
    type_ = text(strategy, "type")
    if type_ not in _UPDATES:
        yield unsupported_field(f"{place}.type", type_, _UPDATES)
    if type_ != "RollingUpdate":
        return
    rolling = fields(strategy, "rollingUpdate")
    most, surge = (rolling.get(word) not in {0, "0", "0%", None} for word in ("maxUnavailable", "maxSurge"))
    if most and surge:
        why = "may not be set when maxUnavailable is non-zero"
        yield invalid_field(f"{place}.rollingUpdate.maxSurge", rolling["maxSurge"], why)
    elif not most and not surge:
        yield required_field(f"{place}.rollingUpdate.maxUnavailable", "cannot be 0 when maxSurge is 0")


def _node_errors(node: Object) -> Iterator[FieldError]:
    for word in ("capacity", "allocatable"):
        for name, value in sorted(fields(node, "status", word).items()):
            yield from _quantity_errors(name, value, f"status.{word}.{name}")


def _quota_errors(quota: Object) -> Iterator[FieldError]:
    for name, value in sorted(fields(quota, "spec", "hard").items()):
        place = f"spec.hard[{name}]"
        wrong = label_key_errors(name)
        yield from (invalid_field(place, name, fault) for fault in wrong)
        if "/" not in name and not _OF_QUOTAS.fullmatch(name):
            if not wrong and not _is_standard(name):
                yield invalid_field(place, name, "must be a standard resource type or fully qualified")
            yield invalid_field(place, name, "must be a standard resource for quota")
        yield from _quantity_errors(name, value, place)


def _read(value: object) -> Quantity:
    return Quantity.parse(str(value))


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _is_standard(name: str) -> bool:
    return name == "storage" or bool(_OF_QUOTAS.fullmatch(name))
