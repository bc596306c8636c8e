"""A sandbox as a whole: nodes with their kubelets, controllers, the API server, and how they come and go.

Start here. All of it is one process and one event loop; its parts meet in the registry and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
from contextlib import ExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletError
from devplug.k8s.account import KUBECONFIG_VARIABLE
from devplug.k8s.objects import Object, entries, part, text
from devplug.k8s.podaccount import PodAccess
from devplug.k8s.times import stamp
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import NodeHardware, NumaNode
from devplug.linux.inotify import until_absent
from devplug.linux.processes import can_mount
from devplug.linux.supervision import kept_running
from devplug.sandbox.api.watchlog import ChangeType
from devplug.sandbox.authorization.rbac import make_default_roles
from devplug.sandbox.authorization.tokens import pod_user, signed
from devplug.sandbox.control import Control
from devplug.sandbox.controllers.daemonset import DaemonSetController
from devplug.sandbox.controllers.devicetainteviction import DeviceTaintEvictionController
from devplug.sandbox.controllers.garbagecollector import EventCollector, GarbageCollector, PodCollector
from devplug.sandbox.controllers.namespaces import NamespaceController, make_first_namespaces
from devplug.sandbox.controllers.nodelifecycle import NodeLifecycleController
from devplug.sandbox.controllers.resourceclaim import ResourceClaimController
from devplug.sandbox.controllers.resourcequota import ResourceQuotaController
from devplug.sandbox.controllers.scheduler import Scheduler
from devplug.sandbox.nodes.agent import AgentSettings, NodeAgent
from devplug.sandbox.nodes.containerruntime import ProcessRuntime
from devplug.sandbox.nodes.noderegistration import facts_of_this_machine
from devplug.sandbox.nodes.podclaims import NodeClaims
from devplug.sandbox.nodes.staticpods import is_static
from devplug.sandbox.registry import NODES, PODS, SERVICE_ACCOUNTS, Registry
from devplug.sandbox.sandboxdir import SandboxDir, SandboxRecord
from devplug.sandbox.server.listener import ApiServer, ServingError, Tls
from devplug.sandbox.statefile import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path
    from typing import Self

    from devplug.sandbox.nodes.containerruntime import Ended
    from devplug.sandbox.settings import SandboxSettings
    from devplug.sandbox.statefile import StateFile

logger = logging.getLogger(__name__)

_LOCAL, _REMOTE = 10, 20
"""Distances between NUMA nodes, as on most machines with several."""

_ADDRESSES: Final = "192.0.2.{}"
"""The addresses of nodes: of a network for documentation (RFC 5737), as nothing listens there."""

_TOKEN_LIFE: Final = timedelta(days=365)
"""How long a pod's token is valid: nobody renews it, as a kubelet does."""


