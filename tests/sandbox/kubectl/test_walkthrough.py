"""The commands of the pages on the sandbox and on DRA do what the pages say, with a real kubectl."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.sandbox.kubectl.consoles import is_told, sandbox_player, steps_of

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.parametrize(
    "page",
    [
        "tutorial-dra.md",
        pytest.param("sandbox.md", marks=pytest.mark.nightly),
        pytest.param("device-plugin-to-dra.md", marks=pytest.mark.nightly),
    ],
)
def test_every_command_of_a_walkthrough_does_what_the_page_says(page: str, tmp_path: Path) -> None:
    if "dra" in page:
        pytest.importorskip("cel_expr_python", reason="there is no wheel for this machine")
    with sandbox_player(tmp_path) as player:
        for step in steps_of((DOCS / page).read_text()):
            player.play(step)


def test_a_page_is_not_told_by_another_text() -> None:
    assert is_told(["pod/a created"], "pod/a   created\n")
    assert is_told(["NAME AGE", "a 3s"], "NAME   AGE\na      2m5s\n")
    assert is_told(["one", "...", "four"], "one\ntwo\nthree\nfour\n")
    assert not is_told(["one", "...", "four"], "one\ntwo\n")
    assert not is_told(["a 1/1 Running 0 3s"], "a   0/1   Pending   0   3s\n")
    assert not is_told(["2 0"], "2 2\n")
    assert not is_told(["one"], "one\ntwo\n")
