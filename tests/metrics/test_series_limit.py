"""Which devices get series of their own."""

from __future__ import annotations

from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from devplug.metrics.catalogue import DEVICE_SERIES_LIMIT, bounded

Devices: TypeAlias = list[tuple[str, str, bool]]

DEVICES = st.lists(
    st.tuples(st.sampled_from(["a.b/c", "a.b/d", "x.y/z"]), st.text("0123", max_size=3), st.booleans())
)
LIMITS = st.integers(0, 20)


@given(DEVICES, LIMITS)
def test_each_device_is_chosen_or_counted_as_omitted(devices: Devices, limit: int) -> None:
    seen = bounded(devices, limit)
    for resource_name in {resource_name for resource_name, _, _ in devices}:
        mine = {device[:2] for device in devices if device[0] == resource_name}
        assert len(mine & seen.chosen) + seen.omitted[resource_name] == len(mine)
    assert seen.chosen <= {device[:2] for device in devices}
    assert list(seen.omitted) == sorted({device[0] for device in devices})


@given(DEVICES, LIMITS)
def test_as_many_are_chosen_as_the_limit_lets(devices: Devices, limit: int) -> None:
    assert len(bounded(devices, limit).chosen) == min(limit, len({device[:2] for device in devices}))


@given(DEVICES, LIMITS)
def test_important_ones_come_first_and_then_the_first_by_name(devices: Devices, limit: int) -> None:
    important = {device[:2] for device in devices if device[2]}
    ordered = sorted({device[:2] for device in devices}, key=lambda device: (device not in important, device))
    assert bounded(devices, limit).chosen == set(ordered[:limit])


@given(DEVICES, LIMITS, st.randoms(use_true_random=False))
def test_the_order_in_which_they_are_told_decides_nothing(
    devices: Devices, limit: int, chance: object
) -> None:
    shuffled = sorted(devices, key=lambda _: chance.random())  # type: ignore[attr-defined]  # hypothesis' Random
    assert bounded(shuffled, limit) == bounded(devices, limit)


def test_no_more_than_the_limit_are_chosen_of_ten_thousand_devices() -> None:
    seen = bounded([(f"a.b/{number % 7}", f"{number}", number % 5 == 0) for number in range(10_000)])
    assert len(seen.chosen) == DEVICE_SERIES_LIMIT
    assert sum(seen.omitted.values()) == 10_000 - DEVICE_SERIES_LIMIT
