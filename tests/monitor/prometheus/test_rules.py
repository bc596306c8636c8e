"""The alerts by promtool's own unit tests: each fires when it should, says what it should, else is quiet."""

from __future__ import annotations

from pathlib import Path

import yaml

from deploy.alerts import ALERTS
from tests.monitor.prometheus.cases import CASES, unit_tests
from tests.monitor.prometheus.staging import ROOT, RULES, needs_prometheus, promtool


@needs_prometheus
def test_the_rules_are_valid() -> None:
    ran = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(ALERTS)} rules found".encode() in ran.stdout


@needs_prometheus
def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(yaml.safe_dump(unit_tests(str(RULES))))
    ran = promtool("test", "rules", file)
    assert ran.returncode == 0, (ran.stdout + ran.stderr).decode()


def test_each_alert_has_cases_of_both_kinds() -> None:
    names = {alert.name for alert in ALERTS}
    assert {case.alert for case in CASES if case.fires} == names
    assert {case.alert for case in CASES if not case.fires} == names


def test_the_operators_object_has_the_same_groups() -> None:
    made = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheusrule.yaml").read_text())
    assert made["spec"] == yaml.safe_load(RULES.read_text())
    assert (made["apiVersion"], made["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
