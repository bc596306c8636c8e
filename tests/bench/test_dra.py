"""What claims cost is measured with a daemon that runs, a kubelet's end and an API server."""

from __future__ import annotations

import pytest

from bench.dra import PREPARED, DraCounts, measure_calls, measure_publication
from bench.report import Figure

FEW = DraCounts(calls=2, wipes=1, starts=1, devices=(8,))


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {one.name: one for one in figures}


async def test_claims_are_prepared_and_timed_beyond_what_the_api_server_takes() -> None:
    found = by_name(await measure_calls(None, FEW))
    prepared, plain = found["prepare, p50"].value, found["a plain GET of the claim, p50"].value
    beyond = found[f"{PREPARED}, p50"].value
    assert prepared is not None
    assert plain is not None
    assert beyond == pytest.approx(prepared - plain)
    assert all(one.value is not None and not one.note for one in found.values())


async def test_devices_are_published_and_again_when_their_slices_are_gone() -> None:
    found = by_name(await measure_publication(200, FEW))
    assert all(one.value for one in found.values())
