"""The runner: which checks it makes, and on how many starts; and the checks as tests of somebody else."""

from __future__ import annotations

import os
import pkgutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from devplug.conformance import checks as checks_package
from devplug.conformance.checks import SUBJECTS, all_checks
from devplug.conformance.program import Subject
from devplug.conformance.runner import judge
from devplug.conformance.testbed import TestRun
from devplug.conformance.verdicts import Outcome, UnknownCheckError, chosen
from devplug.errors import PluginError, RegistrationError
from tests.conformance.trials import ROOT, TIMES, subject_of

# ── runs ──

ONE_OF_EACH = chosen(all_checks(), only=["REG01", "STR04", "ALL01", "PRE01"])
LOCKED = """
import fcntl, os, runpy, sys
with open(sys.argv[1], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    sys.argv = ["play", "right", *sys.argv[2:]]
    runpy.run_module("tests.conformance.play", run_name="__main__")
"""


def test_checks_are_chosen_by_id_glob_and_group() -> None:
    checks = all_checks()
    assert [one.id for one in chosen(checks, only=["str07"])] == ["STR07"]
    assert {one.group.name for one in chosen(checks, only=["RES*", "stream"])} == {"RES", "STR"}
    without = chosen(checks, skip=["hostile", "ALL*"])
    assert {"HOS", "ALL"}.isdisjoint(one.group.name for one in without)
    assert chosen(checks, quick=True, only=["RES01", "REG*"])


def test_a_word_that_fits_no_check_is_an_error_that_lists_the_groups() -> None:
    with pytest.raises(UnknownCheckError, match=r"no check is called STR99.*registration, stream"):
        chosen(all_checks(), only=["STR99"])


def test_what_is_harmless_neither_allocates_nor_starts_anything() -> None:
    harmless = chosen(all_checks(), harmless=True)
    assert harmless
    assert {"ALL", "PST", "RES", "END", "FOO"}.isdisjoint(one.group.name for one in harmless)
    assert not any(one.fresh for one in harmless)


def test_each_id_is_that_of_one_check_and_each_file_of_checks_is_a_subject() -> None:
    ids = [one.id for one in all_checks()]
    assert len(ids) == len(set(ids))
    files = {module.name for module in pkgutil.iter_modules(checks_package.__path__)}
    assert {subject.__name__.rpartition(".")[2] for subject in SUBJECTS} == files


def test_at_least_seventy_checks_are_made() -> None:
    assert len(all_checks()) >= 70


async def test_verdicts_come_in_the_order_of_the_checks_and_are_told_once_each() -> None:
    told: list[str] = []
    names: list[str] = []
    verdicts = await judge(
        subject_of("right"),
        ONE_OF_EACH,
        times=TIMES,
        on_arrival=names.extend,
        on_verdict=lambda verdict: told.append(verdict.check.id),
    )
    assert [one.check.id for one in verdicts] == [one.id for one in ONE_OF_EACH]
    assert sorted(told) == sorted(one.id for one in ONE_OF_EACH)
    assert {one.outcome for one in verdicts} == {Outcome.PASSED}
    assert names == ["example.com/mutant"]


async def test_of_a_plugin_that_never_registers_nothing_else_is_tried() -> None:
    verdicts = await judge(Subject(("sleep", "60")), ONE_OF_EACH, times=replace(TIMES, start_seconds=0.5))
    assert [one.outcome for one in verdicts] == [Outcome.FAILED, *[Outcome.SKIPPED] * 3]
    assert verdicts[-1].seen == "the plugin did not start (REG01)"


async def test_a_run_that_is_over_names_what_was_not_judged() -> None:
    times = replace(TIMES, end_seconds=60, run_seconds=60.5)
    verdicts = await judge(Subject(("sleep", "600")), ONE_OF_EACH, times=times)
    assert [one.check.id for one in verdicts] == [one.id for one in ONE_OF_EACH]
    assert {one.outcome for one in verdicts} == {Outcome.UNJUDGED}
    assert "--only" in verdicts[0].seen


