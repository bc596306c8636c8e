"""Texts that others send, in HTTP, JSON, uevents and more: each is read, or refused in words."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from devplug.daemon.cdi.resource_spec import names_that_are_held
from devplug.errors import DevplugError
from devplug.holds.client import UnansweredError, ask
from devplug.holds.held_device import ledger_memory
from devplug.linux.uevents import parse_uevent
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.server.bodies import decoded_json, decoded_object
from devplug.status import process_of, text_of
from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from devplug.web.messages import Limits, Page
from devplug.web.server import serving
from devplug.wire.podresources import GET_ALLOCATABLE_RESOURCES, LIST
from devplug.wire.sockets import Listener, unary
from torture.catalogue import case
from torture.footprint import nothing_kept
from torture.fuzzing.both_ends import raw
from torture.fuzzing.hunt import ODD_TEXTS, Clock, Entry, entries, hunt, mutated, of_each, replayed
from torture.fuzzing.wireformat import mutated_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from devplug.web.messages import Request
    from torture.catalogue import Trial

ONE_SECONDS: Final = 0.5
WORDS: Final = (
    *(b"Infinity", b"NaN", b"1e999", b"9" * 5_000, b'"\\ud800"', b"[" * 300, b"{}", b"null", b"\r\n", b"\0"),
    *(b"Content-Length: 1\r\n", b"Transfer-Encoding: chunked\r\n", b"%00", b"%zz", b"HTTP/9.9", b"0\r\n\r\n"),
    *(b"k8s\0", b"add@", b"=", b"libudev\0"),
    *(text.encode() for text in ODD_TEXTS),
)


def _uevent(content: bytes) -> None:
    found = parse_uevent(content)
    assert found is None or found.devpath.startswith("/")


def _status(content: bytes) -> None:
    again = text_of(process_of(content))
    assert text_of(process_of(again)) == again


READERS: Final[dict[str, tuple[Callable[[bytes], object], tuple[type[Exception], ...]]]] = {
    "uevent": (_uevent, ()),
    "status": (_status, (ValueError,)),
    "ledger": (lambda content: ledger_memory(content, "e.com/a"), (ValueError,)),
    "pod": (lambda content: decoded_object(content, "application/json", "Pod", "v1"), (StatusError,)),
    "json": (decoded_json, (StatusError,)),
    "protobuf": (
        lambda content: decoded_object(content, "application/vnd.kubernetes.protobuf", "ConfigMap", "v1"),
        (StatusError,),
    ),
}
"""Who reads what, and the errors that it may raise."""


@case(
    "foreign-texts",
    fault="X31",
    promise="Kubernetes objects, uevents, statuses, ledgers: what is none is refused with the declared error",
    count=60_000,
    unit="texts",
    invariants="I3 I4",
    brief=True,
)
async def foreign_texts(trial: Trial) -> None:
    """Have every reader of a foreign text read changed ones."""
    kept = [entry for entry in entries("texts") if entry.of in READERS]
    clock = Clock(ONE_SECONDS)
    read = 0

    def fault(entry: Entry) -> str:
        nonlocal read
        reader, declared = READERS[entry.of]
        with clock:
            try:
                reader(entry.content)
                read += 1
            except declared:
                pass
            except Exception as error:  # noqa: BLE001 -- any other is looked for
                return f"I4: the reader of a {entry.of} raises {type(error).__name__}: {error}"
        return clock.fault

    def changed(entry: Entry, chance: Random) -> bytes:
        return mutated(entry.content, chance, words=WORDS)

    replayed(trial, kept, fault)
    async with nothing_kept(trial):
        await hunt(trial, kept, changed, fault)
    trial.figure("read", f"{read:,}")
    trial.figure("longest", f"{1000 * clock.longest:.0f} ms")


@case(
    "answers-of-a-kubelet",
    fault="X39",
    promise="Whatever a kubelet answers to PodResources: it is an answer, or none with its reason",
    count=3_000,
    unit="answers",
    invariants="I3 I4",
)
async def answers_of_a_kubelet(trial: Trial) -> None:
    """Ask a kubelet whose answers are changed, as the daemon and the monitor do."""
    kept = of_each(entries("messages"))
    listed, allocatable = kept["v1 ListPodResourcesResponse"], kept["v1 AllocatableResourcesResponse"]
    said = {"list": b"", "allocatable": b""}

    async def answer_list(_: bytes) -> bytes:
        return said["list"]

    async def answer_allocatable(_: bytes) -> bytes:
        return said["allocatable"]

    listener = Listener(
        trial.folder / "k",
        (unary(raw(LIST), answer_list), unary(raw(GET_ALLOCATABLE_RESOURCES), answer_allocatable)),
    )
    await listener.bind()
    answered = 0
    try:
        async with nothing_kept(trial, growth_limit_bytes=6 * 1024 * 1024):
            for turn in trial.rounds():
                for name, known in (("list", listed), ("allocatable", allocatable)):
                    content = mutated_message(turn.random.choice(known).content, turn.random)
                    said[name] = content if turn.random.random() < 0.6 else mutated(content, turn.random)
                try:
                    answer = await ask(listener.path, timeout_seconds=5, with_allocatable=True)
                    names_that_are_held(answer.pods)
                    answered += 1
                except UnansweredError as error:
                    trial.check("\n" not in str(error), f"X39: {str(error)!r}", turn.number)
                except Exception as error:  # noqa: BLE001 -- any other ends who asks
                    trial.broke(f"I4: {type(error).__name__}: {error}: {said}", turn.number)
    finally:
        await listener.close()
    trial.figure("answered", f"{answered:,}")


@case(
    "http-at-both-ends",
    fault="X41",
    promise="Broken requests get a status, or are closed; broken answers are told; nothing is left open",
    count=10_000,
    unit="conversations",
    invariants="I3 I4",
)
async def http_at_both_ends(trial: Trial) -> None:
    """Send changed requests to our server, and have our client read changed answers."""
    kept = of_each(entries("texts"))
    requests, answers = kept["request"], kept["answer"]
    limits = Limits(header_seconds=0.2, idle_seconds=0.2, linger_seconds=0.05)
    ours, theirs = UnixAddress(str(trial.folder / "o")), trial.folder / "t"
    said = {"content": b""}

    async def hello(request: Request) -> Page:
        return Page(f"hello {request.path}")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said["content"])
        writer.close()

    stranger = await asyncio.start_unix_server(answer, theirs)
    async with serving(ours, hello, name="torture", limits=limits), stranger:
        for entry in requests:
            await _ask(trial, ours, entry.content, trial.first)
        async with nothing_kept(trial):
            for turn in trial.rounds():
                if turn.number % 2:
                    content = mutated(turn.random.choice(requests).content, turn.random, words=WORDS)
                    await _ask(trial, ours, content, turn.number)
                else:
                    said["content"] = mutated(turn.random.choice(answers).content, turn.random, words=WORDS)
                    try:
                        await get(UnixAddress(str(theirs)), "/", timeout_seconds=5, limit_bytes=100_000)
                    except DevplugError as error:
                        trial.check("\n" not in str(error), f"X41: {str(error)!r}", turn.number)
                    except Exception as error:  # noqa: BLE001 -- any other ends the monitor
                        trial.broke(
                            f"I4: the client raises {type(error).__name__}: {error}: {said['content']!r}",
                            turn.number,
                        )
            found = await get(ours, "/alive")
            trial.check(found.body == b"hello /alive", "I4: it does not serve any more")


async def _ask(trial: Trial, address: UnixAddress, content: bytes, number: int) -> None:
    reader, writer = await asyncio.open_unix_connection(address.path)
    try:
        writer.write(content)
        writer.write_eof()
        async with asyncio.timeout(5):
            answer = await reader.read()
    except ConnectionError:
        answer = b""
    except TimeoutError:
        trial.broke(f"I4: no end after {content[:500]!r}", number)
        return
    finally:
        writer.transport.abort()
    status = answer[9:12]
    is_right = not answer or (answer.startswith(b"HTTP/1.1 ") and status in STATUSES)
    trial.check(is_right, f"I11: {answer[:100]!r} after {content[:300]!r}", number)


STATUSES: Final = (b"200", b"400", b"405", b"408", b"413", b"421", b"431", b"501")
