"""Every link leads somewhere, every page can be found from the index, and nothing is of one machine only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, anchors_of, links_of

EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@EVERY_PAGE
def test_every_link_of_a_page_leads_to_something_that_is_there(page: Path) -> None:
    for link in links_of(page):
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https://"), link
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{link} leads to nothing"
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
        assert not anchor or anchor in anchors_of(target), f"{link}: {file or 'the page'} has no such heading"


def test_every_page_is_found_from_the_index() -> None:
    reached: set[Path] = set()
    waiting = [DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_relative_to(ROOT) or page not in PAGES:
            continue
        reached.add(page)
        if page.is_relative_to(DOCS):
            ends = (link.partition("#")[0] for link in links_of(page) if ":" not in link)
            waiting += [(page.parent / end).resolve() for end in ends if end]
    assert {page for page in PAGES if page.is_relative_to(DOCS)} <= reached


def test_the_index_itself_names_every_page_of_its_folders() -> None:
    named = {(DOCS / link.partition("#")[0]).resolve() for link in links_of(DOCS / "README.md")}
    assert {page for page in PAGES if page.is_relative_to(DOCS)} - {DOCS / "README.md"} <= named


@EVERY_PAGE
def test_a_page_has_one_title_and_no_path_of_the_machine_it_was_written_on(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert str(ROOT) not in text
    assert not re.search(r"/home/(?!runner\b)\w+|/root/", text)
    assert text.startswith("# ")


def test_no_picture_asks_another_server_for_anything() -> None:
    pictures = list((DOCS / "images").glob("*.svg"))
    assert pictures
    for picture in pictures:
        without_names = picture.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?://|url\((?!['\"]?#)|<script", without_names), picture


def test_an_anchor_is_made_as_the_forge_makes_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `devplug run`: *it*!\n## Again\n## Again\n```sh\n# no heading\n```\n")
    assert anchors_of(page) == {"one-devplug-run-it", "again", "again-1"}
