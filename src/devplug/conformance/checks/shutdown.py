"""Shutdown: how soon a plugin ends on a signal, and which files of the folder it removes."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from devplug.conformance.testbed import once, seconds_until_up
from devplug.conformance.verdicts import MUST, NOTE, SHOULD, FailedError, SkippedError, check
from devplug.errors import one_line
from devplug.wire.sockets import socket_identity

if TYPE_CHECKING:
    from devplug.conformance.program import Program
    from devplug.conformance.testbed import TestRun

_LANE: Final = "shutdown"
_TERM: Final = 15
_INT: Final = 2
_LOOK_SECONDS: Final = 0.001
_NO_END: Final = "the plugin did not end (END01)"
_CRASH = re.compile(
    r"Traceback \(most recent call last\)|^panic: |^fatal error: |SIGSEGV|[Ss]egmentation fault"
    r"|thread '.*' .*panicked|^Exception in thread",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class _Ending:
    """The end of a plugin that got SIGTERM while it served."""

    seconds: float | None
    """How long it took; None if it had to be killed."""
    exit_code: int | None
    left: str
    """The name of its own socket, if that is still there."""
    lost: str
    """What of others it has removed from the folder, and when; empty if nothing."""
    output: str


async def _terminated(test_run: TestRun) -> _Ending:
    times = test_run.times
    async with test_run.bed(launch=False) as bed:
        with closing(socket.socket(socket.AF_UNIX)) as stranger:
            stranger.bind(str(bed.folder / "another-plugin.sock"))
            stranger.listen()
            (bed.folder / "left-by-another.txt").write_text("a plain file\n")
            others = {path: socket_identity(path) for path in sorted(bed.folder.iterdir())}
            program = await bed.launch()
            client = await bed.wait_ready(times.start_seconds)
            if await program.wait(times.settle_seconds):
                raise FailedError(
                    f"the plugin ended by itself with {program.exit_code}: {program.last_words()}"
                )
            lost = [f"{path.name} while it ran" for path in others if socket_identity(path) != others[path]]
            seconds = await _end(program, _TERM, times.end_seconds)
            lost = lost or [
                f"{path.name} at its end" for path in others if socket_identity(path) != others[path]
            ]
            left = client.path.name if client.path.exists() else ""
            return _Ending(seconds, program.exit_code, left, ", ".join(lost), program.output())


async def _end(program: Program, number: int, patience_seconds: float) -> float | None:
    """Send a signal, and kill what does not end of it; return how long that took, None if it was killed."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    program.signal(number)
    if await program.wait(patience_seconds):
        return loop.time() - begun
    await program.kill()
    return None


async def _ended(test_run: TestRun) -> _Ending:
    """Return how it ended by itself. Raises `SkippedError` if it did not."""
    ending = await once(test_run, _terminated)
    if ending.seconds is None:
        raise SkippedError(_NO_END)
    return ending


@check(
    "END01",
    MUST,
    "A plugin ends when it gets SIGTERM.",
    why="otherwise its pod is killed after the grace period, and its successor waits that long",
    change=(
        "handle SIGTERM: stop serving and return from main; process 1 of a container has no default handler"
    ),
    source="kubernetes.io/docs: termination of pods",
    lane=_LANE,
    fresh=True,
)
async def ends(test_run: TestRun) -> str:
    """Send SIGTERM to the registered plugin's process and wait for its end."""
    ending = await once(test_run, _terminated)
    if ending.seconds is None:
        said = one_line(ending.output.rstrip().rpartition("\n")[2], 200) or "nothing"
        raise FailedError(
            f"{test_run.times.end_seconds:g} s after SIGTERM the plugin still ran; it last printed: {said}"
        )
    return f"{1000 * ending.seconds:.0f} ms"


@check(
    "END02",
    SHOULD,
    "A plugin ends soon after SIGTERM.",
    why="until its successor has registered, the node has no devices to give",
    change="close the streams and exit without waiting; the kubelet needs no notice",
    source="openshift/sriov-network-operator#812 (pods rejected during a plugin's restart)",
    lane=_LANE,
    fresh=True,
)
async def ends_soon(test_run: TestRun) -> None:
    """Take the time from SIGTERM to the end of the process."""
    ending = await _ended(test_run)
    if ending.seconds is not None and ending.seconds > test_run.times.end_limit_seconds:
        raise FailedError(
            f"the plugin ended after {ending.seconds:.1f} s; "
            f"{test_run.times.end_limit_seconds:g} s are allowed"
        )


@check(
    "END03",
    SHOULD,
    "A plugin that gets SIGTERM ends with exit code 0.",
    why="alerts count any other code as a crash; without a handler the first process of a container does "
    "not even get the signal",
    change="handle SIGTERM and return 0 from main",
    source="kubernetes.io/docs: container states; pid_namespaces(7)",
    lane=_LANE,
    fresh=True,
)
async def ends_well(test_run: TestRun) -> None:
    """Look at the exit code after SIGTERM."""
    ending = await _ended(test_run)
    if ending.exit_code:
        of_signal = ", by the signal: nothing handled it" if ending.exit_code == -_TERM else ""
        raise FailedError(f"the plugin ended with {ending.exit_code}{of_signal}")


@check(
    "END04",
    SHOULD,
    "A plugin removes its socket file when it ends.",
    why="dead sockets pile up in the folder, and whoever dials them waits",
    change="remove the socket's file, if it is still yours, when you stop serving",
    source="kubernetes/kubernetes#128696, kubernetes/kubernetes#132660",
    lane=_LANE,
    fresh=True,
)
async def leaves_no_socket(test_run: TestRun) -> None:
    """Look for its socket file after its end."""
    ending = await _ended(test_run)
    if ending.left:
        raise FailedError(f"{ending.left} is still in the folder")


