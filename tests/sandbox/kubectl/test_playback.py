"""The sandbox shows what kubectl showed on a real node: the recorded session, step by step, under a mask."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.sandbox.jsons import KUBECTL
from tests.sandbox.kubectl.mask import LEFT_OUT, MASKED, NOT_PLAYED, masked, without_lines
from tests.sandbox.kubectl.playback import STEPS, Step, differences, filtered, leaves_of, step_named
from tests.sandbox.kubectl.stage import Stage, why_kubectl_is_missing

PLAYED = [step for step in STEPS if isinstance(step, Step)]


def as_shown(number: str, *changes: tuple[str, str]) -> list[str]:
    """Return where an output differs that is as recorded, but for changed words."""
    step = step_named(number)
    shown = without_lines(step.name, step.recorded)
    for old, new in changes:
        assert old in shown
        shown = shown.replace(old, new)
    return [one.place for one in differences(step, shown)]


def test_every_recording_is_played() -> None:
    recordings = {path.name for path in KUBECTL.iterdir() if path.suffix in {".txt", ".json"}}
    assert {step.name for step in PLAYED} == recordings
    assert len(PLAYED) == len(recordings)


@pytest.mark.parametrize("step", PLAYED, ids=lambda step: step.name)
def test_a_recording_is_like_itself(step: Step) -> None:
    assert differences(step, without_lines(step.name, step.recorded)) == []


def test_each_entry_of_the_mask_is_needed() -> None:
    recorded = {step.name: list(leaves_of(step, without_lines(step.name, step.recorded))) for step in PLAYED}
    for entry in MASKED:
        hits = [
            name
            for name, leaves in recorded.items()
            if fnmatchcase(name, entry.steps)
            and any(
                fnmatchcase(place, entry.place) and (place, "<masked>") in masked(name, [(place, value)])
                for place, value in leaves
            )
        ]
        assert hits, entry
    for line in NOT_PLAYED:
        assert any(
            fnmatchcase(step.name, line.steps) and step.recorded != without_lines(step.name, step.recorded)
            for step in PLAYED
        ), line
    assert all(entry.why for entry in (*MASKED, *LEFT_OUT, *NOT_PLAYED))


def test_ages_times_addresses_and_identities_may_differ() -> None:
    assert as_shown("08", ("24s", "3m12s"), ("10.244.0.16", "10.244.0.2")) == []
    assert as_shown("11", ("00:21:59", "11:02:13"), ("containerd://12e6", "sandbox://in-name-only/1")) == []
    assert as_shown("12", ("24684096Ki", "131072000Ki"), ("6.18.44-fc-v595", "6.1.0")) == []
    assert as_shown("14", ("1402", "77"), ('"cpu": "2"', '"cpu": "16"')) == []
    assert as_shown("43", ("0.002802051", "0.01")) == []
    assert as_shown("60", ("117s", "4s")) == []


@pytest.mark.parametrize(
    ("number", "old", "new", "place"),
    [
        ("03", "1/1", "0/1", "1:READY"),
        ("03", "Running", "Pending", "1:STATUS"),
        ("03", "10.244.0.16", "<none>", "1:IP"),
        ("03", "5s", "<unknown>", "1:AGE"),
        ("04", '"Healthy"', '"Unhealthy"', "resources.0.health"),
        ("04", "Dev-1", "Dev-2", "resources.0.resourceID"),
        ("04", '"lastProbeTime": null', '"lastProbeTime": "x"', "0.status.conditions.0.lastProbeTime"),
        ("06", '"2"', '"1"', "0"),
        ("09", "1 Insufficient kkloud.io/widget", "2 Insufficient kkloud.io/widget", "1:MESSAGE"),
        ("10", "PodScheduled   False", "PodScheduled   True", "Conditions #3"),
        ("10", "kkloud.io/widget:  2", "kkloud.io/widget:  1", "Containers/c/Limits/kkloud.io/widget"),
        ("10", "0/1 nodes", "0/2 nodes", "Events/1:Message"),
        ("11", "Restart Count:  0", "Restart Count:  1", "Containers/c/Restart Count"),
        ("11", "Normal   Started", "Warning  Started", "Events/4:Type"),
        ("12", "kkloud.io/widget:      2", "kkloud.io/widget:      0", "Capacity/kkloud.io/widget"),
        ("12", "hugepages-2Mi:         0", "hugepages-2Mi:         1", "Capacity/hugepages-2Mi"),
        ("12", "widget      1", "widget      2", "Allocated resources/7:Requests"),
        ("12", "KubeletReady", "KubeletNotReady", "Conditions/4:Reason"),
        ("12", "(2 in total)", "(3 in total)", "Non-terminated Pods"),
        ("12", "v1.36.2", "v1.36.1", "System Info/Kubelet Version"),
        ("13", "v1.36.2", "v1.36.1", "1:VERSION"),
        ("22", "Available: 1", "Available: 0", "0.message"),
        ("30", "500m", "0.5", "line 2"),
        ("42", "1     1", "0     1", "/1:Used"),
        ("43", 'resource"} 2', 'resource"} 3', '_registration_total{resource_name="example.com/resource"}'),
        ("43", 'le="+Inf"} 1', 'le="+Inf"} 2', 'le="inf"}'),
        ("50", '"0"', '"2"', "0.allocatable"),
        ("60", '"w-two"', '"w-tow"', "0.rows.2.cells.0"),
        ("62", "1 Insufficient", "2 Insufficient", "0.rows.0.cells.6"),
        ("63", '"deletecollection",', "", "0.resources.configmaps.verbs.2"),
        ("64", '"36"', '"35"', "0.minor"),
    ],
)  # fmt: skip
def test_the_mask_hides_nothing_that_matters(number: str, old: str, new: str, place: str) -> None:
    assert any(one.endswith(place) for one in as_shown(number, (old, new)))


def test_a_line_too_many_or_too_few_is_a_difference() -> None:
    step = step_named("08")
    head, *rows = step.recorded.splitlines(keepends=True)
    assert differences(step, head + "".join(rows[:2]))
    assert differences(step, head + "".join([*rows, rows[0]]))
    assert differences(step, head + "".join(reversed(rows)))
    described = step_named("11")
    assert differences(described, described.recorded)  # with the events that are not played
    shorter = without_lines(described.name, described.recorded).replace(
        "  PodScheduled                True \n", ""
    )
    assert differences(described, shorter)


def test_expressions_of_jq_are_read_as_jq_does() -> None:
    document = json.dumps({"a": {"b/c": "2", "d": [{"e": 1}]}})
    assert filtered('.a["b/c"]', document) == '"2"\n'
    assert filtered('.a["b/c"], .a.x', document) == '"2"\nnull\n'
    assert filtered(".a.d[0].e", document) == "1\n"
    assert filtered('{one: .a["b/c"], two: .a.d[0].e}', document) == '{\n  "one": "2",\n  "two": 1\n}\n'


@pytest.fixture(scope="module")
def session() -> Iterator[dict[str, str]]:
    """What was shown at each step of the session, played in a sandbox."""
    if why := why_kubectl_is_missing():
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="dp-", dir="/tmp") as folder, Stage(Path(folder)) as stage:
        yield stage.play(STEPS)


@pytest.mark.parametrize("step", PLAYED, ids=lambda step: step.name)
def test_the_sandbox_shows_what_a_real_node_did(step: Step, session: dict[str, str]) -> None:
    found = differences(step, session[step.name])
    assert found == [], session[step.name]
