"""Verdicts as lines for people: what failed, what was skipped, how each group came out. Pure."""

from __future__ import annotations

from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from devplug.conformance.registry import Group, Severity
from devplug.conformance.verdicts import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.conformance.registry import Check
    from devplug.conformance.verdicts import Verdict

__all__ = ["closing_line", "explanation", "finding", "group_words", "listing", "skipped_lines"]

_UNMADE: Final = MappingProxyType({Outcome.SKIPPED: "SKIP", Outcome.UNJUDGED: "NOT JUDGED"})


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
