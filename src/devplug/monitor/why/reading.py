"""How the rules read pods, nodes and events: the latest event, conditions, what closes a node. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from devplug.objects import Object, fields, maps, text, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "condition",
    "container_statuses",
    "held_by",
    "last_event",
    "nearest",
    "some",
    "why_unfit",
]

_MOST_NAMED: Final = 5
_BLOCKING: Final = {"NoSchedule", "NoExecute"}


def last_event(events: Iterable[Object], *reasons: str) -> Object:
    """Return the newest event with one of these reasons, of any warning if none are named; empty if none."""
    found = [
        one
        for one in events
        if (text(one, "reason") in reasons if reasons else text(one, "type") == "Warning")
    ]
    return max(found, key=_when, default={})


def _when(event: Object) -> str:
    """Return when an event was last told; all of them write times alike, in UTC."""
    return (
        text(event, "series", "lastObservedTime")
        or text(event, "lastTimestamp")
        or text(event, "eventTime")
        or text(event, "firstTimestamp")
        or text(event, "metadata", "creationTimestamp")
    )


def condition(thing: Object, type_: str) -> Object:
    """Return a condition of a pod or node; empty if it has none of that type."""
    return next((one for one in maps(thing, "status", "conditions") if text(one, "type") == type_), {})


def container_statuses(pod: Object) -> list[Object]:
    """Return the statuses of init containers and app containers, in start order."""
    words = ("initContainerStatuses", "containerStatuses")
    return [one for word in words for one in maps(pod, "status", word)]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the name that is likely meant; empty if none is near."""
    found = difflib.get_close_matches(name, sorted(set(known)), n=1, cutoff=0.6)
    return found[0] if found else ""


def some(names: Sequence[str], limit: int = _MOST_NAMED) -> str:
    """Return names in a sentence, and how many more there are."""
    if len(names) > limit:
        return f"{', '.join(names[:limit])} and {len(names) - limit} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def held_by(pods: dict[str, int]) -> str:
    """Return who asks for how many, as in `default/a (2) and default/b (1)`."""
    return some([f"{name} ({number})" for name, number in sorted(pods.items(), key=lambda one: -one[1])])


def why_unfit(pod: Object, node: Object) -> str:
    """Return what but for resources keeps a pod off a node, as far as nodeSelector, taints and cordons go."""
    labels = texts(node, "metadata", "labels")
    for key, value in texts(pod, "spec", "nodeSelector").items():
        if labels.get(key) != value:
            return f"it lacks the label {key}={value} of the pod's nodeSelector"
    if fields(node, "spec").get("unschedulable") is True:
        return "it is cordoned"
    for taint in maps(node, "spec", "taints"):
        if text(taint, "effect") in _BLOCKING and not any(
            _tolerates(one, taint) for one in maps(pod, "spec", "tolerations")
        ):
            key, value = text(taint, "key"), text(taint, "value")
            told = f"{key}={value}" if value else key
            return f"the pod does not tolerate its taint {told}:{text(taint, 'effect')}"
    return ""


def _tolerates(toleration: Object, taint: Object) -> bool:
    """Whether a toleration is for a taint (api/core/v1/toleration.go ToleratesTaint)."""
    effect, key = text(toleration, "effect"), text(toleration, "key")
    if effect and effect != text(taint, "effect"):
        return False
    if key and key != text(taint, "key"):
        return False
    is_any = text(toleration, "operator") == "Exists"
    return is_any or (bool(key) and text(toleration, "value") == text(taint, "value"))
