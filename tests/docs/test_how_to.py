"""The how-to pages show the files of examples/ as they are, and their commands print what they show."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from devplug.daemon.config.loader import load
from tests.docs.pages import DOCS, ROOT, blocks_of
from tests.sandbox.kubectl.consoles import Player, environment, is_told, sandbox_player, steps_of

PAGES = sorted((DOCS / "how-to").glob("*.md"))
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@EVERY_PAGE
def test_a_file_that_a_page_shows_is_the_example_of_that_name(page: Path) -> None:
    for block in blocks_of(page):
        if block.words.startswith("file="):
            example = ROOT / "examples" / block.words.removeprefix("file=")
            assert block.text == "version: 1\n" + example.read_text().partition("version: 1\n")[2], block
            assert f"(../../examples/{example.name})" in page.read_text()


@EVERY_PAGE
def test_a_pod_of_a_page_asks_for_a_resource_of_its_files(page: Path) -> None:
    names = {
        resource.name
        for block in blocks_of(page)
        if block.words.startswith("file=")
        for resource in load(block.text, "file.yaml").resources
    }
    asked = {
        name
        for block in blocks_of(page)
        if block.text.startswith("apiVersion: v1\nkind: Pod")
        for name in re.findall(r"^          (\S+/\S+): \d+$", block.text, re.MULTILINE)
    }
    assert asked <= names


@EVERY_PAGE
def test_a_page_says_how_it_is_tried_and_what_goes_wrong(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    assert any(heading.startswith("Try it") for heading in headings)
    assert "Pitfalls" in headings


@EVERY_PAGE
def test_what_is_tried_without_hardware_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    with Player(ROOT / "examples", environment({"HOME": str(tmp_path)})) as player:
        for step in steps_of(page.read_text()):
            if step.kind == "try":
                printed = player.shell(step.command)
                assert is_told(step.expected, printed), printed


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl (1.27 or newer, from dl.k8s.io)")
@EVERY_PAGE
def test_the_commands_of_a_page_do_what_it_says_in_a_sandbox(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    if "kind: DeviceClass" in text:
        pytest.importorskip("cel_expr_python", reason="there is no wheel for this machine")
    steps = [step for step in steps_of(text) if step.kind not in {"try", "no-run"}]
    with sandbox_player(tmp_path) as player:
        for step in steps:
            player.play(step)
