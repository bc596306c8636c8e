"""What a real Prometheus makes of a real daemon and exporter: scrape, alerts, dashboard."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from devplug import Device, DevicePlugin
from devplug.testing.kubelet import SyncKubelet
from tests.cli.programs import DEVPLUG, ended, said_until, started
from tests.monitor.prometheus.staging import (
    ROOT,
    RULES,
    free_port,
    needs_prometheus,
    page,
    promtool,
    scraping,
)

pytestmark = needs_prometheus

DAEMON, EXPORTER, OTHERS = "devplug", "devplug-exporter", "devplug-others"
CONFIG = """version: 1
resources:
- {{name: example.com/fixed, discover: {{static: {{ids: [f0, f1]}}}}}}
- {{name: example.com/linked, discover: {{path: "{folder}/by-id/*"}}}}
- {{name: example.com/awaited, discover: {{path: "{folder}/none/*"}}, whenNone: wait}}
"""
BOARD = json.loads((ROOT / "deploy" / "grafana" / "dashboard.json").read_text())
AS_PODS = {"namespace": "kube-system", "pod": "devplug-x7x", "container": "devplug"}
"""What a PodMonitor calls the daemon's target, so that the metrics' own labels get other names."""
QUIET = {
    "Errors of PodResources",
    "PreStartContainer, by result",
    "Device to claim",
    "Prepare, by result",
    "Unprepare, by result",
    "Prepare and unprepare, p99",
    "Claims and slices",
    "Age of stale slices",
    "Tainted devices",
}
"""The node has no driver of claims: what a daemon with one tells of them is in tests/daemon."""
"""Panels that show nothing on a node on which nothing of the kind has happened."""


class Vendor(DevicePlugin):
    """Somebody else's plugin, of which only the kubelet tells."""

    resource_name = "vendor.example/gpu"

    def devices(self) -> list[Device]:
        return [Device("g0", numa_nodes=(0,)), Device("g1", numa_nodes=(1,))]


