"""What is kept for Prometheus and Grafana names only what exists, and each alert has its section."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.alerts import ALERTS
from devplug.metrics.catalogue import ALL
from devplug.metrics.families import Kind
from tests.monitor.prometheus.staging import ROOT, needs_prometheus, promtool

FILES = {
    path: (ROOT / "deploy" / path).read_text()
    for path in ("prometheus/rules.yaml", "prometheus/prometheusrule.yaml", "grafana/dashboard.json")
}
BOARD = json.loads(FILES["grafana/dashboard.json"])
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
SAMPLES = {
    f"{metric.name}{suffix}"
    for metric in ALL
    for suffix in (("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",))
}


def texts(value: Any) -> Iterator[str]:
    """All texts in a tree."""
    match value:
        case dict():
            for inner in value.values():
                yield from texts(inner)
        case list():
            for inner in value:
                yield from texts(inner)
        case str():
            yield value


@pytest.mark.parametrize("path", FILES)
def test_only_metrics_of_the_catalogue_are_named(path: str) -> None:
    expressions = "\n".join(text for text in texts(yaml.safe_load(FILES[path])) if "devplug_" in text)
    named = set(re.findall(r"\bdevplug_\w+", expressions))
    families = {metric.name for metric in ALL if metric.kind is Kind.HISTOGRAM}
    assert named
    assert named <= SAMPLES | families
    labels = {label for metric in ALL for label in metric.labels}
    queried = set(re.findall(r"[{,]\s*(\w+)=", expressions))
    assert queried <= labels | {"job", "instance"}


def test_every_metric_is_looked_at_by_somebody() -> None:
    told = "".join(FILES.values())
    unused = {metric.name for metric in ALL if metric.name not in told}
    assert unused == {
        "devplug_device_health_change_timestamp_seconds",
        "devplug_exporter_processes",
        "devplug_listandwatch_updates_total",
        "devplug_preferences_total",
        "devplug_start_time_seconds",
        "devplug_streams",
        "devplug_streams_opened_total",
    }


# ── the runbook ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_says_who_where_and_leads_to_its_section(alert: Any) -> None:
    (section,) = re.findall(rf"^### {alert.name}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert len(section.split()) > 20
    assert alert.severity in {"critical", "warning", "info"}
    assert alert.value["annotations"]["runbook_url"].endswith(f"docs/monitoring.md#{alert.name.lower()}")
    assert "instance" in alert.summary or alert.name in {
        "DevplugAbsent",
        "DevplugDeviceFlapping",
        "DevplugTaintedDeviceClaimed",
        "DevplugUnhealthyDeviceHeld",
    }


def test_the_runbook_has_no_section_of_an_alert_that_is_gone() -> None:
    assert re.findall(r"^### (Devplug\w+)$", PAGE, re.MULTILINE) == [alert.name for alert in ALERTS]


# ── the dashboard ─────────────────────────────────────────────────────────────────────────────────


def test_panels_do_not_overlap_and_fit_the_board() -> None:
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )


def test_ids_titles_and_queries_are_told_apart() -> None:
    for values in ([panel["id"] for panel in BOARD["panels"]], [panel["title"] for panel in BOARD["panels"]]):
        assert len(set(values)) == len(values)
    for panel in PANELS:
        names = [target["refId"] for target in panel["targets"]]
        assert len(set(names)) == len(names)


def test_the_board_can_be_moved_to_any_grafana() -> None:
    used = {json.dumps(panel["datasource"]) for panel in PANELS} | {
        json.dumps(target["datasource"]) for panel in PANELS for target in panel["targets"]
    }
    assert used == {'{"type": "prometheus", "uid": "${datasource}"}'}
    assert {panel["type"] for panel in PANELS} == {"heatmap", "stat", "state-timeline", "table", "timeseries"}
    assert "id" not in BOARD
    assert BOARD["schemaVersion"] >= 38


def test_every_query_is_narrowed_by_the_variables() -> None:
    variables = {variable["name"] for variable in BOARD["templating"]["list"]}
    for panel in PANELS:
        for target in panel["targets"]:
            asked = set(re.findall(r"\$([a-z]\w*)", target["expr"]))
            assert {"job", "instance"} <= asked <= variables
            assert ("resource" in asked) == ("resource" in metric_labels(target["expr"])), panel["title"]


def metric_labels(expression: str) -> set[str]:
    """The labels of the metric that an expression names first."""
    found = re.search(r"devplug_\w+", expression)
    assert found is not None
    return {label for metric in ALL if found[0].startswith(metric.name) for label in metric.labels}


# ── the page ──────────────────────────────────────────────────────────────────────────────────────


@needs_prometheus
def test_the_pages_configuration_is_one_that_prometheus_takes(tmp_path: Path) -> None:
    (block,) = (block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "rule_files" in block)
    # Debian's Prometheus is built without Kubernetes.
    made = block.replace("kubernetes_sd_configs: [{role: pod}]", "static_configs: [{targets: [here]}]")
    assert made != block
    (tmp_path / "prometheus.yml").write_text(made)
    (tmp_path / "devplug-rules.yaml").write_text(FILES["prometheus/rules.yaml"])
    ran = promtool("check", "config", tmp_path / "prometheus.yml")
    assert ran.returncode == 0, (ran.stdout + ran.stderr).decode()


def test_the_page_names_values_that_the_chart_has() -> None:
    (block,) = (block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "podMonitor" in block)
    known = yaml.safe_load((ROOT / "deploy" / "chart" / "devplug" / "values.yaml").read_text())
    for section, values in yaml.safe_load(block).items():
        assert set(values) <= set(known[section])