async def test_the_end_of_a_plugin_is_told_with_its_last_words() -> None:
    subject = Subject((sys.executable, "-c", "import sys; sys.exit('no such device')"))
    first = (await judge(subject, ONE_OF_EACH, times=TIMES))[0]
    assert "no such device" in first.seen


async def test_a_command_that_cannot_be_run_is_an_error_and_no_verdict() -> None:
    with pytest.raises(PluginError, match=r"cannot run \./no-such-plugin: No such file"):
        await judge(Subject(("./no-such-plugin",)), ONE_OF_EACH, times=TIMES)


async def test_a_plugin_that_bears_no_other_of_its_kind_is_tried_by_itself(tmp_path: Path) -> None:
    right = subject_of("right")
    command = (sys.executable, "-c", LOCKED, str(tmp_path / "lock"), "{dir}", "{work}")
    subject = replace(right, command=command)
    verdicts = await judge(subject, ONE_OF_EACH, times=TIMES, jobs=4)
    assert {one.outcome for one in verdicts} == {Outcome.PASSED}, verdicts


async def test_a_running_plugin_is_judged_by_its_socket_and_goes_on() -> None:
    async def attach() -> tuple[set[str], bool]:
        async with TestRun(subject_of("right"), TIMES).bed() as bed:
            client = await bed.wait_ready(TIMES.start_seconds)
            checks = chosen(all_checks(), harmless=True)
            verdicts = await judge(Subject(), checks, times=TIMES, attached=client.path)
            wrong = {one.check.id for one in verdicts if one.outcome is Outcome.FAILED}
            return wrong, bed.is_ready()

    assert await attach() == (set(), True)


async def test_a_socket_where_nobody_answers_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RegistrationError, match="failed to dial"):
        await judge(
            Subject(), ONE_OF_EACH, times=replace(TIMES, dial_seconds=0.2), attached=tmp_path / "none.sock"
        )


# ── pytest items ──

SUITE = """
import pkgutil
import sys
from devplug.conformance.pytestitems import PluginConformance

class TestRight(PluginConformance):
    command = (sys.executable, "-m", "tests.conformance.play", "right", "{{dir}}", "{{work}}")
    environment = {{"PYTHONPATH": {root!r}}}
    only = ("REG01", "STR04", "STR20")

class TestWrong(PluginConformance):
    command = (sys.executable, "-m", "tests.conformance.play", "WritesHealthItsOwnWay", "{{dir}}", "{{work}}")
    environment = {{"PYTHONPATH": {root!r}}}
    only = ("STR04", "STR05")
    quick = True

class TestNone(PluginConformance):
    command = ("./no-such-plugin",)
    only = ("REG01",)
"""


class Reports:
    """What a session of pytest tells of its tests."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.texts: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.outcomes[report.nodeid.partition("::")[2]] = report.outcome
            self.texts.append(str(report.longrepr))


@pytest.mark.nightly  # takes 15 s
def test_each_check_is_a_test_that_passes_fails_or_is_skipped_with_its_reason(tmp_path: Path) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE.format(root=str(ROOT)))
    reports = Reports()
    words = [
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
    ]
    pytest.main([*words, str(suite)], plugins=[reports])
    assert reports.outcomes == {
        "TestRight::test_conforms[REG01]": "passed",
        "TestRight::test_conforms[STR04]": "passed",
        "TestRight::test_conforms[STR20]": "skipped",
        "TestWrong::test_conforms[STR04]": "passed",
        "TestWrong::test_conforms[STR05]": "failed",
        "TestNone::test_conforms[REG01]": "failed",
    }, reports.texts
    told = "\n".join(reports.texts)
    assert "FAIL STR05 (must)  " in told
    assert "take a device away and bring it back" in told
    assert "cannot run ./no-such-plugin" in told
