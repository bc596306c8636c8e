"""One pod on its node: whatever is done about it is done here, one thing after the other.

What that is, is `podlifecycle`'s; how containers are started and ended is `podcontainers`', and how claims
are prepared `podclaims`'; what people are told is `podstatus`'.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletCrashError, KubeletError
from devplug.k8s.objects import Object, part, same, text
from devplug.k8s.times import moment
from devplug.kubelet.manifests import PodReader
from devplug.kubelet.pods import PodPhase
from devplug.linux.notifier import within
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.strategy import Preconditions
from devplug.sandbox.nodes.podclaims import PodClaims
from devplug.sandbox.nodes.podcontainers import PodContainers
from devplug.sandbox.nodes.podlifecycle import (
    AnnotationError,
    BackOff,
    End,
    Finish,
    PodResult,
    Remove,
    Replace,
    Start,
    Stop,
    Unprepare,
    next_step,
    plan_of,
    planned_exit,
)
from devplug.sandbox.nodes.podstatus import PodFacts, status_of
from devplug.sandbox.registry import PODS

if TYPE_CHECKING:
    from datetime import datetime

    from devplug.kubelet.pods import ContainerStatus
    from devplug.sandbox.nodes.podcontainers import NodeContext
    from devplug.sandbox.nodes.podlifecycle import Step

LEAST_GRACE_SECONDS: Final = 2.0
"""How long a container may take to stop at least, whatever its pod says (kuberuntime_manager.go)."""


class PodWorker:
    """The owner of one pod of one node, from its binding until it is gone; `run` is its life.

    A pod that is over, or was before its node knew it, keeps its status until it is deleted.
    """

    def __init__(self, pod: Object, context: NodeContext) -> None:
        self.uid = text(pod, "metadata", "uid")
        self.containers = PodContainers(pod, context, self.wake)
        self.claims = PodClaims(self.containers, context)
        self.is_admitted = asyncio.Event()
        """Set once the kubelet has decided about the pod for the first time."""
        self._context = context
        self._namespace = text(pod, "metadata", "namespace")
        self._name = text(pod, "metadata", "name")
        self._since = moment(text(pod, "status", "startTime")) or self._now
        self._result = _result_of(pod)
        self._is_over = self._result is not None
        self._is_settled = False
        self._reported_problem = ""
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Have it look at the pod again; a pod that is to end gets no claims prepared any more."""
        self._woken.set()
        if self.claims.is_preparing and self._is_leaving():
            self.claims.cancel_prepare()

    def beat(self) -> None:
        """Tell it that time has passed."""
        self._is_settled |= bool(self.containers.running)
        self.wake()

    async def boot(self) -> None:
        """End all containers at once, as a boot of the node does."""
        if not self._is_over:
            await self.containers.boot()

    def kubelet_started(self) -> None:
        """Forget what a kubelet does not know after its start."""
        self.containers.kubelet_started()
        self.claims.kubelet_started()

    async def run(self) -> None:
        """Do what is to be done about the pod until it is gone. After an error it may be run again."""
        failure: Exception | None = None
        async with self.containers.probing():
            try:
                await self._live()
            except Exception as error:  # noqa: BLE001 -- raised below: a group wraps what passes it
                failure = error
        if failure is not None:
            raise failure

    async def _live(self) -> None:
        if not self.is_admitted.is_set():
            try:
                await self._admit()
            finally:
                self.is_admitted.set()
        while True:
            self._woken.clear()
            if not self._is_over:
                await self._context.is_up.wait()
            if not self._is_here():
                break
            self._note_rejection()
            self._report_annotation()
            self._write_status()
            seen = next_step(
                self.containers.plan,
                self.containers.records,
                self._now,
                since=self._since,
                result=self._result,
                starts_at=self.claims.starts_at,
                unprepares_at=self.claims.unprepares_at,
            )
            try:
                if seen.step is None:
                    await self._wait(seen.until)
                else:
                    await self._do(seen.step)
            except KubeletCrashError as error:
                self._context.crashed(error)
            except KubeletError:
                # Between two lives of the kubelet; it says so when the next one is there.
                await self._wait(None)
        # Of a pod that is deleted by force the devices are free while its containers still run (L4).
        with suppress(KubeletError):
            self._context.kubelet.remove_pod(self.uid)
        await self.containers.stop(self.containers.running, LEAST_GRACE_SECONDS)
        self.containers.release_address()

    # ── looking ──

    @property
    def _now(self) -> datetime:
        return self._context.registry.now

    def _is_here(self) -> bool:
        """Whether the pod still exists; what it says now is taken over."""
        found = self._context.registry.find(PODS, self._namespace, self._name)
        if found is None or text(found, "metadata", "uid") != self.uid:
            return False
        self.containers.pod, self.containers.plan = found, plan_of(found)
        return True

    def _is_leaving(self) -> bool:
        found = self._context.registry.find(PODS, self._namespace, self._name)
        return (
            found is None
            or text(found, "metadata", "uid") != self.uid
            or bool(text(found, "metadata", "deletionTimestamp"))
        )

    async def _wait(self, until: datetime | None) -> None:
        """Wait until something changes, or until then."""
        seconds = None if until is None else max((until - self._now).total_seconds(), 0)
        await within(seconds, self._woken.wait())

    async def _admit(self) -> None:
        """Have the kubelet decide about the pod, unless that is over or on its way out."""
        reader = PodReader(self.containers.pod)
        pod = replace(reader.pod(self.uid), is_static=self._context.is_static)
        while self._result is None:
            self._woken.clear()
            await self._context.is_up.wait()
            if not self._is_here() or self.containers.plan.is_deleted:
                return
            if reader.problems:
                self._reject("InvalidPod", "; ".join(map(str, reader.problems)))
                return
            self._context.refresh_node()
            try:
                await self._context.kubelet.admit(pod)
            except KubeletCrashError as error:
                self._context.crashed(error)
                return
            except KubeletError:
                await self._wait(None)
            else:
                return

    def _note_rejection(self) -> None:
        """Take over that the kubelet has refused the pod, now or after a start of its own."""
        with suppress(KubeletError):
            status = self._context.kubelet.pod(self.uid)
            if self._result is None and status.phase is PodPhase.FAILED:
                self._reject(status.reason, status.message.removeprefix("Pod was rejected: "))

    def _reject(self, reason: str, message: str) -> None:
        text = f"Pod was rejected: {message}"
        self._result = PodResult(PodPhase.FAILED, reason, text, was_rejected=True)
        self.containers.event("Warning", reason, message)

    # ── status and events ──

    def _write_status(self) -> None:
        """Write the status if it says anything new; that of a pod that is over is the last."""
        if self._is_over:
            return
        seen: tuple[ContainerStatus, ...] = ()
        with suppress(KubeletError):
            seen = self._context.kubelet.pod(self.uid).containers
        holds_claims = self.claims.unprepares_at is not None
        facts = PodFacts(
            self.containers.plan,
            self.containers.records,
            self._since,
            {one.name: one.allocated_resources for one in seen},
            self._result,
            self.containers.pod_ip,
            self._context.host_ip,
            self._is_settled,
            {one.name: one.claims_health for one in seen},
            holds_claims,
        )
        status = status_of(self.containers.pod, facts, self._now)
        if not same(status, part(self.containers.pod, "status")):
            self.containers.pod = self._context.registry.update(
                PODS,
                self._namespace,
                self._name,
                lambda old: {**old, "status": status},
                part_name="status",
            )
        self._is_over = self._result is not None and not (self.containers.running or holds_claims)

    def _report_annotation(self) -> None:
        """Say once what is wrong with an annotation of ours."""
        problem = ""
        try:
            planned_exit(self.containers.pod)
        except AnnotationError as error:
            problem = str(error)
        if problem and problem != self._reported_problem:
            self.containers.event("Warning", "InvalidAnnotation", problem)
        self._reported_problem = problem

    # ── doing ──

    async def _do(self, step: Step) -> None:
        match step:
            case Start(name):
                await self._start(name)
            case BackOff(name):
                self.containers.back_off(name)
            case End(name, exit_code):
                await self.containers.end(name, exit_code)
            case Stop(names):
                await self.containers.stop(names, self.containers.plan.grace_seconds)
            case Replace(name):
                await self._replace(name)
            case Finish(result):
                self._result = result
            case Unprepare():
                await self.claims.unprepare()
            case Remove():
                await self._remove()
        if self._result is not None and not (self.containers.running or self.claims.unprepares_at):
            self._end_at_kubelet(self._result.phase)

    async def _start(self, name: str) -> None:
        """Start a container; where the pod has no address yet, its claims come first."""
        if self.containers.pod_ip or await self.claims.prepare():
            await self.containers.start(name)

    async def _replace(self, name: str) -> None:
        """Stop a container and start it as the pod has it now, unless the pod was deleted meanwhile."""
        await self.containers.stop_outdated(name, self.containers.plan.grace_seconds)
        if self._is_here() and not self.containers.plan.is_deleted:
            await self.containers.start(name)

    def _end_at_kubelet(self, phase: PodPhase) -> None:
        """Have the pod's devices freed, now that none of its containers runs."""
        with suppress(KubeletError):
            if not self._context.kubelet.pod(self.uid).is_terminal:
                self._context.kubelet.end_pod(self.uid, phase)

    async def _remove(self) -> None:
        """Take the pod away for good; with a finalizer it stays until somebody takes that away."""
        with suppress(StatusError):
            self._context.registry.delete(
                PODS, self._namespace, self._name, grace_seconds=0, preconditions=Preconditions(self.uid)
            )
        if self._is_here():
            await self._wait(None)


def _result_of(pod: Object) -> PodResult | None:
    """Return the end of a pod that was over before its node knew it."""
    for phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
        if text(pod, "status", "phase") == phase.value:
            return PodResult(phase, text(pod, "status", "reason"), text(pod, "status", "message"))
    return None
