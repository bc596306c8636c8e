"""The sandbox's scheduler: the node that a pod goes to, and the sentence when there is none.

Everything here is pure: no clock, no input or output, no logging. It follows Kubernetes 1.36; files are named
after pkg/scheduler there. Two things differ: every node is scored, where the real one stops when it has found
enough (percentageOfNodesToScore), and nothing is ever preempted. The rest of the
program takes what it needs from here, and knows no file of it.
"""

from __future__ import annotations

from devplug.sandbox.scheduler.claim_snapshot import ClaimSnapshot, NoPlacement, Placement
from devplug.sandbox.scheduler.filters import Diagnosis, matches_affinity, tolerates_taints
from devplug.sandbox.scheduler.queue import DevicesChange, NodeChange, PodGone, Queue
from devplug.sandbox.scheduler.scores import ScoringSettings, Strategy
from devplug.sandbox.scheduler.snapshot import ClusterSnapshot
from devplug.sandbox.scheduler.types import (
    NAME_FIELD,
    PODS,
    Node,
    PendingPod,
    Shape,
    amounts,
    node_of,
    pod_of,
    shape,
)

__all__ = [
    "NAME_FIELD",
    "PODS",
    "ClaimSnapshot",
    "ClusterSnapshot",
    "DevicesChange",
    "Diagnosis",
    "NoPlacement",
    "Node",
    "NodeChange",
    "PendingPod",
    "Placement",
    "PodGone",
    "Queue",
    "ScoringSettings",
    "Shape",
    "Strategy",
    "amounts",
    "matches_affinity",
    "node_of",
    "pod_of",
    "shape",
    "tolerates_taints",
]
