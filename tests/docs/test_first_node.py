"""The commands of docs/first-node.md do what the page says, in a real sandbox with a real kubectl."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.sandbox.kubectl.consoles import sandbox_player, steps_of

PAGE = DOCS / "first-node.md"


@pytest.mark.nightly  # pages in a sandbox are played by test_how_to each time, the same way
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl (1.27 or newer, from dl.k8s.io)")
def test_every_command_of_the_tutorial_does_what_the_page_says(tmp_path: Path) -> None:
    with sandbox_player(tmp_path) as player:
        for step in steps_of(PAGE.read_text()):
            if step.kind == "here":  # what it prints is another on each machine
                code = player.shell(f"({step.command}); echo $?").splitlines()[-1]
                assert code in {"0", "1", "2"}, step
            elif step.kind != "no-run":
                player.play(step)
