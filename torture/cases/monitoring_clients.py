"""Odd clients of the monitoring pages: slow readers, half requests, nonsense, hundreds at once."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from torture.catalogue import PATIENCE, Round, case
from torture.daemons import config_text, node, pod_of
from torture.footprint import holdings_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torture.catalogue import Trial
    from torture.daemons import Node
    from torture.footprint import Holdings

A: Final = "example.com/a"
IDS: Final = tuple(f"a{number}" for number in range(200))
AT_ONCE: Final = 48
PATIENCE_SECONDS: Final = 0.5
"""After which an odd client goes, in the midst of whatever it was at."""

PATHS: Final = ("/metrics", "/healthz", "/readyz", "/status", "/", "/nothing", "/status?watch=1")
MOST_AT_REST: Final = 40
"""Descriptors of a daemon that nobody asks anything."""

GROWTH_BYTES: Final = 4 * 1024 * 1024
WARM_UP: Final = 600


@case(
    "odd-monitoring",
    fault="X41",
    promise="10,000 scrapes, half requests, slow readers and garbage leave Allocate and memory alone; all "
    "connections are given back",
    count=10_000,
    unit="clients",
    invariants="I3 I4 I6",
    limit_seconds=200,
)
async def odd_monitoring(trial: Trial) -> None:
    """Send clients of all kinds to a daemon's pages while pods come and go."""
    pages = trial.folder / "pages"
    text = config_text(f"{{name: {A}, discover: {{static: {{ids: [{', '.join(IDS)}]}}}}}}")
    times: list[float] = []
    async with node(trial.folder, text) as stage:
        daemon = stage.start("--listen", f"unix:{pages}")
        await stage.until_listed({A: len(IDS)}, daemon=daemon)
        await stage.until_registered(daemon, A)
        await _come(trial, pages, min(WARM_UP, trial.count))
        before = await _settled(daemon.pid)
        async with asyncio.TaskGroup() as group:
            allocating = group.create_task(_allocate(trial, stage, times))
            await _come(trial, pages, None)
            allocating.cancel()
        after = await _settled(daemon.pid, before.descriptors)
        answer = await get(UnixAddress(str(pages)), "/readyz", timeout_seconds=10)
        trial.check(answer.status == 200, f"I4: /readyz says {answer.status}")
        trial.check(
            after.descriptors <= before.descriptors,
            f"I3: {before.descriptors} descriptors, then {after.descriptors}",
        )
        grown = after.resident_bytes - before.resident_bytes
        trial.figure("memory growth", f"{grown / 1024 / 1024:+.1f} MiB")
        trial.check(
            grown <= GROWTH_BYTES * PATIENCE.get(), f"I3: memory grew by {grown / 1024 / 1024:.1f} MiB"
        )
        trial.check("Traceback" not in daemon.said(), f"I4: {daemon.last_words()}")
        code, _ = await daemon.stop()
        trial.check(code == 0, f"I4: exit code {code}: {daemon.last_words()}")
    # Of a few, the longest would be held against it.
    trial.times("pod admitted meanwhile", times, p99_within=0.5 if len(times) >= 100 else None)


async def _settled(pid: int, descriptors: int = 0) -> Holdings:
    """Return what the daemon holds once its connections are closed: some are lingered on for a second."""
    now = before = holdings_of(pid)
    for _ in range(60):
        await asyncio.sleep(0.05)
        now, before = holdings_of(pid), now
        is_back = now.descriptors <= descriptors
        if is_back or (not descriptors and now.descriptors == before.descriptors < MOST_AT_REST):
            break
    return now


async def _allocate(trial: Trial, stage: Node, times: list[float]) -> None:
    loop = asyncio.get_running_loop()
    for number in range(1_000_000):
        pod = pod_of(f"pod-{number}", A)
        started = loop.time()
        status = await stage.kubelet.run_pod(pod)
        times.append(loop.time() - started)
        trial.check(status.phase == "Running", f"I6: {status.message}")
        stage.kubelet.remove_pod(pod.uid)
        await asyncio.sleep(0.02)


async def _come(trial: Trial, pages: Path, warm_up: int | None) -> None:
    """Send the trial's clients, some of them at a time; or, to warm up, so many that do not count."""
    turns = trial.rounds() if warm_up is None else _warm_up(warm_up)

    async def work() -> None:
        for turn in turns:
            await _one(trial, pages, turn)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


def _warm_up(count: int) -> Iterator[Round]:
    for number in range(count):
        yield Round(number, random.Random(number))


async def _one(trial: Trial, pages: Path, turn: Round) -> None:
    """Be one client, of one kind or another."""
    kind = turn.random.choice(
        ["scrape", "scrape", "scrape", "half", "garbage", "slow", "silent", "gone", "many", "head"]
    )
    path = turn.random.choice(PATHS)
    if kind == "scrape":
        # Where all places are taken, an odd one is ended for it, or it is told that there are too many.
        with suppress(Exception):
            answer = await get(UnixAddress(str(pages)), path.partition("?")[0], timeout_seconds=10)
            trial.check(answer.status in {200, 404, 503}, f"I4: {path}: {answer.status}", turn.number)
        return
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError, TimeoutError):
        client.settimeout(0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await loop.sock_connect(client, str(pages))
            await loop.sock_sendall(client, _words(kind, path, turn.random))
            if kind == "slow":
                for _ in range(3):
                    await loop.sock_recv(client, 64)
                    await asyncio.sleep(turn.random.uniform(0, 0.02))
            elif kind == "silent":
                await asyncio.sleep(turn.random.uniform(0, 0.05))
            elif kind in {"garbage", "many"}:
                while await loop.sock_recv(client, 65536):
                    pass


def _words(kind: str, path: str, chance: random.Random) -> bytes:
    """Return what a client of a kind says at first."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    match kind:
        case "half":
            return request[: chance.randrange(len(request))]
        case "garbage":
            return chance.choice(
                [
                    chance.randbytes(chance.randint(1, 3000)),
                    b"GET " + b"/" * 20_000 + b" HTTP/1.1\r\n\r\n",
                    b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
                    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                    b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
                ]
            )
        case "silent":
            return b""
        case "many":
            last = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            return b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * chance.randint(1, 20) + last
        case "head":
            return request.replace(b"GET", b"HEAD")
    return request
