"""The time of a preference: 64 of 4,096 devices, by each policy, in this process."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING

from bench.report import Bound, Report, Row, percentile, spread
from devplug.daemon.preference import Candidate, preferred

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEVICES, SIZE = 4096, 64

ROUNDS = 15

POLICIES = ("packed", "spread", "leastShared", "aligned", "linked")

LIMIT_SECONDS = 0.1

SWITCH, BRIDGE, NUMA_NODE = 8, 64, 512
"""How many devices are below each."""


def machine(devices: int = DEVICES) -> list[Candidate]:
    """Return GPUs below switches, host bridges and NUMA nodes, those of a switch linked with each other."""
    return [
        Candidate(
            f"gpu{one}",
            f"gpu{one}",
            (one // NUMA_NODE,),
            f"/sys/devices/pci{one // BRIDGE:04x}:00/{one // BRIDGE:04x}:00:{one // SWITCH % 8 + 1:02x}.0"
            f"/{one // BRIDGE:04x}:{one // SWITCH % 8 + 1:02x}:00.0"
            f"/{one // BRIDGE:04x}:{one // SWITCH % 8 + 16:02x}:{one % SWITCH:02x}.0"
            f"/{one // BRIDGE:04x}:{one % BRIDGE + 32:02x}:00.0",
            {f"gpu{one - one % SWITCH + at}": 4 for at in range(SWITCH) if at != one % SWITCH},
        )
        for one in range(devices)
    ]


def shared(devices: int = DEVICES) -> list[Candidate]:
    """Return replicas, 8 of each found device."""
    return [
        Candidate(f"gpu{one // 8}::{one % 8}", f"gpu{one // 8}", (one // NUMA_NODE,))
        for one in range(devices)
    ]


def timed(policy: str, rounds: int = ROUNDS, devices: int = DEVICES, size: int = SIZE) -> list[float]:
    """Return how long each answer takes, about as many devices as given, where others hold an eighth more."""
    rng = Random(policy)
    everything = (shared if policy in {"packed", "spread", "leastShared"} else machine)(devices * 9 // 8)
    seconds = []
    for _ in range(rounds):
        free = rng.sample(everything, devices)
        begin = time.perf_counter()
        answer = preferred(policy, free, [], size, all_devices=everything)
        seconds.append(time.perf_counter() - begin)
        assert len(answer) == size
    return seconds


def measure_preference(rounds: int = ROUNDS) -> Report:
    """Measure each policy."""
    return preference_report({policy: timed(policy, rounds) for policy in POLICIES}, rounds)


def preference_report(samples: Mapping[str, Sequence[float]], rounds: int) -> Report:
    """Return the report on all policies: a typical answer keeps the bound."""
    return Report(
        ["devplug"],
        [Row((figure,)) for policy, seconds in samples.items() for figure in spread(policy, seconds, rounds)],
        heading=f"preferred allocation, {SIZE} of {DEVICES:,}",
        bounds=[
            Bound(
                f"{policy}: {SIZE} of {DEVICES:,} devices, of {LIMIT_SECONDS * 1000:.0f} ms",
                percentile(seconds, 50) / LIMIT_SECONDS if seconds else None,
                1,
            )
            for policy, seconds in samples.items()
        ],
    )
