"""Our own drivers are right ones: of a description and of code, neither fails a check that applies to it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from devplug.conformance.dra import DriverSubject, judge_driver
from devplug.conformance.dra.checks import all_driver_checks
from devplug.conformance.runner import ARRIVAL
from devplug.conformance.verdicts import Check, Outcome, Verdict
from devplug.sandbox.scripted_api_server import scripted_api_server
from tests.conformance.dra.trials import TIMES
from tests.conformance.trials import ROOT, told

DESCRIPTION: Final = """
version: 1
driver: devices.example.com
resources:
  - name: example.com/ours
    serve: dra
    discover: {path: "{work}/dev/*"}
    expose:
      mounts: [{hostPath: /usr/share, containerPath: /usr/share/ours, readOnly: true}]
      env: {OURS: "{ids}"}
    health:
      - exec: {command: [/bin/sh, -c, 'test "$0" != broken', "{id}"]}
        period: 1m
  - name: example.com/shared
    serve: dra
    discover: {static: {ids: [x]}}
    share: {replicas: 2, maxPerContainer: 1}
"""

SHARED: Final = """
version: 1
driver: devices.example.com
resources:
  - name: example.com/shared
    serve: dra
    discover: {path: "{work}/dev/*"}
    share: {replicas: 2, maxPerContainer: 1}
"""

# Only at the first of several starts: those that follow find what the machine has become.
RUN: Final = """
if ! [ -d {work}/dev ]; then
    mkdir {work}/dev
    for name in a b c d broken; do ln -s /dev/null {work}/dev/$name; done
    printf %s "$DESCRIPTION" > {work}/devplug.yaml
fi
exec "$0" -m devplug run -c {work}/devplug.yaml "$@"
"""

CODED: Final = DriverSubject(
    (sys.executable, "-m", "tests.conformance.dra.coded_driver"), {"PYTHONPATH": str(ROOT)}
)

UNSHARED: Final = frozenset({"DRA43"})
"""What is skipped of a driver that has no device with shares, as the one in code here."""

CHANGES: Final = frozenset({"DRA35", "DRA36", "DRA37"})
"""What takes a command that unplugs a device."""

FORGETFUL: Final = {"DRA34"}
"""Checks with an API server that drops fields: a driver that has seen it publishes no more shares there."""

PATIENT: Final = {"DRA48", "DRA54", "DRA93"}
"""Checks in which our driver waits for 20 s, as it should; each has its own start, one is for the day."""

OF_EITHER: Final = {ARRIVAL, "claims"}
"""The lanes in which a driver in code is tried by day: behind its devices it is that of a description."""


def described(description: str = DESCRIPTION) -> DriverSubject:
    """Return `devplug run` as it is, with a description: of four devices, a broken one and a shared one."""
    return DriverSubject(
        ("sh", "-c", RUN, sys.executable, "--kubelet-root", "{root}", "--cdi-dir", "{cdi}"),
        {"DESCRIPTION": description},
        ("rm", "{work}/dev/a"),
        ("ln", "-s", "/dev/null", "{work}/dev/a"),
    )


def on_one_start(one: Check) -> Check:
    """Return a check in the lane of all that bear one another: a driver starts less often."""
    if one.fresh or one.lane == ARRIVAL:
        return one
    return replace(one, lane=one.id if one.id in PATIENT | FORGETFUL else "one start", alone=False)


async def judged(subject: DriverSubject, checks: Sequence[Check]) -> Sequence[Verdict]:
    """Judge with limits that no right driver comes near, however busy the machine."""
    return await judge_driver(subject, checks, times=TIMES, open_api=scripted_api_server, jobs=2)


def hold(verdicts: Sequence[Verdict], skips: frozenset[str]) -> None:
    """Hold verdicts against what is known of ours: nothing fails, and only what they lack is skipped."""
    assert {one.check.id for one in verdicts if one.outcome is Outcome.SKIPPED} == skips, told(verdicts)
    assert [one for one in verdicts if one.outcome is Outcome.FAILED] == [], told(verdicts)


@pytest.mark.timeout(300)
async def test_a_described_driver_fails_no_check() -> None:
    checks = [one for one in all_driver_checks() if one.id not in PATIENT - {"DRA48"}]
    hold(await judged(described(), list(map(on_one_start, checks))), frozenset())


@pytest.mark.timeout(300)
async def test_a_driver_whose_devices_are_all_shared_is_asked_for_claims_of_them() -> None:
    # Their file allows a container one device each.
    left_out = PATIENT | {"DRA40"}
    checks = [one for one in all_driver_checks() if one.lane in OF_EITHER and one.id not in left_out]
    hold(await judged(described(SHARED), checks), frozenset())


@pytest.mark.timeout(300)
async def test_a_driver_in_code_fails_no_check_of_registration_and_claims() -> None:
    checks = [one for one in all_driver_checks() if one.lane in OF_EITHER and one.id not in PATIENT]
    hold(await judged(CODED, checks), UNSHARED & {one.id for one in checks})


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["described", "coded"])
async def test_a_driver_fails_no_check_in_the_lanes_of_a_run(kind: str) -> None:
    subject = described() if kind == "described" else CODED
    hold(await judged(subject, all_driver_checks()), frozenset() if subject.unplug else UNSHARED | CHANGES)
