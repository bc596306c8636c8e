"""Registration: how a plugin comes to be known to a kubelet, to one that is right and to one that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.conformance.judging import ARRIVAL
from devplug.conformance.registry import MUST, check
from devplug.conformance.verdicts import FailedError

if TYPE_CHECKING:
    from devplug.conformance.stage import Stage


@check(
    "REG01",
    MUST,
    "A plugin registers with the kubelet that it finds.",
    why="a resource that nobody registers is not on the node",
    change="call Register on kubelet.sock in the plugin folder when the plugin starts",
    source="v1beta1 api.proto, service Registration; kubelet.md 1.2",
    lane=ARRIVAL,
)
async def registers(stage: Stage) -> str:
    """Start the plugin in a folder where a kubelet listens, and wait for its call of Register."""
    if not stage.kubelet.attempts:
        words = stage.program.last_words() if stage.programs else ""
        raise FailedError(
            f"no call of Register came within {stage.pace.start_seconds:g} s; it printed: {words}"
        )
    after = stage.kubelet.attempts[0].started_at - stage.program.started_at
    return f"{1000 * after:.0f} ms after its start"
