"""The chart, rendered by Helm, is what devplug manifests prints; what is wrong with values is said."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deploy.__main__ import rows
from deploy.alerts import rules_text
from deploy.dashboard import dashboard_text
from devplug import __version__
from devplug.daemon.config.loader import load
from devplug.deploy.chart import chart_files, defaults, overridden
from devplug.deploy.manifests import values_for
from devplug.deploy.names import Release
from devplug.deploy.security_context import needs_of
from tests.deploy.configs import configs, needs
from tests.deploy.policies import faults
from tests.deploy.renderings import CHART, Objects, helm_error, needs_helm, ours, pod_spec, rendered, written

pytestmark = needs_helm

CONFIG = "version: 1\nresources:\n  - name: example.com/a\n    discover:\n      path: /dev/<a>*\n"
MONITOR: dict[str, Any] = {
    "enabled": True,
    "interval": "1m30s",
    "scrapeTimeout": "5s",
    "labels": {"a": "1"},
    "honorLabels": True,
    "relabelings": [{"action": "labeldrop", "regex": "x"}],
    "metricRelabelings": [{"action": "keep"}],
}
OTHER: dict[str, Any] = {
    "image.repository": "r:5000/a/b",
    "image.tag": "1.0",
    "image.digest": f"sha256:{'0' * 64}",
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "a"}],
    "nameOverride": "123",
    "fullnameOverride": "whole",
    "namespaceOverride": "elsewhere",
    "createNamespace": True,
    "config.inline": CONFIG,
    "config.checksumRestart": True,
    "dev.enabled": False,
    "dev.submounts": True,
    "dev.hideConsole": False,
    "deviceAccess.enabled": True,
    "cdi.enabled": True,
    "dra.enabled": True,
    "dra.classes": [
        {"name": "a.example.com", "attribute": "example.com/a", "extendedResourceName": "example.com/a"},
        {"name": "b.example.com", "attribute": "example.com/b", "extendedResourceName": ""},
    ],
    "nvidia.enabled": True,
    "nvidia.mig": True,
    "runtimeClassName": "nvidia",
    "hostNetwork": True,
    "nodeLabels.enabled": True,
    "kubeEvents.enabled": True,
    "serviceAccount.create": False,
    "serviceAccount.name": "robot",
    "serviceAccount.annotations": {"a": "true"},
    "rbac.create": False,
    "podSecurityContext": {"fsGroup": 7},
    "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
    "networkPolicy.enabled": False,
    "networkPolicy.from": [{"podSelector": {}}],
    "networkPolicy.apiServerEgress": [],
    "kubeletRoot": "/var/lib/k0s/kubelet",
    "nodeSelector": {"a": "b"},
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"operator": "Exists"}],
    "priorityClassName": "",
    "resources": {"limits": {"cpu": "1"}},
    "updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}},
    "minReadySeconds": 0,
    "revisionHistoryLimit": 1,
    "terminationGracePeriodSeconds": 12345678,
    "podLabels": {"a": "yes"},
    "podAnnotations": {"a": "0x10"},
    "logFormat": "json",
    "logLevel": "debug",
    "extraArgs": ["--a", "b: c"],
    "extraEnv": [{"name": "A", "value": "1"}, {"name": "B", "value": "<&>"}],
    "extraVolumes": [{"name": "a", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "a", "mountPath": "/a"}],
    "port": 65535,
    "startupProbe": {"periodSeconds": 3},
    "livenessProbe": {"initialDelaySeconds": 4},
    "readinessProbe": {"failureThreshold": 5},
    "service.enabled": False,
    "service.annotations": {"prometheus.io/scrape": "true"},
    **{f"podMonitor.{key}": value for key, value in MONITOR.items()},
    **{f"serviceMonitor.{key}": value for key, value in MONITOR.items()},
}
"""A value for each of the chart's, other than its default."""

APART = {"config.existingConfigMap", "config.key", "dra.driver"} | {
    f"{part}.{key}" for part in ("prometheusRule", "grafanaDashboard") for key in ("enabled", "labels")
}
"""Values with tests of their own: those that exclude `config.inline`; the driver's name, which `dra.enabled`
needs; objects that only the chart has."""

HIDES_OTHERS = "networkPolicy.enabled"
"""Its other value is false, and then no other value of the policy is seen."""


def others(paths: Iterable[str]) -> dict[str, Any]:
    """Return the other values at these paths, as maps in maps; a DRA driver has its name."""
    whole: dict[str, Any] = {}
    paths = set(paths)
    if "dra.enabled" in paths:
        whole = {"dra": {"driver": "devices.example.com"}}
    for path in sorted(paths):
        value = OTHER[path]
        for key in reversed(path.split(".")):
            value = {key: value}
        whole = overridden(whole, value)
    return whole


