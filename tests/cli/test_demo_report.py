"""How the demo's steps reach their reader, good ones and bad ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from devplug.cli.demo_report import JsonReporter, Reporter, TextReporter

RESTARTED: dict[str, Any] = {"registered_ms": 9.5, "pod": "pod-a", "phase": "Running", "kept": ["a", "b"]}
STOPPED: dict[str, Any] = {"exit_code": 0, "ms": 7.0, "left_behind": []}


def text() -> TextReporter:
    return TextReporter(color="never")


def device(number: int, **facts: Any) -> dict[str, Any]:
    return {
        "resource": "example.com/a",
        "device": f"x{number}",
        "node": f"/dev/x{number}",
        "numa_node": None,
        "health": "Healthy",
        "replicas": 1,
        **facts,
    }


@pytest.mark.parametrize("reporter", [JsonReporter, text])
@pytest.mark.parametrize(
    ("restarted", "stopped", "is_good"),
    [
        ({}, {}, True),
        ({"kept": []}, {}, False),
        ({"phase": "Failed"}, {}, False),
        ({}, {"exit_code": 1}, False),
        ({}, {"left_behind": ["x.sock"]}, False),
    ],
)
def test_a_story_is_good_if_every_promise_was_kept(
    reporter: Callable[[], Reporter], restarted: dict[str, Any], stopped: dict[str, Any], is_good: bool
) -> None:
    one = reporter()
    one.restarted(RESTARTED | restarted)
    one.stopped(STOPPED | stopped)
    assert one.is_good() is is_good


def test_machines_get_one_object_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = JsonReporter()
    reporter.doing("this")
    reporter.found([device(0)])
    assert capsys.readouterr().out == ""
    reporter.stopped(STOPPED)
    assert json.loads(capsys.readouterr().out) == {"devices": [device(0)], "stop": STOPPED, "ok": True}


def test_people_see_a_few_devices_of_each_resource_and_the_number_of_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text().found([device(number) for number in range(9)])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[1] for row in rows if row[:1] == ["example.com/a"]] == ["x0", "x1", "x2", "x3", "5"]
    assert rows[-2] == ["example.com/a", "5", "more"]


def test_a_shared_device_says_so_and_a_numa_node_is_a_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text().found([device(0, replicas=10, numa_node=1)])
    row = capsys.readouterr().out.splitlines()[2]
    assert row.split() == ["example.com/a", "x0", "/dev/x0", "1", "Healthy", "x", "10", "replicas"]


def test_a_long_device_id_is_folded_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text().found([device(0, device="z" * 30)])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 60
    assert shown.count("z") == 30


def test_devices_that_a_pod_lost_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    text().restarted({**RESTARTED, "kept": []})
    assert "pod-a lost its devices" in capsys.readouterr().out


def test_what_is_left_behind_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    text().stopped({**STOPPED, "left_behind": ["a.sock", "b.sock"]})
    assert "not clean: exit code 0 in 7.0 ms, a.sock, b.sock left behind" in capsys.readouterr().out


def test_one_resource_is_not_several(capsys: pytest.CaptureFixture[str]) -> None:
    text().registered({"resources": 1, "ms_after_start": 5.0, "capacity": {}, "allocatable": {}})
    assert "1 resource, 5.0 ms" in capsys.readouterr().out
