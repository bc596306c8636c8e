"""Plays worlds of claims against our allocator: what a real scheduler (v1.36.2) gave them was recorded.

A world has nodes, classes, slices, claims and templates; its steps create pods one at a time, delete them, or
change a slice or a class. A pod that found no node is deleted after it was looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from devplug.dra.allocations import Allocations
from devplug.dra.extended_resources import extended_claim
from devplug.dra.objects import Claim, DeviceClass, Slice
from devplug.dra.pools import Inventory
from devplug.dra.scheduling import (
    Attempt,
    Cluster,
    Fit,
    bound,
    claim_names,
    held_back,
    normalised,
    post_filter,
    scheduler_error,
    unschedulable,
)
from devplug.dra.search import AttemptError
from devplug.dra.selectors import CelSelectors
from devplug.k8s.node_selectors import Node
from devplug.k8s.pod_requests import device_requests

Json = Any
"""What stands in a recording."""

OTHER_NODE = "node(s) didn't match Pod's node affinity/selector"
HELD_ELSEWHERE = {"devices": {"results": [{"driver": "gpu.example.com", "pool": "n1", "device": "dev-0"}]}}
"""The allocation of a claim that is in no world, and was in the recorded cluster all the time.

The recordings do not say so. But of 172 worlds that have this device none gives it to a claim, other than
for admin access, which ignores use; and all that differs otherwise is explained by it alone.
"""

SELECTORS = CelSelectors()


@dataclass
class World:
    """One world while it is played."""

    nodes: list[Node]
    extended: Mapping[str, Mapping[str, int]]
    """By node, what device plugins have there."""
    cluster: Cluster
    claims: dict[str, Json]
    templates: Mapping[str, Json]
    pods: dict[str, tuple[Json, str]] = field(default_factory=dict)
    """The pods that run, and on which node."""

    @classmethod
    def of(cls, record: Json) -> World:
        classes = [_object(one) for one in record["classes"]]
        return cls(
            [Node(one["name"], one["labels"]) for one in record["nodes"]],
            {
                one["name"]: {name: int(amount) for name, amount in (one.get("extended") or {}).items()}
                for one in record["nodes"]
            },
            Cluster(
                Inventory(Slice.of(_object(one)) for one in record["slices"]),
                Allocations([HELD_ELSEWHERE]),
                SELECTORS,
                {one["metadata"]["name"]: DeviceClass.of(one) for one in classes},
            ),
            {one["name"]: _claim(one["name"], one["spec"]) for one in record["claims"]},
            {one["name"]: one["spec"] for one in record.get("templates") or ()},
        )

    # ── steps ──

    def play(self, step: Json) -> Json:
        match step["op"]:
            case "slice":
                self.cluster.inventory.put(Slice.of(_object(step)))
            case "delete_slice":
                self.cluster.inventory.remove(step["name"])
            case "class":
                classes = {**self.cluster.classes, step["name"]: DeviceClass.of(_object(step))}
                self.cluster.classes = classes
            case "delete_pod":
                return self._delete(step["name"])
            case "pod":
                return self._pod(step)
        return {}

    def _delete(self, name: str) -> Json:
        if name not in self.pods:
            return {"absent": True}
        del self.pods[name]
        for key, claim in list(self.claims.items()):
            status = claim.get("status") or {}
            reserved = [one for one in status.get("reservedFor") or () if one["name"] != name]
            if status and not reserved:
                self.cluster.allocations.remove(status["allocation"])
                self.claims[key] = {
                    **claim,
                    "metadata": {**claim["metadata"], "finalizers": []},
                    "status": {},
                }
            elif status:
                self.claims[key] = {**claim, "status": {**status, "reservedFor": reserved}}
        self._drop_generated(name)
        return {"claims": {key: _told(claim) for key, claim in self.claims.items() if not _owner(claim)}}

    def _drop_generated(self, pod: str) -> None:
        self.claims = {key: claim for key, claim in self.claims.items() if _owner(claim) != pod}

    def _pod(self, step: Json) -> Json:
        pod = self._created(step)
        names = claim_names(pod)
        node, said = self._placed(pod, names)
        told: Json = dict(said)
        if names:
            told["claims"] = {
                self._label(name): _told(self.claims[name]) if name in self.claims else None
                for name in names.values()
                if name is not None
            }
        if not node:
            self._drop_generated(step["name"])
        return told

    def _label(self, name: str) -> str:
        return re.sub(r".*(<.*>)", r"\1", name)

    def _created(self, step: Json) -> Json:
        """Return the pod, its claims generated from templates."""
        name, statuses = step["name"], []
        for one in step["claims"]:
            if template := one.get("resourceClaimTemplateName"):
                key = f"{name}-<{one['name']}>"
                statuses.append({"name": one["name"], "resourceClaimName": key})
                if template in self.templates:
                    self.claims[key] = _claim(key, self.templates[template]["spec"], owner=name)
        return {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
            "spec": {
                "resourceClaims": step["claims"],
                "nodeSelector": step.get("nodeSelector") or {},
                "containers": step.get("containers") or [],
            },
            "status": {"resourceClaimStatuses": statuses},
        }

    def _placed(self, pod: Json, names: Mapping[str, str | None]) -> tuple[str, Json]:
        """Return the pod's node, if there is one, and what is told of it besides its claims."""
        while True:
            claims = {name: Claim.of(claim) for name, claim in self.claims.items()}
            if held_back(pod, claims):
                return "", {"timeout": True}
            attempt = Attempt(pod, [claims[name] for name in names.values() if name], self.cluster)
            fits: dict[str, Fit] = {}
            reasons: list[str] = []
            try:
                for node in () if attempt.refusal else self.nodes:
                    found = self._filtered(attempt, pod, node)
                    if isinstance(found, Fit):
                        fits[node.name] = found
                    else:
                        reasons += found
            except AttemptError as error:
                return "", {"reason": "SchedulerError", "message": scheduler_error(error)}
            if fits:
                scores = normalised({node: fit.score for node, fit in fits.items()})
                best = max(scores, key=lambda node: scores[node])
                return best, {"node": best, **self._bind(pod, best, fits[best], names)}
            after, cleared = post_filter(attempt, pod["metadata"]["uid"])
            if cleared is None:
                message = unschedulable(len(self.nodes), reasons, attempt.refusal, after)
                return "", {"reason": "Unschedulable", "message": message}
            claim = self.claims[cleared.name]
            self.cluster.allocations.remove(claim["status"]["allocation"])
            self.claims[cleared.name] = {**claim, "status": {}}

    def _filtered(self, attempt: Attempt, pod: Json, node: Node) -> Fit | list[str]:
        selector = pod["spec"]["nodeSelector"]
        if any(node.labels.get(key) != value for key, value in selector.items()):
            return [OTHER_NODE]
        extended = self.extended[node.name]
        short = [
            f"Insufficient {name}"
            for name, amount in device_requests(pod).items()
            if not attempt.is_claimed(name, extended)
            and amount + self._used(name, node.name) > extended.get(name, 0)
        ]
        if short:
            return short
        found = attempt.filter(node, extended)
        return found if isinstance(found, Fit) else [found]

    def _used(self, resource: str, node: str) -> int:
        return sum(device_requests(pod).get(resource, 0) for pod, at in self.pods.values() if at == node)

    def _bind(self, pod: Json, node: str, fit: Fit, names: Mapping[str, str | None]) -> Json:
        self.pods[pod["metadata"]["name"]] = pod, node
        given = {claim.name: allocation for claim, allocation in fit.allocations}
        told: Json = {}
        for allocation in given.values():
            self.cluster.allocations.add(allocation)
        for name in names.values():
            assert name is not None
            self.claims[name] = bound(self.claims[name], pod, given.pop(name, None))
        if fit.extended:
            (allocation,) = given.values()
            key = f"{pod['metadata']['name']}-<extended>"
            claim = extended_claim(pod, fit.extended.requests)
            self.claims[key] = bound(claim, pod, allocation)
            told["extendedResourceClaim"] = {
                "requestMappings": list(fit.extended.mappings),
                "spec": claim["spec"],
                "annotations": claim["metadata"]["annotations"],
                "status": _told(self.claims[key]),
                "generateName": claim["metadata"]["generateName"],
            }
        return told


