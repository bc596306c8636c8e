"""All objects hold before the schemas of every supported Kubernetes, and before our own policies."""

from __future__ import annotations

import copy
import functools
import importlib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from devplug.deploy.names import Release
from tests.deploy.policies import faults, granted
from tests.deploy.renderings import (
    Objects,
    base,
    kustomized,
    needs_helm,
    needs_kubectl,
    needs_schemas,
    ours,
    pod_spec,
    rendered,
)

VERSIONS = [f"1.{minor}" for minor in range(31, 38)]
MOST: dict[str, Any] = {
    "createNamespace": True,
    "cdi": {"enabled": True},
    "nvidia": {"enabled": True, "mig": True},
    "runtimeClassName": "nvidia",
    "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
    "hostNetwork": True,
    "nodeLabels": {"enabled": True},
    "kubeEvents": {"enabled": True},
    "imagePullSecrets": [{"name": "a"}],
    "podAnnotations": {"a": "b"},
    "config": {"checksumRestart": True},
    "extraVolumes": [{"name": "files-0", "hostPath": {"path": "/run/a", "type": "DirectoryOrCreate"}}],
    "extraVolumeMounts": [{"name": "files-0", "mountPath": "/run/a", "readOnly": True}],
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
}
"""Everything that is optional, at once, but for the right to open devices."""

OPENING: dict[str, Any] = {"deviceAccess": {"enabled": True}}
DRA: dict[str, Any] = {
    "config": {
        "inline": "version: 1\ndriver: devices.example.com\nresources:\n"
        "  - name: example.com/a\n    serve: dra\n    discover: {path: /dev/a}\n"
    },
    "dra": {
        "enabled": True,
        "driver": "devices.example.com",
        "classes": [
            {"name": "a.example.com", "attribute": "example.com/a", "extendedResourceName": "example.com/a"}
        ],
    },
    "updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
}
CASES = {"least": {}, "most": MOST, "opening": OPENING, "dra": DRA}


@functools.cache
def validator(version: str, kind: str, api: str) -> Draft202012Validator:
    """Return the strict validator; `kubernetes_validate.validate` reads 2 MB for each object."""
    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    schemas = importlib.import_module("kubernetes_validate.utils")
    whole = next(one for one in schemas.all_versions() if schemas.major_minor(one) == version)
    folder = f"kubernetes-json-schema/v{whole}-local-strict"
    group, _, number = api.rpartition("/")
    name = f"{kind.lower()}-{group.partition('.')[0] + '-' if group else ''}{number}"
    definitions: Resource[Any] = Resource.from_contents(
        schemas.schema_contents(f"{folder}/_definitions.json", version)
    )
    registry: Registry[Any] = definitions @ Registry()
    return Draft202012Validator(schemas.schema_contents(f"{folder}/{name}.json", version), registry=registry)


def schema_faults(objects: Objects, version: str) -> list[str]:
    """Return what the strict schemas refuse; those of the Prometheus operator are not the cluster's."""
    return [
        f"{kind} {name}: {error.json_path}: {error.message}"
        for (kind, name), one in objects.items()
        if not one["apiVersion"].startswith("monitoring.coreos.com")
        for error in validator(version, kind, one["apiVersion"]).iter_errors(one)
    ]


@needs_schemas
@pytest.mark.parametrize("version", VERSIONS)
def test_every_supported_kubernetes_takes_the_objects(version: str) -> None:
    # The API of DRA is v1 since 1.34.
    cases = [values for case, values in CASES.items() if case != "dra" or version >= "1.34"]
    for values in cases:
        assert schema_faults(ours(values), version) == []


@needs_schemas
@pytest.mark.parametrize("version", VERSIONS)
def test_a_field_that_kubernetes_does_not_know_would_be_seen(version: str) -> None:
    objects = copy.deepcopy(ours({}))
    pod_spec(objects)["runtimeClass"] = "nvidia"
    assert "runtimeClass" in "".join(schema_faults(objects, version))


@needs_helm
@needs_schemas
@pytest.mark.parametrize("case", CASES)
def test_what_helm_renders_is_taken_and_keeps_the_policies(case: str) -> None:
    objects = rendered(CASES[case])
    first = "1.34" if case == "dra" else VERSIONS[0]
    assert schema_faults(objects, first) == schema_faults(objects, VERSIONS[-1]) == []
    assert faults(objects) == []
    assert granted(objects) == granted(ours(CASES[case]))


@needs_kubectl
@pytest.mark.parametrize("case", CASES)
def test_kustomize_makes_the_same_objects(case: str, tmp_path: Path) -> None:
    assert kustomized(base(CASES[case], tmp_path)) == ours(CASES[case])


