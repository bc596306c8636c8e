"""The test bed of a check: a plugin, started in a folder of its own, and the kubelet that it talks to.

How long a plugin takes to start is measured where a kubelet shows it, and used where nothing does.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar, cast

from devplug.conformance.program import Program, Subject
from devplug.conformance.scripted_kubelet import Client, ScriptedKubelet, scripted_kubelet
from devplug.conformance.verdicts import FailedError, NoAnswerError, SkippedError
from devplug.errors import RemoteError
from devplug.kubelet_dir import KUBELET_SOCKET, POD_RESOURCES_NAME
from devplug.linux.processes import filled
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.values import ContainerDevices, ContainerResources, PodResources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from devplug.conformance.scripted_kubelet import Attempt
    from devplug.conformance.times import Times
    from devplug.devices import ContainerResponse
    from devplug.wire.deviceplugin import Method
    from devplug.wire.sockets import Peer
    from devplug.wire.values import AdvertisedDevice, PluginOptions

LATE: Final = "DeadlineExceeded"
BROKEN: Final = (LATE, "Unavailable")
"""The statuses of a call that the plugin has not answered; any other is an answer."""

Request = TypeVar("Request")
Response = TypeVar("Response")
Where = TypeVar("Where", "TestRun", "TestBed")
Seen = TypeVar("Seen")


async def run_command(command: Sequence[str], placeholders: Mapping[str, str]) -> None:
    """Run a command with its placeholders filled in; raises `SkippedError` if it fails."""
    words = [filled(word, placeholders) for word in command]
    try:
        child = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL)
        code = await child.wait()
    except OSError as error:
        raise SkippedError(f"cannot run {words[0]}: {error.strerror}") from error
    if code:
        raise SkippedError(f"{' '.join(words)} ended with {code}")


class StartError(FailedError):
    """A plugin did not get as far as to be registered and to send a list."""


@dataclass(eq=False, slots=True)
class TestBed:
    """One folder with a kubelet and, unless a running plugin is judged from outside, the plugin's process.

    Lives as long as its `TestRun.bed` block.
    """

    __test__: ClassVar[bool] = False  # no class of tests, whatever pytest makes of its name
    test_run: TestRun
    root: Path
    kubelet: ScriptedKubelet
    programs: list[Program] = field(default_factory=list)
    """All that were started, the newest last."""
    has_allocated: bool = False
    """Whether Allocate was called here."""
    scenes: dict[object, object] = field(default_factory=dict)
    """What came of the scenes that several checks look at, for `once`."""

    @property
    def times(self) -> Times:
        """The times of this run."""
        return self.test_run.times

    @property
    def names(self) -> Sequence[str]:
        """Every resource that was registered, the judged one first."""
        return self.kubelet.resource_names

    @property
    def folder(self) -> Path:
        """The plugin folder."""
        return self.kubelet.folder.path

    # ── the process ──

    async def launch(self) -> Program:
        """Start the plugin; again, if one runs already."""
        work = self.root / "work"
        work.mkdir(exist_ok=True)
        output = self.root / f"output-{len(self.programs) + 1}"
        program = await Program.start(self.test_run.subject, self.folder, work, output)
        self.programs.append(program)
        self.kubelet.notify_at_end(program.child)
        return program

    @property
    def program(self) -> Program:
        """The plugin's newest process. Raises `SkippedError` where the judge has not started it."""
        if not self.programs:
            raise SkippedError("the plugin was not started by this run, so its process is not looked at")
        return self.programs[-1]

    def is_alive(self) -> bool:
        """Whether the newest process still runs, or is none of ours."""
        return not self.programs or self.programs[-1].exit_code is None

    async def run(self, command: Sequence[str]) -> None:
        """Run one of the subject's commands that change its devices; raises `SkippedError` if it fails."""
        await run_command(command, {"{dir}": str(self.folder), "{work}": str(self.root / "work")})

    # ── the registration ──

    @property
    def client(self) -> Client:
        """The plugin's registration of now. Raises `FailedError` if there is none."""
        client = self.kubelet.client
        if client is None:
            raise FailedError(f"the plugin is not registered any more{self._fate()}")
        return client

    @property
    def devices(self) -> Sequence[AdvertisedDevice]:
        """The list of now."""
        return self.client.devices

    @property
    def options(self) -> PluginOptions:
        """What the plugin announces."""
        return self.client.options

    def is_ready(self) -> bool:
        """Whether the plugin runs, is registered and has sent a list."""
        client = self.kubelet.client
        return self.is_alive() and client is not None and bool(client.lists)

    async def wait_ready(self, seconds: float, what: str = "") -> Client:
        """Wait until the plugin is registered and has sent a list; a little longer for one with devices.

        Raises `StartError`, with `what` it should have done; at once if its process ends.
        """
        begun = time.monotonic()
        await self.kubelet.until(lambda: self.is_ready() or not self.is_alive(), seconds)
        if not self.is_ready():
            waited = time.monotonic() - begun
            raise StartError(f"{what or 'no list came'} within {waited:.1f} s{self._fate()}")
        client = self.client
        await self.kubelet.until(lambda: bool(client.devices) or client.has_ended, self.times.settle_seconds)
        return client

    async def is_settled(self) -> bool:
        """Wait until nothing of the last check is left that the next would meet; returns whether it came so.

        Then the plugin is registered and has sent a list, no call of Register is open, and Allocate is
        answered, if it was called before. A plugin that does not come to that soon needs another start.
        """
        kubelet = self.kubelet

        def is_calm() -> bool:
            return self.is_ready() and all(one.ended_at is not None for one in kubelet.attempts)

        await kubelet.until(lambda: is_calm() or not self.is_alive(), self.times.settle_seconds)
        if not self.is_ready():
            return False
        ids = self.client.healthy_ids[:1]
        if self.has_allocated and ids and not self.test_run.no_answer:
            error = await self.refusal(ALLOCATE, [tuple(ids)])
            return (error is None or error.status not in BROKEN) and self.is_ready()
        return True

    async def wait_back(self, moment: float, seconds: float, what: str) -> Client:
        """Wait for a new registration that was begun after `moment`, and its list. Raises `FailedError`."""

        def is_back() -> bool:
            return self.is_ready() and any(
                attempt.client is self.kubelet.client for attempt in self.kubelet.attempts_since(moment)
            )

        begun = time.monotonic()
        await self.kubelet.until(lambda: is_back() or not self.is_alive(), seconds)
        if not is_back():
            raise FailedError(f"{what} within {time.monotonic() - begun:.1f} s{self._fate()}")
        return self.client

    def _fate(self) -> str:
        """Return what explains the absence of a plugin, to be put after a sentence."""
        failures = [attempt.failure for attempt in self.kubelet.attempts if attempt.failure]
        reason = f" ({failures[-1]})" if failures and self.kubelet.client is None else ""
        if self.programs and self.programs[-1].exit_code is not None:
            program = self.programs[-1]
            reason += f"; its process ended with {program.exit_code}: {program.last_words()}"
        return reason

    # ── calls ──

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        seconds: float | None = None,
        peer: Peer | None = None,
    ) -> Response:
        """Call the plugin as the kubelet would. Raises `RemoteError`, also for what takes too long.

        An Allocate raises `NoAnswerError` once the first of the run, of a healthy device, was not answered.
        """
        seconds = seconds or self.times.answer_seconds
        if method is not ALLOCATE:
            peer = peer or self.client.peer
            return await peer.call(method, request, timeout_seconds=seconds)
        self.has_allocated = True
        if self.test_run.no_answer:
            raise NoAnswerError(self.test_run.no_answer)
        client = self.kubelet.client if peer else self.client
        asked = {id_ for ids in cast("Sequence[Sequence[str]]", request) for id_ in ids}
        is_plain = client is not None and bool(asked) and asked <= {*client.healthy_ids}
        peer = peer or self.client.peer
        try:
            response = await peer.call(method, request, timeout_seconds=seconds)
        except RemoteError as error:
            is_first = is_plain and not self.test_run.has_answered
            if error.status == LATE and is_first and seconds >= self.times.answer_seconds:
                self.test_run.no_answer = f"Allocate gives no answer within {seconds:g} s (see ALL01, ALL12)"
                raise NoAnswerError(self.test_run.no_answer) from error
            self.test_run.has_answered |= is_plain and error.status not in BROKEN
            raise
        self.test_run.has_answered |= is_plain
        return response

    async def allocate(self, *containers: Sequence[str]) -> Sequence[ContainerResponse]:
        """Ask for devices, by ID, one sequence per container. Raises `RemoteError`."""
        return await self.call(ALLOCATE, [tuple(ids) for ids in containers])

    async def refusal(self, method: Method[Request, Response], request: Request) -> RemoteError | None:
        """Return the error that a call meets, None if it is answered."""
        try:
            await self.call(method, request)
        except RemoteError as error:
            return error
        return None

    def healthy_ids(self, count: int = 1) -> Sequence[str]:
        """Return so many IDs that a pod could get now. Raises `SkippedError` if there are fewer."""
        ids = self.client.healthy_ids
        if len(ids) < count:
            raise SkippedError(f"{len(ids)} healthy devices are listed, and {count} are needed")
        return ids[:count]

    def list_as_held(self, id_: str) -> None:
        """Have PodResources list one pod, default/first, that has this device, until the kubelet restarts."""
        devices = ContainerDevices(self.client.resource_name, (id_,))
        self.kubelet.pods = (PodResources("first", "default", (ContainerResources("app", (devices,)),)),)

    async def check_serves(self) -> None:
        """Raise `FailedError` unless the plugin runs, is registered and answers an Allocate."""
        client = self.client
        ids = client.healthy_ids[:1]
        try:
            if ids:
                await self.allocate(ids)
        except RemoteError as error:
            raise FailedError(f"afterwards Allocate is answered with {error}{self._fate()}") from error
        if not self.is_alive():
            raise FailedError(f"the plugin does not serve any more{self._fate()}")