class Sandbox:
    """One sandbox, up inside `running`. What `devplug sandbox` asks of it comes through `control`."""

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.place = SandboxDir(settings.folder)
        self.registry = Registry()
        self._agents: dict[str, NodeAgent] = {}
        self._down = asyncio.Event()
        self._is_up = False
        self._token = secrets.token_hex(16)

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig for kubectl; it exists while the sandbox is up."""
        return self.place.kubeconfig

    async def wait_down(self) -> None:
        """Wait until somebody asks the sandbox to end."""
        await self._down.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Run: up when entered, with every node Ready; gone when left, with all that was started in it.

        Raises `PlaceError`, `StateFileError`, `ServingError` and `KubeletError` if it cannot come up as it is
        set, and what a part of it has died of.
        """
        settings = self.settings
        failure: Exception | None = None
        with ExitStack() as stack:
            stack.enter_context(
                self.place.claimed(node_count=settings.nodes, keeps=settings.state is not None)
            )
            state = None
            if settings.state is not None:
                state = stack.enter_context(opened(settings.state))
                self.registry = Registry(state.contents, state.version)
            try:
                async with self._parts(state):
                    try:
                        yield self
                    except Exception as error:  # noqa: BLE001 -- raised below: groups wrap what passes them
                        failure = error
            except BaseExceptionGroup as errors:
                raise _first_of(errors) from errors
        if failure is not None:
            raise failure

    # ── what `control` asks for ──

    def nodes(self) -> Sequence[str]:
        """Return the names of the nodes."""
        return tuple(self._agents)

    async def restart_kubelet(self, node: str) -> None:
        """Restart a node's kubelet; containers run on. Returns when it is back."""
        await self._agents[node].restart_kubelet()

    async def disconnect(self, node: str) -> None:
        """Take the API server away from a node; its containers run on."""
        self._agents[node].disconnect()

    async def reconnect(self, node: str) -> None:
        """Bring the API server back to a node. Returns when its kubelet knows its pods again."""
        await self._agents[node].reconnect()

    async def reboot(self, node: str) -> None:
        """Reboot a node: all containers end. Returns when its kubelet is back."""
        await self._agents[node].reboot()

    def description(self, node: str) -> Object:
        """Return what there is to know of a node's devices and pods."""
        return self._agents[node].description()

    def plugged(self) -> Sequence[str]:
        """Return the names of the devices that are plugged in."""
        return self.place.plugged()

    def plug(self, names: list[str]) -> Sequence[str]:
        """Plug devices in; return those that were not there."""
        return self.place.plug(names)

    def unplug(self, names: list[str]) -> Sequence[str]:
        """Pull devices out; return those that were there."""
        return self.place.unplug(names)

    async def end_pod(self, namespace: str, name: str, container: str | None, exit_code: int) -> None:
        """End a pod's containers, or one of them, as if its program had. Raises 404 and `KubeletError`."""
        node = text(self.registry.get(PODS, namespace, name), "spec", "nodeName")
        if node not in self._agents:
            raise KubeletError(f"pod {namespace}/{name} is on no node yet")
        await self._agents[node].end_container(namespace, name, container, exit_code)

    def down(self) -> None:
        """Begin to end the sandbox."""
        self._down.set()

    # ── inside ──

    @asynccontextmanager
    async def _parts(self, state: StateFile | None) -> AsyncIterator[None]:
        """Run everything for a block; programs end before their nodes, and what keeps the objects last."""
        make_first_namespaces(self.registry)
        if self.settings.rbac:
            make_default_roles(self.registry)
        runtime = ProcessRuntime(
            self.settings.images,
            self.place.logs,
            self._container_ended,
            lambda pod: self._access_of(pod, server, for_pods),
        )
        server = self._server(runtime, self.settings.port, self._tls())
        for_pods = self._server_for_pods(runtime, server)
        servers = [server] if for_pods in (None, server) else [server, for_pods]
        async with asyncio.TaskGroup() as keeping:
            kept = [keeping.create_task(state.run(self.registry))] if state else []
            try:
                for one in servers:
                    one.listen()
                async with asyncio.TaskGroup() as tasks:
                    running = [
                        tasks.create_task(
                            kept_running(part.run, partial(self._part_failed, part)),
                            name=f"sandbox: {type(part).__name__}",
                        )
                        for part in (*self._controllers(), *self._make_nodes(runtime))
                    ]
                    running += [tasks.create_task(one.run()) for one in servers]
                    running.append(tasks.create_task(runtime.run()))
                    running.append(tasks.create_task(self._forget_pods(runtime)))
                    running.append(tasks.create_task(self._end_with_folder()))
                    try:
                        await self._until_ready()
                        self._announce(server)
                        self._is_up = True
                        yield
                    finally:
                        for task in running:
                            task.cancel()
            finally:
                for one in servers:
                    one.close()
                for task in kept:
                    task.cancel()

    def _controllers(
        self,
    ) -> tuple[
        NamespaceController
        | ResourceQuotaController
        | EventCollector
        | NodeLifecycleController
        | PodCollector
        | GarbageCollector
        | DaemonSetController
        | ResourceClaimController
        | DeviceTaintEvictionController
        | Scheduler,
        ...,
    ]:
        registry = self.registry
        return (
            NamespaceController(registry),
            ResourceQuotaController(registry),
            EventCollector(registry),
            NodeLifecycleController(registry),
            PodCollector(registry),
            GarbageCollector(registry),
            DaemonSetController(registry),
            ResourceClaimController(registry),
            DeviceTaintEvictionController(registry),
            Scheduler(registry, self.settings.scoring, host=os.uname().nodename),
        )

    def _make_nodes(self, runtime: ProcessRuntime) -> Sequence[NodeAgent]:
        settings = self.settings
        numbers = range(settings.numa_nodes)
        machine = NodeHardware(
            tuple(
                NumaNode(one, tuple(_LOCAL if one == other else _REMOTE for other in numbers))
                for one in numbers
            )
        )
        for index in range(settings.nodes):
            name = f"worker-{index}"
            self._agents[name] = self._make_node(name, index, machine, runtime)
        return tuple(self._agents.values())

    def _make_node(self, name: str, index: int, machine: NodeHardware, runtime: ProcessRuntime) -> NodeAgent:
        settings = self.settings
        place = self.place.node(name)
        place.make()
        claims = NodeClaims(self.registry, name, lambda: self._agents[name].kubelet.is_api_server_up)
        kubelet = Kubelet.under(
            place.folder,
            KubeletSettings(machine=machine, topology=settings.topology, claims=claims, slices=claims),
        )
        return NodeAgent(
            facts_of_this_machine(name, internal_ip=_ADDRESSES.format(index + 1)),
            kubelet,
            self.registry,
            runtime,
            AgentSettings(
                pod_subnet=f"10.244.{index}.0/24",
                like_real_timing=settings.like_real_timing,
                manifests=place.manifests,
            ),
        )

    def _tls(self) -> Tls | None:
        settings = self.settings
        if settings.certificate is None or settings.key is None:
            return None
        return Tls(settings.certificate, settings.key)

    def _server_for_pods(self, runtime: ProcessRuntime, server: ApiServer) -> ApiServer | None:
        """Return the server that the programs of pods find as in a cluster, by https; None if they cannot."""
        if server.has_tls:
            return server
        if not self.settings.images or not can_mount():
            return None
        try:
            tls = Tls.made_in(self.place.accounts)
        except ServingError as error:
            logger.warning(
                "the programs of pods have no in-cluster configuration", extra={"reason": str(error)}
            )
            return None
        return self._server(runtime, 0, tls)

    def _server(self, runtime: ProcessRuntime, port: int, tls: Tls | None) -> ApiServer:
        settings = self.settings
        return ApiServer(
            self.registry,
            logs=runtime.logs.read,
            metrics=self._metrics,
            control=Control(self).handle,
            token=self._token,
            rbac=settings.rbac,
            port=port,
            tls=tls,
        )

    def _part_failed(self, part: object, error: Exception) -> None:
        """Report that a node or a controller failed. It is started again if the sandbox was up already."""
        if not self._is_up:
            raise error
        logger.error(
            "a part of the sandbox failed because of a bug; it is started again",
            extra={"part": getattr(part, "name", type(part).__name__)},
            exc_info=error,
        )

    async def _until_ready(self) -> None:
        """Wait until every node is."""
        missing = set(self._agents)
        async with aclosing(self.registry.follow(NODES)) as events:
            async for event in events:
                if _is_ready(event.object):
                    missing.discard(text(event.object, "metadata", "name"))
                if not missing:
                    return

    def _access_of(self, pod: Object, server: ApiServer, for_pods: ApiServer | None) -> PodAccess:
        """Return how the programs of a pod find the API server: as its service account, in both usual ways.

        A pod that wants no token, or whose account does not, has none (spec.automountServiceAccountToken),
        and neither has a static pod.
        """
        namespace, uid = text(pod, "metadata", "namespace"), text(pod, "metadata", "uid")
        folder = self.place.accounts / uid
        self.place.accounts.mkdir(exist_ok=True)
        token, kubeconfig = "", ""
        if self._has_token(pod):
            token = signed(pod_user(pod), self._token, self.registry.now + _TOKEN_LIFE)
            file = self.place.accounts / f"{uid}.kubeconfig"
            self.place.write_private(file, (for_pods or server).kubeconfig_of(token))
            kubeconfig = str(file)
        access = PodAccess.of(for_pods.account_of(token, namespace) if for_pods else None, folder)
        return replace(access, variables={**access.variables, KUBECONFIG_VARIABLE: kubeconfig})

    def _has_token(self, pod: Object) -> bool:
        """Whether the API server mounts a token into a pod (admission/serviceaccount/admission.go)."""
        if is_static(pod):
            return False
        namespace, name = text(pod, "metadata", "namespace"), text(pod, "spec", "serviceAccountName")
        account = self.registry.find(SERVICE_ACCOUNTS, namespace, name or "default")
        wishes = (part(one, "automountServiceAccountToken") for one in (part(pod, "spec"), account))
        return next((wish for wish in wishes if wish is not None), True) is not False

    async def _forget_pods(self, runtime: ProcessRuntime) -> None:
        """Throw away the logs and accounts of pods that are gone."""
        async with aclosing(self.registry.follow(PODS)) as events:
            async for event in events:
                if event.type is ChangeType.DELETED:
                    uid = text(event.object, "metadata", "uid")
                    try:
                        runtime.logs.forget(uid)
                        (self.place.accounts / f"{uid}.kubeconfig").unlink(missing_ok=True)
                        shutil.rmtree(self.place.accounts / uid, ignore_errors=True)
                    except OSError as error:
                        facts = {"pod": uid, "reason": str(error)}
                        logger.warning("the files of a pod could not be removed", extra=facts)

    async def _end_with_folder(self) -> None:
        """Go down when somebody removes the folder: nobody could reach this sandbox any more."""
        await until_absent(self.place.lock_file)
        logger.warning("the sandbox's folder was removed", extra={"folder": str(self.place.folder)})
        self.down()

    def _announce(self, server: ApiServer) -> None:
        self.place.write_private(self.place.kubeconfig, server.kubeconfig)
        self.place.announce(
            SandboxRecord(
                pid=os.getpid(),
                server=server.url,
                token=self._token,
                started=stamp(self.registry.now),
                nodes=tuple(self._agents),
                certificate=str(self.settings.certificate or ""),
                rbac=self.settings.rbac,
            )
        )

    def _metrics(self, node: str) -> str | None:
        agent = self._agents.get(node)
        return None if agent is None else agent.kubelet.metrics.exposition()

    def _container_ended(self, ended: Ended) -> None:
        for agent in self._agents.values():
            agent.container_ended(ended)


def _is_ready(node: Object) -> bool:
    conditions = entries(node, "status", "conditions")
    return any(text(one, "type") == "Ready" and text(one, "status") == "True" for one in conditions)


def _first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in a group; the others are what it has made of other parts."""
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
