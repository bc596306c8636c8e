"""What the repository keeps is what the generator makes now."""

from __future__ import annotations

from pathlib import Path

import pytest

from devplug.deploy.repository import deployment_files, with_table

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GENERATED = ("chart", "kustomize")
AGAIN = "run: python -m devplug.deploy deploy"


def test_the_chart_and_the_base_are_what_is_generated() -> None:
    made = deployment_files()
    there = {
        str(file.relative_to(DEPLOY)): file.read_text()
        for name in GENERATED
        for file in (DEPLOY / name).rglob("*")
        if file.is_file()
    }
    assert sorted(there) == sorted(made), AGAIN
    assert [path for path, text in made.items() if there[path] != text] == [], AGAIN


def test_the_docs_have_the_table_of_all_values() -> None:
    page = (ROOT / "docs" / "deploying.md").read_text()
    assert with_table(page) == page, AGAIN


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no"):
        with_table("# A page\n")