@dataclass(eq=False, slots=True)
class TestRun:
    """One run, which starts plugins for its checks, each time in a new folder."""

    __test__: ClassVar[bool] = False  # no class of tests, whatever pytest makes of its name
    subject: Subject
    times: Times
    attached: Path | None = None
    """The socket of a running plugin that is judged instead of one that is started."""
    scenes: dict[object, object] = field(default_factory=dict)
    """What came of the scenes that several checks look at, for `once` and `once_in_a_run`."""
    has_answered: bool = False
    """Whether an Allocate of healthy devices was ever answered."""
    no_answer: str = ""
    """That the first one was not, once that is known."""

    @asynccontextmanager
    async def bed(self, *, kubelet: bool = True, launch: bool = True) -> AsyncIterator[TestBed]:
        """Open a folder, with a kubelet in it unless that is to come later, and start the plugin.

        All ends with the block; a running plugin is only let go. Raises `PluginError` if the command cannot
        be run, `RegistrationError` if a running plugin cannot be reached.
        """
        with tempfile.TemporaryDirectory(prefix="verify-", dir="/tmp") as name:
            root = Path(name)
            folder = root / "device-plugins"
            folder.mkdir()
            async with scripted_kubelet(
                folder,
                self.times.dial_seconds,
                self.subject.resource_name,
                pod_resources=root / POD_RESOURCES_NAME / KUBELET_SOCKET,
            ) as end:
                bed = TestBed(self, root, end)
                try:
                    if self.attached is not None:
                        await end.attach(self.attached)
                    elif kubelet:
                        await end.start()
                    if launch and self.attached is None:
                        await bed.launch()
                    yield bed
                finally:
                    async with AsyncExitStack() as ends:  # each of them, even if the run is over meanwhile
                        for program in bed.programs:
                            ends.push_async_callback(program.stop, self.times.end_seconds)


