"""The judge of DRA drivers: numbered checks of any driver, in any language, by playing kubelet and scheduler.

`devplug verify --dra` is its command. For programs: `await judge_driver(DriverSubject(command),
all_driver_checks(), times=FULL, open_api=scripted_api_server)`, the last from
`devplug.sandbox.scripted_api_server`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.conformance.dra.checks import all_driver_checks
from devplug.conformance.dra.driver_program import DriverSubject, program_of
from devplug.conformance.dra.testbed import DriverRun
from devplug.conformance.runner import JOBS, judge_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from devplug.conformance.dra.cluster_api import OpenClusterApi
    from devplug.conformance.times import Times
    from devplug.conformance.verdicts import Check, Verdict

__all__ = ["DriverSubject", "all_driver_checks", "judge_driver"]


async def judge_driver(
    subject: DriverSubject,
    checks: Iterable[Check],
    *,
    times: Times,
    open_api: OpenClusterApi,
    jobs: int = JOBS,
    on_arrival: Callable[[Sequence[str]], None] = lambda _: None,
    on_verdict: Callable[[Verdict], None] = lambda _: None,
) -> Sequence[Verdict]:
    """Try a driver by each of `checks`; return the verdicts in their order, and tell each when it falls.

    As with device plugins: it is started once, what it registers is told, and lanes run side by side, each
    on a node and an API server of its own, which `open_api` opens. Raises `PluginError` if the command cannot
    be run at all, `StartError` if the driver does not come up and no check says why.
    """
    run = DriverRun(program_of(subject), times, open_api, subject)
    return await judge_run(run, checks, jobs=jobs, on_arrival=on_arrival, on_verdict=on_verdict)
