"""PodResources: who holds what is refused, not answered, answered with garbage or too much, or not heard."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from devplug.errors import RemoteError
from devplug.holds.client import Trouble
from devplug.holds.held_device import PERIOD_SECONDS
from devplug.holds.holders import Holders
from devplug.wire.codecs import Codec
from devplug.wire.deviceplugin import Method
from devplug.wire.limits import MONITOR_RECEIVE_LIMIT_BYTES
from devplug.wire.podresources import LIST
from devplug.wire.sockets import Listener, unary
from devplug.wire.values import ContainerDevices, ContainerResources, PodResources
from torture.catalogue import PATIENCE, BrokenError, case
from torture.footprint import nothing_kept, told
from torture.relays import Leaps
from torture.testbed import RESOURCE, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from torture.catalogue import Round, Trial
    from torture.footprint import Told

IDS: Final = [f"d{number}" for number in range(8)]
WARM_UP: Final = 20
HEALED_SECONDS: Final = 2.0
ASK_TIMEOUT_SECONDS: Final = 0.25
SETTLED_SECONDS: Final = 0.003
SLOWEST_SECONDS: Final = 60.0
LATE_SECONDS: Final = 2 * ASK_TIMEOUT_SECONDS
JITTER: Final = 0.2
GROWTH_LIMIT_BYTES: Final = 6 * 1024 * 1024
"""Answers of 16 MiB leave holes in the C library's memory."""

BAD: Final = "PodResources does not answer; devices that were held stay held until it does"
GOOD: Final = "PodResources answers again"

ANSWERS: Final = {
    "limited": Trouble.RATE_LIMITED,
    "refused": Trouble.OTHER,
    "going down": Trouble.UNREACHABLE,
    "unserved": Trouble.UNSERVED,
    "hung": Trouble.TIMED_OUT,
    "garbage": Trouble.OTHER,
    "too large": Trouble.TOO_LARGE,
    "renamed": Trouble.ABSENT,
    "gone": Trouble.ABSENT,
    "dead": Trouble.UNREACHABLE,
    "replaced": Trouble.REPLACED,
}
"""What a round's kubelet does, and what is to be known of it."""

STATUSES: Final = {
    "limited": ("ResourceExhausted", "rejected by rate limit"),
    "refused": ("Unknown", "runtime error"),
    "going down": ("Unavailable", "transport is closing"),
    "unserved": ("Unimplemented", "unknown service v1.PodResourcesLister"),
}
ANOTHER: Final = {"gone", "replaced"}
SLOW: Final = {"too large", "hung"}
WEIGHTS: Final = [1 if name in SLOW else 5 for name in ANSWERS]
RAW_LIST: Final[Method[None, bytes]] = Method(
    LIST.service,
    LIST.name,
    LIST.request,
    Codec(LIST.response.message, bytes, lambda content, _: bytes(content)),
)


@case(
    "clients-of-pod-resources",
    fault="X39",
    promise="Whatever the kubelet answers to who holds what, the last good answer stays with its age, the "
    "question is repeated ever more slowly, one line says why, and the next good answer counts",
    count=1_000,
    unit="troubles",
    invariants="I3 I7 I8 I10 I12",
    limit_seconds=120,
)
async def clients_of_pod_resources(trial: Trial) -> None:
    """Have one client meet every trouble. Its waits are leapt over: each is over when it is due."""
    folder = trial.folder / "r"
    folder.mkdir()
    leaps = Leaps()
    with told() as lines:
        async with _asked(folder / "kubelet.sock") as (lister, holders):
            client = Client(trial, lister, holders, lines, leaps)
            for _ in range(WARM_UP):
                await client.next_answer()
            async with nothing_kept(trial, growth_limit_bytes=GROWTH_LIMIT_BYTES):
                for turn in trial.rounds():
                    await client.play(turn)
    trial.figure("questions", lister.asked)


class Lister:
    """The kubelet's end of PodResources, that answers as it is told; lives as long as the case."""

    def __init__(self, path: Path) -> None:
        self.asked = 0
        self.pods: Sequence[PodResources] = _pods(0)
        self.kind = ""
        """Its trouble; empty for none."""
        self._path = path
        self._listener = Listener(path, (unary(RAW_LIST, self._list),), send_limit_bytes=2**31 - 1)

    async def bind(self) -> None:
        """Begin."""
        await self._listener.bind()

    async def close(self) -> None:
        """End."""
        await self._listener.close()

    def fail(self, kind: str) -> None:
        """Be in trouble from now on."""
        self.kind = kind
        if kind == "renamed":
            self._path.rename(self._elsewhere)
        elif kind == "gone":
            self._path.unlink()
        elif kind == "dead":
            self._path.rename(self._elsewhere)
            with socket.socket(socket.AF_UNIX) as unheard:
                unheard.bind(str(self._path))

    async def heal(self, pods: Sequence[PodResources]) -> None:
        """Be well again, with other pods than before."""
        kind, self.kind, self.pods = self.kind, "", pods
        if kind == "gone":
            await self.bind()
            await self._listener.tidy()
        elif kind in {"renamed", "dead"}:
            self._elsewhere.rename(self._path)

    @property
    def _elsewhere(self) -> Path:
        return self._path.with_name("elsewhere.sock")

    async def _list(self, _: None) -> bytes:
        self.asked += 1
        kind = self.kind
        if kind in STATUSES:
            raise RemoteError(*STATUSES[kind])
        if kind == "hung":
            await asyncio.Event().wait()
        if kind == "garbage":
            return b"\x0a\xff\xff\xff\x07" + bytes(range(256))
        if kind == "too large":
            return bytes(MONITOR_RECEIVE_LIMIT_BYTES + 1)
        if kind == "replaced":
            # As another file under the name would be.
            os.utime(self._path)
        return LIST.response.encode(self.pods)


