"""Mutants around restarts, lost sockets, a second instance, and an API server that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from devplug.errors import KubeletError
from devplug.wire.values import PluginInfo
from tests.conformance.dra.http import StatusError
from tests.conformance.dra.mutants import Mutant, fails


@fails("DRA70", also=("DRA11", "DRA74", "DRA75", "DRA81"), return_seconds=3.0)
class AnswersOneKubelet(Mutant):
    """Answers GetInfo once, and takes every other for a mistake."""

    is_asked = False

    async def get_info(self, _: None) -> PluginInfo:
        if self.is_asked:
            raise KubeletError("the driver is registered already")
        self.is_asked = True
        return await super().get_info(_)


@fails("DRA71", also=("DRA81",))
class LeavesItsSockets(Mutant):
    """Ends without a look at its sockets."""

    async def end(self) -> None:
        await self.registration.close(keep_file=True)
        await self.service.close(keep_file=True)


@fails("DRA72", also=("DRA73", "DRA81"))
class CleansUpAtItsEnd(Mutant):
    """Removes its CDI files when it ends, though containers may start again."""

    async def end(self) -> None:
        for uid in self.prepared:
            self.cdi_file(uid).unlink(missing_ok=True)
        await super().end()


@fails("DRA73", also=("DRA33", "DRA72", "DRA81"))
class KeepsNoState(Mutant):
    """Knows after a restart nothing of what it has prepared."""

    def load(self) -> None:
        pass


@fails("DRA74", return_seconds=1.0)
class StumblesOverItsOldSockets(Mutant):
    """Does not bind where a file is."""

    async def serve(self) -> None:
        if self.registration_socket().exists():
            raise KubeletError("the address is in use")
        await super().serve()


@fails("DRA75", also=("DRA72", "DRA73", "DRA74"), return_seconds=1.0)
class DoesNotLookAtItsSockets(Mutant):
    """Makes its sockets once."""

    async def serve(self) -> None:
        await self.service.bind()
        await self.registration.bind()
        await asyncio.Event().wait()


@fails("DRA78", slices_seconds=1.0, also=("DRA25", "DRA27", "DRA28", "DRA29", "DRA34", "DRA79", "DRA80"))
class EndsWithItsWatch(Mutant):
    """Takes the end of a watch for good."""

    async def publish(self) -> None:
        version = await self.sync()
        query = f"{self.slices}?{self.selector()}&watch=1&resourceVersion={version}"
        try:
            async with self.api.watch(query) as events:
                async for event in events:
                    await self.take_event(event)
        except (OSError, StatusError) as error:
            self.say(str(error))


@fails("DRA79", slices_seconds=1.0)
class WatchesOnAfterAnError(Mutant):
    """Takes an ERROR for an event like others, and a watch from the same version again."""

    version = ""

    async def publish(self) -> None:
        while True:
            try:
                self.version = self.version or await self.sync()
                query = f"{self.slices}?{self.selector()}&watch=1&resourceVersion={self.version}"
                async with self.api.watch(query) as events:
                    async for event in events:
                        await self.take_event(event)
            except (OSError, StatusError) as error:
                self.version = "" if isinstance(error, OSError) else self.version
            await asyncio.sleep(self.retry_seconds)

    async def take_event(self, event: Mapping[str, Any]) -> bool:
        return event["type"] == "ERROR" or await super().take_event(event)


@fails("DRA80", start_seconds=5.0)
class AsksTheApiServerAtTheStartOnce(Mutant):
    """Publishes at the start, and never again where that failed."""

    async def publish(self) -> None:
        try:
            await self.sync()
        except (OSError, StatusError) as error:
            self.say(str(error))
            await asyncio.Event().wait()
        await super().publish()


@fails("DRA81", also=("DRA75",))
class TakesTheSocketsOfTheNextWithIt(Mutant):
    """Removes every socket of its name at its end."""

    async def end(self) -> None:
        await super().end()
        for path in self.folder.glob("*.sock"):
            path.unlink()
        for path in self.place.registry.glob(f"{self.name}-*"):
            path.unlink()

    async def serve(self) -> None:
        await self.service.bind()
        while True:
            if not self.registration.is_bound() and not self.stopping.is_set():
                await self.registration.bind()
            await asyncio.sleep(0.05)


@fails("DRA82", also=("DRA75",))
class EndsAtGarbage(Mutant):
    """Ends its service when a connection begins with something that is no HTTP/2."""

    def endpoint(self) -> str:
        return str(self.folder / "front.sock")

    async def serve(self) -> None:
        """Have a proxy in front of the service, that ends with the first bad connection."""
        front = Path(self.endpoint())
        front.unlink(missing_ok=True)
        await self.service.bind()
        writers: list[asyncio.StreamWriter] = []

        async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while content := await reader.read(65536):
                    writer.write(content)
            writer.close()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            first = await reader.read(14)
            if not first.startswith(b"PRI * HTTP/2.0"):
                if first:
                    server.close()
                writer.transport.abort()
                return
            behind_reader, behind_writer = await asyncio.open_unix_connection(self.service_socket())
            writers.append(behind_writer)
            behind_writer.write(first)
            group.create_task(pipe(reader, behind_writer))
            group.create_task(pipe(behind_reader, writer))

        server = await asyncio.start_unix_server(take, front)
        try:
            async with asyncio.TaskGroup() as group:
                await self.registration.bind()
                await asyncio.Event().wait()
        finally:
            server.close()
            for writer in writers:
                writer.transport.abort()


@fails("DRA33", also=("DRA81",))
class ForgetsWhenItTainted(Mutant):
    """Takes its start for the time of each taint."""

    def load(self) -> None:
        super().load()
        self.taint_times = {}
