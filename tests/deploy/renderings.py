"""The deployment as each tool renders it: our own objects, Helm's and kustomize's, by kind and name."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
import yaml

from devplug import __version__
from devplug.deploy.manifests import base_files, manifests
from devplug.deploy.names import Release

Objects: TypeAlias = "dict[tuple[str, str], dict[str, Any]]"

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart" / "devplug"
RELEASE = Release("devplug", "lab", __version__, "Helm")
needs_helm = pytest.mark.skipif(
    importlib.util.find_spec("helm_python") is None, reason="no Helm here: pip install helm-python-sdk"
)
needs_schemas = pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None,
    reason="no schemas of Kubernetes here: pip install kubernetes-validate",
)
needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="no kubectl here: https://kubernetes.io/docs/tasks/tools"
)


def by_name(objects: Iterable[Mapping[str, Any]]) -> Objects:
    """Return objects by kind and name, as JSON has them: a tuple is a list."""
    return {(str(one["kind"]), str(one["metadata"]["name"])): json.loads(json.dumps(one)) for one in objects}


def ours(values: Mapping[str, Any], release: Release = RELEASE) -> Objects:
    return by_name(manifests(values, release))


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def rendered(values: Mapping[str, Any], release: Release = RELEASE, chart: Path = CHART) -> Objects:
    """Return what Helm makes of the chart; raises its own error where that fails."""
    import helm_python

    with helm_python.Chart.load(chart) as loaded:
        texts = loaded.render(dict(values), name=release.name, namespace=release.namespace)
    documents = [
        one for path, text in texts.items() if path.endswith(".yaml") for one in yaml.safe_load_all(text)
    ]
    return by_name(one for one in documents if one)


def helm_error(values: Mapping[str, Any]) -> str:
    """Return why Helm refuses these values, or nothing."""
    import helm_python

    try:
        rendered(values)
    except helm_python.HelmError as error:
        return str(error)
    return ""


def kustomized(folder: Path) -> Objects:
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True, timeout=50
    )
    return by_name(yaml.safe_load_all(done.stdout))


def base(values: Mapping[str, Any], folder: Path, release: Release = RELEASE) -> Path:
    return written(folder, base_files(values, release))


def pod_spec(objects: Objects) -> dict[str, Any]:
    (daemon_set,) = (one for (kind, _), one in objects.items() if kind == "DaemonSet")
    return cast("dict[str, Any]", daemon_set["spec"]["template"]["spec"])


def container(objects: Objects) -> dict[str, Any]:
    (only,) = pod_spec(objects)["containers"]
    return cast("dict[str, Any]", only)
