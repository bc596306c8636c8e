"""Our kubelet and the real one agree on all that was recorded of the real one (in `data`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.golden.__main__ import play, recordings
from tests.golden.player import sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.golden.player import Json

FILES = recordings(Path(__file__).parent / "data")


@pytest.mark.timeout(300)  # of which all need a minute
@pytest.mark.parametrize("path", FILES, ids=[path.name.partition(".")[0] for path in FILES])
@pytest.mark.parametrize(
    "chosen", [sample, pytest.param(iter, marks=[pytest.mark.nightly, pytest.mark.slow])], ids=["some", "all"]
)
def test_every_recording_comes_out_the_same(
    path: Path, chosen: Callable[[Iterable[Json]], Iterable[Json]]
) -> None:
    matched, total, found = play(path, chosen)
    assert not found, "\n".join(found[:10])
    assert matched == total > (30 if chosen is sample else 100)
