"""The pages for people say what the loader and the sources do: every block loads, every key is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from devplug.daemon.config.decoder import sections_of
from devplug.daemon.config.loader import load
from devplug.daemon.config.selectors import Discover
from devplug.daemon.config.templates import PLURALS, VARIABLES_OF_KIND
from devplug.daemon.config.types import Config, HealthRule, Resource
from devplug.daemon.container_response import pcidevice_variable
from devplug.daemon.sources.pci import ATTRIBUTES as PCI_ATTRIBUTES
from devplug.daemon.sources.sysfs import STABLE_ATTRIBUTES
from devplug.daemon.sources.usb import ATTRIBUTES as USB_ATTRIBUTES
from tests.daemon import idhosts

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = (DOCS / "configuration.md").read_text(encoding="utf-8")
DEVICES = (DOCS / "devices.md").read_text(encoding="utf-8")
KINDS = Discover.alternatives


def blocks(text: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of each row of each table."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize("block", blocks(REFERENCE) + blocks(DEVICES))
def test_every_block_of_the_references_loads(block: str) -> None:
    assert load(block, "docs/configuration.md").resources


@pytest.mark.parametrize("block", blocks(REFERENCE) + blocks(DEVICES))
def test_every_block_of_the_references_is_in_block_style(block: str) -> None:
    for line in block.splitlines():
        assert not re.search(r"[\[{]", re.sub(r'"[^"]*"|: (\{\}|\[\])$', "", line)), line


def test_every_key_has_a_row_in_the_reference() -> None:
    keys = {one.encode_name for _, section in sections_of(Config) for one in section.fields}
    assert keys - set(KINDS) - {row[0].strip("`") for row in rows(REFERENCE)} == set()


def test_every_default_that_is_one_word_is_in_the_row_of_its_key() -> None:
    told = [(row[0].strip("`"), row[2].strip("`")) for row in rows(REFERENCE) if len(row) == 3]
    for _, section in sections_of(Config):
        for one in section.fields:
            description = str(_meta(section.cls, one.name))
            default = re.search(r"Default: ([\w.]+)\.$", description)
            if default and one.encode_name not in KINDS:
                cells = [cell for key, cell in told if key == one.encode_name]
                assert any(_same(default[1], cell) for cell in cells), (one.encode_name, default[1], cells)


def _meta(section: type, name: str) -> object:
    hint = get_type_hints(section, include_extras=True)[name]
    return next((meta.description for meta in get_args(hint)[1:] if hasattr(meta, "description")), "")


def _same(default: str, cell: str) -> bool:
    said = {"all": "all machines", "none": "nothing"}
    return cell.partition(",")[0] in {default, said.get(default)}


def test_every_word_that_a_key_can_have_is_in_the_reference() -> None:
    words = {word for _, section in sections_of(Config) for word in _words(section.cls)}
    assert {"aligned", "rawDisks", "cdi", "shared", "wait"} <= words
    assert {word for word in words if f"`{word}`" not in REFERENCE} == set()


def _words(section: type) -> Iterator[str]:
    waiting = list(get_type_hints(section).values())
    while waiting:
        hint = waiting.pop()
        if get_origin(hint) is Literal:
            yield from (word for word in get_args(hint) if isinstance(word, str))
        else:
            waiting += [one for one in get_args(hint) if one is not Ellipsis]


def test_every_kind_has_its_keys_and_an_example_in_the_reference() -> None:
    discover = REFERENCE.partition("## `discover`")[2].partition("## `expose`")[0]
    parts = dict(
        zip(
            re.findall(r"^\*\*`(\w+)`\*\*", discover, re.MULTILINE),
            re.split(r"^\*\*`\w+`\*\*", discover, flags=re.MULTILINE)[1:],
            strict=True,
        )
    )
    assert list(parts) == list(KINDS)
    for kind, text in parts.items():
        assert {
            resource.discover.kind for block in blocks(text) for resource in load(block, "").resources
        } == {kind}
        selector = get_args(get_type_hints(Discover)[kind])[0]
        keys = {one.encode_name for _, section in sections_of(selector) for one in section.fields}
        assert keys <= {row[0].strip("`") for row in rows(text)}


def test_every_variable_is_in_the_reference_with_the_kinds_that_have_it() -> None:
    for one, plural in PLURALS.items():
        written = (
            (f"`{{{one}.NAME}}`", f"`{{{plural}.NAME}}`")
            if one == "attr"
            else (f"`{{{one}}}`", f"`{{{plural}}}`")
        )
        (row,) = [row for row in rows(REFERENCE) if tuple(row[:2]) == written]
        kinds = [kind for kind in KINDS if one in VARIABLES_OF_KIND[kind]]
        told = list(KINDS) if row[3] == "every kind" else re.findall(r"`(\w+)`", row[3])
        assert told == kinds, one


def test_every_probe_and_action_is_in_the_reference() -> None:
    assert all(f"`{word}`" in REFERENCE for word in HealthRule.alternatives)
    assert "## `onRelease` and `onLost`" in REFERENCE
    assert {"on_release", "on_lost"} <= set(get_type_hints(Resource))
    assert pcidevice_variable("example.com/vf") in REFERENCE


def test_every_kind_has_a_section_on_the_page_of_devices() -> None:
    assert re.findall(r"^## `(\w+)`", DEVICES, re.MULTILINE) == list(KINDS)


def test_every_id_on_the_page_of_devices_is_recorded() -> None:
    recorded = {
        id_ for asked in idhosts.recorded().values() for places in asked.values() for id_ in places.values()
    }
    told = [
        cell.strip("`")
        for table in re.findall(r"^\|[^\n]*\| as in \|\n(?:\|[^\n]*\n)+", DEVICES, re.MULTILINE)
        for cell in [row[-1] for row in rows(table)][2:]
        if not cell.startswith(("`GPU-", "`MIG-"))
    ]
    assert len(told) > 20
    assert [id_ for id_ in told if id_ not in recorded] == []


@pytest.mark.parametrize(
    ("kind", "attributes"), [("usb", USB_ATTRIBUTES), ("pci", PCI_ATTRIBUTES), ("sysfs", STABLE_ATTRIBUTES)]
)
def test_every_attribute_for_templates_is_on_the_page_of_devices(
    kind: str, attributes: tuple[str, ...]
) -> None:
    section = DEVICES.partition(f"\n## `{kind}`")[2].partition("\n## ")[0]
    assert [name for name in attributes if f"`{name}`" not in section] == []
