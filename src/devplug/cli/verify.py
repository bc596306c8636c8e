"""`devplug verify`: a plugin is judged, and each verdict is printed as it falls."""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from devplug.cli.exits import BAD_INPUT, FAILED, OK
from devplug.cli.output import Printer
from devplug.conformance.checks import all_checks
from devplug.conformance.dra import DriverSubject, all_driver_checks, judge_driver
from devplug.conformance.program import Subject
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
from devplug.conformance.runner import judge
from devplug.conformance.testbed import StartError
from devplug.conformance.times import FULL, FULL_DRIVER, QUICK
from devplug.conformance.verdicts import (
    Group,
    Outcome,
    UnknownCheckError,
    Verdict,
    chosen,
    is_complete,
    is_failure,
)
from devplug.errors import KubeletError, PluginError
from devplug.linux.processes import can_mount, wants_default_dir
from devplug.linux.signals import interrupt_on_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from devplug.conformance.verdicts import Check
    from devplug.sandbox.server.listener import Tls

GROUPS_A_LINE: Final = 4


def list_checks(checks: Sequence[Check], color: str) -> int:
    """Print all checks as a table."""
    Printer(color=color).table(["CHECK", "SEVERITY", "ALSO IN", "RULE"], listing(checks))
    return OK


def explain(id_: str) -> int:
    """Print what a check is about."""
    for one in selected(only=(id_,), dra=id_.upper().startswith(Group.DRA.name)):
        click.echo("\n".join(explanation(one)))
    return OK


def selected(
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    quick: bool = False,
    attached: bool = False,
    dra: bool = False,
) -> Sequence[Check]:
    """Return the checks that the options ask for, of plugins or drivers; raises `click.UsageError`."""
    every = all_driver_checks() if dra else all_checks()
    try:
        checks = chosen(every, only=only, skip=skip, quick=quick, harmless=attached)
    except UnknownCheckError as error:
        raise click.UsageError(str(error)) from error
    if not checks:
        raise click.UsageError("these options select no check; devplug verify --list shows all")
    return checks


def variables_of(environment: Sequence[str]) -> dict[str, str]:
    """Return variables by name; raises `click.UsageError` for what is no NAME=VALUE."""
    variables = {}
    for word in environment:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise click.UsageError(f"--env takes NAME=VALUE, not {word}")
        variables[name] = value
    return variables


def subject_of(
    command: Sequence[str],
    *,
    environment: Sequence[str],
    resource_name: str | None,
    unplug: str,
    replug: str,
    cdi_dirs: Sequence[str],
) -> Subject:
    """Return what is to be judged; raises `click.UsageError`.

    A command that does not name the folder gets ours at the kubelet's own path, where that can be done.
    """
    variables = variables_of(environment)
    return Subject(
        tuple(command),
        variables,
        resource_name,
        *_changes(unplug, replug),
        cdi_dirs=tuple(cdi_dirs),
        default_dir=wants_default_dir(command, variables),
    )


def driver_subject_of(
    command: Sequence[str], *, environment: Sequence[str], unplug: str, replug: str
) -> DriverSubject:
    """Return the DRA driver that is to be judged; raises `click.UsageError`."""
    return DriverSubject(tuple(command), variables_of(environment), *_changes(unplug, replug))