@functools.cache
def without(*paths: str) -> Objects:
    """Return what Helm makes of all other values but those at these paths."""
    return rendered(others(OTHER.keys() - set(paths)))


def same(values: dict[str, Any], name: str = "devplug") -> None:
    release = Release(name, "lab", __version__, "Helm")
    assert rendered(values, release) == ours(values, release)


def test_with_its_defaults_helm_makes_what_manifests_prints() -> None:
    same({})


def test_each_value_of_the_chart_is_tried() -> None:
    assert OTHER.keys() | APART == {row.path for row in rows((CHART / "values.yaml").read_text())}


@pytest.mark.nightly  # by day all values are changed in groups, below
@pytest.mark.parametrize("path", OTHER)
def test_each_value_changes_both_alike(path: str) -> None:
    values = others([path])
    same(values)
    alone = rendered(values) != rendered({})
    assert alone or without(path, HIDES_OTHERS) != without(HIDES_OTHERS), "the value changes nothing"


@pytest.mark.parametrize("bit", range(len(OTHER).bit_length()))
def test_any_two_values_change_both_alike_with_both_one_or_none_of_them(bit: int) -> None:
    # The numbers of any two values differ in a bit; both are in all values together, neither in the defaults.
    ones = {path for number, path in enumerate(OTHER) if number >> bit & 1}
    same(others(ones))
    same(others(OTHER.keys() - ones))


def test_all_values_together_change_both_alike() -> None:
    same(others(OTHER))


@given(
    st.sets(st.sampled_from(sorted(OTHER))).map(others),
    st.sampled_from(["devplug", "my-devplug", "lab", "7", "x" * 53]),
)
def test_any_choice_of_values_changes_both_alike(values: dict[str, Any], name: str) -> None:
    same(values, name)


@given(configs())
def test_the_values_for_a_configuration_make_a_pod_that_helm_lets_pass(config: dict[str, Any]) -> None:
    text = json.dumps(config)
    values = overridden(values_for(needs_of(load(text, "test"))), {"config": {"inline": text}})
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
    file = pod_spec(rendered(values))["volumes"][0]["configMap"]
    assert file == {"name": "mine", "items": [{"key": "a.yaml", "path": "config.yaml"}]}


@pytest.mark.parametrize("driver", ["", "/", "..", "../x", "a/b", "A.example.com", "x' || 'a' == 'a"])
def test_a_driver_without_a_name_of_its_own_is_refused(driver: str) -> None:
    """Its name is a folder below `plugins/`, which the pod may write to; without one that was all of them."""
    error = helm_error({"dra": {"enabled": True, "driver": driver}})
    wanted = (
        "at '/dra/driver'" if driver else "no driver's name; dra.enabled needs the configuration's `driver`"
    )
    assert wanted in error


def test_a_driver_with_another_name_than_the_configurations_is_refused() -> None:
    values = {"dra": {"enabled": True, "driver": "a.example.com"}}
    inline = json.dumps({"version": 1, "driver": "b.example.com", "resources": []})
    assert "both are one name" in helm_error({**values, "config": {"inline": inline}})


def test_the_policy_for_slices_holds_a_pod_to_its_node_and_driver() -> None:
    made = rendered({"dra": {"enabled": True, "driver": "a.example.com"}})
    (policy,) = [one for (kind, _), one in made.items() if kind == "ValidatingAdmissionPolicy"]
    assert [one["expression"] for one in policy["spec"]["validations"]] == [
        "variables.ownNode != '' && variables.ownNode == variables.sliceNode",
        "variables.sliceDriver == 'a.example.com'",
    ]


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

    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema({})
        with pytest.raises(helm_python.HelmValuesError):
            chart.validate_schema(values)


@pytest.mark.parametrize("values", [{}, others(OTHER)])
def test_lint_finds_nothing(values: dict[str, Any]) -> None:
    import helm_python

    report = helm_python.lint(CHART, values, strict=True)
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
    values = overridden(values_for(needs_of(load(text, "test"))), {"config": {"inline": text}})
    folder = written(tmp_path / "devplug", chart_files(values))
    assert rendered({}, chart=folder) == ours(values)


@given(st.sets(st.sampled_from(sorted(OTHER))).map(others))
def test_a_chart_with_other_defaults_keeps_each_comment(values: dict[str, Any]) -> None:
    text = chart_files(values)["values.yaml"]
    assert yaml.safe_load(text) == overridden(defaults(), values)
    assert [*rows(text)] == [*rows((CHART / "values.yaml").read_text())]
