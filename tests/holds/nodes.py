"""A node whose kubelet is asked by one `Holders`, and kubelets reduced to what they answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from devplug.holds.held_device import Released, Rules
from devplug.holds.holders import Holders
from devplug.kubelet.kubelet import Kubelet
from devplug.wire.podresources import LIST, V1ALPHA1_LIST
from devplug.wire.sockets import Listener, unary
from devplug.wire.values import PodResources
from tests.holds.listings import RESOURCE, holder
from tests.kubelet.fakes import LONG_SECONDS

Serve = Callable[[], Awaitable[Sequence[PodResources]]]

QUICK = Rules(period_seconds=0.02, absence_seconds=0.02, grace_seconds=0.05)
"""Times that a test can wait for."""

ONCE = Rules(period_seconds=3600)
"""After the first answer only what is not the period makes anybody ask again."""


@asynccontextmanager
async def asking(*all_holders: Holders) -> AsyncIterator[None]:
    """Run them, for a time that only a hang outlasts."""
    async with asyncio.timeout(LONG_SECONDS), asyncio.TaskGroup() as group:
        tasks = [group.create_task(holders.run()) for holders in all_holders]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


@asynccontextmanager
async def answering(path: Path, serve: Serve, *, versions: Sequence[Any] = (LIST,)) -> AsyncIterator[None]:
    """A kubelet that has only these methods, all with one answer."""

    async def answer(_: None) -> Sequence[PodResources]:
        return await serve()

    path.parent.mkdir(exist_ok=True)
    listener = Listener(path, tuple(unary(version, answer) for version in versions), send_limit_bytes=2**31)
    await listener.bind()
    try:
        yield
    finally:
        await listener.close()


V1, OLD, NONE = (LIST,), (V1ALPHA1_LIST,), ()


def questions(kubelet: Kubelet) -> int:
    """How many calls of v1 this process of the kubelet has let in."""
    return int(
        kubelet.metrics.value("kubelet_pod_resources_endpoint_requests_total", server_api_version="v1")
    )


async def first_answer(holders: Holders) -> None:
    await holders.wait(lambda: holders.ledger.is_known)


async def held_by(holders: Holders, pod_name: str) -> None:
    await holders.wait(lambda: holders.ledger.holders_of(RESOURCE, "a") == (holder(pod_name),))


async def turns(count: int = 50) -> None:
    """Let the loop do whatever is ready."""
    for _ in range(count):
        await asyncio.sleep(0)


def listing(*pods: PodResources) -> Callable[[], Awaitable[Sequence[PodResources]]]:
    """What a kubelet does that answers with these pods."""

    async def serve() -> Sequence[PodResources]:
        return pods

    return serve


async def released(holders: Holders) -> list[Released]:
    """The next releases of `RESOURCE`, by ID."""
    return await holders.wait(lambda: holders.ledger.pending_releases(RESOURCE))