class Client:
    """One client, and what it must know; a round leaves it with a good answer, as the next one finds it."""

    def __init__(self, trial: Trial, lister: Lister, holders: Holders, lines: Told, leaps: Leaps) -> None:
        self._trial = trial
        self._lister = lister
        self._holders = holders
        self._lines = lines
        self._leaps = leaps
        self._story = "at the start"
        self._since = 0.0
        """The last look that has not seen what was waited for."""

    async def play(self, turn: Round) -> None:
        """Be in one trouble for some questions, and then well."""
        self._story = kind = turn.random.choices(list(ANSWERS), WEIGHTS)[0]
        failures = 1 if kind == "replaced" else turn.random.randint(1, 2 if kind in SLOW else 8)
        said = self._lines.counts.copy()
        known, held = self._holders.pods, self._holders.ledger.held_ids(RESOURCE)
        self._check(held, "I12: nothing is held", turn)
        before = self._holders.errors.total()
        self._lister.fail(kind)
        self._leaps.forward(1.1 * PERIOD_SECONDS)
        for number in range(1, failures + 1):
            await self._until_failed(before + number)
            self._check(self._holders.trouble is ANSWERS[kind], f"I8: {self._holders.trouble}", turn)
            self._check(self._holders.last_error, "I8: nobody is told why", turn)
            self._check(self._holders.pods is known, "I8: the last good answer is gone", turn)
            age = self._holders.age_seconds or 0
            self._check(age >= PERIOD_SECONDS, f"I8: an answer of {age:g} s ago", turn)
            lost = held - self._holders.ledger.held_ids(RESOURCE)
            self._check(not lost, f"I12: {sorted(lost)} are not held any more", turn)
            wait = min(2.0 ** (number - 1), SLOWEST_SECONDS)
            if kind != "replaced":
                await self._stay(wait, turn)
            if number == failures:
                await self._lister.heal(_pods(turn.number + 1))
                if kind in ANOTHER:
                    # Another socket is asked at once, and a leap would bring one question more.
                    break
            self._leaps.forward((1 + JITTER) * wait)
        await self._until_healed()
        self._check(list(self._holders.pods) == list(self._lister.pods), "I8: not the latest answer", turn)
        for text in (BAD, GOOD):
            count = self._lines.counts[text] - said[text]
            self._check(count == 1, f"I10: {count} times {text!r}", turn)

    async def next_answer(self) -> None:
        """Have the next question come, and wait for its answer."""
        before = self._holders.pods
        self._leaps.forward(1.1 * PERIOD_SECONDS)
        await self._until(lambda: self._holders.pods is not before, "an answer")

    async def _stay(self, wait: float, turn: Round) -> None:
        """See that nothing is asked for most of a wait."""
        loop = asyncio.get_running_loop()
        before = self._holders.errors.total()
        self._leaps.forward(0.8 * wait)
        await asyncio.sleep(SETTLED_SECONDS)
        # A machine that is busy may have slept into the time when one is due.
        is_due = loop.time() - self._since >= 0.95 * wait
        more = self._holders.errors.total() - before
        self._check(not more or is_due, f"I7: asked again within {wait:g} s", turn)

    async def _until_healed(self) -> None:
        end = time.monotonic() + HEALED_SECONDS * PATIENCE.get()
        while self._holders.trouble is not None:
            if time.monotonic() > end:
                raise BrokenError(f"I8: {self._story}: a good answer has not come")
            try:
                async with asyncio.timeout(LATE_SECONDS):
                    while self._holders.trouble is not None:
                        await asyncio.sleep(0.0005)
            except TimeoutError:
                # On a busy machine a question was on its way already, or the news of the socket is late: the
                # next question's wait is leapt over, too.
                self._leaps.forward((1 + JITTER) * SLOWEST_SECONDS)

    async def _until_failed(self, count: int) -> None:
        await self._until(lambda: self._holders.errors.total() >= count, f"failure {count}")

    async def _until(self, claim: Callable[[], object], what: str) -> None:
        loop = asyncio.get_running_loop()

        async def true() -> None:
            self._since = loop.time()
            while not claim():
                self._since = loop.time()
                await asyncio.sleep(0.0005)

        await within(HEALED_SECONDS, true(), lambda: f"I8: {self._story}: {what} has not come")

    def _check(self, holds: object, text: str, turn: Round) -> None:
        self._trial.check(holds, f"{text} ({self._story})", turn.number)


def _pods(number: int) -> list[PodResources]:
    """Return pods that hold every device but one, each time another one."""
    return [
        PodResources(
            f"pod-{id_}",
            "default",
            (ContainerResources("main", (ContainerDevices(RESOURCE, (id_,)),)),),
        )
        for id_ in IDS
        if id_ != IDS[number % len(IDS)]
    ]


@asynccontextmanager
async def _asked(path: Path) -> AsyncIterator[tuple[Lister, Holders]]:
    """Answer at `path`, and have a client ask there all the time; make the clock leap before."""
    lister = Lister(path)
    await lister.bind()
    loop = asyncio.get_running_loop()
    holders = Holders(path, timeout_seconds=ASK_TIMEOUT_SECONDS, clock=loop.time)
    try:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(holders.run())
            with holders.needed():
                yield lister, holders
            asking.cancel()
    finally:
        await lister.close()
