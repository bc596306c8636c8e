"""Reports of a run: lines for people; JSON, JUnit's XML and TAP for programs. Pure.

The lines say what failed, what was skipped and how each group came out.
"""

from __future__ import annotations

import json
import re
import shlex
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from devplug.conformance.verdicts import Group, Outcome, Severity, is_complete, is_failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.conformance.verdicts import Check, Verdict

_UNMADE: Final = MappingProxyType({Outcome.SKIPPED: "SKIP", Outcome.UNJUDGED: "NOT JUDGED"})

_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# ── for people ──


def finding(verdict: Verdict) -> Sequence[str]:
    """Return the lines on a check that failed: what was seen, why that matters and what to change."""
    one = verdict.check
    word = f"NOTE {one.id}" if one.severity is Severity.NOTE else f"FAIL {one.id} ({one.severity.value})"
    return (
        f"{word}  {verdict.seen}",
        f"    because  {one.why}",
        f"    change   {one.change}",
    )


def skipped_lines(verdicts: Iterable[Verdict]) -> Sequence[str]:
    """Return a line for each reason to skip, or not to judge, with the checks that it concerns."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        if word := _UNMADE.get(verdict.outcome):
            reasons.setdefault((word, verdict.seen), []).append(verdict.check.id)
    return [f"{word} {_ranges(ids)}  {reason}" for (word, reason), ids in reasons.items()]


def group_words(verdicts: Iterable[Verdict]) -> Sequence[str]:
    """Return for each group how many of its checks passed: `stream 13/14`, or that none was made."""
    verdicts = list(verdicts)
    words = []
    for group in Group:
        judged = [
            verdict.outcome for verdict in verdicts if verdict.check.group is group and not _is_noted(verdict)
        ]
        if not judged:
            continue
        made = [outcome for outcome in judged if outcome not in _UNMADE]
        count = f"{made.count(Outcome.PASSED)}/{len(made)}" if made else judged[0].value
        words.append(f"{group.value} {count}")
    return words


def closing_line(verdicts: Iterable[Verdict], seconds: float) -> str:
    """Return what it comes to, in one line."""
    verdicts = list(verdicts)
    noted = sum(map(_is_noted, verdicts))
    failed = [verdict.check.id for verdict in verdicts if verdict.outcome is Outcome.FAILED]
    skipped = sum(verdict.outcome is Outcome.SKIPPED for verdict in verdicts)
    unjudged = sum(verdict.outcome is Outcome.UNJUDGED for verdict in verdicts)
    passed = len(verdicts) - len(failed) - skipped - unjudged
    made = passed + len(failed) - noted
    parts = [f"{passed} of {made} passed", f"{len(failed) - noted} failed"]
    if noted:
        parts.append(f"{noted} noted")
    if skipped:
        parts.append(f"{skipped} skipped")
    if unjudged:
        parts.append(f"{unjudged} not judged")
    advice = f"; devplug verify --explain {failed[0]}" if failed else ""
    return f"{', '.join(parts)} in {seconds:.0f} s{advice}"


def listing(checks: Iterable[Check]) -> Sequence[Sequence[str]]:
    """Return a row for each check: ID, severity, when it is made, rule."""
    return [(one.id, one.severity.value, " ".join(_sets(one)), one.rule) for one in checks]


def explanation(one: Check) -> Sequence[str]:
    """Return all that there is to say of a check."""
    quick = ", in a quick one" if one.quick else ""
    attach = ", and on a running plugin (--attach)" if one.harmless else ""
    return (
        f"{one.id} ({one.severity.value}, {one.group.value})  {one.rule}",
        "",
        f"how      {' '.join(one.how.split())}",
        f"because  {one.why}",
        f"change   {one.change}",
        f"source   {one.source}",
        f"made     in every full run{quick}{attach}",
    )


def _sets(one: Check) -> Sequence[str]:
    return [word for word, holds in (("quick", one.quick), ("attach", one.harmless)) if holds]


def _is_noted(verdict: Verdict) -> bool:
    return verdict.outcome is Outcome.FAILED and not verdict.check.severity.counts


def _ranges(ids: Iterable[str]) -> str:
    """Return IDs with those that follow each other as one: `PRE01-PRE06, HOS03`."""
    numbered = enumerate(sorted(ids))
    runs = [
        [id_ for _, id_ in run]
        for _, run in groupby(numbered, lambda pair: (pair[1][:3], int(pair[1][3:]) - pair[0]))
    ]
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


# ── for programs ──


def json_value(
    command: Sequence[str], resource_names: Sequence[str], verdicts: Iterable[Verdict], seconds: float
) -> dict[str, Any]:
    """Return the whole run as one object."""
    verdicts = list(verdicts)
    return {
        "command": list(command),
        "resource_names": list(resource_names),
        "passed": is_complete(verdicts) and not is_failure(verdicts),
        "seconds": round(seconds, 1),
        "counts": {
            outcome.value: sum(verdict.outcome is outcome for verdict in verdicts) for outcome in Outcome
        },
        "checks": [
            {
                "id": verdict.check.id,
                "group": verdict.check.group.value,
                "severity": verdict.check.severity.value,
                "outcome": verdict.outcome.value,
                "rule": verdict.check.rule,
                "seen": verdict.seen,
                "why": verdict.check.why,
                "change": verdict.check.change,
                "source": verdict.check.source,
                "seconds": round(verdict.seconds, 3),
            }
            for verdict in verdicts
        ],
    }


def junit_text(command: Sequence[str], verdicts: Iterable[Verdict], seconds: float) -> str:
    """Return a JUnit report: one test case per check. A note that was not heeded is output, no failure.

    A check that was not judged is an error.
    """
    verdicts = list(verdicts)
    failed = [
        verdict for verdict in verdicts if verdict.outcome is Outcome.FAILED and verdict.check.severity.counts
    ]
    suite = ET.Element(
        "testsuite",
        name=_xml(f"devplug verify -- {shlex.join(command)}"),
        tests=str(len(verdicts)),
        failures=str(len(failed)),
        errors=str(sum(verdict.outcome is Outcome.UNJUDGED for verdict in verdicts)),
        skipped=str(sum(verdict.outcome is Outcome.SKIPPED for verdict in verdicts)),
        time=f"{seconds:.3f}",
    )
    for verdict in verdicts:
        one = verdict.check
        case = ET.SubElement(
            suite,
            "testcase",
            classname=f"devplug.{one.group.value}",
            name=f"{one.id} {one.rule}",
            time=f"{verdict.seconds:.3f}",
        )
        body = _xml(f"{verdict.seen}\nbecause {one.why}\nchange: {one.change}\nsource: {one.source}")
        if verdict.outcome is Outcome.SKIPPED:
            ET.SubElement(case, "skipped", message=_xml(verdict.seen))
        elif verdict.outcome is Outcome.UNJUDGED:
            ET.SubElement(case, "error", message=_xml(f"not judged: {verdict.seen}"))
        elif verdict.outcome is Outcome.FAILED and one.severity is Severity.NOTE:
            ET.SubElement(case, "system-out").text = f"note: {body}"
        elif verdict.outcome is Outcome.FAILED:
            failure = ET.SubElement(case, "failure", message=_xml(verdict.seen), type=one.severity.value)
            failure.text = body
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def tap_start(count: int) -> Sequence[str]:
    """Return the first lines of a TAP stream of so many checks."""
    return ("TAP version 14", f"1..{count}")


def tap_line(number: int, verdict: Verdict) -> Sequence[str]:
    """Return a check's lines in a TAP stream. A note that was not heeded is a TODO, which never fails."""
    one = verdict.check
    word = "not ok" if verdict.outcome in {Outcome.FAILED, Outcome.UNJUDGED} else "ok"
    head = f"{word} {number} - {one.id} {_tap(one.rule)}"
    if verdict.outcome is Outcome.SKIPPED:
        return (f"{head} # SKIP {_tap(verdict.seen)}",)
    if verdict.outcome is Outcome.PASSED:
        return (head,)
    if verdict.outcome is Outcome.UNJUDGED:
        return (f"{head} (not judged: {_tap(verdict.seen)})",)
    details = {
        "severity": one.severity.value,
        "seen": verdict.seen,
        "because": one.why,
        "change": one.change,
        "source": one.source,
    }
    return (
        f"{head} # TODO a note" if one.severity is Severity.NOTE else head,
        "  ---",
        *(f"  {key}: {json.dumps(value)}" for key, value in details.items()),
        "  ...",
    )


def _xml(text: str) -> str:
    """Return `text` without the characters that no XML may hold."""
    return _NOT_IN_XML.sub("�", text)


def _tap(text: str) -> str:
    """Return a description on one line, in which nothing starts a directive."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("#", "\\#")
