"""docs/architecture.md has the layers that import-linter checks, and the parts that there are."""

from __future__ import annotations

import re
import tomllib

import pytest

from devplug.plugin.resource_lock import LOCK_FOLDER, new_socket_name
from tests.docs.pages import DOCS, ROOT
from tests.docs.transitions import DRAWN, TABLES

PAGE = (DOCS / "architecture.md").read_text(encoding="utf-8")


def layers() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = (one["layers"] for one in contracts if one["name"].startswith("Layers, top-down"))
    assert isinstance(found, list)
    return found


def shown_layers() -> str:
    rows = []
    for number, layer in enumerate(layers(), 1):
        names = (f"`{name.strip().removeprefix('devplug.')}`" for name in layer.split("|"))
        rows.append(f"| {number} | {', '.join(names)} |\n")
    return "| | Layer |\n|---|---|\n" + "".join(rows)


def test_the_layers_of_the_page_are_those_that_are_checked() -> None:
    shown = re.search(r"<!-- layers: as in pyproject\.toml -->\n(.*?)<!-- layers: end -->", PAGE, re.DOTALL)
    assert shown
    assert shown[1] == shown_layers()


def test_each_transition_that_is_drawn_is_in_its_table_and_each_of_the_table_is_drawn() -> None:
    shown = {}
    for _, title, table, _ in DRAWN.findall(PAGE):
        (_, *states), _, *rows = (
            [cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()
        )
        cells = {
            (state, event, to) for event, *row in rows for state, to in zip(states, row, strict=True) if to
        }
        shown[title] = cells
    assert shown == {
        title: {(state, event, to) for state, row in table.items() for event, to in row.items()}
        for title, table in TABLES.items()
    }


def test_every_part_of_the_package_is_explained() -> None:
    parts = {
        name
        for row in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    folders = {path.parent.name for path in (ROOT / "src" / "devplug").glob("*/__init__.py")}
    assert folders <= parts


def test_the_files_on_disk_are_called_as_the_page_says() -> None:
    assert f"`device-plugins/{LOCK_FOLDER}/`" in PAGE
    assert re.fullmatch(r"devplug-[0-9a-f]{12}-\d+-[0-9a-z]{5}\.sock", new_socket_name("example.com/a"))
    assert "`device-plugins/devplug-HASH-PID-RANDOM.sock`" in PAGE


@pytest.mark.parametrize("page", ["architecture.md", "where-to-change.md"])
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", (DOCS / page).read_text(encoding="utf-8")))
    source = ROOT / "src" / "devplug"
    assert len(named) > 20
    assert [one for one in named if not (source / one).exists() and not (ROOT / one).exists()] == []


def test_a_change_is_at_most_three_files_away() -> None:
    rows = (DOCS / "where-to-change.md").read_text(encoding="utf-8").splitlines()
    changes = [row for row in rows if row.startswith("| ") and ".py`" in row]
    assert len(changes) >= 20
    assert [row for row in changes if not 1 <= row.count(".py`") <= 3] == []
