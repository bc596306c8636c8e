"""The metrics that devplug tells: their names, what promtool says of them, and their page."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics

from devplug.metrics.catalogue import ALL, DEVICE_HELD, GROUPS, page
from devplug.metrics.exposition import Form, exposition
from devplug.metrics.families import (
    ALLOCATE_BOUNDS_SECONDS,
    Family,
    Histogram,
    Kind,
    Metric,
    Sample,
    naming_problems,
)

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def told_once(metric: Metric) -> Family:
    labels = tuple(f"a {label}" for label in metric.labels)
    if metric.kind is Kind.HISTOGRAM:
        return Family(metric, [Histogram(ALLOCATE_BOUNDS_SECONDS).sample(*labels)])
    return Family(metric, [Sample(labels, 1)])


EVERYTHING = [told_once(metric) for metric in ALL]


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_every_metric_obeys_the_naming_rules(metric: Metric) -> None:
    assert not list(naming_problems(metric))


def test_promtool_has_no_complaint() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not here; on Debian: apt-get install prometheus")
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=exposition(EVERYTHING, Form.TEXT),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_no_two_metrics_clash_in_open_metrics() -> None:
    text = exposition(EVERYTHING, Form.OPEN_METRICS).decode()
    seen = list(read_open_metrics(text))  # type: ignore[no-untyped-call]  # the library has no types there
    assert sorted(metric.name for metric in seen) == sorted(metric.family_name for metric in ALL)


def test_only_the_device_metrics_name_devices_and_only_one_names_pods() -> None:
    of_devices = {metric.name for metric in ALL if "device" in metric.labels}
    assert all(name.startswith("devplug_device_") for name in of_devices)
    assert [metric for metric in ALL if "pod" in metric.labels] == [DEVICE_HELD]


def test_the_committed_page_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text() == page(GROUPS), f"run: python -m devplug.metrics.catalogue > docs/{PAGE.name}"


def test_the_page_is_printed_by_its_module() -> None:
    command = [sys.executable, "-m", "devplug.metrics.catalogue"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout == page(GROUPS)


def test_metrics_load_nothing_heavy() -> None:
    modules = ("catalogue", "exposition", "families")
    imports = "".join(f"import devplug.metrics.{module}; " for module in modules)
    program = f"import sys; {imports}print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    heavy = {"prometheus_client", "grpc", "asyncio", "logging"}
    assert heavy & set(done.stdout.split()) == set()
