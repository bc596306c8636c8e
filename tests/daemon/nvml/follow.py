"""A program that follows an NVIDIA source and prints what it finds, one JSON text a line.

It is one of its own because a library is found by a loader path, which a process has from its start on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import msgspec

from devplug.daemon.config.selectors import NvidiaSelector
from devplug.daemon.config.templates import parse_template
from devplug.daemon.sources.device import HostDevice
from devplug.daemon.sources.host import Host
from devplug.daemon.sources.nvidia import NvidiaSource


class _Teller(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell({"log": record.getMessage(), "reason": getattr(record, "reason", "")})


def tell(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def shown(found: HostDevice) -> dict[str, Any]:
    return {
        "name": found.name,
        "health": found.health.state.value,
        "reason": found.health.reason,
        "numa": found.numa_node,
        "facts": dict(found.facts),
        "nodes": [node.host_path for node in found.nodes if not node.is_shared],
        "shared": [node.host_path for node in found.nodes if node.is_shared],
        "hardware": found.hardware,
        "links": dict(found.links),
        "capacity": dict(found.capacity),
        "takes": dict(found.partition.takes) if found.partition else {},
    }


async def follow(source: NvidiaSource) -> None:
    before = None
    async for looked in source.looks():
        devices = [shown(found) for found in looked]
        if devices != before:
            before = devices
            tell({"devices": devices})


def main() -> None:
    asked = json.loads(sys.argv[1])
    logging.getLogger().addHandler(_Teller())
    logging.getLogger().setLevel(logging.INFO)
    sources = [
        NvidiaSource(
            f"example.com/gpu{number}",
            msgspec.convert(selectors, tuple[NvidiaSelector, ...]),
            parse_template(asked["id"]) if "id" in asked else None,
            host=Host(Path(asked["root"])),
            **asked["options"],
        )
        for number, selectors in enumerate(asked["resources"])
    ]
    if asked.get("looks_at_line"):
        asyncio.run(look_at_line(sources[0]))
    elif asked["follows"]:
        asyncio.run(all_of(sources))
    else:
        tell({"devices": [shown(found) for found in sources[0].look()]})


async def look_at_line(source: NvidiaSource) -> None:
    """Follow the source until its first look; then look at each line that somebody writes."""
    async for looked in source.looks():
        tell({"devices": [shown(found) for found in looked]})
        for _ in sys.stdin:
            tell({"devices": [shown(found) for found in source.look()]})
        return


async def all_of(sources: list[NvidiaSource]) -> None:
    async with asyncio.TaskGroup() as group:
        for source in sources:
            group.create_task(follow(source))


if __name__ == "__main__":
    main()
