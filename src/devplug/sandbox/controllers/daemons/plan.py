"""What to do about the pods of a DaemonSet: which to make, which to delete, and when to look again. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from devplug.sandbox.api.objects import part, text, whole
from devplug.sandbox.controllers.daemons.placing import Wish

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from datetime import datetime

    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.controllers.daemons.pods import DaemonPod

__all__ = ["Plan", "Rollout", "plan", "pods_by_node", "rollout_of"]


@dataclass(frozen=True, slots=True)
class Rollout:
    """How the pods of a DaemonSet follow its template."""

    revision: str
    is_rolling: bool = True
    """False for `OnDelete`: pods of an older template stay until somebody deletes them."""
    max_unavailable: int = 1
    """On so many of its nodes there may be no available pod because of us; at least 1."""
    min_ready_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What one look finds to do."""

    make: tuple[str, ...] = ()
    """Nodes that need a pod."""
    delete: tuple[str, ...] = ()
    """Names of pods."""
    ended: tuple[DaemonPod, ...] = ()
    """Those of them that have ended by themselves, of which there is more to say."""
    is_held_back: bool = field(default=False, compare=False)
    """Whether a failed pod is left for a while, so that another look is needed."""


def rollout_of(daemons: Object, revision: str, desired: int) -> Rollout:
    """Return how the pods of a DaemonSet follow its template, where it wants so many.

    Pods are never doubled for a while (`maxSurge`): two pods cannot have the same device. Where that is asked
    for, one pod after the other is replaced.
    """
    asked = part(daemons, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable")
    if isinstance(asked, str) and asked.endswith("%") and asked[:-1].isdecimal():
        most = -(-int(asked[:-1]) * desired // 100)
    else:
        most = asked if isinstance(asked, int) and not isinstance(asked, bool) else 1
    return Rollout(
        revision,
        text(daemons, "spec", "updateStrategy", "type") != "OnDelete",
        max(most, 1),
        whole(daemons, "spec", "minReadySeconds"),
    )


def pods_by_node(pods: Iterable[DaemonPod]) -> dict[str, list[DaemonPod]]:
    """Return the pods of each node, the one to keep first."""
    found: dict[str, list[DaemonPod]] = {}
    for pod in sorted(pods, key=lambda one: one.age_order):
        found.setdefault(pod.node_name, []).append(pod)
    return found


def plan(
    wishes: Mapping[str, Wish],
    pods: Iterable[DaemonPod],
    rollout: Rollout,
    now: datetime,
    backing_off: Container[str] = (),
) -> Plan:
    """Return what to do; on nodes in `backing_off`, a pod that failed is left for now.

    Pods are replaced only when each node has what it shall have (daemon_controller.go updateDaemonSet).
    """
    held = pods_by_node(pods)
    todo = _managed(wishes, held, backing_off)
    if todo != Plan() or not rollout.is_rolling:
        return todo
    # What is left on nodes that are gone says nothing of the rollout; it ends with them.
    here = {name: found for name, found in held.items() if name in wishes}
    return replace(todo, delete=_replaced(here, rollout, now))


def _managed(
    wishes: Mapping[str, Wish], held: Mapping[str, list[DaemonPod]], backing_off: Container[str]
) -> Plan:
    """Return what brings each node to one pod, or to none (podsShouldBeOnNode)."""
    make = tuple(name for name, wish in wishes.items() if wish is Wish.RUN and name not in held)
    delete: list[str] = []
    ended: list[DaemonPod] = []
    is_held_back = False
    for node_name, found in held.items():
        pods = [pod for pod in found if not pod.is_ending]
        wish = wishes.get(node_name)
        if wish is None:
            # Those that are bound end with their node; the others would wait for it for ever.
            delete += [pod.name for pod in pods if not pod.is_bound]
            continue
        if wish is Wish.NONE:
            delete += [pod.name for pod in pods]
            continue
        alive = [pod for pod in pods if pod.phase not in {"Failed", "Succeeded"}]
        for pod in pods:
            if pod.phase == "Succeeded" or (pod.phase == "Failed" and node_name not in backing_off):
                ended.append(pod)
                delete.append(pod.name)
            is_held_back |= pod.phase == "Failed" and node_name in backing_off
        delete += [pod.name for pod in alive[1:]]
    return Plan(make, tuple(delete), tuple(ended), is_held_back)


def _replaced(held: Mapping[str, list[DaemonPod]], rollout: Rollout, now: datetime) -> tuple[str, ...]:
    """Return the pods of an older template that can go now (update.go rollingUpdate, without surge).

    Old pods that are not available go at once. They count as unavailable too, where the real controller
    forgets them for a step and can so have more than `maxUnavailable` away.
    """
    unavailable = 0
    at_once: list[str] = []
    candidates: list[str] = []
    for found in held.values():
        pods = [pod for pod in found if not pod.is_ending]
        if len(pods) != 1:
            unavailable += 1
            continue
        (pod,) = pods
        is_available = pod.is_available(rollout.min_ready_seconds, now)
        if pod.revision == rollout.revision:
            unavailable += not is_available
        elif is_available:
            candidates.append(pod.name)
        else:
            at_once.append(pod.name)
    room = max(rollout.max_unavailable - unavailable - len(at_once), 0)
    return (*at_once, *candidates[:room])
