"""Verdicts for programs: JSON, JUnit's XML and TAP. Pure."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from devplug.conformance.registry import Severity
from devplug.conformance.verdicts import Outcome, is_complete, is_failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.conformance.verdicts import Verdict

__all__ = ["json_value", "junit_text", "tap_line", "tap_start"]

_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
        told = _xml(f"{verdict.seen}\nbecause {one.why}\nchange: {one.change}\nsource: {one.source}")
        if verdict.outcome is Outcome.SKIPPED:
            ET.SubElement(case, "skipped", message=_xml(verdict.seen))
        elif verdict.outcome is Outcome.UNJUDGED:
            ET.SubElement(case, "error", message=_xml(f"not judged: {verdict.seen}"))
        elif verdict.outcome is Outcome.FAILED and one.severity is Severity.NOTE:
            ET.SubElement(case, "system-out").text = f"note: {told}"
        elif verdict.outcome is Outcome.FAILED:
            failure = ET.SubElement(case, "failure", message=_xml(verdict.seen), type=one.severity.value)
            failure.text = told
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
