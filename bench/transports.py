"""Our daemon over its own transport and over grpcio, small plugins, and the floor: in turns, in one run."""

from __future__ import annotations

import math
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bench.floor import bare_interpreter, echo, echo_client, exchanged_bytes, import_seconds
from bench.load import MANY, crowding, many
from bench.measures import (
    ALLOCATE_BATCH,
    CALL_SECONDS,
    MEGABYTE,
    Lives,
    Samples,
    allocate_batch,
    idling,
    memory,
    plugging,
    restarting,
    threads,
    turn,
)
from bench.report import Figure, Report, Row, by_row, median
from bench.scrapes import PAGES, status_socket
from bench.subjects import MissingError, Subject, built, many_file, started
from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from devplug.wire import deviceplugin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.floor import EchoClient
    from bench.measures import Counts, Running
    from bench.subjects import Plugin

DAEMON, GRPCIO, SDK, GO, FLOOR = COLUMNS = ["daemon", "on grpcio", "SDK", "Go", "floor"]

SAMPLE = (sys.executable, "-m", "bench.sample", "{dir}")
"""What `sample.go` is, with the SDK."""

IMPORTS = {
    DAEMON: ("devplug.wire.server", "devplug.wire.channel"),
    GRPCIO: ("devplug.wire.grpcio",),
}
"""What a daemon has to import of its transport."""

LISTENING = ("--listen", "127.0.0.1:0")
CROWDS, LARGE_ROUNDS = 20, 5

SETTLED = "8 devices"
"""Metrics and status are on, and have been asked for."""