def _changes(unplug: str, replug: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of both commands that change the devices."""
    if bool(unplug) != bool(replug):
        raise click.UsageError(
            "--unplug and --replug need each other; give both, so that the device comes back"
        )
    return tuple(shlex.split(unplug)), tuple(shlex.split(replug))


def verify(
    subject: Subject,
    checks: Sequence[Check],
    *,
    quick: bool,
    jobs: int,
    attached: Path | None,
    output: str,
    color: str,
) -> int:
    """Judge a plugin; return the exit code. Raises `click.UsageError` if it cannot even be started."""

    def judging(reporter: _Reporter) -> Coroutine[object, object, Sequence[Verdict]]:
        return judge(
            subject,
            checks,
            times=QUICK if quick else FULL,
            jobs=jobs,
            attached=attached,
            on_arrival=reporter.arrived,
            on_verdict=reporter.report,
        )

    verdicts = _reported(judging, checks, subject.command or (str(attached),), output, color)
    if not any(attempt.outcome is Outcome.PASSED for attempt in verdicts) and not subject.default_dir:
        _advise(subject)
    return _exit_code(verdicts)


def verify_driver(
    subject: DriverSubject,
    checks: Sequence[Check],
    *,
    quick: bool,
    jobs: int,
    output: str,
    color: str,
) -> int:
    """Judge a DRA driver; return the exit code. Raises `click.UsageError` if it cannot even be started."""
    from devplug.sandbox.scripted_api_server import scripted_api_server

    with tempfile.TemporaryDirectory(prefix="verify-tls-") as folder:
        open_api = partial(scripted_api_server, tls=_tls_in(Path(folder)))

        def judging(reporter: _Reporter) -> Coroutine[object, object, Sequence[Verdict]]:
            return judge_driver(
                subject,
                checks,
                times=QUICK if quick else FULL_DRIVER,
                open_api=open_api,
                jobs=jobs,
                on_arrival=reporter.arrived,
                on_verdict=reporter.report,
            )

        return _exit_code(_reported(judging, checks, subject.command, output, color))


def _tls_in(folder: Path) -> Tls | None:
    """Return a certificate for the API server where a service account can be mounted for the driver.

    The in-cluster configuration of client-go always uses https. None without root, and without openssl.
    """
    from devplug.sandbox.server.listener import ServingError, Tls

    if not can_mount():
        return None
    try:
        return Tls.made_in(folder)
    except ServingError:
        return None


def _reported(
    judging: Callable[[_Reporter], Coroutine[object, object, Sequence[Verdict]]],
    checks: Sequence[Check],
    command: Sequence[str],
    output: str,
    color: str,
) -> Sequence[Verdict]:
    logging.disable()  # what our kubelet would log of a wrong plugin is reported as verdicts
    interrupt_on_stop()  # the judged programs have to end with us
    reporter = _REPORTERS[output](checks, command, color)
    begun = time.monotonic()
    try:
        with reporter.reporting():
            verdicts = asyncio.run(judging(reporter))
    except (PluginError, KubeletError, StartError) as error:
        raise click.UsageError(str(error)) from error
    reporter.close(verdicts, time.monotonic() - begun)
    return verdicts


def _exit_code(verdicts: Sequence[Verdict]) -> int:
    if is_failure(verdicts):
        return FAILED
    return OK if is_complete(verdicts) else BAD_INPUT


def _advise(subject: Subject) -> None:
    """Say how a plugin finds the folder, if this one seems not to have found it."""
    if subject.command and not any("{dir}" in word for word in subject.command):
        click.echo(
            "devplug: the plugin was not told its folder, and this user may not mount one for it; write "
            "{dir} where the command takes the folder, or --env NAME={dir}, or run this as root",
            err=True,
        )


@dataclass
class _Reporter:
    """Reports a run to one kind of reader; lives as long as the run."""

    checks: Sequence[Check]
    command: Sequence[str]
    color: str
    resource_names: Sequence[str] = field(default=(), init=False)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Hold whatever is open while verdicts fall."""
        yield

    def arrived(self, resource_names: Sequence[str]) -> None:
        """Take note of what the plugin has registered, the judged resource first."""
        self.resource_names = resource_names

    def report(self, verdict: Verdict) -> None:
        """Report one verdict."""

    def close(self, verdicts: Sequence[Verdict], seconds: float) -> None:
        """Report the whole."""


class _Table(_Reporter):
    """People: what fails at once, the table at the end; on a terminal with the progress below."""

    @contextmanager
    def reporting(self) -> Iterator[None]:
        self._printer = Printer(color=self.color)
        with self._printer.progress(len(self.checks)) as self._progress:
            yield

    def arrived(self, resource_names: Sequence[str]) -> None:
        super().arrived(resource_names)
        if not resource_names:
            return
        others = ", ".join(resource_names[1:])
        more = f"; it also serves {others} (--resource)" if others else ""
        self._printer.line(f"judging {resource_names[0]}{more}")

    def report(self, verdict: Verdict) -> None:
        self._progress(verdict.check.group.value)
        if verdict.outcome is Outcome.FAILED:
            for line in finding(verdict):
                self._printer.line(line)

    def close(self, verdicts: Sequence[Verdict], seconds: float) -> None:
        words = group_words(verdicts)
        width = max(map(len, words), default=0)
        rows = [
            "   ".join(word.ljust(width) for word in words[start : start + GROUPS_A_LINE]).rstrip()
            for start in range(0, len(words), GROUPS_A_LINE)
        ]
        for line in (*rows, *skipped_lines(verdicts), closing_line(verdicts, seconds)):
            self._printer.line(line)


class _Json(_Reporter):
    """Programs: one object at the end."""

    def close(self, verdicts: Sequence[Verdict], seconds: float) -> None:
        click.echo(json.dumps(json_value(self.command, self.resource_names, verdicts, seconds), indent=2))


class _Junit(_Reporter):
    """CI systems: a report at the end."""

    def close(self, verdicts: Sequence[Verdict], seconds: float) -> None:
        click.echo(junit_text(self.command, verdicts, seconds), nl=False)


class _Tap(_Reporter):
    """Harnesses: lines as verdicts fall."""

    @contextmanager
    def reporting(self) -> Iterator[None]:
        click.echo("\n".join(tap_start(len(self.checks))))
        self._number = 0
        yield

    def report(self, verdict: Verdict) -> None:
        self._number += 1
        click.echo("\n".join(tap_line(self._number, verdict)))
        sys.stdout.flush()


_REPORTERS = {"table": _Table, "json": _Json, "junit": _Junit, "tap": _Tap}