def sample(worlds: Iterable[Json]) -> Iterator[Json]:
    """Yield each world that was made for one rule, and every tenth of those that were drawn at random."""
    for number, one in enumerate(worlds):
        if one["name"].startswith("special/") or number % 10 == 0:
            yield one


def _object(found: Json) -> Json:
    return {"metadata": {"name": found["name"]}, "spec": found["spec"]}


def _claim(name: str, spec: Json, owner: str = "") -> Json:
    references = [{"kind": "Pod", "name": owner, "controller": True}] if owner else []
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "ownerReferences": references}
    return {"metadata": metadata, "spec": spec}


def _owner(claim: Json) -> str:
    owners = claim["metadata"].get("ownerReferences") or ()
    return owners[0]["name"] if owners else ""


def _told(claim: Json) -> Json:
    """Return what a recording shows of a claim."""
    status = claim.get("status") or {}
    if not status:
        return {}
    return {
        "allocation": status["allocation"],
        "reservedFor": [{key: one[key] for key in ("resource", "name")} for one in status["reservedFor"]],
        "finalizers": claim["metadata"]["finalizers"],
    }


# ── comparing ──


def differences(record: Json) -> list[str]:
    """Play a world; return what came out otherwise, one text for each step."""
    world = World.of(record)
    got = [world.play(step) for step in record["steps"]]
    want = list(record["observed"])
    pinned = record.get("last_if_pinned_to") or {}
    if pinned:
        want[-1] = _wanted_last(record, got[-1], pinned)
    varying = set() if pinned else {pointer.split("/")[1] for pointer in record.get("varies") or ()}
    return [
        f"{record['name']}[{number}] {json.dumps(record['steps'][number])}\n  want {theirs}\n  got  {ours}"
        for number, (ours, theirs) in enumerate(zip(_numbered(got), _numbered(want), strict=True))
        if ours != theirs and str(number) not in varying
    ]


