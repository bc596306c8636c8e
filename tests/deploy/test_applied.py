"""An API server takes the DaemonSet, with kubectl's strict validation, and its pod comes to run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devplug import __version__
from devplug.deploy.manifests import manifests
from devplug.deploy.names import Release
from devplug.k8s.yaml import yaml_text
from tests.sandbox.kubectl.stage import Stage, why_kubectl_is_missing

KINDS = ("Namespace", "ConfigMap", "DaemonSet")
"""Those of ours that the sandbox has; the others do nothing in it."""


@pytest.mark.skipif(bool(why_kubectl_is_missing()), reason=why_kubectl_is_missing() or "kubectl is there")
def test_the_manifests_are_taken_and_their_pod_runs(short_dir: Path) -> None:
    objects = manifests({"createNamespace": True}, Release("devplug", "devplug", __version__))
    text = "---\n".join(yaml_text(one) for one in objects if one["kind"] in KINDS)
    with Stage(short_dir) as stage:
        said = stage.applied(text)
        assert said.splitlines() == [
            "namespace/devplug created",
            "configmap/devplug created",
            "daemonset.apps/devplug created",
        ]
        stage.kubectl("-n", "devplug", "rollout", "status", "daemonset/devplug", "--timeout=30s")
        (pod,) = json.loads(stage.kubectl("-n", "devplug", "get", "pods", "-o", "json"))["items"]
        assert pod["status"]["phase"] == "Running"
        assert pod["spec"]["priorityClassName"] == "system-node-critical"
        assert stage.applied(text).splitlines() == [
            "namespace/devplug unchanged",
            "configmap/devplug unchanged",
            "daemonset.apps/devplug unchanged",
        ]
