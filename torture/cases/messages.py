"""Messages that are none, or that no honest peer sends: at every decoder in process, at both servers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from random import Random
from typing import TYPE_CHECKING, Any, Final

from devplug.errors import RemoteError
from devplug.wire import deviceplugin, pluginregistration, podresources
from devplug.wire.codecs import Codec, MalformedMessageError
from devplug.wire.sockets import connected
from torture.catalogue import Round, case
from torture.footprint import nothing_kept
from torture.fuzzing.both_ends import SERVED_SECONDS, answer_fault, both_ends, raw
from torture.fuzzing.hunt import Entry, entries, hunt, mutated, of_each, replayed
from torture.fuzzing.wireformat import mutated_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.wire.deviceplugin import Method
    from devplug.wire.sockets import Peer
    from torture.catalogue import Trial


def _codecs() -> dict[str, Codec[Any]]:
    """Return every codec by a name that says which API has it."""
    found: dict[str, Codec[Any]] = {"v1beta1 ContainerAllocateResponse": deviceplugin.CONTAINER_RESPONSE}
    for module in (deviceplugin, pluginregistration, podresources):
        for value in vars(module).values():
            if isinstance(value, deviceplugin.Method):
                api = value.service.partition(".")[0]
                for codec in (value.request, value.response):
                    found[f"{api} {codec.message}"] = codec
    return found


CODECS = _codecs()


@case(
    "messages-in-process",
    fault="X31",
    promise="Whatever bytes a decoder gets: it says malformed, or gives a value that can be written and read",
    count=1_000_000,
    unit="messages",
    invariants="I3 I11",
    limit_seconds=400,
    brief=True,
)
async def messages_in_process(trial: Trial) -> None:
    """Change kept messages of every kind, by bytes and by fields, and have every decoder read them."""
    kept = entries("messages")
    others = [entry.content for entry in kept]
    taken = 0

    def changed(entry: Entry, random: Random) -> bytes:
        chance = random.random()
        content = mutated_message(entry.content, random) if chance < 0.6 else entry.content
        return content if chance < 0.4 else mutated(content, random, others=others, limit_bytes=16_384)

    def fault(entry: Entry) -> str:
        nonlocal taken
        found = _fault(CODECS[entry.of], entry.content)
        taken += found is None
        return found or ""

    for name in CODECS:
        trial.check(any(entry.of == name for entry in kept), f"I11: no kept message is a {name}")
    replayed(trial, kept, fault)
    warm_up = Random("warm-up")
    for _ in range(trial.count // 20):
        entry = warm_up.choice(kept)
        fault(Entry(entry.of, "", changed(entry, warm_up)))
    async with nothing_kept(trial):
        await hunt(trial, kept, changed, fault)
    trial.figure("understood", f"{taken:,}")


def _fault(codec: Codec[Any], content: bytes) -> str | None:
    """Return what is wrong about how a codec takes bytes; None for a value, "" for a right refusal."""
    try:
        value = codec.decode(content)
    except MalformedMessageError as error:
        return "" if str(error) == f"malformed {codec.message}" else f"I11: it says {error}"
    except Exception as error:  # noqa: BLE001 -- any other is what is looked for
        return f"I11: decode raises {type(error).__name__}: {error}"
    try:
        again = codec.decode(codec.encode(value))
    except Exception as error:  # noqa: BLE001 -- as above
        return f"I11: what it has read raises {type(error).__name__} when written: {error}"
    if again != value:
        return f"I11: {value} becomes {again} when written and read"
    return None


# ── on the wire ───────────────────────────────────────────────────────────────────────────────────

LANES: Final = 32
"""Calls at once: what one server's refusal costs another call shows only beside it."""

CALLS: Final = (
    *(("plugin", deviceplugin.ALLOCATE, 30), ("plugin", deviceplugin.GET_PREFERRED_ALLOCATION, 20)),
    *(("plugin", deviceplugin.PRE_START_CONTAINER, 15), ("plugin", deviceplugin.GET_OPTIONS, 5)),
    *(("plugin", deviceplugin.LIST_AND_WATCH, 2), ("kubelet", deviceplugin.REGISTER, 8)),
    *(("podresources", podresources.GET, 10), ("podresources", podresources.LIST, 4)),
    *(("podresources", podresources.V1ALPHA1_LIST, 3),),
    *(("podresources", podresources.GET_ALLOCATABLE_RESOURCES, 3),),
)
"""Who is called, what, and how many of a hundred calls that is."""


@case(
    "messages-on-the-wire",
    fault="X31",
    promise="Each broken request gets the status and the text of its row, and the next call is served",
    count=100_000,
    unit="calls",
    invariants="I3 I4 I11",
    limit_seconds=500,
)
async def messages_on_the_wire(trial: Trial) -> None:
    """Call both servers with changed messages, many calls at once; Register dials what it is told."""
    kept = of_each(entries("messages"))
    others = [entry.content for found in kept.values() for entry in found]
    weights = [weight for _, _, weight in CALLS]

    async with both_ends(trial.folder) as ends, AsyncExitStack() as stack:
        peers = {
            end: await stack.enter_async_context(connected(socket)) for end, socket in ends.sockets.items()
        }

        async def one(chance: Random) -> str:
            ((end, method, _),) = chance.choices(CALLS, weights)
            api = method.service.partition(".")[0]
            content = chance.choice(kept[f"{api} {method.request.message}"]).content
            if chance.random() < 0.5:
                content = mutated_message(content, chance)
            if chance.random() < 0.7:
                content = mutated(content, chance, others=others, limit_bytes=16_384)
            return answer_fault(method, content, await _answer(peers[end], method, content))

        async def lane(turns: Iterator[Round]) -> None:
            for turn in turns:
                if found := await one(turn.random):
                    trial.broke(found, turn.number)

        async def lanes(turns: Iterator[Round]) -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(LANES):
                    group.create_task(lane(turns))

        await lanes(Round(-number, Random(f"warm-up {number}")) for number in range(trial.count // 10))
        async with nothing_kept(trial):
            await lanes(trial.rounds())
            await ends.check_served()


async def _answer(peer: Peer, method: Method[Any, Any], content: bytes) -> bytes | RemoteError:
    """Return what a call is answered; of a stream the first message."""
    try:
        if method.is_stream:
            async with asyncio.timeout(SERVED_SECONDS), aclosing(peer.stream(raw(method), content)) as lists:
                return await anext(lists)
        return await peer.call(raw(method), content, timeout_seconds=SERVED_SECONDS)
    except RemoteError as error:
        return error
