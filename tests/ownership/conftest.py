"""The situations that the product does not pass yet: strict, so one that passes has to leave the list.

`failing.txt` has them, one a line. `python -m pytest tests/ownership --runxfail` shows all that fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
FAILING = frozenset((FOLDER / "failing.txt").read_text().splitlines())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in the list; name what is in the list and is no test."""
    for item in items:
        if item.path.parent == FOLDER and item.nodeid.rpartition("/")[2] in FAILING:
            item.add_marker(pytest.mark.xfail(strict=True, reason="ownership"))
