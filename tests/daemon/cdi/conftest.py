"""A folder for CDI files, and the one that writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devplug.daemon.cdi.spec_files import CdiFolder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cdi"


@pytest.fixture
def cdi(folder: Path) -> Iterator[CdiFolder]:
    made = CdiFolder(folder)
    yield made
    made.close()
