"""The kubelet's end of a plugin folder, for the judge and the bench: it can misbehave and records all events.

What a right kubelet does with devices is `kubelet`'s; here only what a plugin sees of it matters.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devplug.devices import HEALTHY
from devplug.errors import KubeletError, RegistrationError, RemoteError
from devplug.kubelet.pluginfolder import PluginFolder, dialled_path
from devplug.linux.notifier import Notifier
from devplug.wire.deviceplugin import DEVICE_PLUGIN_VERSION, GET_OPTIONS, LIST_AND_WATCH, REGISTER
from devplug.wire.limits import KUBELET_RECEIVE_LIMIT_BYTES
from devplug.wire.podresources import GET, LIST
from devplug.wire.sockets import Listener, Peer, connected, unary
from devplug.wire.values import RegisterRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path

    from devplug.wire.sockets import Binding
    from devplug.wire.values import AdvertisedDevice, PluginOptions, PodName, PodResources


class ScriptedTasks:
    """What happens at a kubelet that plays a script, and who waits for it; lives as long as its block."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._notifier = Notifier()

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until `condition` is true, asked after every event; returns whether it came true in time."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    await self._notifier.next.wait()
        except TimeoutError:
            return condition()
        return True

    def notify(self) -> None:
        """Have everybody who waits look again."""
        self._notifier.notify()

    def task_of(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Return a task of `work` that ends with this kubelet's block at the latest."""
        return self._tasks.create_task(work)


@dataclass(frozen=True, slots=True)
class KubeletBehavior:
    """The behaviour of the kubelet towards registrations; the default is a correct kubelet's."""

    refuse: str = ""
    """The error with which every registration is refused, undialled; empty for none."""
    answer_after_seconds: float = 0.0
    """How long the answer to Register is held back, after all else was done."""


@dataclass(eq=False, slots=True)
class Client:
    """An accepted registration: the connection to the plugin, and its stream of lists."""

    resource_name: str
    path: Path
    peer: Peer
    options: PluginOptions
    registered_at: float
    """When Register was called for it."""
    stream_opened_at: float = 0.0
    lists: list[tuple[float, Sequence[AdvertisedDevice]]] = field(default_factory=list)
    """Every list that came, with the time of its arrival."""
    has_ended: bool = False
    end_reason: str = ""
    """Why the stream ended, as the kubelet would log it."""

    @property
    def devices(self) -> Sequence[AdvertisedDevice]:
        """The last list; empty before the first."""
        return self.lists[-1][1] if self.lists else ()

    @property
    def healthy_ids(self) -> Sequence[str]:
        """The devices of that list that a pod could get, each once and in order."""
        return sorted({device.id for device in self.devices if device.health == HEALTHY})


@dataclass(eq=False, slots=True)
class Attempt:
    """One call of Register, from its arrival to its end. Times are of the monotonic clock."""

    request: RegisterRequest
    started_at: float
    overlapping: int = 0
    """How many others of the same resource were open when it came."""
    ended_at: float | None = None
    was_given_up: bool = False
    """Whether the plugin did not wait for the answer."""
    failure: str = ""
    """Why the kubelet refused it."""
    dialled_seconds: float | None = None
    """How long it took until the plugin's socket answered the dial; None if it never did."""
    options_seconds: float | None = None
    """How long GetDevicePluginOptions took, from the dial on."""
    client: Client | None = None


class ScriptedKubelet(ScriptedTasks):
    """The kubelet's end of one plugin folder; lives as long as its `scripted_kubelet` block.

    `behavior` and `pods` may be exchanged at any time. `client` is the plugin of `resource_name`, or of the
    first resource that registers. With `pod_resources` it serves PodResources at that path.
    """

    def __init__(
        self,
        folder: Path,
        tasks: asyncio.TaskGroup,
        dial_seconds: float,
        resource_name: str | None,
        pod_resources: Path | None,
    ) -> None:
        super().__init__(tasks)
        self.folder = PluginFolder(folder)
        self.behavior = KubeletBehavior()
        self.pods: Sequence[PodResources] = ()
        """The pods that PodResources lists; none after a start, as a real kubelet for about a second."""
        self.questions = 0
        """How many calls of PodResources were answered."""
        self.resource_name = resource_name
        self.attempts: list[Attempt] = []
        self.started_at = 0.0
        self._dial_seconds = dial_seconds
        self._pod_resources = pod_resources
        self._listeners: list[Listener] = []
        self._connections: dict[asyncio.Task[None], Client | None] = {}
        self._clients: dict[str, Client] = {}

    # ── its life ──

    async def start(self, *, clean: bool = True) -> None:
        """Clean the folder as a kubelet that comes up does, then listen.

        Without `clean` nothing but its own old socket is removed.
        """
        if clean:
            self.folder.prepare()
        else:
            self.folder.kubelet_socket.unlink(missing_ok=True)
        self.pods = ()
        if self._pod_resources is not None:
            self._pod_resources.parent.mkdir(mode=0o750, exist_ok=True)
            await self._listen(self._pod_resources, unary(LIST, self._list), unary(GET, self._get))
        await self._listen(self.folder.kubelet_socket, unary(REGISTER, self._register))
        self.started_at = time.monotonic()

    async def _listen(self, socket: Path, *bindings: Binding) -> None:
        listener = Listener(
            socket,
            bindings,
            receive_limit_bytes=KUBELET_RECEIVE_LIMIT_BYTES,
            by_rename=socket == self._pod_resources,
        )
        await listener.bind()
        self._listeners.append(listener)

    async def stop(self) -> None:
        """End as a process does: connections break, the socket stays and refuses. Safe to repeat."""
        self._clients.clear()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await listener.close(keep_file=True)
        await self._drop(list(self._connections))

    async def restart(self, *, down_seconds: float = 0.0) -> float:
        """End and come back as a new process; returns when kubelet.sock was there again."""
        await self.stop()
        if down_seconds:
            await asyncio.sleep(down_seconds)
        await self.start()
        return self.started_at

    async def drop(self, client: Client) -> None:
        """Close the connection to a plugin while the kubelet and its socket stay."""
        await self._drop([task for task, held in self._connections.items() if held is client])

    async def attach(self, path: Path) -> None:
        """Connect to a plugin that serves somebody else, as a second kubelet would; nothing registers here.

        Raises `RegistrationError` if it cannot be dialled or does not tell its options.
        """
        self.resource_name = path.name
        taken_on: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request = RegisterRequest(DEVICE_PLUGIN_VERSION, path.name, path.name)
        self._follow_in_task(path, Attempt(request, time.monotonic()), taken_on)
        await taken_on

    # ── what happened ──

    @property
    def client(self) -> Client | None:
        """The plugin's newest registration, if its stream is open."""
        client = self._clients.get(self.resource_name or "")
        return client if client is not None and not client.has_ended else None

    @property
    def resource_names(self) -> Sequence[str]:
        """Every resource that was ever registered, `resource_name` first."""
        names = [attempt.request.resource_name for attempt in self.attempts]
        if self.resource_name in names:
            names.insert(0, self.resource_name)
        return tuple(dict.fromkeys(names))

    def attempts_since(self, moment: float) -> Sequence[Attempt]:
        """Return the calls of Register for `resource_name` from `moment` on."""
        return [
            attempt
            for attempt in self.attempts
            if attempt.started_at >= moment and attempt.request.resource_name == self.resource_name
        ]

    def notify_at_end(self, child: asyncio.subprocess.Process) -> None:
        """Have them look again when a process ends."""

        async def follow() -> None:
            await child.wait()
            self.notify()

        self._tasks.create_task(follow())

    # ── PodResources ──

    async def _list(self, _: None) -> Sequence[PodResources]:
        self._count_question()
        return self.pods

    async def _get(self, asked: PodName) -> PodResources:
        self._count_question()
        for pod in self.pods:
            if (pod.name, pod.namespace) == (asked.name, asked.namespace):
                return pod
        raise KubeletError(f"pod {asked.name} in namespace {asked.namespace} not found")

    def _count_question(self) -> None:
        self.questions += 1
        self.notify()

    # ── Register ──

    async def _register(self, request: RegisterRequest) -> None:
        if self.resource_name is None:
            self.resource_name = request.resource_name
        attempt = Attempt(
            request,
            time.monotonic(),
            sum(
                other.ended_at is None and other.request.resource_name == request.resource_name
                for other in self.attempts
            ),
        )
        self.attempts.append(attempt)
        behavior = self.behavior
        try:
            if behavior.refuse:
                raise RegistrationError(behavior.refuse)
            await self._take_on(attempt)
            if behavior.answer_after_seconds:
                await asyncio.sleep(behavior.answer_after_seconds)
        except asyncio.CancelledError:
            attempt.was_given_up = True
            raise
        except KubeletError as error:
            attempt.failure = str(error)
            raise
        finally:
            attempt.ended_at = time.monotonic()
            self.notify()

    async def _take_on(self, attempt: Attempt) -> None:
        path = dialled_path(self.folder.socket_path(attempt.request.endpoint))
        taken_on: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._follow_in_task(path, attempt, taken_on)
        await asyncio.shield(taken_on)

    def _follow_in_task(self, path: Path, attempt: Attempt, taken_on: asyncio.Future[None]) -> None:
        self._connections[self._tasks.create_task(self._follow(path, attempt, taken_on))] = None

    async def _follow(self, path: Path, attempt: Attempt, taken_on: asyncio.Future[None]) -> None:
        """Dial, ask for the options, then take lists for as long as they come (client.go, handler.go)."""
        task = asyncio.current_task()
        assert task is not None
        try:
            begun = time.monotonic()
            async with connected(path, ready_within_seconds=self._dial_seconds) as peer:
                attempt.dialled_seconds = time.monotonic() - begun
                options = await peer.call(GET_OPTIONS, None, timeout_seconds=self._dial_seconds)
                attempt.options_seconds = time.monotonic() - begun
                client = Client(attempt.request.resource_name, path, peer, options, attempt.started_at)
                attempt.client = client
                self._connections[task] = client
                self._clients[client.resource_name] = client
                taken_on.set_result(None)
                self.notify()
                await self.watch(client)
        except RemoteError as error:
            words = "dial device plugin" if attempt.dialled_seconds is None else "get device plugin options"
            _fail(taken_on, RegistrationError(f"failed to {words}: {error}"))
        finally:
            if not taken_on.done():
                _fail(taken_on, RegistrationError("the kubelet is ending"))
            self._connections.pop(task, None)
            self.notify()

    async def watch(self, client: Client) -> None:
        """Take the lists of a stream until it ends; on every connection to a plugin, registered or not."""
        client.stream_opened_at = time.monotonic()
        try:
            async with aclosing(client.peer.stream(LIST_AND_WATCH, None)) as lists:
                async for devices in lists:
                    client.lists.append((time.monotonic(), devices))
                    self.notify()
            client.end_reason = "EOF"
        except RemoteError as error:
            client.end_reason = str(error)
        finally:
            client.has_ended = True

    async def _drop(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


@asynccontextmanager
async def scripted_kubelet(
    folder: Path,
    dial_seconds: float,
    resource_name: str | None = None,
    *,
    pod_resources: Path | None = None,
) -> AsyncIterator[ScriptedKubelet]:
    """Have a kubelet for `folder`, which is not started yet; it and its tasks end with the block."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        kubelet = ScriptedKubelet(folder, tasks, dial_seconds, resource_name, pod_resources)
        try:
            yield kubelet
        except Exception as error:  # noqa: BLE001 -- raised again below: a TaskGroup would wrap it
            failure = error
        finally:
            await kubelet.stop()
    if failure is not None:
        raise failure


def _fail(future: asyncio.Future[None], error: RegistrationError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # read here, for a plugin that no longer waits for it
