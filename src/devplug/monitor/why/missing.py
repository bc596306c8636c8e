"""What is said of a pod that is not there: a name that is near, or who refused to make it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.monitor.why.reading import last_event, nearest, some
from devplug.monitor.why.values import State, Verdict, Who
from devplug.objects import Object, text

if TYPE_CHECKING:
    from devplug.monitor.why.values import Evidence

__all__ = ["missing"]

_QUOTA: Final = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.*), used: (?P<used>.*), "
    r"limited: (?P<limited>.*)"
)
_FORBIDDEN: Final = re.compile(r"is forbidden: (?P<why>.*)", re.DOTALL)
_INVALID: Final = re.compile(r"is invalid: (?P<why>.*)", re.DOTALL)


def missing(evidence: Evidence) -> Verdict:
    """Judge a name that no pod has: it may be that of what should make the pods."""
    refusals = [
        one for one in evidence.events if text(one, "reason") == "FailedCreate" and _is_of(evidence, one)
    ]
    if refusals:
        return _refused(evidence, last_event(refusals, "FailedCreate"))
    here = [text(one, "metadata", "name") for one in evidence.pods or ()]
    own = sorted(name for name in here if name.startswith(evidence.name + "-"))
    meant = nearest(evidence.name, here)
    because = f"namespace {evidence.namespace} has no such pod"
    if own:
        because += f"; these begin so: {some(own)}"
    elif meant:
        because += f"; did you mean {meant}?"
    advice = [f"kubectl get pods -n {evidence.namespace} names those there are; -n names another namespace"]
    if not own and not meant:
        advice.append(
            "if kubectl or a controller could not make it, its answer says why: what the API server refuses "
            "(a quota, a fraction of a device) never becomes a pod"
        )
    return _verdict(evidence, Who.NOBODY, because, advice=tuple(advice))


def _is_of(evidence: Evidence, event: Object) -> bool:
    """Whether an event is on something that makes pods of this name, as a ReplicaSet, DaemonSet or Job."""
    owner = text(event, "involvedObject", "name")
    return (
        owner == evidence.name
        or evidence.name.startswith(f"{owner}-")
        or owner.startswith(f"{evidence.name}-")
    )


def _refused(evidence: Evidence, event: Object) -> Verdict:
    message = text(event, "message")
    kind, owner = text(event, "involvedObject", "kind"), text(event, "involvedObject", "name")
    if quota := _QUOTA.search(message):
        return _verdict(
            evidence,
            Who.QUOTA,
            f"quota {quota['quota']} lets {kind} {owner} make no more pods",
            facts=(
                f"asked for {quota['requested']}; in use {quota['used']}; allowed {quota['limited']}",
                f"told: {message}",
            ),
            advice=(
                "delete pods of the namespace that ask for it, or ask for less",
                f"have the quota raised: kubectl edit quota -n {evidence.namespace} {quota['quota']}",
            ),
            message=message,
        )
    found = _FORBIDDEN.search(message) or _INVALID.search(message)
    because = f"it lets {kind} {owner} make no pod: {found['why'] if found else message}"
    advice = (f"mend the pod template of {kind} {owner}, or what is told",)
    facts = (f"told: {message}",)
    return _verdict(evidence, Who.API_SERVER, because, facts=facts, advice=advice, message=message)


def _verdict(
    evidence: Evidence,
    who: Who,
    because: str,
    *,
    facts: tuple[str, ...] = (),
    advice: tuple[str, ...] = (),
    message: str = "",
) -> Verdict:
    return Verdict(
        namespace=evidence.namespace,
        pod=evidence.name,
        state=State.NOT_FOUND,
        who_said_no=who,
        because=because,
        facts=facts,
        advice=advice,
        message=message,
        unread=evidence.unread,
    )