async def once(where: Where, scene: Callable[[Where], Awaitable[Seen]]) -> Seen:
    """Return what came of `scene`, which is played only for the first check that asks for it.

    For checks of one lane, which follow each other. One that raises is played again for the next of them,
    unless the plugin did not even come up: that fails the first and skips the others.
    """
    if scene not in where.scenes:
        try:
            where.scenes[scene] = await scene(where)
        except StartError as error:
            where.scenes[scene] = error
            raise
    seen = where.scenes[scene]
    if isinstance(seen, StartError):
        raise SkippedError(f"the plugin did not come up: {seen}")
    return cast("Seen", seen)


async def once_in_a_run(bed: TestBed, scene: Callable[[TestBed], Awaitable[Seen]]) -> Seen:
    """Return what came of `scene`, which is played on the first test bed of a run that asks for it.

    Unlike with `once`, a test bed that was lost by it does not have it played again on the next.
    """
    kept = bed.test_run.scenes
    if scene not in kept:
        seen = await scene(bed)
        kept.setdefault(scene, seen)
    return cast("Seen", kept[scene])


# ── how long a start takes ──


async def first_call(bed: TestBed) -> Attempt:
    """Wait for the first call of Register. Raises `FailedError` if none comes, or the process ends."""
    kubelet = bed.kubelet
    await kubelet.until(
        lambda: bool(kubelet.attempts_since(0.0)) or not bed.is_alive(), bed.times.start_seconds
    )
    attempts = kubelet.attempts_since(0.0)
    if not attempts:
        program = bed.program
        end = "" if bed.is_alive() else f", it ended with {program.exit_code}: {program.last_words()}"
        raise FailedError(f"no call of Register came within {bed.times.start_seconds:g} s{end}")
    return attempts[0]


async def seconds_until_up(test_run: TestRun) -> float:
    """Start the plugin before a kubelet; return after how long another start of it is surely done."""
    async with test_run.bed() as bed:
        first = await first_call(bed)
        start_seconds = first.started_at - bed.program.started_at
    return min(2 * start_seconds, test_run.times.start_seconds)
