"""Tables: the recorded answers, and what a pod's row says of each of its states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given

from devplug.k8s.times import stamp
from devplug.sandbox.api.columns import COLUMNS, OTHERS
from devplug.sandbox.api.kinds import SERVED, Resource, resource_of_path
from devplug.sandbox.api.tables import IncludeObject, table
from tests.sandbox.jsons import MAPS, printed, recorded

NOW = datetime(2026, 11, 21, 0, 23, 56, tzinfo=UTC)


def served(plural: str, group: str = "") -> Resource:
    found = resource_of_path(group, "v1", plural)
    assert found is not None
    return found


def before(seconds: int) -> str:
    return stamp(NOW - timedelta(seconds=seconds))


def shown(plural: str, *items: Any, group: str = "") -> Any:
    return table(served(plural, group), items, "1560", NOW, IncludeObject.NONE)


def bare(answer: Any) -> Any:
    return {**answer, "rows": [{"cells": row["cells"]} for row in answer["rows"]]}


def running(name: str, seconds: int, ip: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "creationTimestamp": before(seconds)},
        "spec": {"nodeName": "worker-0", "containers": [{"name": "c"}]},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": ip}],
            "containerStatuses": [{"name": "c", "ready": True, "state": {"running": {}}}],
        },
    }


PENDING: dict[str, Any] = {
    "metadata": {"name": "w-two", "creationTimestamp": before(100)},
    "spec": {"containers": [{"name": "c"}]},
    "status": {"phase": "Pending"},
}
NODE: dict[str, Any] = {
    "metadata": {"name": "worker-0", "creationTimestamp": before(174)},
    "spec": {},
    "status": {
        "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
        "nodeInfo": {
            "kubeletVersion": "v1.36.2",
            "osImage": "Debian GNU/Linux 12 (bookworm)",
            "kernelVersion": "6.18.44-fc-v595",
            "architecture": "amd64",
            "containerRuntimeVersion": "containerd://1.6.20",
        },
    },
}


EVENTS = """
- metadata: {name: k8sio.18e9e7987779d236}
  involvedObject: {kind: Pod, name: k8sio}
  reportingComponent: default-scheduler
  reportingInstance: default-scheduler-vm
  type: Warning
  reason: FailedScheduling
- metadata: {name: lab.18e9e547d9382f89}
  involvedObject: {kind: Node, name: lab}
  count: 1
  source: {component: kubelet, host: lab}
  type: Normal
  reason: Starting
  message: Starting kubelet.
"""


def test_the_pods_read_as_they_were_recorded() -> None:
    pods = (running("uses-resource", 117, "10.244.0.16"), running("w-one", 100, "10.244.0.17"), PENDING)
    assert bare(shown("pods", *pods)) == recorded("60-table-pods.json")


def test_the_nodes_read_as_they_were_recorded() -> None:
    assert bare(shown("nodes", NODE)) == recorded("61-table-nodes.json")


def test_the_events_read_as_they_were_recorded() -> None:
    real = recorded("62-table-events.json")
    failed, started = yaml.safe_load(EVENTS)
    failed |= {"eventTime": before(68), "message": real["rows"][0]["cells"][6] + "\n"}
    started |= dict.fromkeys(("firstTimestamp", "lastTimestamp"), before(43 * 60))
    assert bare(shown("events", failed, started)) == real


def as_kubectl(answer: Any, *, wide: bool) -> str:
    """The table as kubectl prints it: columns three blanks apart (cli-runtime printers tableprinter.go)."""
    chosen = [at for at, column in enumerate(answer["columnDefinitions"]) if wide or not column["priority"]]
    heads = [answer["columnDefinitions"][at]["name"].upper() for at in chosen]
    lines = [heads, *([str(row["cells"][at]) for at in chosen] for row in answer["rows"])]
    widths = [max(len(line[at]) for line in lines) + 3 for at in range(len(chosen))]
    return "\n".join(
        "".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def test_kubectl_prints_of_it_what_it_was_recorded_to_print() -> None:
    pods = shown(
        "pods",
        running("uses-resource", 24, "10.244.0.16"),
        running("w-one", 7, "10.244.0.17"),
        {**PENDING, "metadata": {"name": "w-two", "creationTimestamp": before(7)}},
    )
    assert as_kubectl(pods, wide=True) == printed("08-get-pods-wide.txt")
    nodes = shown("nodes", {**NODE, "metadata": {"name": "worker-0", "creationTimestamp": before(80)}})
    assert as_kubectl(nodes, wide=False) == printed("13-get-nodes.txt")
    rejected = {
        "metadata": {"name": "too-many", "creationTimestamp": before(6)},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"},
    }
    assert as_kubectl(shown("pods", rejected), wide=False) == printed("21-bound-get.txt")


# ── states of a pod ──


STATES = """
0/1 Evicted 0: {status: {phase: Failed, reason: Evicted}}
0/1 ErrImagePull 0: {status: {containerStatuses: [{state: {waiting: {reason: ErrImagePull}}}]}}
0/1 Completed 0:
  {status: {containerStatuses: [{state: &ended {terminated: {exitCode: 0, reason: Completed}}}]}}
