"""The daemon is a right plugin, whatever it has found its devices by: none of its resources fails a check.

Each example is served on a machine made of files, by a process of its own. What the judge looks up on the
machine itself, it looks up in that one here.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from devplug.conformance.answers import answers, demand_none
from devplug.conformance.judging import ARRIVAL, judge
from devplug.conformance.pace import Pace
from devplug.conformance.program import Subject
from devplug.conformance.registry import all_checks
from devplug.conformance.stage import Stage, once
from devplug.conformance.stream_rules import absent_numa_faults
from devplug.conformance.verdicts import Outcome
from devplug.daemon.grammar.loading import load
from devplug.daemon.grammar.selectors import Discover
from devplug.daemon.sources.host import Host
from tests.daemon.examplemachines import add_gpus, machine_of_the_examples, write_nvidia_spec
from tests.daemon.gpumachines import build, needs_standin
from tests.daemon.hosts import needs_mknod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from devplug.conformance.registry import Check
    from devplug.conformance.verdicts import Verdict

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples"
TRIAL_SECONDS: Final = 300

BRISK: Final = Pace(
    start_seconds=15.0,
    answer_seconds=5.0,
    silence_seconds=1.5,
    slow_kubelet_seconds=2.0,
    refusing_seconds=1.5,
    down_seconds=1.0,
    return_seconds=6.0,
    change_seconds=4.0,
    end_seconds=6.0,
    idle_seconds=1.0,
    settle_seconds=0.3,
    restarts=8,
    calls=50,
    check_seconds=60.0,
)
"""The limits are those of a real run; only what is waited for is shorter."""

AT_ONCE: Final = 3
"""How many daemons are judged side by side."""
