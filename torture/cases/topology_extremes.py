"""36 NUMA nodes, and devices on nodes that no machine has: hints come quickly, or not at all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from devplug.devices import HEALTHY
from devplug.exchange import AdvertisedDevice
from devplug.kubelet.hints import hints_for
from devplug.kubelet.topology import nodes_of
from torture.catalogue import case
from torture.held import nothing_kept

if TYPE_CHECKING:
    from torture.catalogue import Trial

NODES: Final = 36
ODD: Final = (-1, 36, 63, 64, 99, 1023, 2**31, 2**63 - 1, -(2**63))
ANSWER_SECONDS: Final = 0.1


@case(
    "topology-extremes",
    fault="X44",
    promise="On a machine of 36 NUMA nodes with devices on two, whatever nodes they name, hints come within "
    "100 ms and name only nodes that the machine has; with devices on most there are none, as quickly",
    count=5_000,
    unit="questions",
    invariants="I3 I6",
)
async def topology_extremes(trial: Trial) -> None:
    """Ask for hints for devices that name good, unknown, repeated and impossible nodes."""
    times: list[float] = []
    async with nothing_kept(trial):
        for turn in trial.rounds():
            chance = turn.random
            # On more nodes than anybody can go through the sets of, now and then.
            is_wide = chance.random() < 0.1
            good = chance.sample(range(NODES), chance.randint(20, NODES) if is_wide else 2)
            devices = {}
            for number in range(chance.randint(1, chance.choice((3, 64)))):
                nodes = [
                    chance.choice((*good, *good, chance.choice(ODD))) for _ in range(chance.randint(0, 4))
                ]
                nodes = good if is_wide else nodes
                devices[f"d{number}"] = AdvertisedDevice(f"d{number}", HEALTHY, tuple(nodes) or None)
            required = chance.randint(1, len(devices))
            started = time.process_time()
            hints = hints_for(devices, [*devices], [], required, range(NODES), compat=False)
            times.append(time.process_time() - started)
            trial.check((hints is None) == is_wide, f"I6: {hints} of {len(good)} nodes", turn.number)
            for hint in hints or ():
                nodes_of_hint = nodes_of(hint.mask or 0)
                is_of_machine = nodes_of_hint and {*nodes_of_hint} <= {*good}
                trial.check(is_of_machine, f"I6: {nodes_of_hint} of devices on {good}", turn.number)
                fitting = sum(
                    bool({*nodes_of_hint}.intersection(one.numa_nodes or ())) for one in devices.values()
                )
                trial.check(fitting >= required, f"I6: {fitting} of {required} devices", turn.number)
    trial.times("one question", times, p99_within=ANSWER_SECONDS)
