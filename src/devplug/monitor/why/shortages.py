"""Why no node has enough of a resource: nobody serves it, it is unhealthy, others have it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.monitor.requests import holder_name
from devplug.monitor.why.reading import held_by, nearest, some
from devplug.objects import Object, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from devplug.monitor.clusterview import NodeCount

__all__ = ["Shortage", "shortages_of"]


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why one resource is not to be had, in sentences without a full stop."""

    because: str
    facts: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


def shortages_of(
    asked: Mapping[str, int],
    here: Sequence[NodeCount],
    closed: Mapping[str, str],
    counts: Sequence[NodeCount],
    pods: Sequence[Object],
) -> Iterator[Shortage]:
    """Yield a shortage for each resource of which no node has enough that the pod may go to.

    `here` are the counts of what it asks for, `counts` all there are, and `closed` says by the node's name
    what else keeps the pod away, empty if nothing does.
    """
    for resource, number in asked.items():
        mine = [one for one in here if one.resource == resource]
        usable = [one for one in mine if not closed[one.node]]
        if any(one.free >= number for one in usable):
            continue
        if usable:
            yield _short(resource, number, usable, pods)
        elif mine:
            yield Shortage(
                f"the nodes that have {resource} are closed to it",
                tuple(
                    f"{one.node} has room, but {closed[one.node]}"
                    if one.free >= number
                    else f"{one.node} has no room, and {closed[one.node]}"
                    for one in mine
                ),
            )
        else:
            yield _unknown(resource, {one.resource for one in counts if one.is_known})


def _unknown(resource: str, known: set[str]) -> Shortage:
    meant = nearest(resource, known)
    facts = [f"the nodes have {some(sorted(known), 10)}" if known else "no node has any extended resource"]
    advice = [f"write {meant} in the pod, if that is what is meant"] if meant else []
    return Shortage(
        f"no node has the resource {resource}" + (f"; did you mean {meant}?" if meant else ""),
        tuple(facts),
        (
            *advice,
            f"start the plugin of {resource} where the hardware is, and see in its log that it registered",
        ),
    )


def _short(resource: str, number: int, nodes: list[NodeCount], pods: Sequence[Object]) -> Shortage:
    """Say why the nodes that know a resource have too few of it."""
    best = max(nodes, key=lambda one: (one.allocatable, one.capacity))
    most = max(one.capacity for one in nodes)
    names = some([one.node for one in nodes])
    if most == 0:
        return Shortage(
            f"{names} has none of {resource}: its capacity is 0",
            ("capacity is 0 where the plugin lists no device, or has been gone for five minutes",),
            (f"see whether the plugin of {resource} runs on {names}, and which devices it finds",),
        )
    if number > most:
        return Shortage(
            f"it asks for {number} of {resource}, and no node that it may go to has more than {most}",
            advice=(f"ask for at most {most}, or spread the work over several pods",),
        )
    if best.allocatable == 0:
        return Shortage(
            f"all {best.capacity} of {resource} on {best.node} are unhealthy, or their plugin has stopped",
            tuple(_sick(nodes)),
            (f"see whether the plugin of {resource} runs on {best.node}, and what it says of its devices",),
        )
    if number > best.allocatable:
        return Shortage(
            f"it asks for {number} of {resource}, and no node that it may go to has more than "
            f"{best.allocatable} healthy ones",
            tuple(_sick(nodes)),
            (f"mend the devices that are unhealthy, or ask for at most {best.allocatable}",),
        )
    holding = [one for one in nodes if one.pods]
    facts = [f"on {one.node} they are asked for by {held_by(dict(one.pods))}" for one in holding]
    leaving = {holder_name(pod) for pod in pods if text(pod, "metadata", "deletionTimestamp")}
    gone = sorted(name for one in holding for name in one.pods if name in leaving)
    if gone:
        facts.append(f"{some(gone)} is being deleted; what it has comes free when it is gone")
    free = max(one.free for one in nodes)
    left = f"more than {free}" if free else "one"
    return Shortage(
        f"it asks for {number} of {resource}, and no node that it may go to has {left} free",
        (*facts, *_sick(nodes)),
        ("wait until one of those pods ends, delete one, or add a device; the scheduler then tries again",),
    )


def _sick(nodes: list[NodeCount]) -> Iterator[str]:
    for one in nodes:
        if one.unhealthy:
            yield f"{one.unhealthy} of {one.capacity} {one.resource} on {one.node} are unhealthy"
        if not one.is_ready:
            yield f"{one.node} is not ready: its kubelet does not answer"
