"""docs/glossary.md has each word once, in order, and every word that a page means by it."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS

PAGE = (DOCS / "glossary.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\*\*.+?\*\*) \| (.+) \|$", PAGE, re.MULTILINE)
WORDS = [word for cell, _ in ROWS for word in re.findall(r"\*\*(.+?)\*\*", cell)]


def test_each_word_is_there_once() -> None:
    assert sorted(set(WORDS)) == sorted(WORDS)


def test_words_are_in_the_order_of_the_alphabet() -> None:
    first = [re.findall(r"\*\*(.+?)\*\*", cell)[0].lower() for cell, _ in ROWS]
    assert first == sorted(first)


def test_every_line_of_the_table_is_a_word_with_what_it_is() -> None:
    assert len(ROWS) == PAGE.count("\n| **") > 50
    assert all(len(meaning) > 10 for _, meaning in ROWS)


def test_the_words_of_the_parts_are_there() -> None:
    plain = {word.lower() for word in WORDS}
    for word in ("device", "device node", "holder", "inventory", "ledger", "monitor", "status socket"):
        assert word in plain
