"""Plays recordings of the real kubelet (v1.36.2) against ours.

A record is a list of steps; each says what was done and what the real one answered. Choices are ascending on
both sides, so answers are compared for equality. What is not compared, and why, stands at `comparable`.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from devplug.errors import KubeletCrashError
from tests.golden.world import World, world

Json = Any
"""What stands in a recording."""


def records(path: Path) -> Iterator[Json]:
    """Yield the records of one file: JSON lines, plain or compressed by xz."""
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
        for line in lines:
            yield json.loads(line)


def sample(stories: Iterable[Json]) -> Iterator[Json]:
    """Yield each story in which a step ends in a way that was not there before, and every 25th."""
    seen: set[Any] = set()
    for number, story in enumerate(stories):
        machine = story["machine"]
        ways = {
            (step["op"], machine.get("policy"), machine.get("scope"), *sorted(_ways(step["observed"])))
            for step in story["steps"]
        }
        if number % 25 == 0 or not ways <= seen:
            yield story
        seen |= ways


def _ways(observed: Json) -> Iterator[tuple[str, str | bool]]:
    """Yield what a step came to, of texts the words alone, and of all else whether there was any."""
    for key, fact in observed.items():
        yield key, re.sub(r"\S*[^\sa-z]\S*", "#", fact.lower()) if isinstance(fact, str) else bool(fact)


def comparable(record_name: str, op: str, observed: Json, made: World) -> Json:
    """Return what of an observation is compared."""
    if not isinstance(observed, dict):
        return observed
    facts = dict(observed)
    # Which stage a device was picked in: the devices themselves are compared, and so are the plugin's calls.
    facts.pop("picks", None)
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
    if op == "merge":
        # Where node numbers are missing, the real one's answer depends on chance.
        facts = {key: fact for key, fact in facts.items() if f"{key}!varies" not in observed}
        facts = {key: fact for key, fact in facts.items() if not key.endswith("!varies")}
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
    text = text.replace(str(made.folder), "<DIR>").replace(str(made.folder.parent), "<ROOT>")
    return json.loads(re.sub(r"endpoint \S+ has been stopped", "endpoint <ENDPOINT> has been stopped", text))


async def differences(record: Json, folder: Path) -> list[str]:
    """Play a record; return what came out otherwise, one text for each step."""
    found: list[str] = []
    async with world(folder, record["machine"]) as made:
        for number, step in enumerate(record["steps"]):
            where = f"{record['name']}[{number}] {step['op']} {step['input']}"
            observed = step["observed"]
            try:
                async with asyncio.timeout(5):
                    got = await made.play(step)
            except KubeletCrashError as error:
                if observed.get("panic_in") != error.place:
                    found.append(f"{where}: {error}")
                break  # the real one had died, too, and its later steps say nothing
            except Exception as error:  # noqa: BLE001 -- a record must not stop the others
                found.append(f"{where}: {error!r}")
                break
            # Some files were kept short: they tell of no calls and affinities. What varies is not compared.
            if step["op"] in ("admit", "allocate_container", "merge"):
                got = {
                    key: got[key] for key in got.keys() & observed.keys() if f"{key}!varies" not in observed
                }
            got, want = (comparable(record["name"], step["op"], facts, made) for facts in (got, observed))
            if got != want:
                found.append(f"{where}\n  want {want}\n  got  {got}")
    return found
