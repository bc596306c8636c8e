"""Our kubelet, allocator and API server agree with all that was recorded of the real ones (in `data`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.__main__ import play, recordings

DATA = Path(__file__).parent / "data"
FILES = recordings(DATA)
TIMELINES = recordings(DATA / "dra")


@pytest.mark.parametrize("path", FILES, ids=[path.name.partition(".")[0] for path in FILES])
@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_every_recording_comes_out_the_same(path: Path, *, is_whole: bool) -> None:
    if path.name.startswith(("claims", "validation")):
        pytest.importorskip("cel_expr_python", reason="there is no wheel for this machine")
    played = play(path, is_whole=is_whole)
    assert played is not None
    matched, total, found = played
    assert not found, "\n".join(found[:10])
    assert matched == total > (100 if is_whole else 30)


@pytest.mark.parametrize("path", TIMELINES, ids=[path.name.partition(".")[0] for path in TIMELINES])
def test_every_timeline_of_the_dra_manager_comes_out_the_same(path: Path) -> None:
    """D03 to D40: 270 lines of ten timelines."""
    matched, total, found = play(path)
    assert not found, "\n".join(found[:10])
    assert matched == total >= 7
