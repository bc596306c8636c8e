"""A driver's sockets exist before they accept connections: the kubelet dials again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from devplug.conformance.dra.checks import all_driver_checks
from devplug.conformance.dra.driver_program import DriverPlace
from devplug.conformance.dra.testbed import DriverRun
from devplug.conformance.runner import ARRIVAL, judge_run
from devplug.conformance.verdicts import Outcome
from devplug.sandbox.scripted_api_server import scripted_api_server
from tests.conformance.dra.right_driver import RightDriver
from tests.conformance.dra.trials import SUBJECT, TIMES, InProcess
from tests.conformance.trials import told

LISTEN_DELAY_SECONDS = 0.1


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while content := await reader.read(65536):
            writer.write(content)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def bound(path: Path, behind: Path) -> AsyncIterator[socket.socket]:
    """Bind `path`, and forward its connections to the socket `behind` once it listens."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(behind)
        async with asyncio.TaskGroup() as group:
            group.create_task(pump(reader, inner_writer))
            group.create_task(pump(inner_reader, writer))

    outer = socket.socket(socket.AF_UNIX)
    outer.bind(str(path))
    server = await asyncio.start_unix_server(forward, sock=outer, start_serving=False)
    try:
        yield outer
        is_time = asyncio.Event()
        asyncio.get_running_loop().call_later(LISTEN_DELAY_SECONDS, is_time.set)
        await is_time.wait()
        await server.start_serving()
        await asyncio.Event().wait()
    finally:
        server.close()


class ListensLate(RightDriver):
    """Binds both sockets, and listens at each 100 ms later, as a busy machine may make any driver do."""

    def inner(self, name: str) -> Path:
        return self.folder / f"inner-{name}"

    async def serve(self) -> None:
        self.service.path, self.registration.path = self.inner("service"), self.inner("registration")
        await self.service.bind()
        await self.registration.bind()
        async with asyncio.TaskGroup() as group:
            for path, inner in (
                (self.registration_socket(), self.registration.path),
                (self.service_socket(), self.service.path),
            ):
                group.create_task(self.listen_late(path, inner))

    async def listen_late(self, path: Path, inner: Path) -> None:
        async with bound(path, inner):
            pass

    async def end(self) -> None:
        await super().end()
        self.registration_socket().unlink(missing_ok=True)


async def test_a_driver_that_listens_100_ms_after_bind_passes() -> None:
    checks = [one for one in all_driver_checks() if one.lane == ARRIVAL]
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())

        async def launch(place: DriverPlace) -> InProcess:
            return InProcess(ListensLate(place), tasks)

        run = DriverRun(launch, TIMES, scripted_api_server, SUBJECT)
        verdicts = await judge_run(run, checks, jobs=1)
    assert {one.outcome for one in verdicts} == {Outcome.PASSED}, told(verdicts)
