"""A sandbox without the extra `dra`: what it takes, and what it says where a selector has to be evaluated."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devplug.sandbox.sandboxdir import SandboxDir
from tests.cli.programs import devplug, environment, said_until, started

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")

BLOCKED = """\
import importlib.abc
import sys


class NoCel(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "cel_expr_python":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, NoCel())
"""
"""What each Python runs at its start that has it in its path, as `sitecustomize.py`."""

OBJECTS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: wrong}
spec: {selectors: [{cel: {expression: no such thing}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: any}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  allNodes: true
  pool: {name: pool, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
"""
WITH_CLAIM = """\
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %(name)s}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: %(device_class)s}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: %(name)s}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimName: %(name)s}]
"""
MISSING = (
    "selectors of devices need the package cel-expr-python, which is not installed: "
    'pip install "devplug[dra]"; it has wheels for Linux on x86_64, macOS on arm64 and Windows'
)


def kubectl(place: SandboxDir, *words: str, given: str = "") -> str:
    command = ["kubectl", "--kubeconfig", str(place.kubeconfig), *words]
    ran = subprocess.run(
        command, env=environment(), input=given, capture_output=True, text=True, check=False, timeout=40
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def scheduled(place: SandboxDir, name: str, status: str) -> str:
    """Wait for a pod's condition PodScheduled; return its reason and message."""
    kubectl(place, "wait", f"pod/{name}", f"--for=condition=PodScheduled={status}", "--timeout=30s")
    of_condition = "{.status.conditions[?(@.type=='PodScheduled')]['reason','message']}"
    return kubectl(place, "get", "pod", name, "-o", f"jsonpath={of_condition}")


@pytest.fixture(scope="module")
def path() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="dp-", dir="/tmp"))
    (folder / "sitecustomize.py").write_text(BLOCKED)
    yield str(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def up(path: str) -> Iterator[SandboxDir]:
    place = SandboxDir(Path(path) / "sb")
    with started("sandbox", "up", "--dir", place.folder, PYTHONPATH=path) as process:
        said_until(process, "sandbox describe", on_error=False)
        given = OBJECTS
        for name, device_class in (("selects", "wrong"), ("takes-any", "any")):
            given += WITH_CLAIM % {"name": name, "device_class": device_class}
        kubectl(place, "create", "--filename", "-", given=given)  # a wrong selector is taken
        yield place


def test_a_pod_whose_devices_are_selected_waits_with_what_to_install(up: SandboxDir) -> None:
    said = scheduled(up, "selects", "False")
    assert said == f'SchedulerError running "DynamicResources" filter plugin: {MISSING}'


def test_claims_without_selectors_are_allocated(up: SandboxDir) -> None:
    scheduled(up, "takes-any", "True")
    results = "jsonpath={.status.allocation.devices.results[*].device}"
    assert kubectl(up, "get", "resourceclaim", "takes-any", "-o", results) == "gpu-0"


def test_why_says_what_to_install_to_learn_more(up: SandboxDir, path: str) -> None:
    scheduled(up, "selects", "False")
    answer = devplug("why", "selects", "--dir", up.folder, PYTHONPATH=path)
    assert answer.returncode == 1, answer.stderr
    assert "which they could have cannot be told here" in answer.stdout
    assert MISSING.partition(":")[0] in answer.stdout
