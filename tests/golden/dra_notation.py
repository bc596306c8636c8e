"""The notation of DRA timelines ⇄ our values: who takes part, as far as the lines tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from devplug.kubelet.claim_references import ContainerClaim, ExtendedClaim, PodClaim, RequestMapping
from devplug.kubelet.pods import Container, ContainerState, Pod, PodStatus

Json = Any
"""What stands in a recording."""

ROOT = "/var/lib/kubelet"
NAMESPACE = "dra-demo"
PREPARE = "NodePrepareResources"

AT_ONCE_SECONDS = 5.0
"""How soon a pod runs whose claims were prepared at the first attempt."""


def _claims(line: Json) -> list[Json]:
    is_prepare = line.get("call", "").endswith(PREPARE)
    return line["request"].get("claims", []) if is_prepare else []


def _owner(claim_name: str, pods: set[str]) -> str | None:
    """The pod that a claim's name tells: `c-POD`, or what was made for POD."""
    for name in (claim_name.removeprefix("c-"), claim_name.partition("-")[0]):
        if name in pods:
            return name
    return None


@dataclass
class Cast:
    """The pods and claims of one timeline."""

    lines: list[Json]
    names: set[str] = field(default_factory=set)
    pods: dict[str, Pod] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)
    """Of claims, by name."""

    @classmethod
    def of(cls, lines: list[Json]) -> Cast:
        cast = cls(lines)
        for line in lines:
            cast.names.update(cast._named(line))
            cast.uids.update({claim["name"]: claim["uid"] for claim in _claims(line)})
        pod_uids = cast._pod_uids()
        cast.pods = {name: cast._pod(name, pod_uids.get(name, f"uid-{name}")) for name in sorted(cast.names)}
        return cast

    @property
    def first_call(self) -> float:
        return float(next(line["t"] for line in self.lines if "call" in line))

    def _named(self, line: Json) -> Iterator[str]:
        if isinstance(line.get("pod"), str):
            yield line["pod"]
        if "object" in line and any(one["from"] == "kubelet" for key in line for one in _events(line, key)):
            yield line["object"]

    def _mentioned(self, line: Json) -> Iterator[str]:
        """The pods that a line is about."""
        yield from self._named(line)
        if isinstance(line.get("podresources_get"), str):
            yield line["podresources_get"]
        words = line.get("note", "").split()
        yield from (word for word in words if word in self.names)
        for claim in line["request"].get("claims", ()) if "request" in line else ():
            owner = _owner(claim["name"], self.names)
            if owner is not None:
                yield owner

    def pod_before(self, line: Json) -> str:
        """The pod that was the last one to be mentioned."""
        for earlier in reversed(self.lines[: self.lines.index(line) + 1]):
            for name in self._mentioned(earlier):
                return name
        raise LookupError(line)

    def pods_of(self, call: Json) -> Iterator[str]:
        """The pods for which a call shows that they are there."""
        for claim in _claims(call):
            owner = _owner(claim["name"], self.names)
            if owner is not None:
                yield owner

    def runs_at_once(self, line: Json) -> bool:
        """Whether a pod that waits in this line runs so soon that ours may run already."""
        return any(
            later.get("pod") == line["pod"] and later["phase"] == "Running"
            for later in self.lines[self.lines.index(line) :]
            if later["t"] - line["t"] < AT_ONCE_SECONDS
        )

    # ── pods ──

    def _pod(self, name: str, uid: str) -> Pod:
        used = self._used(name)
        names = list(dict.fromkeys(claim for claims in used.values() for claim in claims))
        extended = self._extended(name)
        entries = {claim: "d" if len(names) == 1 else claim for claim in names}
        if extended is not None:
            entries = {}
        containers = tuple(
            Container(
                container,
                {one.resource_name: 2 for one in extended.mappings} if extended else {},
                claims=tuple(ContainerClaim(entries[claim]) for claim in claims if claim in entries),
            )
            for container, claims in used.items()
        )
        is_initial = any(
            one.get("reason") == "PodInitializing"
            for line in self.lines
            if line.get("pod") == name
            for one in line["containers"]
        )
        return Pod(
            uid,
            name,
            NAMESPACE,
            (Container("init"),) if is_initial else (),
            containers,
            extended,
            tuple(PodClaim(entry, claim) for claim, entry in entries.items()),
        )

    def _used(self, name: str) -> dict[str, list[str]]:
        """Container → names of the claims that it uses, as PodResources says, or as the first call does."""
        for line in self.lines:
            if line.get("podresources_get") == name and "response" in line:
                return {
                    container["name"]: [one["claim_name"] for one in container.get("dynamic_resources", ())]
                    for container in line["response"]["pod_resources"]["containers"]
                }
        containers = [
            one["name"] for line in self.lines if line.get("pod") == name for one in line["containers"]
        ]
        return {container: self._first_claims(name) for container in dict.fromkeys(containers or ["c"])}

    def _first_claims(self, name: str) -> list[str]:
        calls = [[claim["name"] for claim in _claims(line)] for line in self.lines if _claims(line)]
        owned = [names for names in calls if any(_owner(one, self.names) == name for one in names)]
        if owned:
            return owned[0]
        first = next(number for number, line in enumerate(self.lines) if name in self._named(line))
        later = [[claim["name"] for claim in _claims(line)] for line in self.lines[first:] if _claims(line)]
        return later[0]

    def _extended(self, name: str) -> ExtendedClaim | None:
        for line in self.lines:
            extended = line.get("extendedResourceClaimStatus")
            if extended and extended["resourceClaimName"].startswith(f"{name}-"):
                return ExtendedClaim(
                    extended["resourceClaimName"],
                    tuple(
                        RequestMapping(one["containerName"], one["resourceName"], one["requestName"])
                        for one in extended["requestMappings"]
                    ),
                )
        return None

    def _pod_uids(self) -> dict[str, str]:
        """Pod → UID, from what claims are reserved for, and from who is new in a checkpoint."""
        found: dict[str, str] = {}
        for line in self.lines:
            if isinstance(line.get("claim"), dict) and isinstance(line["claim"]["status"], dict):
                found.update(
                    {one["name"]: one["uid"] for one in line["claim"]["status"].get("reservedFor", ())}
                )
        there: list[str] = []
        for line in self.lines:
            there += [name for name in self._mentioned(line) if name not in there]
            for key, text in line.items():
                if key.startswith("checkpoint"):
                    for state in json.loads(json.loads(text)["Data"])["ClaimInfoStateList"]:
                        new = sorted(state["PodUIDs"].keys() - set(found.values()))
                        unknown = [name for name in there if name not in found]
                        is_ours = state["Namespace"] == NAMESPACE and state["ClaimName"] in self.uids
                        if is_ours and len(new) == 1 and unknown:
                            found[unknown[-1]] = new[0]
        return found

    def claims_of(self, pod: Pod) -> Iterator[Json]:
        """The ResourceClaims of a pod, reserved for nobody."""
        drivers = [line["driver"] for line in self.lines if "driver" in line][:1]
        names = [one.claim_name for one in pod.resource_claims if one.claim_name]
        for name in [*names, *([pod.extended_claim.claim_name] if pod.extended_claim else [])]:
            results = [{"driver": driver} for driver in drivers]
            yield {
                "metadata": {"namespace": NAMESPACE, "name": name, "uid": self.uids[name]},
                "status": {"allocation": {"devices": {"results": results}}, "reservedFor": []},
            }


def _events(line: Json, key: str) -> list[Json]:
    return line[key] if key.startswith("events") else []


def status_of(status: PodStatus, pod: Pod) -> Json:
    """Return a pod's status in the notation of the recordings."""
    apps = {container.name for container in pod.containers}
    return {
        "phase": status.phase.value,
        "containers": sorted(
            (one.name, one.state.value, _reason_of(one.state, one.reason, pod))
            for one in status.containers
            if one.name in apps
        ),
    }


def _reason_of(state: ContainerState, reason: str, pod: Pod) -> str:
    if state is ContainerState.WAITING:
        return reason or ("PodInitializing" if pod.init_containers else "ContainerCreating")
    return reason or ("Completed" if state is ContainerState.TERMINATED else "")
