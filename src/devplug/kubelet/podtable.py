"""The pods of one node with their statuses. They outlive a kubelet process, as on a node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from devplug.errors import KubeletError
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.pods import ContainerState, Event, PodStatus

if TYPE_CHECKING:
    from collections.abc import Collection

    from devplug.kubelet.changes import Changes
    from devplug.kubelet.pods import ContainerStatus, Pod, PodPhase, Rejection


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod of this node and its status; replaced at each change."""

    pod: Pod
    status: PodStatus


class PodTable:
    """The owner of all pods and events of a node. Every change of it is announced.

    A kubelet process that starts knows no pods; the pods run on, and are not `known` to it until `hear`.
    """

    def __init__(self, changes: Changes) -> None:
        self.events: list[Event] = []
        self._changes = changes
        self._pods: dict[str, BoundPod] = {}
        self._unheard: set[str] = set()

    def get(self, pod_uid: str) -> BoundPod:
        """Return a pod; raises `KubeletError` if it is not here."""
        if pod_uid not in self._pods:
            raise KubeletError(f"there is no pod {pod_uid} on this node")
        return self._pods[pod_uid]

    def named(self, namespace: str, name: str) -> BoundPod | None:
        """Return the known pod of that name, ended or not; of several the one that came last."""
        for bound in reversed(self._heard()):
            if (bound.pod.namespace, bound.pod.name) == (namespace, name):
                return bound
        return None

    def known(self) -> tuple[Pod, ...]:
        """Return all known pods, also those that have ended, in the order in which they came."""
        return tuple(bound.pod for bound in self._heard())

    def active(self) -> tuple[Pod, ...]:
        """Return the known pods that have not ended, in the order in which they came."""
        return tuple(bound.pod for bound in self._heard() if not bound.status.is_terminal)

    def active_uids(self) -> Collection[str]:
        """Return the UIDs of the pods that have not ended, whose devices must not be freed."""
        return {pod.uid for pod in self.active()}

    def all(self) -> tuple[Pod, ...]:
        """Return all pods of the node, known or not, in the order in which they came."""
        return tuple(bound.pod for bound in self._pods.values())

    def begin(self) -> None:
        """Record that a kubelet process starts, which knows no pods yet."""
        self._unheard = set(self._pods)

    def is_known(self, pod_uid: str) -> bool:
        """Whether this kubelet process knows a pod."""
        return pod_uid in self._pods and pod_uid not in self._unheard

    def hear(self, pod_uid: str) -> None:
        """Make a pod known to the kubelet process; its admission comes next. Safe to repeat."""
        self._unheard.discard(pod_uid)

    def running_containers(self) -> set[tuple[str, str]]:
        """Return the (pod UID, container name) that run, as the container runtime knows them."""
        return {
            (pod_uid, container.name)
            for pod_uid, bound in self._pods.items()
            for container in bound.status.containers
            if container.state is ContainerState.RUNNING
        }

    def add(self, pod: Pod) -> None:
        """Bind a pod to this node, and make it known; one with the same UID is replaced."""
        self._unheard.discard(pod.uid)
        self._record(pod, PodStatus.pending(pod))

    def renew(self, pod: Pod) -> None:
        """Take over what a pod has become; its status stays. One that is not here is no error."""
        if (bound := self._pods.get(pod.uid)) is not None:
            self._pods[pod.uid] = replace(bound, pod=pod)

    def reject(self, pod: Pod, rejection: Rejection) -> None:
        """Record that the kubelet has refused a pod, which is its end."""
        self._record(pod, rejection.status())
        self.events.append(rejection.event(pod.uid))

    def update(self, pod_uid: str, container: ContainerStatus) -> None:
        """Record one container's status, unless the pod has gone meanwhile."""
        if pod_uid in self._pods:
            bound = self._pods[pod_uid]
            self._record(bound.pod, bound.status.with_container(bound.pod, container))

    def hold_up(self, pod_uid: str, container: ContainerStatus, text: str) -> ContainerStatus:
        """Record that a container could not be made, with an event, and return its new status."""
        self.events.append(Event(pod_uid, "Warning", "Failed", f"Error: {text}"))
        held_up = container.held_up(text)
        self.update(pod_uid, held_up)
        return held_up

    def warn(self, pod_uid: str, reason: str, message: str) -> None:
        """Record an event on a pod that is no more than that."""
        self.events.append(Event(pod_uid, "Warning", reason, message))
        self._changes.announce(ChangeKind.POD, pod_uid=pod_uid)

    def end(self, pod_uid: str, phase: PodPhase) -> None:
        """Record that a pod has ended; raises `KubeletError` if it is not here."""
        bound = self.get(pod_uid)
        self._record(bound.pod, replace(bound.status.stopped(), phase=phase))

    def stop_all(self) -> None:
        """Record that no container runs any more, as after a boot of the node."""
        for bound in tuple(self._pods.values()):
            self._record(bound.pod, bound.status.stopped())

    def remove(self, pod_uid: str) -> None:
        """Forget a pod; raises `KubeletError` if it is not here."""
        self.get(pod_uid)
        del self._pods[pod_uid]
        self._unheard.discard(pod_uid)
        self._changes.announce(ChangeKind.POD, pod_uid=pod_uid)

    def _heard(self) -> list[BoundPod]:
        return [bound for uid, bound in self._pods.items() if self.is_known(uid)]

    def _record(self, pod: Pod, status: PodStatus) -> None:
        self._pods[pod.uid] = BoundPod(pod, status)
        self._changes.announce(ChangeKind.POD, pod_uid=pod.uid)
