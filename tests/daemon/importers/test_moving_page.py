"""docs/moving.md shows what devplug import does: each example is translated and compared."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from devplug.daemon.config.loader import load
from devplug.daemon.importers.translation import translated

PAGE = (Path(__file__).parents[3] / "docs" / "moving.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml ?([^\n]*)\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = [
    pytest.param(before, after, id=words)
    for (words, before), (_, after) in pairwise(BLOCKS)
    if words.startswith("from=")
]


@pytest.mark.parametrize(("before", "after"), EXAMPLES)
def test_an_example_becomes_what_the_page_says(before: str, after: str) -> None:
    assert translated(before, "x").config == yaml.safe_load(after)


def test_there_is_an_example_of_each_peer_and_the_others_load() -> None:
    assert [words for words, _ in BLOCKS if words.startswith("from=")] == [
        "from=squat",
        "from=smarter",
        "from=nvidia",
    ]
    for words, block in BLOCKS:
        if not words.startswith("from="):
            load(block, "moving.md")
