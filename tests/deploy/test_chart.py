"""The chart, rendered by Helm, is what devplug manifests prints; what is wrong with values is said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from devplug import __version__
from devplug.daemon.config.loader import load
from devplug.deploy.alerts import rules_text
from devplug.deploy.chart import chart_files
from devplug.deploy.dashboard import dashboard_text
from devplug.deploy.manifests import posture_values
from devplug.deploy.names import Release
from devplug.deploy.schema import overridden
from devplug.deploy.security_context import posture_of
from devplug.deploy.values import rows
from tests.deploy.configs import configs, needs
from tests.deploy.policies import faults
from tests.deploy.renderings import (
    chart_folder,
    helm_error,
    needs_helm,
    ours,
    rendered,
    written,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_helm

ENV = [{"name": "A", "value": "1"}, {"name": "B", "value": "<&>"}]
EACH: dict[str, Any] = {
    "image": {"repository": "r:5000/a/b", "tag": "1.0", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "a"}],
    "nameOverride": "other",
    "fullnameOverride": "whole",
    "namespaceOverride": "elsewhere",
    "createNamespace": True,
    "config": {"checksumRestart": True},
    "dev": {"enabled": False},
    "deviceAccess": {"enabled": True},
    "cdi": {"enabled": True},
    "nvidia": {"enabled": True, "mig": True},
    "runtimeClassName": "nvidia",
    "hostNetwork": True,
    "nodeLabels": {"enabled": True},
    "kubeEvents": {"enabled": True},
    "serviceAccount": {"create": False, "name": "robot", "annotations": {"a": "b"}},
    "rbac": {"create": False},
    "podSecurityContext": {"fsGroup": 7},
    "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
    "networkPolicy": {"enabled": False, "from": [{"podSelector": {}}]},
    "kubeletRoot": "/var/lib/k0s/kubelet",
    "nodeSelector": {"a": "b"},
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"operator": "Exists"}],
    "priorityClassName": "",
    "resources": {"limits": {"cpu": "1"}},
    "updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}},
    "minReadySeconds": 0,
    "revisionHistoryLimit": 1,
    "terminationGracePeriodSeconds": 7,
    "podLabels": {"a": "yes"},
    "podAnnotations": {"a": "0x10"},
    "logFormat": "json",
    "logLevel": "debug",
    "extraArgs": ["--a", "b: c"],
    "extraEnv": ENV,
    "extraVolumes": [{"name": "a", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "a", "mountPath": "/a"}],
    "port": 65535,
    "startupProbe": {"periodSeconds": 3},
    "livenessProbe": {"initialDelaySeconds": 4},
    "readinessProbe": {"failureThreshold": 5},
    "service": {"annotations": {"prometheus.io/scrape": "true"}},
    "podMonitor": {
        "enabled": True,
        "labels": {"a": "b"},
        "relabelings": [{"action": "labeldrop", "regex": "x"}],
    },
    "serviceMonitor": {"enabled": True, "honorLabels": True, "metricRelabelings": [{"action": "keep"}]},
}
"""A value for each of the chart's, other than its default."""


def same(values: dict[str, Any], release: Release | None = None) -> None:
    release = release or Release("devplug", "lab", __version__, "Helm")
    assert rendered(values, release) == ours(values, release)


def test_with_its_defaults_helm_makes_what_manifests_prints() -> None:
    same({})


def test_each_value_of_the_chart_is_tried() -> None:
    assert {row.path.split(".")[0] for row in rows()} - {*EACH} == {"prometheusRule", "grafanaDashboard"}


@pytest.mark.parametrize("key", sorted(EACH))
def test_each_value_changes_both_alike(key: str) -> None:
    values = {key: EACH[key]}
    same(values)
    if key not in {"rbac", "podMonitor", "serviceMonitor"}:
        assert rendered(values) != rendered({}), "the value changes nothing"


