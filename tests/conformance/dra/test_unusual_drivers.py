"""Drivers that do correct things in unusual ways fail no check."""

from __future__ import annotations

import pytest

from devplug.conformance.dra.checks import all_driver_checks
from devplug.conformance.verdicts import Outcome, Severity
from tests.conformance.dra import unusual_drivers
from tests.conformance.dra.right_driver import RightDriver
from tests.conformance.dra.trials import trial_of
from tests.conformance.trials import told

UNUSUAL = [one for one in RightDriver.__subclasses__() if one.__module__ == unusual_drivers.__name__]


@pytest.mark.nightly  # each takes 13 s
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", UNUSUAL, ids=lambda kind: kind.__name__)
async def test_an_unusual_driver_fails_no_check(kind: type[RightDriver]) -> None:
    times = {"settle_seconds": 1.0, "health_seconds": 1.0}
    verdicts = await trial_of(kind, all_driver_checks(), times=times)
    failed = [one for one in verdicts if one.outcome is Outcome.FAILED]
    assert not [one for one in failed if one.check.severity is not Severity.NOTE], told(verdicts)
