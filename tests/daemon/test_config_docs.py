"""The reference for people says what the loader does: every block loads, and every key is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devplug import __version__
from devplug.daemon.availability import DISCOVERS, PREFERS
from devplug.daemon.config import Config
from devplug.daemon.loading import load
from devplug.daemon.shapes import sections_of
from devplug.daemon.templates import PLURALS
from devplug.daemon.variables import VARIABLES_OF_KIND
from devplug.errors import ConfigError

REFERENCE = Path(__file__).parents[2] / "docs" / "configuration.md"
BUILT, NOT_BUILT = REFERENCE.read_text(encoding="utf-8").split("## Not in this version")


def blocks(text: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("block", blocks(BUILT))
def test_every_block_of_the_reference_loads(block: str) -> None:
    assert load(block, "docs/configuration.md").resources


@pytest.mark.parametrize("block", blocks(NOT_BUILT))
def test_blocks_about_later_versions_lack_nothing_but_those(block: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(block, "docs/configuration.md")
    assert all("not built yet" in problem.message for problem in refused.value.problems)


def test_every_key_is_in_the_reference() -> None:
    keys = {one.encode_name for _, section in sections_of(Config) for one in section.fields}
    missing = {key for key in keys if not re.search(rf"`([a-z]+\.)?{key}`", BUILT + NOT_BUILT)}
    assert missing == set()


def test_every_variable_of_this_version_is_in_the_reference() -> None:
    known = set().union(*(VARIABLES_OF_KIND[kind] for kind in DISCOVERS))
    for one in sorted(known):
        row = re.search(rf"^\| `{{{one}}}` \| `{{{PLURALS[one]}}}` \|.*\| (.*) \|$", BUILT, re.MULTILINE)
        assert row, one
        kinds = [kind for kind in DISCOVERS if one in VARIABLES_OF_KIND[kind]]
        assert re.findall(r"`(\w+)`", row.group(1)) == kinds


def test_the_reference_speaks_of_this_version() -> None:
    assert f"devplug {__version__} refuses them" in NOT_BUILT
    assert all(f"**`{kind}`**" in BUILT for kind in DISCOVERS)
    assert all(f"`{word}`" in BUILT for word in PREFERS)
