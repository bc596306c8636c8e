"""The reader of a cluster: what the rules need of the API server, and what may not be read there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.k8s.client import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    EVENTS,
    NODES,
    PODS,
    SLICES,
)
from devplug.k8s.errors import ClusterError, NotThereError
from devplug.k8s.objects import fields, maps, text
from devplug.monitor.why.evidence import ClaimObjects, Evidence, asks_for_claims

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from devplug.k8s.client import ApiServer, Kind
    from devplug.k8s.objects import Object
    from devplug.status import NodeStatus

_CLAIM_RIGHTS: Final = (
    "kubectl create clusterrole devplug-view-claims --verb=get,list "
    "--resource=resourceclaims,resourceclaimtemplates,deviceclasses,resourceslices,devicetaintrules, "
    "and bind it with kubectl create clusterrolebinding"
)


@dataclass(frozen=True, slots=True)
class ClusterLists:
    """The objects of a cluster that the tables show."""

    nodes: tuple[Object, ...] | None
    """None if they were not asked for, or could not be read; likewise below."""
    everyone: tuple[Object, ...] | None
    """All pods of the cluster, by which the nodes are counted."""
    pods: tuple[Object, ...] | None
    """Those that were asked for."""
    claims: tuple[Object, ...] = ()
    """Of the pods that were read, as far as they may be read; likewise below."""
    slices: tuple[Object, ...] = ()
    unread: tuple[str, ...] = ()


async def evidence_on(
    server: ApiServer, namespace: str, name: str, *, node_status: NodeStatus | None = None
) -> Evidence:
    """Read what matters about one pod. Raises `ClusterError` if not even that pod can be read."""
    try:
        pod = await server.get(PODS, name, namespace=namespace)
    except NotThereError:
        pod = None
    of_pod = None if pod is None else {"involvedObject.name": name}
    async with asyncio.TaskGroup() as tasks:
        events = tasks.create_task(_allowed(server.list(EVENTS, namespace=namespace, fields=of_pod)))
        nodes = None if pod is None else tasks.create_task(_allowed(server.list(NODES)))
        where = namespace if pod is None else ""
        pods = tasks.create_task(_allowed(server.list(PODS, namespace=where)))
        has_claims = pod is not None and asks_for_claims(pod)
        claims = tasks.create_task(_claim_objects(server, namespace)) if has_claims else None
    answers = [one.result() for one in (events, nodes, pods) if one is not None]
    of_claims, unread = (None, ()) if claims is None else claims.result()
    return Evidence(
        namespace=namespace,
        name=name,
        pod=pod,
        events=_of_this(pod, events.result()[0] or ()),
        nodes=() if nodes is None else nodes.result()[0],
        pods=pods.result()[0],
        unread=tuple(dict.fromkeys((*(why for _, why in answers if why), *unread))),
        claims=of_claims,
        node_status=node_status,
    )


async def _claim_objects(server: ApiServer, namespace: str) -> tuple[ClaimObjects, tuple[str, ...]]:
    """Read what decides about claims, and say what may not be read."""

    async def listed(kind: Kind, where: str = "") -> tuple[tuple[Object, ...] | None, str]:
        found, why = await _allowed(server.list(kind, namespace=where, rights=_CLAIM_RIGHTS))
        return found, why and f"{kind.plural}{f' of {where}' if where else ''}: {why}"

    async with asyncio.TaskGroup() as tasks:
        kinds = ((CLAIMS, ""), (CLAIM_TEMPLATES, namespace), (DEVICE_CLASSES, ""), (SLICES, ""))
        asked = [tasks.create_task(listed(kind, where)) for kind, where in kinds]
        rules_asked = tasks.create_task(_taint_rules(server))
    claims, templates, classes, slices = (one.result() for one in asked)
    unread = [why for _, why in (claims, templates, classes, slices) if why]
    rules, why = rules_asked.result()
    unread += [f"{DEVICE_TAINT_RULES[0].plural}: {why}"] if why else []
    if claims[0] is None:
        unread[0] += "; devices that claims of other namespaces hold look free"
        claims = await listed(CLAIMS, namespace)
        unread += [claims[1]] if claims[1] else []
    names = (text(one, "metadata", "name") for one in templates[0] or ())
    objects = ClaimObjects(
        claims=claims[0],
        templates=None if templates[0] is None else frozenset(names),
        classes=classes[0],
        slices=slices[0],
        rules=rules,
    )
    return objects, tuple(unread)


async def _taint_rules(server: ApiServer) -> tuple[tuple[Object, ...] | None, str]:
    """Read the DeviceTaintRules in the newest version that the API server has; none if it has none."""
    for kind in DEVICE_TAINT_RULES:
        try:
            listed = await server.list(kind, rights=_CLAIM_RIGHTS, when_absent=f"no {kind.name}")
        except NotThereError:
            continue
        except ClusterError as error:
            return None, str(error)
        return tuple(listed), ""
    return (), ""


def _of_this(pod: Object | None, events: tuple[Object, ...]) -> tuple[Object, ...]:
    """Leave out events on an earlier pod of the same name, and on things of other kinds."""
    if pod is None:
        return events
    metadata = pod.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    return tuple(
        event
        for event in events
        if isinstance(one := event.get("involvedObject"), dict) and one.get("uid") in {uid, None}
    )


async def cluster_lists(
    server: ApiServer, *, namespace: str, labels: str = "", wants_nodes: bool = True, wants_pods: bool = True
) -> ClusterLists:
    """Read nodes and pods; `namespace` is empty for all. `labels` choose the pods, or else the nodes.

    Who may not read nodes, or all pods, gets what is left. Raises `ClusterError` if nothing is.
    """
    async with asyncio.TaskGroup() as tasks:
        node_labels = "" if wants_pods else labels
        nodes = tasks.create_task(_allowed(server.list(NODES, labels=node_labels))) if wants_nodes else None
        everyone = tasks.create_task(_allowed(server.list(PODS))) if wants_nodes else None
        chosen = everyone if wants_pods and not namespace and not labels else None
        if wants_pods and chosen is None:
            chosen = tasks.create_task(_allowed(server.list(PODS, namespace=namespace, labels=labels)))
        claims = tasks.create_task(_claims(server, "" if wants_nodes else namespace, namespace))
        slices = tasks.create_task(_allowed(server.list(SLICES, rights=_CLAIM_RIGHTS)))
    answers = [one.result() for one in (nodes, everyone, chosen) if one is not None]
    if all(found is None for found, _ in answers):
        raise ClusterError(answers[0][1])
    if any(map(_has_claims, (pod for found, _ in answers for pod in found or ()))):
        answers += [claims.result(), slices.result()]
    return ClusterLists(
        nodes=None if nodes is None else nodes.result()[0],
        everyone=None if everyone is None else everyone.result()[0],
        pods=None if chosen is None else chosen.result()[0],
        claims=claims.result()[0] or (),
        slices=slices.result()[0] or (),
        unread=tuple(dict.fromkeys(why for _, why in answers if why)),
    )


async def _claims(server: ApiServer, where: str, namespace: str) -> tuple[tuple[Object, ...] | None, str]:
    """Read the claims of a namespace, or of all; or only of the other one where that is not allowed."""
    found, why = await _allowed(server.list(CLAIMS, namespace=where, rights=_CLAIM_RIGHTS))
    if found is None and where != namespace:
        found, _ = await _allowed(server.list(CLAIMS, namespace=namespace, rights=_CLAIM_RIGHTS))
    return found, why


def _has_claims(found: Object) -> bool:
    """Whether an object is a pod that has devices by claims: then it matters that they cannot be read."""
    return bool(
        maps(found, "spec", "resourceClaims") or fields(found, "status", "extendedResourceClaimStatus")
    )


async def _allowed(question: Awaitable[Sequence[Object]]) -> tuple[tuple[Object, ...] | None, str]:
    """Return the answer, or None and why there is none."""
    try:
        return tuple(await question), ""
    except ClusterError as error:
        return None, str(error)