@check(
    "END05",
    MUST,
    "A plugin removes no file of the plugin folder that is not its own.",
    why="a plugin whose socket is removed serves nobody, and without kubelet.sock no plugin can register",
    change="remove only files that you have made; never by a pattern that other files match",
    source="pkg/kubelet/cm/devicemanager/manager.go (the kubelet alone cleans the folder, at its start)",
    lane=_LANE,
    fresh=True,
)
async def spares_others(test_run: TestRun) -> None:
    """Put another plugin's live socket and a plain file beside kubelet.sock, and look for them at its end."""
    ending = await once(test_run, _terminated)
    if ending.lost:
        raise FailedError(f"the plugin removed or replaced {ending.lost}")


@check(
    "END09",
    NOTE,
    "A plugin prints nothing that looks like a crash while nothing is wrong.",
    why="people who search the logs for real crashes find these",
    change="catch the exceptions that stopped streams and servers raise",
    source="devplug's own rule",
    lane=_LANE,
    fresh=True,
)
async def prints_no_crash(test_run: TestRun) -> None:
    """Search what it printed from its start to its end for tracebacks and panics."""
    ending = await once(test_run, _terminated)
    if found := _CRASH.search(ending.output):
        line = ending.output[found.start() :].partition("\n")[0]
        raise FailedError(f"the plugin printed: {line}")


# ── in other circumstances ──


async def _replace_and_end(test_run: TestRun) -> Literal["left", "removed", "taken back", "no end"]:
    """Put another's socket in the place of the plugin's, end that at once; return how the other fared."""
    async with test_run.bed() as bed:
        client = await bed.wait_ready(test_run.times.start_seconds)
        await asyncio.sleep(test_run.times.settle_seconds)
        program = bed.program
        successor = bed.folder / ".successor"
        with closing(socket.socket(socket.AF_UNIX)) as server:
            server.bind(str(successor))
            server.listen()
            identity = socket_identity(successor)
            successor.rename(client.path)
            ending = asyncio.timeout(test_run.times.end_seconds)
            program.signal(_TERM)
            try:
                async with ending:
                    while not await program.wait(_LOOK_SECONDS):
                        if socket_identity(client.path) not in {identity, None}:
                            return "taken back"
            except TimeoutError:
                await program.kill()
                return "no end"
            return "left" if socket_identity(client.path) == identity else "removed"


async def _socket_name(test_run: TestRun) -> str:
    """Start the plugin once more, for longer than names made of seconds stay the same."""
    async with test_run.bed() as bed:
        client = await bed.wait_ready(test_run.times.start_seconds)
        await asyncio.sleep(test_run.times.settle_seconds)
        return client.path.name


@check(
    "END06",
    SHOULD,
    "A plugin that ends does not remove its successor's socket of the same name.",
    why="the successor stays registered under a socket that is gone, and does not notice",
    change="compare the inode before you remove the file, or use another name at each start",
    source="grpc/grpc#17122, grpc/grpc-go#8214",
    fresh=True,
    quick=False,
)
async def spares_its_successor(test_run: TestRun) -> None:
    """Rename another socket over the plugin's, send SIGTERM at once, and check that the socket stays."""
    outcome = await _replace_and_end(test_run)
    if outcome == "taken back":  # as is its right; it may have looked just then
        outcome = await _replace_and_end(test_run)
    if outcome == "removed" and await _socket_name(test_run) != await _socket_name(test_run):
        raise SkippedError("the socket has another name at each start, so no successor uses it")
    if outcome == "removed":
        raise FailedError("the plugin removed the socket of its successor")
    if outcome != "left":
        raise SkippedError(
            "the plugin bound the name again before it ended" if outcome == "taken back" else _NO_END
        )


@check(
    "END07",
    MUST,
    "A plugin ends on SIGTERM even without a kubelet.",
    why="a plugin that waits for the kubelet first, and for signals only afterwards, has to be killed",
    change="wait for the kubelet and for signals at the same time",
    source="kubernetes.io/docs: termination of pods",
    fresh=True,
    quick=False,
)
async def ends_without_a_kubelet(test_run: TestRun) -> str:
    """Start the plugin in an empty folder, and send SIGTERM once it must have started."""
    patience = max(test_run.times.settle_seconds, await seconds_until_up(test_run))
    async with test_run.bed(kubelet=False) as bed:
        program = bed.program
        if await program.wait(patience):
            raise SkippedError(f"the plugin ended by itself with {program.exit_code} (REG10)")
        seconds = await _end(program, _TERM, test_run.times.end_seconds)
    if seconds is None:
        raise FailedError(f"{test_run.times.end_seconds:g} s after SIGTERM the plugin still ran")
    return f"{1000 * seconds:.0f} ms"


@check(
    "END08",
    NOTE,
    "A plugin ends on SIGINT too.",
    why="Ctrl-C in a terminal sends it",
    change="treat SIGINT as SIGTERM",
    source="signal(7)",
    fresh=True,
    quick=False,
)
async def ends_on_interrupt(test_run: TestRun) -> None:
    """Send SIGINT to the registered plugin's process and wait for its end."""
    async with test_run.bed() as bed:
        await bed.wait_ready(test_run.times.start_seconds)
        await asyncio.sleep(test_run.times.settle_seconds)
        seconds = await _end(bed.program, _INT, test_run.times.end_seconds)
    if seconds is None and _is_interrupt_ignored():
        raise SkippedError("SIGINT is ignored in this run, as in background jobs, and programs inherit that")
    if seconds is None:
        raise FailedError(f"{test_run.times.end_seconds:g} s after SIGINT the plugin still ran")


def _is_interrupt_ignored() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) >> (_INT - 1) & 1)
    return False
