"""The checks as tests: one pytest item for each, all made in one run."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

import pytest

from devplug.conformance.checks import all_checks
from devplug.conformance.program import Subject
from devplug.conformance.reports import finding
from devplug.conformance.runner import JOBS, judge
from devplug.conformance.times import FULL, QUICK
from devplug.conformance.verdicts import Outcome, Verdict, chosen
from devplug.kubelet_dir import CDI_DIRS
from devplug.linux.processes import wants_default_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from devplug.conformance.verdicts import Check

__all__ = ["PluginConformance"]

Verdicts = dict[str, "Future[Verdict]"]

RUN_SECONDS = 600.0
"""How long a whole run may take before its tests fail because it hangs."""


class PluginConformance:
    """Judges a plugin, a test for each check: derive a class whose name starts with `Test`, set `command`.

        class TestConformance(PluginConformance):
            command = ("python", "-m", "my_plugin")

    The checks that pytest has selected (`-k RES`) are made in one run, lanes side by side, which starts with
    the first of these tests. Notes are warnings of no test: they pass.
    """

    command: ClassVar[Sequence[str]] = ()
    """Starts the plugin; `{dir}` and `{work}` as in `devplug verify`."""
    environment: ClassVar[Mapping[str, str]] = {}
    resource_name: ClassVar[str | None] = None
    unplug: ClassVar[Sequence[str]] = ()
    replug: ClassVar[Sequence[str]] = ()
    cdi_dirs: ClassVar[Sequence[str]] = CDI_DIRS
    """Where the plugin's CDI spec files are; with `{work}`."""
    quick: ClassVar[bool] = False
    """Only the quick set, in less than ten seconds."""
    only: ClassVar[Sequence[str]] = ()
    skip: ClassVar[Sequence[str]] = ()
    """IDs, globs of them, or names of groups."""
    jobs: ClassVar[int] = JOBS

    @pytest.fixture(scope="class")
    @classmethod
    def verdicts(cls, request: pytest.FixtureRequest) -> Iterator[Verdicts]:
        """Yield the verdicts that are to come, by check, while the run goes on in a thread."""
        checks: list[Check] = [
            cast("Check", item.callspec.params["check"])
            for item in request.session.items
            if isinstance(item, pytest.Function) and item.cls is cls and hasattr(item, "callspec")
        ]
        yield from _running(cls, checks)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make a test of each check."""
        if "check" in metafunc.fixturenames:
            checks = chosen(all_checks(), only=self.only, skip=self.skip, quick=self.quick)
            metafunc.parametrize("check", checks, ids=[one.id for one in checks])

    def test_conforms(self, check: Check, verdicts: Verdicts) -> None:
        """Pass if the plugin keeps the rule of `check`."""
        __tracebackhide__ = True
        verdict = verdicts[check.id].result(RUN_SECONDS)
        if verdict.outcome is Outcome.SKIPPED:
            pytest.skip(verdict.seen)
        if verdict.outcome is Outcome.UNJUDGED:
            pytest.fail(f"not judged: {verdict.seen}", pytrace=False)
        if verdict.outcome is Outcome.FAILED and check.severity.counts:
            pytest.fail("\n".join((*finding(verdict), f"    source   {check.source}")), pytrace=False)


def _running(suite: type[PluginConformance], checks: Sequence[Check]) -> Iterator[Verdicts]:
    verdicts: Verdicts = {one.id: Future() for one in checks}
    stop: Future[Callable[[], object]] = Future()

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        stop.set_result(partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel))
        await judge(
            _subject(suite),
            checks,
            times=QUICK if suite.quick else FULL,
            jobs=suite.jobs,
            on_verdict=lambda verdict: verdicts[verdict.check.id].set_result(verdict),
        )

    def live() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001 -- every test that waits has to know
            for future in verdicts.values():
                if not future.done():
                    future.set_exception(error)

    thread = threading.Thread(target=live, name=f"judge of {suite.__name__}")
    thread.start()
    try:
        yield verdicts
    finally:
        if not all(future.done() for future in verdicts.values()):
            stop.result(RUN_SECONDS)()
        thread.join()


def _subject(suite: type[PluginConformance]) -> Subject:
    return Subject(
        tuple(suite.command),
        suite.environment,
        suite.resource_name,
        tuple(suite.unplug),
        tuple(suite.replug),
        wants_default_dir(suite.command, suite.environment),
        tuple(suite.cdi_dirs),
    )
