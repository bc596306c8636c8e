"""The judge: numbered checks of any device plugin, in any language, by playing the kubelet against it.

`devplug verify` is its command, `PluginConformance` in `pytestitems` its form for test suites; here it is for
programs: `await judge(Subject(command), all_checks(), times=FULL)`.
"""

from __future__ import annotations

from devplug.conformance.checks import all_checks
from devplug.conformance.program import Subject
from devplug.conformance.runner import judge
from devplug.conformance.times import FULL, QUICK, Times
from devplug.conformance.verdicts import Check, Group, Outcome, Severity, Verdict, chosen, is_failure

__all__ = [
    "FULL",
    "QUICK",
    "Check",
    "Group",
    "Outcome",
    "Severity",
    "Subject",
    "Times",
    "Verdict",
    "all_checks",
    "chosen",
    "is_failure",
    "judge",
]
