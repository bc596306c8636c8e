"""Plays recordings of the real kubelet's device manager (v1.36.2) against ours.

A record is a list of steps; each says what was done and what the real one answered. Choices are ascending on
both sides, so answers are compared for equality. What is not compared, and why, stands at `SKIPPED_STEPS`,
`out_of_scope` and `_comparable`.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

from devplug.errors import KubeletCrashError
from tests.kubelet.recorded_world import world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kubelet.recorded_world import World

Json = Any
"""What stands in a recording."""

SKIPPED_STEPS = {
    "affinity": "the topology manager's hints",
    "drain_updates": "health updates for pods",
    "health_status": "the devices' health in a pod's status",
    "healthz": "the kubelet's own health check",
    "hints": "the topology manager's hints",
    "pod_hints": "the topology manager's hints",
    "sanitize": "the scheduler's view of the node",
}
"""Steps that only read what we do not build yet; the record goes on without them."""

POLICY_STEPS = {"admit", "allocate_container", "run_container", "hints", "pod_hints", "affinity"}
OUTSIDE_STEPS = {
    "watcher_validate",
    "watcher_register",
    "watcher_deregister",
    "tm_add_container",
    "tm_remove_container",
}


def out_of_scope(record: Json) -> str | None:
    """Return why a record cannot be played, or None."""
    ops = {step["op"] for step in record["steps"]}
    if ops & OUTSIDE_STEPS:
        return "plugin watcher or container bookkeeping of the topology manager"
    if any("topology_error" in step["observed"] for step in record["steps"]):
        return "construction of the topology manager"
    if record["machine"]["policy"] != "none" and ops & POLICY_STEPS:
        return "topology policy other than none"
    if any("dra_extended" in step["input"].get("pod", {}) for step in record["steps"]):
        return "extended resources served by DRA"
    if "," in record["name"] and record["name"].startswith("plugin serving on"):
        return "gRPC's C library takes no comma in a socket path"
    if record["name"].endswith("fails with code 7"):
        return "our plugins have no error that is PermissionDenied"
    return None


def _comparable(record_name: str, op: str, observed: Json, made: World) -> Json:
    """Return what of an observation is compared."""
    facts = dict(observed)
    # The topology manager's hints, our choices (they follow from the rest), and a question about the node.
    for key in ("affinity", "picks", "should_reset_extended_resources", "topology_error"):
        facts.pop(key, None)
    if op == "register" and facts["code"] == "Unavailable":
        facts.pop("message")  # of the calling program's gRPC, not of the kubelet
    if op == "allocatable_devices":
        facts["devices"] = {name: devices for name, devices in facts["devices"].items() if devices}
    if "calls" in facts:
        # An answer without IDs is null or [] there, as the plugin's program happened to make it. The records
        # of random allocations were kept short: they have no other calls.
        facts["calls"] = [
            {**call, "response": call["response"] or []} if "response" in call else call
            for call in facts["calls"]
            if not record_name.startswith("alloc-") or call["method"] == "GetPreferredAllocation"
        ]
    for key in ("checkpoint_error", "decode_error"):
        # The words for malformed JSON are those of Go's decoder, and only ever logged.
        if facts.get(key) and facts[key] != "checkpoint is corrupted":
            facts[key] = "malformed"
    if op == "devices":
        facts["devices"] = facts["devices"] and {
            name: {key: nodes for key, nodes in devices.items() if key not in made.contradicted}
            for name, devices in facts["devices"].items()
        }
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
    text = text.replace(str(made.folder), "<DIR>").replace(str(made.folder.parent), "<ROOT>")
    return json.loads(re.sub(r"endpoint \S+ has been stopped", "endpoint <ENDPOINT> has been stopped", text))


async def differences(record: Json, folder: Path) -> list[str]:
    """Play a record; return what came out otherwise, one text for each step."""
    found: list[str] = []
    async with world(folder) as made:
        for number, step in enumerate(record["steps"]):
            where = f"{record['name']}[{number}] {step['op']} {step['input']}"
            if step["op"] in SKIPPED_STEPS:
                if step["op"] in ("hints", "pod_hints"):
                    made.manager.free_inactive()  # their one effect under policy none
                continue
            try:
                async with asyncio.timeout(5):
                    got = await made.play(step)
            except KubeletCrashError as error:
                if step["observed"].get("panic_in") != error.place:
                    found.append(f"{where}: {error}")
                break  # the real one had died, too, and its later steps say nothing
            got, want = (
                _comparable(record["name"], step["op"], facts, made) for facts in (got, step["observed"])
            )
            if got != want:
                found.append(f"{where}\n  want {want}\n  got  {got}")
    return found