1/1 NotReady 0: {status: {containerStatuses: [{state: *ended}, &ready {ready: true, state: {running: {}}}]}}
1/1 Running 0:
  status: {containerStatuses: [{state: *ended}, *ready], conditions: [{type: Ready, status: "True"}]}
0/1 Error 0:
  status: {containerStatuses: [{state: *ended}, {state: &failed {terminated: {exitCode: 3, reason: Error}}}]}
0/1 Signal:9 0: {status: {containerStatuses: [{state: {terminated: {exitCode: 9, signal: 9}}}]}}
0/1 ExitCode:9 0: {status: {containerStatuses: [{state: {terminated: {exitCode: 9}}}]}}
0/1 Init:Error 2: {status: {initContainerStatuses: [{state: *failed, restartCount: 2}]}}
0/1 Init:CrashLoopBackOff 0:
  status: {initContainerStatuses: [{state: {waiting: {reason: CrashLoopBackOff}}}]}
0/0 Init:1/2 0:
  spec: {initContainers: [{name: a}, {name: b}]}
  status: {initContainerStatuses: [{name: a, state: *ended}, {name: b}]}
2/2 Running 1:
  spec: {initContainers: [{name: s, restartPolicy: Always}], containers: [{}]}
  status:
    phase: Running
    initContainerStatuses: [{name: s, started: true, ready: true, restartCount: 1}]
    containerStatuses: [*ready]
0/1 Terminating 0:
  {metadata: &deleted {deletionTimestamp: "2026-11-21T00:21:59Z"}, status: {phase: Running}}
0/1 Succeeded 0: {metadata: *deleted, status: {phase: Succeeded}}
0/1 Unknown 0: {metadata: *deleted, status: {reason: NodeLost}}
0/1 SchedulingGated 0: {status: {conditions: [{type: PodScheduled, reason: SchedulingGated}]}}
"1/1  3 (2m ago)":
  status:
    containerStatuses:
    - {<<: *ready, restartCount: 3, lastState: {terminated: {finishedAt: "2026-11-21T00:21:56Z"}}}
"""
"""READY, STATUS and RESTARTS of a row, and the pod that it is of."""


@pytest.mark.parametrize(("cells", "pod"), yaml.safe_load(STATES).items())
def test_a_pod_s_row_says_how_it_is(cells: str, pod: dict[str, Any]) -> None:
    row = shown("pods", {"spec": {"containers": [{}]}, **pod})["rows"][0]["cells"]
    assert row[1:4] == cells.split(" ", 2)


def test_a_pod_that_ended_is_marked_so_in_its_row() -> None:
    conditions = [
        shown("pods", {"status": {"phase": phase}})["rows"][0].get("conditions")
        for phase in ("Succeeded", "Failed", "Running")
    ]
    completed = {"type": "Completed", "status": "True"}
    assert conditions == [
        [completed | {"reason": "Succeeded", "message": "The pod has completed successfully."}],
        [completed | {"reason": "Failed", "message": "The pod failed."}],
        None,
    ]


def test_readiness_gates_are_counted() -> None:
    gates = [{"conditionType": "a"}, {"conditionType": "b"}]
    pod = {"spec": {"readinessGates": gates}, "status": {"conditions": [{"type": "a", "status": "True"}]}}
    assert shown("pods", pod)["rows"][0]["cells"][8] == "1/2"


# ── other kinds ──


KINDS = """
nodes:
- metadata: {labels: {node-role.kubernetes.io/worker: "", kubernetes.io/role: lab}}
  spec: {unschedulable: true}
  status: {conditions: [{type: Ready, status: Unknown}], addresses: [{type: InternalIP, address: 10.0.0.1}]}
