"""The taints that DeviceTaintRules add to the devices of slices."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devplug.dra.taints import with_rules

NAMES = st.sampled_from("ab")
SELECTORS = st.none() | st.fixed_dictionaries({}, optional=dict.fromkeys(("driver", "pool", "device"), NAMES))


@given(
    driver=NAMES, pool=NAMES, devices=st.lists(NAMES, unique=True), selectors=st.lists(SELECTORS, max_size=3)
)
def test_a_device_has_the_taints_of_all_rules_that_select_it(
    driver: str, pool: str, devices: list[str], selectors: list[dict[str, str] | None]
) -> None:
    """All criteria must match, an empty selector selects all devices, and no selector selects none."""
    own = {"key": "own", "effect": "None"}
    spec: Any = {
        "driver": driver,
        "pool": {"name": pool},
        "devices": [{"name": name, "taints": [own]} for name in devices],
    }
    rules: list[Any] = [
        {"spec": {"taint": {"key": f"k{at}"}, **({} if one is None else {"deviceSelector": one})}}
        for at, one in enumerate(selectors)
    ]
    found: Any = with_rules({"spec": spec}, rules)
    for device, name in zip(found["spec"]["devices"], devices, strict=True):
        place = {"driver": driver, "pool": pool, "device": name}
        due = [
            {"key": f"k{at}"}
            for at, one in enumerate(selectors)
            if one is not None and one.items() <= place.items()
        ]
        assert device["taints"] == [own, *due]