def _wanted_last(record: Json, got: Json, pinned: Mapping[str, Json]) -> Json:
    """Return what the last step should come to, of a pod that may go to any of several nodes.

    With one of the best nodes it is what the pod got when it was pinned there. An attempt that failed names
    the node that failed first, and nodes are looked at in parallel: each node's own error is right.
    """
    last = record["observed"][-1]
    if "node" in got and "node" in last and got["node"] in best_nodes(record, pinned):
        return pinned[got["node"]]
    if last.get("reason") == got.get("reason") == "SchedulerError":
        return next((one for one in pinned.values() if one == got), last)
    return last


def best_nodes(record: Json, pinned: Mapping[str, Json]) -> frozenset[str]:
    """Return the nodes that a pod which is free to choose may get: those with the best alternatives."""
    specs = {one["name"]: one["spec"] for one in record["claims"]}
    scores = {}
    for node, told in pinned.items():
        if "node" in told:
            scores[node] = sum(
                8 - at
                for name, claim in (told.get("claims") or {}).items()
                for at in _alternatives(specs.get(name) or {}, claim)
            )
    most = max(scores.values(), default=0)
    return frozenset(node for node, score in scores.items() if score == most)


def _alternatives(spec: Json, claim: Json) -> Iterator[int]:
    """Yield the place of the chosen alternative of each list."""
    results = {
        one["request"]
        for one in ((claim or {}).get("allocation") or {"devices": {}})["devices"].get("results") or ()
    }
    for request in (spec.get("devices") or {}).get("requests") or ():
        for at, one in enumerate(request.get("firstAvailable") or ()):
            if f"{request['name']}/{one['name']}" in results:
                yield at


def _numbered(steps: list[Json]) -> list[Json]:
    """Return the steps with the IDs of shares numbered by first appearance."""
    count = 0

    def change(found: Json) -> Json:
        nonlocal count
        if isinstance(found, dict):
            if "shareID" in found:
                count += 1
                return {**found, "shareID": count}
            return {key: change(one) for key, one in found.items()}
        return [change(one) for one in found] if isinstance(found, list) else found

    return [change(step) for step in steps]