- ["", "NotReady,SchedulingDisabled", "lab,worker", <unknown>, "", 10.0.0.1, <none>,
   <unknown>, <unknown>, <unknown>]
daemonsets.apps:
- metadata: {name: plugin, creationTimestamp: &born "2026-11-21T00:21:59Z"}
  spec:
    selector: {matchLabels: {app: plugin}}
    template:
      spec: {nodeSelector: {b: "2", a: "1"}, containers: [{name: x, image: i}, {name: y, image: j}]}
  status: {desiredNumberScheduled: 2, currentNumberScheduled: 1}
- [plugin, 2, 1, 0, 0, 0, "a=1,b=2", 117s, "x,y", "i,j", app=plugin]
namespaces:
- {metadata: {name: lab}, status: {phase: Active}}
- [lab, Active, <unknown>]
configmaps:
- {metadata: {name: c, creationTimestamp: *born}, data: {a: ""}, binaryData: {b: ""}}
- [c, 2, 117s]
resourcequotas:
- metadata: {name: q, creationTimestamp: *born}
  status:
    hard: {requests.example.com/fpga: "2", limits.cpu: "4", pods: "9"}
    used: {requests.example.com/fpga: "1", limits.cpu: "3"}
- [q, "pods: 0/9, requests.example.com/fpga: 1/2", "limits.cpu: 3/4", 117s]
leases.coordination.k8s.io:
- {metadata: {name: l, creationTimestamp: *born}, spec: {holderIdentity: h}}
- [l, h, 117s]
events:
- metadata: {name: e}
  involvedObject: {kind: Node}
  firstTimestamp: "2026-11-21T00:22:26Z"
  series: {count: 6, lastObservedTime: "2026-11-21T00:23:53Z"}
- [3s, "", "", node, "", "", "", 90s, 6, e]
"""
"""An object of each kind, and the cells of its row."""


@pytest.mark.parametrize("resource", yaml.safe_load(KINDS))
def test_each_kind_has_its_cells(resource: str) -> None:
    plural, _, group = resource.partition(".")
    one, cells = yaml.safe_load(KINDS)[resource]
    assert shown(plural, one, group=group)["rows"][0]["cells"] == cells


@pytest.mark.parametrize("resource", SERVED, ids=lambda one: one.qualified)
@given(meta=MAPS, spec=MAPS, state=MAPS)
def test_any_object_has_a_cell_for_each_column(resource: Resource, meta: Any, spec: Any, state: Any) -> None:
    one = {"metadata": meta, "spec": spec, "status": state}
    answer: Any = table(resource, [one], "", NOW)
    columns = COLUMNS.get(resource.kind, OTHERS)
    assert len(answer["rows"][0]["cells"]) == len(answer["columnDefinitions"]) == len(columns)


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        (IncludeObject.NONE, None),
        (IncludeObject.OBJECT, PENDING),
        (
            IncludeObject.METADATA,
            {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": PENDING["metadata"],
            },
        ),
    ],
)
def test_a_row_has_as_much_of_its_object_as_is_asked_for(include: IncludeObject, expected: Any) -> None:
    answer: Any = table(served("pods"), [PENDING], "", NOW, include, with_columns=False)
    assert answer["rows"][0]["object"] == expected
    assert (answer["columnDefinitions"], answer["metadata"]) == (None, {})


def test_a_selector_that_cannot_be_read_is_told_so() -> None:
    broken = {"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Jump"}]}}}
    assert shown("daemonsets", broken, group="apps")["rows"][0]["cells"][-1] == "<error>"
