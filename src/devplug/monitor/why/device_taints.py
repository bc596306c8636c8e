"""The taints of devices as they concern a pod: what DeviceTaintRules add, and what has evicted it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, text
from devplug.monitor.why.evidence import condition, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devplug.monitor.why.evidence import ClaimObjects, Evidence

EVICTED: Final = "DeletionByDeviceTaintManager"
"""The reason of the condition DisruptionTarget (device_taint_eviction.go)."""
EVICTION_EVENT: Final = "DeviceTaintManagerEviction"


def tainted_slices(found: ClaimObjects) -> tuple[Object, ...]:
    """Return the ResourceSlices with the taints of all DeviceTaintRules, as the scheduler sees them."""
    from devplug.dra.taints import with_rules

    return tuple(with_rules(one, found.rules or ()) for one in found.slices or ())


def rule_facts(found: ClaimObjects) -> Iterator[str]:
    """Yield each DeviceTaintRule that keeps devices from being allocated, with the number of devices."""
    from devplug.dra.taints import NO_EXECUTE, NO_SCHEDULE, Taint, with_rules

    for rule in found.rules or ():
        taint = Taint.of(fields(rule, "spec", "taint"))
        if taint.effect not in {NO_SCHEDULE, NO_EXECUTE}:
            continue
        number = sum(_changed(one, with_rules(one, [rule])) for one in found.slices or ())
        if number:
            devices = "1 device" if number == 1 else f"{number} devices"
            yield f"DeviceTaintRule {text(rule, 'metadata', 'name')} puts the taint {taint} on {devices}"


def _changed(before: Object, after: Object) -> int:
    pairs = zip(entries(before, "spec", "devices"), entries(after, "spec", "devices"), strict=True)
    return sum(one != other for one, other in pairs)


def is_evicted(pod: Object) -> bool:
    """Whether the condition of a pod says that it is deleted because of a taint of a device."""
    found = condition(pod, "DisruptionTarget")
    return text(found, "status") == "True" and text(found, "reason") == EVICTED


def eviction_facts(evidence: Evidence, pod: Object) -> Iterator[str]:
    """Yield the NoExecute taints that the devices of a pod's claims have now."""
    from devplug.dra.scheduling import claim_names
    from devplug.dra.taints import NO_EXECUTE, Taint

    found = evidence.claims
    if found is None or found.slices is None or found.claims is None:
        return
    names = {name for name in claim_names(pod).values() if name}
    names.add(text(pod, "status", "extendedResourceClaimStatus", "resourceClaimName"))
    used = {
        (text(result, "driver"), text(result, "pool"), text(result, "device"))
        for claim in found.claims
        if text(claim, "metadata", "namespace") == evidence.namespace
        and text(claim, "metadata", "name") in names
        for result in entries(claim, "status", "allocation", "devices", "results")
    }
    rules = {
        str(Taint.of(fields(rule, "spec", "taint"))): text(rule, "metadata", "name")
        for rule in found.rules or ()
    }
    for one in tainted_slices(found):
        place = text(one, "spec", "driver"), text(one, "spec", "pool", "name")
        for device in entries(one, "spec", "devices"):
            if (*place, text(device, "name")) in used:
                taints = _texts(device, NO_EXECUTE)
                by_rule = sorted({rules[taint] for taint in taints if taint in rules})
                by = f" (DeviceTaintRule {some(by_rule)} has it)" if by_rule else ""
                name = f"{'/'.join(place)}/{text(device, 'name')}"
                if taints:
                    yield f"its device {name} has the taint {some(taints)}{by}"


def _texts(device: object, effect: str) -> list[str]:
    from devplug.dra.taints import Taint

    taints: Iterable[Taint] = map(Taint.of, map(fields, entries(device, "taints")))
    return sorted({str(one) for one in taints if one.effect == effect})
