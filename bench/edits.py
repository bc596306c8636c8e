"""The cost of edits of `expose.env` beside Allocates: registrations, refused calls, and new answers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.measures import CALL_SECONDS
from bench.report import Bound, Figure, Report, by_row, spread
from bench.subjects import NODES_FILE, MissingError, Subject, started
from devplug.errors import RemoteError
from devplug.linux.processes import filled
from devplug.wire import deviceplugin

if TYPE_CHECKING:
    from bench.subjects import Plugin

EDITS = 20
EVERY_SECONDS = 1.5
"""The wait from one edit to the next."""

ALLOCATE_EVERY_SECONDS = 0.01
VARIABLE = "EDIT"


def edited(number: int) -> str:
    """Return the configuration after so many edits."""
    return f'{NODES_FILE}    expose:\n      env: {{{VARIABLE}: "{number}"}}\n'


@dataclass(slots=True)
class Calls:
    """The Allocates beside the edits."""

    seconds: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    first_seen: dict[str, float] = field(default_factory=dict)
    """When each value of the variable was first in an answer."""


async def measure_edits(command: tuple[str, ...], edits: int = EDITS) -> Report:
    """Edit one variable of a resource, with an Allocate every 10 ms."""
    async with started(Subject("devplug", command, edited(0))) as plugin:
        file, calls, written_at = plugin.folder.parent / "config.yaml", Calls(), dict[str, float]()
        async with asyncio.TaskGroup() as group:
            caller = group.create_task(_call(plugin, calls))
            for number in range(1, edits + 1):
                written_at[str(number)] = time.monotonic()
                file.write_text(filled(edited(number), {"{devices}": str(plugin.devices)}))
                await asyncio.sleep(EVERY_SECONDS)
            caller.cancel()
        clients = [one.client for one in plugin.kubelet.attempts if one.client is not None]
        ended = sum(client.has_ended for client in clients)
    waits = [calls.first_seen[one] - at for one, at in written_at.items() if one in calls.first_seen]
    figures = [
        Figure("registrations", "", len(plugin.kubelet.attempts)),
        Figure("streams that ended", "", ended),
        Figure("Allocate calls", "", len(calls.seconds) + len(calls.refused)),
        Figure("refused calls", "", len(calls.refused), "; ".join(sorted({*calls.refused})[:1])),
        *spread("edit → the new answer", waits, edits),
        *spread("Allocate", calls.seconds, len(calls.seconds)),
    ]
    longest = max(waits) / EVERY_SECONDS if len(waits) == edits else None
    return Report(
        ["devplug"],
        by_row([figures]),
        heading=f"{edits} edits of one variable, one every {EVERY_SECONDS:g} s",
        bounds=[
            Bound("registrations, of 1", len(plugin.kubelet.attempts), 1),
            Bound("refused calls and ended streams, of none", len(calls.refused) + ended, 0),
            Bound(f"the longest wait for the new answer, of {EVERY_SECONDS:g} s", longest, 1),
        ],
    )


async def _call(plugin: Plugin, calls: Calls) -> None:
    """Call Allocate until cancelled, for one device after the other."""
    number = 0
    while True:
        client = await plugin.registered()
        began = time.monotonic()
        device_id = client.healthy_ids[number % len(client.healthy_ids)]
        number += 1
        try:
            answer = await client.peer.call(
                deviceplugin.ALLOCATE, [(device_id,)], timeout_seconds=CALL_SECONDS
            )
        except (MissingError, RemoteError) as error:
            calls.refused.append(str(error))
        else:
            ended = time.monotonic()
            calls.seconds.append(ended - began)
            calls.first_seen.setdefault(answer[0].envs[VARIABLE], ended)
        await asyncio.sleep(max(0.0, began + ALLOCATE_EVERY_SECONDS - time.monotonic()))