@pytest.mark.parametrize("key", ["submounts", "hideConsole"])
def test_what_is_shown_of_dev_changes_both_alike(key: str) -> None:
    values = {"dev": {key: key == "submounts"}}
    same(values)
    assert rendered(values) != rendered({}), "the value changes nothing"


@given(
    st.lists(st.sampled_from(sorted(EACH)), unique=True).map(lambda keys: {key: EACH[key] for key in keys}),
    st.sampled_from(["devplug", "my-devplug", "lab", "x" * 53]),
)
def test_any_choice_of_values_changes_both_alike(values: dict[str, Any], name: str) -> None:
    same(values, Release(name, "lab", __version__, "Helm"))


@given(configs())
def test_the_values_for_a_configuration_make_a_pod_that_helm_lets_pass(config: dict[str, Any]) -> None:
    text = json.dumps(config)
    values = overridden(posture_values(posture_of(load(text, "test"))), {"config": {"inline": text}})
    assert rendered(values) == ours(values)
    assert faults(rendered(values)) == []


@given(configs())
def test_a_configuration_that_needs_more_than_the_defaults_is_refused_as_far_as_its_text_shows(
    config: dict[str, Any],
) -> None:
    opens = any("open" in rule for one in config["resources"] for rule in one.get("health", ()))
    shown = needs(config) & {"cdi", "network", "nvidia", "token"} | ({"open"} if opens else set())
    error = helm_error({"config": {"inline": json.dumps(config)}})
    assert ("chart-values" in error) == bool(shown)
    assert shown or not error


def test_a_configuration_is_needed_and_one_is_enough() -> None:
    assert "--set-file config.inline" in helm_error({"config": {"inline": ""}})
    assert "both set" in helm_error({"config": {"existingConfigMap": "mine"}})
    values = {"config": {"inline": "", "existingConfigMap": "mine", "key": "a.yaml"}}
    same(values)
    assert ("ConfigMap", "devplug") not in rendered(values)


def test_text_that_is_no_configuration_is_refused() -> None:
    assert "no YAML map" in helm_error({"config": {"inline": "- a"}})


@pytest.mark.parametrize(
    "values",
    [
        {"imagee": {}},
        {"image": {"tags": "x"}},
        {"port": "9410"},
        {"port": 0},
        {"logFormat": "yaml"},
        {"kubeletRoot": "var"},
        {"extraArgs": "--a"},
        {"podMonitor": {"interval": "30"}},
    ],
)
def test_values_that_are_misspelt_or_of_another_type_are_refused(values: dict[str, Any]) -> None:
    import helm_python

    with helm_python.Chart.load(chart_folder()) as chart:
        chart.validate_schema({})
        with pytest.raises(helm_python.HelmValuesError):
            chart.validate_schema(values)


@pytest.mark.parametrize("values", [{}, EACH])
def test_lint_finds_nothing(values: dict[str, Any]) -> None:
    import helm_python

    report = helm_python.lint(chart_folder(), values, strict=True)
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []


def test_the_alerts_stand_in_the_rule_as_they_are() -> None:
    values = {"prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}}}
    rule = rendered(values)["PrometheusRule", "devplug"]
    assert rule["spec"] == yaml.safe_load(rules_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_the_dashboard_stands_in_a_config_map_as_it_is() -> None:
    board = rendered({"grafanaDashboard": {"enabled": True}})["ConfigMap", "devplug-dashboard"]
    assert board["data"] == {"devplug.json": dashboard_text()}
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_a_chart_for_a_configuration_has_it_as_its_default(tmp_path: Path) -> None:
    text = 'version: 1\nresources:\n  - name: example.com/a\n    discover:\n      net: {interface: "eth*"}\n'
    values = overridden(posture_values(posture_of(load(text, "test"))), {"config": {"inline": text}})
    folder = written(tmp_path / "devplug", chart_files(__version__, values))
    assert rendered({}, chart=folder) == ours(values)
