"""`devplug why` and `kubectl devices` on real pods of a sandbox: pending, refused, waiting, running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from devplug.cli.kubectl import devices
from devplug.cli.why import why
from tests.cli.programs import ended, environment, said_until, started
from tests.sandbox.kubectl.stage import Stage, why_kubectl_is_missing

ROOT: Final = Path(__file__).parents[3]
TROUBLES: Final = ROOT / "tests" / "monitor" / "troubles.py"
QUOTA: Final = """
apiVersion: v1
kind: Namespace
metadata: {name: poor}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: none-at-all, namespace: poor}
spec: {hard: {requests.example.com/laser: "0"}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: beam, namespace: poor}
spec:
  selector: {matchLabels: {app: beam}}
  template:
    metadata: {labels: {app: beam}}
    spec: {containers: [{name: c, image: busybox, resources: {limits: {example.com/laser: 1}}}]}
"""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """Two nodes that insist on one NUMA node, and on the first a plugin that goes wrong in many ways."""
    if why_not := why_kubectl_is_missing():
        pytest.skip(f"{why_not}; install Kubernetes' kubectl 1.27 or newer")
    options = ("--nodes=2", "--numa=2", "--policy=single-numa-node")
    with tempfile.TemporaryDirectory(prefix="dp-", dir="/tmp") as folder, Stage(Path(folder), *options) as it:
        command = ("--", sys.executable, TROUBLES, "{dir}", folder)
        place = ("--dir", it.place.folder)
        with started("sandbox", "run", *place, *command, PYTHONPATH=str(ROOT)) as plugin:
            for _ in range(4):
                said_until(plugin, "registered with the kubelet")
            yield it
            plugin.terminate()
            ended(plugin)


def made(stage: Stage, name: str, resource: str, count: int, state: str, more: str = "{}") -> None:
    """Make a pod, and wait until its status says so."""
    spec: dict[str, Any] = json.loads(more)
    limits = {"limits": {resource: str(count)}}
    spec["containers"] = [{"name": "main", "image": "busybox", "resources": limits}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    stage.applied(json.dumps(pod))
    waited(stage, f"pod/{name}", state)


def waited(stage: Stage, thing: str, state: str) -> None:
    said = stage.kubectl("wait", f"--for=jsonpath={state}", thing, "--timeout=30s")
    assert "condition met" in said, said


RUNNING: Final = "{.status.phase}=Running"
FAILED: Final = "{.status.phase}=Failed"
UNSCHEDULED: Final = "{.status.conditions[0].reason}=Unschedulable"
HELD_UP: Final = "{.status.containerStatuses[0].state.waiting.reason}=CreateContainerConfigError"


def judged(
    stage: Stage, capsys: pytest.CaptureFixture[str], pod: str, output: str = "json"
) -> tuple[int, Any]:
    """Return the exit code, and what is said."""
    capsys.readouterr()
    code = why(
        pod,
        namespace=None,
        kubeconfig=None,
        context=None,
        folder=str(stage.place.folder),
        kubelet_root="/nowhere",
        output=output,
        color="never",
    )
    said = capsys.readouterr().out
    return code, json.loads(said) if output == "json" else said


def test_a_pod_that_runs_says_which_device_it_holds(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    made(stage, "runs", "example.com/laser", 1, RUNNING)
    code, result = judged(stage, capsys, "runs")
    assert (code, result["state"], result["rejected_by"]) == (0, "Running", "nobody")
    assert result["facts"] == ["container main holds laser-0 of example.com/laser"]
    broken = stage.folder / "broken"
    broken.touch()
    sick = "{.status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health}=Unhealthy"
    waited(stage, "pod/runs", sick)
    code, result = judged(stage, capsys, "default/runs")
    assert (code, result["state"], result["rejected_by"]) == (1, "Running", "plugin")
    assert "laser-0 of example.com/laser in container main is reported as unhealthy" in result["because"]
    broken.unlink()
    waited(stage, "pod/runs", sick.replace("Unhealthy", "Healthy"))


def test_a_pod_that_no_node_has_enough_for_says_who_has_the_devices(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "second"):
        made(stage, name, "example.com/fpga", 1, RUNNING)
    made(stage, "third", "example.com/fpga", 1, UNSCHEDULED)
    code, result = judged(stage, capsys, "third")
    assert (code, result["state"], result["rejected_by"]) == (1, "Pending", "scheduler")
    assert (
        result["because"] == "it asks for 1 of example.com/fpga, and no node that it may go to has one free"
    )
    assert result["facts"] == ["on worker-0 they are asked for by default/first (1) and default/second (1)"]
    (counts,) = result["nodes"]
    assert (counts["capacity"], counts["allocatable"], counts["requested"], counts["free"]) == (2, 2, 2, 0)
    code, said = judged(stage, capsys, "third", "table")
    assert said.startswith(
        "default/third is Pending: the scheduler said no: it asks for 1 of example.com/fpga"
    )
    assert "worker-0  example.com/fpga  2         2            2          0     0" in said
    for name in ("third", "first", "second"):
        stage.kubectl("delete", "pod", name, "--now")


def test_a_pod_with_a_wrong_name_of_a_resource_is_told_the_right_one(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    made(stage, "typo", "example.com/fgpa", 1, UNSCHEDULED)
    code, result = judged(stage, capsys, "typo")
    assert (code, result["state"]) == (1, "Pending")
    expected = "no node has the resource example.com/fgpa; did you mean example.com/fpga?"
    assert result["because"] == expected


def test_a_pod_that_the_topology_manager_refuses_is_told_that_the_scheduler_knows_no_numa_nodes(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    made(stage, "both", "example.com/fpga", 2, FAILED)
    code, result = judged(stage, capsys, "both")
    assert (code, result["state"], result["rejected_by"]) == (1, "Failed", "kubelet")
    assert "could not have 2 example.com/fpga on NUMA nodes as its policy wants" in result["because"]
    assert any("single-numa-node" in fact for fact in result["facts"])
    # What was given out within the last second counts as held, whatever has become of its pod.
    while "of example.com/fpga these are free now: none" in result["facts"]:
        _, result = judged(stage, capsys, "both")
    here = [fact for fact in result["facts"] if "these are free now" in fact]
    assert here == ["of example.com/fpga these are free now: NUMA node 0: fpga-0; NUMA node 1: fpga-1"]
    assert "delete the pod and create it again" in result["advice"][-1]


def test_what_a_plugin_says_when_it_refuses_is_passed_on(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    made(stage, "picky", "example.com/picky", 1, FAILED)
    code, result = judged(stage, capsys, "picky")
    assert (code, result["state"], result["rejected_by"]) == (1, "Failed", "plugin")
    assert result["because"] == "Allocate was refused: the licence has run out; renew it"


def test_a_pod_that_was_bound_by_name_is_told_that_nobody_counted(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    made(stage, "bound", "example.com/picky", 2, FAILED, '{"nodeName": "worker-0"}')
    code, result = judged(stage, capsys, "bound")
    assert (code, result["state"], result["rejected_by"]) == (1, "Failed", "kubelet")
    assert "of the 2 example.com/picky that it asks for, worker-0 had only 1" in result["because"]
    assert any("bound by name" in fact for fact in result["facts"])


@pytest.mark.parametrize("waits_for_its_start", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_pod_whose_pre_start_is_refused_waits_and_runs_once_it_is_not(
    stage: Stage, capsys: pytest.CaptureFixture[str], *, waits_for_its_start: bool
) -> None:
    """The kubelet tries again after ten seconds."""
    made(stage, "dsp", "example.com/dsp", 1, HELD_UP)
    code, result = judged(stage, capsys, "dsp")
    assert (code, result["state"], result["rejected_by"]) == (1, "Waiting", "plugin")
    assert "pre_start refused container main" in result["because"]
    assert "it could not be reset" in result["because"]
    if waits_for_its_start:
        (stage.folder / "reset").touch()
        waited(stage, "pod/dsp", RUNNING)
        code, result = judged(stage, capsys, "dsp")
        assert code == 0, result
    stage.kubectl("delete", "pod", "dsp", "--now")


def test_a_node_that_is_closed_is_told_although_it_has_room(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.kubectl("taint", "node", "worker-0", "maintenance=disk:NoSchedule")
    try:
        made(stage, "outside", "example.com/fpga", 1, UNSCHEDULED)
        code, result = judged(stage, capsys, "outside")
        assert (code, result["rejected_by"]) == (1, "scheduler")
        taint = "worker-0 has room, but the pod does not tolerate its taint maintenance=disk:NoSchedule"
        assert taint in result["facts"]
    finally:
        stage.kubectl("taint", "node", "worker-0", "maintenance-")
        stage.kubectl("delete", "pod", "outside", "--now")


def test_a_pod_that_a_quota_kept_from_being_made_is_explained_by_its_owners_name(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.applied(QUOTA)
    while "FailedCreate" not in stage.kubectl("get", "events", "-n", "poor"):
        pass  # each look takes kubectl a moment
    code, result = judged(stage, capsys, "poor/beam")
    assert (code, result["state"], result["rejected_by"]) == (1, "NotFound", "quota")
    assert result["because"] == "quota none-at-all lets DaemonSet beam create no more pods"


def test_a_name_that_no_pod_has_is_bad_input_with_the_nearest(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    made(stage, "spelled", "example.com/nothing", 1, UNSCHEDULED)
    code, result = judged(stage, capsys, "speled")
    assert (code, result["state"]) == (2, "NotFound")
    assert result["because"].endswith("did you mean spelled?")


def test_the_sandboxs_folder_is_enough_to_find_its_cluster(stage: Stage) -> None:
    program = (
        "import sys; from devplug.cli.why import why_command as main; sys.exit(main(standalone_mode=False))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, "nobody", "--dir", str(stage.place.folder)],
        env=environment(KUBECONFIG="/nowhere"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ran.returncode, ran.stdout.split(":")[0]) == (2, "default/nobody is not there"), ran.stderr


def test_kubectl_runs_our_plugin_and_both_tables_tell_the_truth(stage: Stage) -> None:
    made(stage, "holder", "example.com/fpga", 1, RUNNING)
    folder = stage.folder / "bin"
    folder.mkdir()
    script = folder / "kubectl-devices"
    script.write_text(f"#!{sys.executable}\nfrom devplug.cli.kubectl import main\nmain()\n")
    script.chmod(0o755)
    ran = subprocess.run(
        ["kubectl", "devices", "--color=never"],
        env=environment(
            KUBECONFIG=str(stage.place.kubeconfig),
            PATH=f"{folder}:{os.environ['PATH']}",
            PYTHONPATH=f"{ROOT}/src:{ROOT}",
        ),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    rows = [line.split() for line in ran.stdout.splitlines()]
    assert rows[0] == ["NODE", "RESOURCE", "CAPACITY", "ALLOCATABLE", "REQUESTED", "FREE", "UNHEALTHY"]
    assert ["worker-0", "example.com/fpga", "2", "2", "1", "1", "0"] in rows
    (held,) = [row for row in rows if row[1:2] == ["holder"]]
    assert held[:6] == ["default", "holder", "worker-0", "main", "example.com/fpga", "1"]
    assert held[6] in {"fpga-0", "fpga-1"}
    assert held[7] == "Healthy"
    stage.kubectl("delete", "pod", "holder", "--now")


def test_a_selector_and_one_table_are_enough_for_csv(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    made(stage, "chosen", "example.com/fpga", 1, RUNNING)
    stage.kubectl("label", "pod", "chosen", "team=blue")
    capsys.readouterr()
    code = devices(
        namespace="",
        labels="team in (blue, green)",
        wants_nodes=False,
        wants_pods=True,
        kubeconfig=str(stage.place.kubeconfig),
        context=None,
        output="csv",
        color="never",
    )
    first, *rows = capsys.readouterr().out.splitlines()
    assert code == 0
    assert first == "NAMESPACE,POD,NODE,CONTAINER,RESOURCE,COUNT,DEVICES,HEALTH,CLAIM,PHASE,REASON,SINCE"
    assert [row.split(",")[1] for row in rows] == ["chosen"]
    stage.kubectl("delete", "pod", "chosen", "--now")