@needs_kubectl
def test_an_overlay_replaces_configuration_image_and_namespace(tmp_path: Path) -> None:
    base({}, tmp_path / "base", Release("devplug", "devplug", "0.1.0"))
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay" / "config.yaml").write_text("mine\n")
    (tmp_path / "overlay" / "kustomization.yaml").write_text(
        "resources: [../base]\n"
        "namespace: lab\n"
        "images: [{name: ghcr.io/devplug/devplug, newName: registry.lab/devplug, newTag: '7'}]\n"
        "configMapGenerator:\n"
        "- {name: devplug, namespace: devplug, behavior: replace, files: [config.yaml]}\n"
    )
    objects = kustomized(tmp_path / "overlay")
    assert objects["ConfigMap", "devplug"]["data"] == {"config.yaml": "mine\n"}
    assert {one["metadata"]["namespace"] for one in objects.values()} == {"lab"}
    assert pod_spec(objects)["containers"][0]["image"] == "registry.lab/devplug:7"


@pytest.mark.parametrize("case", CASES)
def test_no_deployment_breaks_a_policy(case: str) -> None:
    assert faults(ours(CASES[case])) == []


def test_the_least_has_no_privilege_no_token_and_no_path_but_the_sockets_and_dev() -> None:
    assert granted(ours({})) == {"dev"}
    assert granted(ours({"dev": {"enabled": False}})) == set()


def test_what_a_container_could_open_in_dev_is_shown_only_if_asked_for() -> None:
    assert granted(ours({"dev": {"submounts": True}})) == {"dev", "submounts"}
    assert granted(ours({"dev": {"hideConsole": False}})) == {"dev", "/dev/console"}


def test_the_most_still_is_not_privileged() -> None:
    assert granted(ours(MOST)) == {"dev", "cdi", "nvidia", "mig", "network", "token", "/run/a"}


def test_only_opening_devices_makes_it_privileged() -> None:
    assert granted(ours(OPENING)) == {"dev", "privileged"}


def test_rights_are_for_what_was_asked_and_no_more() -> None:
    def rights(values: dict[str, Any]) -> set[str]:
        roles = [one for (kind, _), one in ours(values).items() if kind == "ClusterRole"]
        return {
            f"{verb} {resource}"
            for role in roles
            for rule in role["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    nodes = {"get nodes", "list nodes", "watch nodes"}
    assert rights({}) == set()
    assert rights({"nodeLabels": {"enabled": True}}) == nodes
    events = {"create events", "patch events", "patch nodes/status"}
    assert rights({"kubeEvents": {"enabled": True}}) == nodes | events


def test_without_the_api_nothing_may_leave_the_pod() -> None:
    policy = ours({})["NetworkPolicy", "devplug"]["spec"]
    assert "egress" not in policy
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": "http"}]}]
    ports = ours({"nodeLabels": {"enabled": True}})["NetworkPolicy", "devplug"]["spec"]["egress"][0]["ports"]
    assert 6443 in [one["port"] for one in ports]


@pytest.mark.parametrize(
    ("value", "kind", "endpoints"),
    [("podMonitor", "PodMonitor", "podMetricsEndpoints"), ("serviceMonitor", "ServiceMonitor", "endpoints")],
)
def test_a_monitor_selects_our_pods_and_asks_their_metrics(value: str, kind: str, endpoints: str) -> None:
    objects = ours({value: {"enabled": True, "labels": {"release": "prometheus"}}})
    monitor = objects[kind, "devplug"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert set(monitor["spec"]) == {"selector", endpoints}
    (endpoint,) = monitor["spec"][endpoints]
    times = {"interval": "30s", "scrapeTimeout": "10s"}
    assert endpoint == {"port": "http", "path": "/metrics", "honorLabels": False, **times}
    selected = monitor["spec"]["selector"]["matchLabels"].items()
    assert selected <= objects["DaemonSet", "devplug"]["spec"]["template"]["metadata"]["labels"].items()
    assert selected <= objects["Service", "devplug"]["metadata"]["labels"].items()


def test_the_namespace_has_the_label_that_host_paths_need() -> None:
    labels = ours({"createNamespace": True})["Namespace", "lab"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_another_root_folder_of_the_kubelet_moves_all_but_device_plugins() -> None:
    pod = pod_spec(ours({"kubeletRoot": "/var/lib/k0s/kubelet"}))
    paths = {one["name"]: one["hostPath"]["path"] for one in pod["volumes"] if "hostPath" in one}
    assert paths["device-plugins"] == "/var/lib/kubelet/device-plugins"
    assert paths["pod-resources"] == "/var/lib/k0s/kubelet/pod-resources"
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    assert mounts["device-plugins"] == "/var/lib/kubelet/device-plugins"