class Node:
    """A node with a daemon, somebody else's plugin, two exporters, and a Prometheus that scrapes them."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.folder = folder
        self.ports = {job: free_port() for job in (DAEMON, EXPORTER, OTHERS)}
        for name in ("l0", "l1"):
            (folder / "by-id").mkdir(exist_ok=True)
            (folder / "by-id" / name).symlink_to("/dev/null")
        self.config = folder / "devplug.yaml"
        self.config.write_text(CONFIG.format(folder=folder))
        self.kubelet = stack.enter_context(SyncKubelet())
        self.kubelet.start(Vendor())
        root = f"--kubelet-root={self.kubelet.root}"
        listen = f"--listen=127.0.0.1:{self.ports[DAEMON]}"
        self.kubelet.run(
            [*DEVPLUG, "run", "-c", str(self.config), root, listen],
            resources=["example.com/fixed", "example.com/linked"],
        )
        for name, resource_name in (("p", "example.com/linked"), ("q", "vendor.example/gpu")):
            self.kubelet.admit({"metadata": {"name": name}, **wanting(resource_name)})
        self.others = self._exporter(stack, OTHERS, "--others-only", root)
        self._exporter(stack, EXPORTER, root)
        self.prometheus = stack.enter_context(scraping(folder, self.ports, {DAEMON: AS_PODS}))

    def _exporter(self, stack: ExitStack, job: str, *arguments: str) -> subprocess.Popen[str]:
        listen = f"--listen=127.0.0.1:{self.ports[job]}"
        process = stack.enter_context(started("exporter", listen, *arguments))
        said_until(process, "serving metrics")
        return process

    def until_series(self, expression: str) -> list[dict[str, Any]]:
        """Wait for an expression to have series; return them."""
        self.prometheus.until(lambda: self.prometheus.query(expression), f"no series of {expression}")
        return self.prometheus.query(expression)


def wanting(resource_name: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "resources": {"limits": {resource_name: 1}}}]}}


def labels(series: list[dict[str, Any]], *names: str) -> set[tuple[str, ...]]:
    return {tuple(one["metric"].get(name, "") for name in names) for one in series}


@contextmanager
def node_in_use() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="dp-", dir="/tmp") as folder, ExitStack() as stack:
        one = Node(stack, Path(folder))
        for job in one.ports:
            one.until_series(f'devplug_build_info{{job="{job}"}}')
        one.until_series(f'devplug_device_held{{job="{DAEMON}"}}')
        one.until_series(f'devplug_device_held{{job="{OTHERS}"}}')
        one.until_series("count(count_over_time(devplug_allocations_total[1m]) > 3)")
        yield one


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with node_in_use() as one:
        yield one


# ── the scrape ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("job", [DAEMON, EXPORTER])
def test_promtool_has_nothing_to_say_against_the_metrics(node: Node, job: str) -> None:
    status, text = page(node.ports[job], "/metrics")
    assert status == 200
    ran = promtool("check", "metrics", given=text.encode())
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, b"")


def test_the_exporter_tells_of_all_plugins_and_the_daemon_of_its_own(node: Node) -> None:
    held = node.until_series("devplug_device_held")
    assert labels(held, "job", "resource", "pod", "exported_pod") == {
        (DAEMON, "example.com/linked", "devplug-x7x", "p"),
        (EXPORTER, "example.com/linked", "p", ""),
        (EXPORTER, "vendor.example/gpu", "q", ""),
        (OTHERS, "vendor.example/gpu", "q", ""),
    }


def test_with_others_only_nothing_is_counted_twice(node: Node) -> None:
    told = node.until_series(f'count by (resource, state) (devplug_devices{{job=~"{DAEMON}|{OTHERS}"}})')
    assert {one["value"][1] for one in told} == {"1"}
    assert labels(told, "resource") == {
        ("example.com/awaited",),
        ("example.com/fixed",),
        ("example.com/linked",),
        ("vendor.example/gpu",),
    }


def test_a_resource_that_waits_for_devices_does_not_count_as_unregistered(node: Node) -> None:
    told = node.until_series(f'devplug_registered{{job="{DAEMON}"}}')
    assert labels(told, "resource") == {("example.com/fixed",), ("example.com/linked",)}
    assert node.prometheus.query("devplug_registered == 0") == []
    assert node.prometheus.query("devplug_ready == 0") == []


def test_there_are_as_many_series_as_the_page_says(node: Node) -> None:
    of_one = f'{{job="{DAEMON}", resource="example.com/linked", device=""}}'
    (count,) = node.prometheus.query(f"count({of_one})")
    assert count["value"][1] == "56"
    (buckets,) = node.prometheus.query(f'count({of_one[:-1]}, le!=""}})')
    assert buckets["value"][1] == "28"
    (of_device,) = node.prometheus.query(f'count({{job="{DAEMON}", device="f0"}})')
    assert of_device["value"][1] == "3"


# ── the alerts ────────────────────────────────────────────────────────────────────────────────────


def alerts(node: Node) -> set[str]:
    return {one["labels"]["alertname"] for one in node.prometheus.ask("alerts")["alerts"]}


def test_a_healthy_node_alerts_nobody(node: Node) -> None:
    rules = [rule for group in node.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    node.prometheus.until(lambda: all_evaluated(node), "not all rules were evaluated")
    assert len(rules) == sum(len(group["rules"]) for group in yaml.safe_load(RULES.read_text())["groups"])
    node.prometheus.until(lambda: alerts(node) == set(), "an alert stays")


def all_evaluated(node: Node) -> bool:
    rules = [rule for group in node.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert [rule["lastError"] for rule in rules if rule["health"] == "err"] == []
    return all(rule["health"] == "ok" for rule in rules)


# ── the dashboard ─────────────────────────────────────────────────────────────────────────────────


PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def filled(expression: str) -> str:
    """What Grafana asks when every variable is at All."""
    values = {"job": DAEMON, "instance": ".*", "resource": ".*", "__rate_interval": "1m"}
    return re.sub(r"\$(\w+)", lambda found: values.get(found[1], found[0]), expression)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panel_shows_something_of_a_node_in_use(node: Node, panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        expression = filled(target["expr"])
        if panel["title"] in QUIET:
            node.prometheus.query(expression)
        else:
            assert node.until_series(expression)


def test_every_variable_of_the_dashboard_has_values(node: Node) -> None:
    found = {}
    for variable in BOARD["templating"]["list"][1:]:
        series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
        found[variable["name"]] = len(labels(node.prometheus.query(filled(series)), label))
    assert found == {"job": 3, "instance": 1, "resource": 3}


def test_the_table_names_each_device_with_its_holder(node: Node) -> None:
    (panel,) = (panel for panel in PANELS if panel["title"] == "Device to pod")
    (target,) = panel["targets"]
    columns = ("resource", "device", "numa_node", "holder")
    every_job = target["expr"].replace('"$job"', f'"{DAEMON}|{OTHERS}"')
    held = {row[3] for row in labels(node.until_series(filled(every_job)), *columns)}
    assert held == {"", "default/p/main", "default/q/main"}
    rows = labels(node.prometheus.query(filled(every_job)), *columns)
    assert {(row[0], row[1], row[2]) for row in rows} == {
        ("example.com/fixed", "f0", ""),
        ("example.com/fixed", "f1", ""),
        ("example.com/linked", "l0", ""),
        ("example.com/linked", "l1", ""),
        ("vendor.example/gpu", "g0", "0"),
        ("vendor.example/gpu", "g1", "1"),
    }


# ── trouble ───────────────────────────────────────────────────────────────────────────────────────


def test_trouble_on_the_node_becomes_alerts() -> None:
    with node_in_use() as node:
        (held,) = node.prometheus.query(f'devplug_device_held{{job="{DAEMON}"}}')
        (node.folder / "by-id" / held["metric"]["device"]).unlink()
        node.config.write_text("version: 1\nresources: nonsense\n")
        expected = {"DevplugUnhealthyDeviceHeld", "DevplugDevicesUnhealthy", "DevplugConfigReloadFailed"}
        node.prometheus.until(lambda: alerts(node) == expected, f"not just {expected}")
        told = {one["annotations"]["summary"] for one in raised(node, "DevplugUnhealthyDeviceHeld")}
        assert told == {f"Pod default/p holds the unhealthy device {held['metric']['device']}"}
        node.others.terminate()
        assert ended(node.others) == 0
        node.prometheus.until(lambda: raised(node, "DevplugDown"), "nobody notices that a process is gone")
        assert [one["labels"]["job"] for one in raised(node, "DevplugDown")] == [OTHERS]


def raised(node: Node, name: str) -> list[dict[str, Any]]:
    return [one for one in node.prometheus.ask("alerts")["alerts"] if one["labels"]["alertname"] == name]
