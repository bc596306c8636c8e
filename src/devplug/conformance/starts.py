"""How long a plugin takes to start: measured where a kubelet shows it, used where nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.conformance.verdicts import FailedError

if TYPE_CHECKING:
    from devplug.conformance.kubeletend import Attempt
    from devplug.conformance.stage import Lab, Stage

__all__ = ["first_call", "seconds_until_up"]


async def first_call(stage: Stage) -> Attempt:
    """Wait for the first call of Register. Raises `FailedError` if none comes, or the process ends."""
    kubelet = stage.kubelet
    await kubelet.until(
        lambda: bool(kubelet.attempts_since(0.0)) or not stage.is_alive(), stage.times.start_seconds
    )
    attempts = kubelet.attempts_since(0.0)
    if not attempts:
        program = stage.program
        end = "" if stage.is_alive() else f", it ended with {program.exit_code}: {program.last_words()}"
        raise FailedError(f"no call of Register came within {stage.times.start_seconds:g} s{end}")
    return attempts[0]


async def seconds_until_up(lab: Lab) -> float:
    """Start the plugin before a kubelet; return after how long another start of it is surely done."""
    async with lab.stage() as stage:
        first = await first_call(stage)
        start_seconds = first.started_at - stage.program.started_at
    return min(2 * start_seconds, lab.times.start_seconds)
