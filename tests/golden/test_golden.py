"""Our kubelet, allocator, API server and cluster agree with what was recorded of real ones (in `data`)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.golden.__main__ import play, play_kubectl, recordings
from tests.golden.transcripts import plain

DATA = Path(__file__).parent / "data"
FILES = [*recordings(DATA), *recordings(DATA / "dra")]
TRANSCRIPTS = sorted((DATA / "dra/kubectl").glob("*.txt"))
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


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.parametrize(
    "files", [TRANSCRIPTS[:5], pytest.param(TRANSCRIPTS, marks=pytest.mark.nightly)], ids=["begin", "whole"]
)
def test_kubectl_shows_of_claims_what_it_showed_in_a_real_cluster(files: list[Path]) -> None:
    pytest.importorskip("cel_expr_python", reason="there is no wheel for this machine")
    played = play_kubectl(files)
    assert [difference for _, found in played.values() for difference in found] == []
    assert sum(total for total, _ in played.values()) >= 33


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("04-claim-and-pod", "allocated,reserved   3s", "allocated   3s"),
        ("04-claim-and-pod", "Device:   gpu-2", "Device:   gpu-3"),
        ("02-resourceslice", "      memory:", "    memory:"),
        ("06-pending", "1 cannot allocate all claims", "2 cannot allocate all claims"),
        ("07-prepare-fails", "ContainerCreating   0", "ContainerCreating   1"),
        ("12-refused", "1:44", "1:45"),
    ],
)
def test_a_transcript_that_says_something_else_is_another(file: str, old: str, new: str) -> None:
    text = (DATA / f"dra/kubectl/{file}.txt").read_text()
    assert old in text
    assert plain(text) == plain(text.replace("12s", "3m4s"))
    assert plain(text) != plain(text.replace(old, new))
