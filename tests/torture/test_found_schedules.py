"""Schedules that have found something, played again; each broke before what they found was mended."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from torture.schedules.plan import Family, Fault, Kind, Plan, drawn_plan
from torture.schedules.schedule import Player

FOUND = {
    "a kubelet that is replaced while it is called, and two streams": Plan(
        compat=True,
        is_blind=False,
        faults=(Fault(Kind.KUBELET_KILLED, 0.134, 0.003, 1), Fault(Kind.DEVICES_CHANGED, 0.0, 0.015, 6)),
    ),
    "a call whose answer is lost, and whose stream comes during the next": Plan(
        compat=False,
        is_blind=False,
        faults=(
            Fault(Kind.CONNECTION_LOST, 0.009, 0.0, 3),
            Fault(Kind.STALLED, 0.166, 0.09, 6),
            Fault(Kind.CONNECTION_LOST, 4.298, 6.146, 3),
        ),
    ),
    "a lock that another one takes, and two that list": Plan(
        compat=False,
        is_blind=False,
        faults=(
            Fault(Kind.LOCK_REMOVED, 2.479, 0.0, 1),
            Fault(Kind.PLUGIN_REPLACED, 0.0, 2.773, 7),
            Fault(Kind.DEVICES_CHANGED, 0.0, 0.005, 4),
        ),
    ),
    "a device that leaves and comes back while an Allocate is under way": Plan(
        compat=True,
        is_blind=False,
        faults=(
            Fault(Kind.POD, 3.089, 0.001, 1),
            Fault(Kind.POD, 2.446, 1.006, 1),
            Fault(Kind.DEVICES_CHANGED, 0.009, 0.0, 7),
        ),
    ),
    "a socket that is removed twice before the stream comes": Plan(
        compat=False,
        is_blind=False,
        faults=(
            Fault(Kind.KUBELET_KILLED, 0.2, 0.05, 1),
            Fault(Kind.SOCKET_REMOVED, 0.06, 0.0, 7),
            Fault(Kind.SOCKET_REMOVED, 0.06, 0.0, 6),
        ),
    ),
}


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 100), marks=pytest.mark.nightly)])
def test_what_a_schedule_has_found_stays_mended_whatever_the_delays(
    name: str, seeds: range, tmp_path: Path
) -> None:
    with Player(tmp_path) as player:
        broken = [player.play(FOUND[name], random.Random(seed)).broken for seed in seeds]
    assert [texts for texts in broken if texts] == []


@pytest.mark.parametrize("seeds", [range(50), pytest.param(range(50, 650), marks=pytest.mark.nightly)])
def test_a_kubelet_that_starts_finds_the_plugin_at_its_first_dial_and_takes_it_on_once(
    seeds: range, tmp_path: Path
) -> None:
    """Two restarts for each seed. It sweeps all sockets away and listens while we may just be calling."""
    with Player(tmp_path) as player:
        for seed in seeds:
            source = random.Random(seed)
            restarts = tuple(
                Fault(Kind.KUBELET_KILLED, 1 + source.random(), source.random() * source.choice((0.4, 3)), 1)
                for _ in range(2)
            )
            played = player.play(Plan(compat=True, is_blind=False, faults=restarts), source)
            assert (seed, played.broken, played.dials_in_vain, played.most_taken_on) == (seed, [], 0, 1)


def test_a_schedule_is_the_same_whatever_was_played_before(tmp_path: Path) -> None:
    def figures(player: Player, seed: int) -> tuple[float, int, int]:
        source = random.Random(seed)
        played = player.play(drawn_plan(source, Family.OWNERS), source)
        return played.settled_seconds, played.most_calls, source.randrange(10**9)

    with Player(tmp_path) as player:
        first = [figures(player, seed) for seed in range(20)]
        again = [figures(player, seed) for seed in reversed(range(20))]
    assert first == again[::-1]
