"""Answers to Register: every one but the right one, and then the right one."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from devplug import serve
from devplug.errors import RemoteError
from torture.catalogue import Round, case
from torture.footprint import nothing_kept, told
from torture.relays import Leaps
from torture.scripted_kubelet import acted_kubelet
from torture.testbed import RESOURCE, Fed, within

if TYPE_CHECKING:
    from devplug import Serving
    from devplug.wire.values import RegisterRequest
    from torture.catalogue import Trial
    from torture.footprint import Told
    from torture.scripted_kubelet import ActedKubelet

IDS: Final = [f"d{number}" for number in range(4)]
WARM_UP: Final = 60
HEALED_SECONDS: Final = 2.0
SETTLED_SECONDS: Final = 0.005
"""How long to look whether something comes that must not."""

FIRST_WAIT_SECONDS: Final = 0.01
REFUSED_WAIT_SECONDS: Final = 30.0
UNREACHABLE_WAIT_SECONDS: Final = 5.0
STREAM_WAIT_SECONDS: Final = 15.0
LONG_SECONDS: Final = 60.0
CUT_WAIT_SECONDS: Final = 0.25
JITTER: Final = 0.2

REFUSED: Final = "the kubelet refused the registration"
UNREACHABLE: Final = "kubelet.sock refuses connections; waiting for a kubelet that listens there"
LEFT: Final = "a kubelet made a new kubelet.sock; the registration at the old one was cancelled"
REGISTERED: Final = "registered with the kubelet"

REFUSALS: Final[dict[str, tuple[str, str] | None]] = {
    "unavailable": ("Unavailable", "the kubelet is going down"),
    "unknown": ("Unknown", "failed to dial device plugin: context deadline exceeded"),
    "deadline": ("DeadlineExceeded", "context deadline exceeded"),
    "internal": ("Internal", "runtime error: invalid memory address"),
    "exhausted": ("ResourceExhausted", "too many"),
    "cut": None,
}
UNSUPPORTED: Final = (
    "Unknown",
    'requested API version "v1beta1" is not supported by kubelet. Supported version is ["v2"]',
)


@case(
    "register-answers",
    fault="X08",
    promise="However the kubelet answers Register, or does not: the next attempt comes at the pace of the "
    "rule and never beside another, one line says why, and the first good answer ends it",
    count=500,
    unit="kubelets",
    invariants="I2 I3 I7 I8 I10",
    limit_seconds=120,
)
async def register_answers(trial: Trial) -> None:
    """Start kubelets that answer wrongly for a while. Waits are leapt over: each is over when it is due."""
    folder, behind = trial.folder / "p", trial.folder / "b"
    folder.mkdir()
    with told() as lines:
        async with (
            acted_kubelet(folder, behind) as kubelet,
            serve(Fed(*IDS), plugin_dir=folder, registration="socket") as serving,
        ):
            answers = Answers(trial, kubelet, serving, lines)
            kubelet.start()
            await answers.heal()
            for _ in range(WARM_UP):
                await answers.warm_up()
            for again in range(min(WARM_UP, trial.count // 5)):
                await answers.play(Round(-1, Random(again)))
            async with nothing_kept(trial):
                for turn in trial.rounds():
                    await answers.play(turn)
    trial.figure("attempts", answers.attempts)


class Answers:
    """One plugin, and kubelets that follow each other; lives as long as the case."""

    def __init__(self, trial: Trial, kubelet: ActedKubelet, serving: Serving, lines: Told) -> None:
        self.attempts = 0
        self._trial = trial
        self._kubelet = kubelet
        self._serving = serving
        self._lines = lines
        self._leaps = Leaps()
        self._before = self._accepted_before = 0
        self._since = 0.0
        """The last look that has not seen the last attempt's end."""
        self._story = ""

    async def warm_up(self) -> None:
        """Have one kubelet come in order."""
        self._start()
        await self.heal()

    async def play(self, turn: Round) -> None:
        """Start a kubelet with one kind of answer, and have it turn good."""
        kinds = (*REFUSALS, "unsupported", "silent", "late", "unwatched", "twice")
        kind = turn.random.choice(kinds)
        self._story = kind
        said = self._lines.counts.copy()
        self._start()
        if kind in REFUSALS:
            wanted = 1 + await self._refused(turn, kind)
        else:
            wanted = await getattr(self, f"_{kind}")(turn)
        await self.heal(2 if kind in {"unwatched", "twice"} else 1)
        self.attempts += self.made
        self._check(self.made == wanted, f"I7: {self.made} attempts, not {wanted}", turn)
        beside = max((attempt.overlapping for attempt in self._kubelet.attempts), default=0)
        self._check(not beside, f"I7: {beside} attempts beside another", turn)
        now = self._lines.counts
        is_lost = kind in {"unavailable", "cut", "silent"}
        for text, count in (
            (REFUSED, int(kind in {*REFUSALS, "unsupported"} and not is_lost)),
            (UNREACHABLE, int(is_lost)),
        ):
            more = now[text] - said[text]
            if text == UNREACHABLE and kind == "silent":
                more += (
                    now[LEFT] - said[LEFT]
                )  # the end of the old connection, or the new socket: one is first
            self._check(more == count, f"I10: {more} times {text!r}", turn)
        accepted = now[REGISTERED] - said[REGISTERED]
        self._check(
            accepted == 1 or kind in {"unwatched", "twice"}, f"I10: {accepted} times registered", turn
        )

    async def heal(self, accepted: int = 1) -> None:
        """Wait until the whole list has come, and the plugin has its answer, so many since the start."""

        async def healed() -> None:
            await self._kubelet.until(lambda: self._kubelet.listening(RESOURCE))
            await self._serving.wait_registered()
            # The list may come before the answer, which would be counted in the next round.
            while self.accepted < self._accepted_before + accepted:
                await asyncio.sleep(0.0005)

        await within(HEALED_SECONDS, healed(), lambda: f"I2: {self._story}: not healed, {self.made} attempts")
        client = self._kubelet.listening(RESOURCE)
        if client is not None and client.healthy_ids != IDS:
            self._trial.broke(f"I8: {self._story}: {client.healthy_ids}")

    def _start(self) -> None:
        self._before, self._accepted_before = self.tried, self.accepted
        self._kubelet.start()

    @property
    def accepted(self) -> int:
        """How many attempts have registered the plugin, by its own count."""
        samples = self._serving.counters_of(RESOURCE).registrations.samples()
        return int(sum(sample.value for sample in samples if sample.labels == ("accepted",)))

    @property
    def tried(self) -> int:
        """How many attempts have ended, by the plugin's own count."""
        samples = self._serving.counters_of(RESOURCE).registrations.samples()
        return int(sum(sample.value for sample in samples))

    @property
    def made(self) -> int:
        """How many attempts have ended since the kubelet's start."""
        return self.tried - self._before

    # ── kinds of answers ──

    async def _refused(self, turn: Round, kind: str) -> int:
        """Refuse several times in a row, by one answer or by cutting the connection; return how often."""
        refusal = REFUSALS[kind]
        if refusal is None:
            self._kubelet.front.cut_after_bytes = turn.random.randrange(1, 200)
        else:
            self._kubelet.behave = partial(_refuse, refusal)
        last_wait = UNREACHABLE_WAIT_SECONDS if kind in {"unavailable", "cut"} else REFUSED_WAIT_SECONDS
        count = turn.random.randint(1, 14)
        for number in range(1, count + 1):
            await self._until_made(number)
            if number == count:
                self._kubelet.front.cut_after_bytes = None
                self._kubelet.behave = self._kubelet.take_on
            await self._wait_out(min(FIRST_WAIT_SECONDS * 2 ** (number - 1), last_wait), turn)
        return count

    async def _unsupported(self, turn: Round) -> int:
        """Refuse for good; only who comes at the slowest pace finds out that it was not."""
        self._kubelet.behave = partial(_refuse, UNSUPPORTED)
        count = turn.random.randint(1, 3)
        for number in range(1, count + 1):
            await self._until_made(number)
            if number == count:
                self._kubelet.behave = self._kubelet.take_on
            await self._wait_out(REFUSED_WAIT_SECONDS, turn)
        return count + 1

    async def _silent(self, turn: Round) -> int:
        """Never answer, and be followed by a kubelet that does."""
        self._kubelet.behave = _keep_silent
        await self._come(1)
        # Less than what the plugin grants, which gRPC measures: no leap has to do with it.
        await asyncio.sleep(turn.random.uniform(0, 0.05))
        self._kubelet.start()
        return 2

    async def _late(self, turn: Round) -> int:
        """Open the stream, and answer a good while after it."""
        seconds = turn.random.uniform(0.05, 0.2)
        self._kubelet.behave = partial(self._kubelet.take_on, answer_after_seconds=seconds)
        await within(
            HEALED_SECONDS,
            self._kubelet.until(lambda: self._kubelet.attempts and not self._kubelet.attempts[0].is_open),
            lambda: "I7: late: no attempt",
        )
        await self._until_made(1)
        await self._stay(1, LONG_SECONDS, turn)
        return 1

    async def _unwatched(self, turn: Round) -> int:
        """Accept, and never open a stream."""
        self._kubelet.behave = partial(self._kubelet.take_on, streams=0)
        await self._until_made(1)
        self._kubelet.behave = self._kubelet.take_on
        await self._stay(1, STREAM_WAIT_SECONDS, turn)
        self._kubelet.end_clients()
        self._leaps.forward(0.2 * STREAM_WAIT_SECONDS)
        return 2

    async def _twice(self, turn: Round) -> int:
        """Open two streams, and end both."""
        self._kubelet.behave = partial(self._kubelet.take_on, streams=2)
        await within(
            HEALED_SECONDS,
            self._kubelet.until(
                lambda: self._kubelet.clients and all(one.lists for one in self._kubelet.clients[0].streams)
            ),
            lambda: "I8: twice: no two lists",
        )
        await self._until_made(1)
        await self._stay(1, LONG_SECONDS, turn)
        client = self._kubelet.clients[0]
        lists = [stream.healthy_ids for stream in client.streams]
        self._check(lists == [IDS, IDS], f"I8: two streams got {lists}", turn)
        self._kubelet.behave = self._kubelet.take_on
        client.end()
        await within(HEALED_SECONDS, self._left(), lambda: "I8: twice: a stream lives on")
        self._leaps.forward((1 + JITTER) * CUT_WAIT_SECONDS)
        await self._until_made(2)
        return 2

    # ── steps ──

    async def _left(self) -> None:
        """Wait until the plugin knows that nobody listens."""
        while self._serving.streams[RESOURCE]:
            await asyncio.sleep(0.0005)

    async def _wait_out(self, wait: float, turn: Round) -> None:
        """See that nothing comes for most of the wait, then have it be over."""
        if wait > 10 * SETTLED_SECONDS:
            await self._stay(self.made, wait, turn)
        self._leaps.forward((1 + JITTER) * wait)

    async def _stay(self, made: int, seconds: float, turn: Round) -> None:
        """See that nothing comes for nearly so long."""
        loop = asyncio.get_running_loop()
        self._leaps.forward(0.8 * seconds - SETTLED_SECONDS)
        await asyncio.sleep(SETTLED_SECONDS)
        seen = max(self.made, len(self._kubelet.attempts))
        # A machine that is busy may have slept into the time when one is due.
        is_due = loop.time() - self._since >= 0.95 * seconds
        self._check(seen <= made or is_due, f"I7: attempt {seen} came within {seconds:g} s", turn)

    async def _come(self, count: int) -> None:
        """Wait until so many attempts have come."""
        await within(
            HEALED_SECONDS,
            self._kubelet.until(lambda: len(self._kubelet.attempts) >= count),
            lambda: f"I7: {self._story}: attempt {count} has not come",
        )

    async def _until_made(self, count: int) -> None:
        """Wait until the plugin knows that so many attempts have ended."""

        async def made() -> None:
            while self.made < count:
                self._since = asyncio.get_running_loop().time()
                await asyncio.sleep(0.0005)

        await within(HEALED_SECONDS, made(), lambda: f"I7: {self._story}: attempt {count} has not come")

    def _check(self, holds: object, text: str, turn: Round) -> None:
        self._trial.check(
            holds, f"{text[: text.index(':')]}: {self._story}{text[text.index(':') :]}", turn.number
        )


async def _refuse(refusal: tuple[str, str], _: RegisterRequest) -> None:
    raise RemoteError(*refusal)


async def _keep_silent(_: RegisterRequest) -> None:
    await asyncio.Event().wait()