def over_grpcio(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same command over grpcio."""
    return (sys.executable, "-m", "bench.grpcio_daemon", *command[1:])


async def measure_transports(command: tuple[str, ...], file: str, counts: Counts) -> Report:
    """Measure all of it, but the plugin in Go only where it can be built."""
    commands = {DAEMON: (*command, *LISTENING), GRPCIO: over_grpcio((*command, *LISTENING))}
    larges = [Subject(name, one, many_file(MANY), MANY) for name, one in commands.items()]
    subjects = [*(Subject(name, one, file) for name, one in commands.items()), Subject(SDK, SAMPLE)]
    missing = []
    try:
        subjects.append(Subject(GO, (str(built()), "plugin", "{dir}")))
    except MissingError as error:
        missing.append(f"the plugin in Go was not measured: {error}")
    try:
        rows = [
            *await _imports(counts.starts),
            *await _starts([Lives(subject, counts.starts) for subject in subjects], counts.starts),
            *await _side_by_side(subjects, counts),
            *(_placed([*commands], row) for row in by_row(await many(larges, LARGE_ROUNDS))),
        ]
    except MissingError as error:
        return Report([], [], [f"the transports were not measured: {error}"])
    return Report(COLUMNS, rows, missing, heading="one daemon, two transports; small plugins")


async def _imports(times: int) -> list[Row]:
    seconds: Mapping[str, list[float]] = {column: [] for column in IMPORTS}
    for _ in range(times):
        for column, modules in IMPORTS.items():
            seconds[column].append(await import_seconds(*modules))
    figures = [median("import of the transport, median", found) for found in seconds.values()]
    return [_placed([*IMPORTS], Row(tuple(figures)))]


async def _starts(lives: Sequence[Lives], times: int) -> list[Row]:
    """Start and stop all in turns; the floor of a start is that of the echo."""
    echoes, bares = [], []
    sizes: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as name:
        for number in range(times):
            for life in lives:
                async with started(life.subject) as plugin:
                    life.born(plugin)
                    await life.die(plugin)
            async with echo(Path(name) / f"{number}.sock", 1, 1) as floor:
                echoes.append(floor.started_within)
            async with bare_interpreter() as floor:
                bares.append(floor.started_within)
                sizes.append(floor.process.memory_bytes()[0])
    columns = [life.subject.name for life in lives]
    starts = median("process start → Register, median", echoes)
    bare = (
        median("bare interpreter: start → first line, median", bares),
        Figure("bare interpreter: resident (RSS)", "MB", sum(sizes) / len(sizes) / MEGABYTE),
    )
    return [
        *(_placed([FLOOR], Row((figure,))) for figure in bare),
        _placed([*columns, FLOOR], Row((*(life.start_figures()[0] for life in lives), starts))),
        _placed(columns, Row(tuple(life.start_figures()[1] for life in lives))),
        _placed(columns, Row(tuple(life.stop_figures()[0] for life in lives))),
    ]


async def _side_by_side(subjects: Sequence[Subject], counts: Counts) -> list[Row]:
    """Measure all that is asked of processes that run beside each other."""
    async with AsyncExitStack() as stack:
        plugins = [await stack.enter_async_context(started(subject)) for subject in subjects]
        daemons = [plugin for plugin in plugins if plugin.subject.name in (DAEMON, GRPCIO)]
        for daemon in daemons:
            await _look_at(daemon)
        asked, answered = await _exchanged(plugins[0])
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp"))
        path = Path(place) / "echo.sock"
        floor = await stack.enter_async_context(echo(path, asked, answered))
        client = await stack.enter_async_context(echo_client(path, asked, answered))
        running: list[Running] = [*plugins, floor]
        ours = [daemon.subject.name for daemon in daemons]
        everybody = [*(plugin.subject.name for plugin in plugins), FLOOR]
        return [
            *(
                _placed(everybody, row)
                for row in (
                    *await idling(running, counts, SETTLED),
                    *memory(running, SETTLED),
                    *threads(running, f"threads, {SETTLED}"),
                    *await _allocate(plugins, client, counts.calls),
                )
            ),
            *(_placed(ours, row) for row in await plugging(daemons, counts)),
            *(
                _placed([*ours, FLOOR], row)
                for row in await crowding(daemons, client, CROWDS, counts.pause_seconds)
            ),
            *(_placed(ours, row) for row in await restarting(daemons, counts)),
            *(
                _placed(everybody, row)
                for row in (
                    *memory(running, "after all that"),
                    *threads(running, "threads, after all that"),
                )
            ),
        ]


async def _look_at(plugin: Plugin) -> None:
    """Have all pages asked for once: what they load is part of a daemon that is looked at."""
    address = UnixAddress(str(await status_socket(plugin.folder)))
    for page in PAGES.values():
        await get(address, page)


async def _exchanged(plugin: Plugin) -> tuple[int, int]:
    """Return how many bytes an Allocate of one device and its answer have."""
    client = await plugin.registered()
    request = [(client.healthy_ids[0],)]
    answer = await client.peer.call(deviceplugin.ALLOCATE, request, timeout_seconds=CALL_SECONDS)
    method = deviceplugin.ALLOCATE
    return exchanged_bytes(
        method.path, method.request.encode(request), method.response.encode(answer), CALL_SECONDS
    )


async def _allocate(plugins: Sequence[Plugin], client: EchoClient, calls: int) -> list[Row]:
    """Allocate one device, and let the echo answer as many bytes, in turns of 100."""
    samples, floor = [Samples(calls) for _ in plugins], Samples(calls)
    size = min(ALLOCATE_BATCH, calls)
    for _ in range(math.ceil(calls / ALLOCATE_BATCH)):
        await turn(plugins, samples, lambda plugin: allocate_batch(plugin, size))
        floor.seconds += [await client.seconds() for _ in range(size)]
    return by_row(one.spread("Allocate, one device") for one in (*samples, floor))


def _placed(columns: Sequence[str], row: Row) -> Row:
    """Return a row about some of the columns with the others left empty."""
    found = dict(zip(columns, row.figures, strict=True))
    nothing = Figure(row.name, row.figures[0].unit, None)
    return Row(tuple(found.get(column, nothing) for column in COLUMNS))
