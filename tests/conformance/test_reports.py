"""Reports of a run, for people and for programs; and the page on the checks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.conformance.checks import all_checks
from devplug.conformance.dra.checks import all_driver_checks
from devplug.conformance.faults import DRIVER_FAULTS, FAULTS
from devplug.conformance.page import driver_part, page
from devplug.conformance.reports import (
    closing_line,
    explanation,
    finding,
    group_words,
    json_value,
    junit_text,
    listing,
    skipped_lines,
    tap_line,
    tap_start,
)
from devplug.conformance.verdicts import (
    NOTE,
    SHOULD,
    Check,
    Outcome,
    Verdict,
    chosen,
    is_complete,
    is_failure,
)
from tests.conformance.trials import ROOT

# ── reports ──

SILENCE, NOTED = (
    next(one for one in all_checks() if one.id == "STR07"),
    next(one for one in all_checks() if one.severity is NOTE),
)
PREFERRED = [one for one in all_checks() if one.id in {"PRE01", "PRE02", "PRE03", "PRE05"}]
COMMAND = ("./plugin", "--dir", "{dir}")


def verdicts() -> list[Verdict]:
    return [
        Verdict(SILENCE, Outcome.FAILED, "the same list was sent 6 times", 10.2),
        Verdict(NOTED, Outcome.FAILED, "somebody could do better"),
        *(Verdict(one, Outcome.SKIPPED, "preferred allocation is not announced") for one in PREFERRED),
        Verdict(all_checks()[0], Outcome.PASSED, "41 ms after its start"),
    ]


def test_a_failure_is_told_with_what_was_seen_why_it_matters_and_what_to_change() -> None:
    seen, because, change = finding(verdicts()[0])
    assert seen == "FAIL STR07 (must)  the same list was sent 6 times"
    assert because.split() == ["because", *SILENCE.why.split()]
    assert change.split() == ["change", *SILENCE.change.split()]


def test_a_note_is_told_as_a_note() -> None:
    assert finding(verdicts()[1])[0] == f"NOTE {NOTED.id}  somebody could do better"


def test_what_is_skipped_for_one_reason_is_told_in_one_line() -> None:
    assert skipped_lines(verdicts()) == ["SKIP PRE01-PRE03, PRE05  preferred allocation is not announced"]


def test_what_was_not_judged_is_named_in_every_report_and_makes_no_plugin_right_or_wrong() -> None:
    unjudged = [Verdict(one, Outcome.UNJUDGED, "the run was over") for one in PREFERRED]
    assert skipped_lines(unjudged) == ["NOT JUDGED PRE01-PRE03, PRE05  the run was over"]
    assert closing_line(unjudged, 300) == "0 of 0 passed, 0 failed, 4 not judged in 300 s"
    assert group_words(unjudged) == ["preferred not judged"]
    assert not is_failure(unjudged)
    assert not is_complete(unjudged)
    assert not json_value(COMMAND, (), unjudged, 300)["passed"]
    suite = ET.fromstring(junit_text(COMMAND, unjudged, 300))[0]
    assert (suite.get("errors"), [case[0].tag for case in suite]) == ("4", ["error"] * 4)
    (line,) = tap_line(1, unjudged[0])
    assert line.startswith("not ok 1 - PRE01")
    assert line.endswith("(not judged: the run was over)")


def test_groups_count_what_was_made_and_leave_notes_out() -> None:
    words = group_words(verdicts())
    assert {"registration 1/1", "stream 0/1", "preferred skipped"} <= set(words)


def test_the_last_line_counts_everything_and_names_the_next_command() -> None:
    assert closing_line(verdicts(), 41.4) == (
        "1 of 2 passed, 1 failed, 1 noted, 4 skipped in 41 s; devplug verify --explain STR07"
    )
    assert closing_line(verdicts()[-1:], 2) == "1 of 1 passed, 0 failed in 2 s"


def test_notes_alone_make_no_plugin_wrong_and_a_should_does() -> None:
    should = next(one for one in all_checks() if one.severity is SHOULD)
    assert not is_failure([Verdict(NOTED, Outcome.FAILED)])
    assert is_failure([Verdict(should, Outcome.FAILED)])


def test_json_has_every_verdict_with_all_that_belongs_to_it() -> None:
    value = json.loads(json.dumps(json_value(COMMAND, ["example.com/a"], verdicts(), 41.44)))
    assert (value["passed"], value["seconds"], value["resource_names"]) == (False, 41.4, ["example.com/a"])
    assert value["counts"] == {"passed": 1, "failed": 2, "skipped": 4, "not judged": 0}
    assert value["checks"][0] == {
        "id": "STR07",
        "group": "stream",
        "severity": "must",
        "outcome": "failed",
        "rule": SILENCE.rule,
        "seen": "the same list was sent 6 times",
        "why": SILENCE.why,
        "change": SILENCE.change,
        "source": SILENCE.source,
        "seconds": 10.2,
    }


def test_junit_has_a_case_for_each_check_and_a_failure_for_each_that_counts() -> None:
    suite = ET.fromstring(junit_text(COMMAND, verdicts(), 41.4))[0]
    cases = list(suite)
    assert [case.get("name", "").split()[0] for case in cases] == [one.check.id for one in verdicts()]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("7", "1", "4")
    assert [child.tag for case in cases for child in case] == ["failure", "system-out", *["skipped"] * 4]


@given(st.text())
def test_whatever_a_plugin_printed_junit_stays_xml_and_tap_stays_on_its_lines(text: str) -> None:
    verdict = Verdict(SILENCE, Outcome.FAILED, text)
    ET.fromstring(junit_text(["x", text], [verdict], 0))
    skipped = tap_line(1, Verdict(SILENCE, Outcome.SKIPPED, text))
    assert all(len(line.splitlines()) == 1 for line in (*tap_line(1, verdict), *skipped))


def test_tap_tells_failures_notes_and_skips_as_harnesses_read_them() -> None:
    assert tap_start(7) == ("TAP version 14", "1..7")
    first = [tap_line(number, one)[0] for number, one in enumerate(verdicts(), 1)]
    assert first[0].startswith("not ok 1 - STR07 ")
    assert first[1].endswith("# TODO a note")
    assert first[2].startswith("ok 3 - PRE01")
    assert first[2].endswith("# SKIP preferred allocation is not announced")
    assert first[-1].startswith("ok 7 - ")


def test_the_list_has_a_row_for_each_check_and_says_in_which_sets_it_is() -> None:
    rows = {row[0]: row for row in listing(all_checks())}
    assert rows.keys() == {one.id for one in all_checks()}
    quick = {one.id for one in chosen(all_checks(), quick=True)}
    assert {id_ for id_, row in rows.items() if "quick" in row[2].split()} == quick


@pytest.mark.parametrize("one", all_checks(), ids=lambda one: one.id)
def test_every_check_explains_itself(one: Check) -> None:
    lines = explanation(one)
    assert lines[0].startswith(f"{one.id} (")
    assert one.how, "its function has no docstring"
    assert one.rule.endswith(".")
    assert not one.why.endswith(".")
    assert not one.change.endswith(".")
    assert len(one.source) > 5
    # People cannot read what lies beside our repository.
    assert not any(name in one.source for name in ("kubelet.md", "reliability.md", "peers.md", "devices.md"))


# ── the page ──


def test_the_committed_page_is_that_of_the_registry() -> None:
    made = page(all_checks(), FAULTS) + driver_part(all_driver_checks(), DRIVER_FAULTS)
    assert (ROOT / "docs" / "checks.md").read_text() == made, "run: make pages"


def test_the_catalogue_of_faults_has_no_gap() -> None:
    numbers = {fault.number for fault in FAULTS}
    rows = {"L": 10, "A": 15, "C": 12}
    expected = {f"{letter}{number}" for letter, count in rows.items() for number in range(1, count + 1)}
    of_kubelets_plugins_and_devices = {f"X{number:02}" for number in range(1, 37)}
    assert numbers == expected | of_kubelets_plugins_and_devices


def test_every_fault_names_checks_that_exist_or_why_there_is_none() -> None:
    ids = {one.id for one in (*all_checks(), *all_driver_checks())}
    for fault in (*FAULTS, *DRIVER_FAULTS):
        assert set(fault.checks) <= ids, fault
        assert bool(fault.checks) != bool(fault.why_not), fault


def test_every_check_of_drivers_tries_a_fault_of_the_catalogue() -> None:
    assert {id_ for fault in DRIVER_FAULTS for id_ in fault.checks} == {one.id for one in all_driver_checks()}
    assert len({fault.number for fault in DRIVER_FAULTS}) == len(DRIVER_FAULTS)


def test_the_suite_on_the_page_on_judging_passes(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "verify.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "test_conformance.py").write_text(block)
    (tmp_path / "fpga.py").write_text((ROOT / "examples" / "sample.py").read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "REG or STR", "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
