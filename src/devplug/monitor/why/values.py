"""What is known of a pod, and what is concluded from it. Values only."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devplug.monitor.clusterview import NodeCount
    from devplug.objects import Object
    from devplug.status.values import NodeStatus

__all__ = ["Evidence", "State", "Verdict", "Who"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that was read about one pod. Objects are as the API has them."""

    namespace: str
    name: str
    pod: Object | None
    """None if there is no such pod."""
    events: tuple[Object, ...] = ()
    """Those on the pod; of the whole namespace if there is no such pod."""
    nodes: tuple[Object, ...] | None = ()
    """None if they may not be read."""
    pods: tuple[Object, ...] | None = ()
    """Every pod of the cluster, or of the namespace if there is no such pod; None if they may not be read."""
    unread: tuple[str, ...] = ()
    """What could not be read, and what to do about it, as sentences."""
    node_status: NodeStatus | None = None
    """What is known on the pod's node itself, for whoever runs there."""
    numa_nodes: tuple[int, ...] = ()
    """The NUMA nodes of the pod's node, for whoever runs there; none if they are not known."""


class State(enum.StrEnum):
    """How a pod stands; the word that the person reads."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    STARTING = "Starting"
    PENDING = "Pending"
    """No node has been found for it."""
    WAITING = "Waiting"
    """It has a node, and something there is tried again and again."""
    FAILED = "Failed"
    """For good: the kubelet never tries it again."""
    TERMINATING = "Terminating"
    NOT_FOUND = "NotFound"


class Who(enum.StrEnum):
    """Who said no."""

    NOBODY = "nobody"
    SCHEDULER = "scheduler"
    KUBELET = "kubelet"
    PLUGIN = "plugin"
    QUOTA = "quota"
    API_SERVER = "API server"
    RUNTIME = "container runtime"
    IMAGE = "image"
    PROGRAM = "program"
    NODE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why a pod is as it is, in sentences without a full stop."""

    namespace: str
    pod: str
    state: State
    who_said_no: Who
    because: str
    facts: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    """What to do, the likeliest first."""
    counts: tuple[NodeCount, ...] = ()
    """What the nodes have of the resources that the pod asks for, where that matters."""
    message: str = ""
    """What was told, to the letter."""
    unread: tuple[str, ...] = ()

    @property
    def is_fine(self) -> bool:
        """Whether nothing keeps the pod from its work."""
        return self.who_said_no is Who.NOBODY and self.state in {State.RUNNING, State.SUCCEEDED}

    @property
    def is_unknown(self) -> bool:
        """Whether there is nothing to judge: no such pod, and nobody refused to make it."""
        return self.state is State.NOT_FOUND and self.who_said_no is Who.NOBODY

    def value(self) -> dict[str, object]:
        """Return it in values that JSON and YAML have."""
        return {
            "namespace": self.namespace,
            "pod": self.pod,
            "state": str(self.state),
            "whoSaidNo": str(self.who_said_no),
            "because": self.because,
            "message": self.message,
            "facts": list(self.facts),
            "advice": list(self.advice),
            "nodes": [one.value() for one in self.counts],
            "unread": list(self.unread),
        }

    def lines(self) -> tuple[str, ...]:
        """Return it for people, but for the counts."""
        no = "" if self.who_said_no is Who.NOBODY else f"the {self.who_said_no} said no: "
        lines = [f"{self.namespace}/{self.pod} is {_WORDS[self.state]}: {no}{self.because}"]
        lines += [f"  {one}" for one in self.facts]
        lines += [f"  not read: {one}" for one in self.unread]
        if self.advice:
            lines += ["What to do:", *(f"  - {one}" for one in self.advice)]
        return tuple(lines)


_WORDS = {state: str(state) for state in State} | {State.NOT_FOUND: "not there"}
