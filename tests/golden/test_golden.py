"""Our kubelet, allocator and API server agree with all that was recorded of the real ones (in `data`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.__main__ import play, recordings

DATA = Path(__file__).parent / "data"
FILES = [*recordings(DATA), *recordings(DATA / "dra")]
IDS = [str(path.relative_to(DATA)).partition(".")[0] for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=IDS)
@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_every_recording_comes_out_the_same(path: Path, *, is_whole: bool) -> None:
    if path in {DATA / "dra/allocation.jsonl.xz", DATA / "dra/validation.jsonl.xz"}:
        pytest.importorskip("cel_expr_python", reason="there is no wheel for this machine")
    played = play(path, is_whole=is_whole)
    assert played is not None
    matched, total, found = played
    assert not found, "\n".join(found[:10])
    assert matched == total >= 7
