"""What the pages quote of messages is what the source says, so that a search for a message finds its page."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Final

from devplug.holds.client import Trouble
from tests.docs.pages import DOCS, ROOT, spans_of

HOLE: Final = "\0"


@functools.cache
def source_texts() -> str:
    """Return every text of the package, docstrings left out, one after the other."""
    paths = sorted((ROOT / "src" / "devplug").rglob("*.py"))
    codes = [compile(path.read_bytes(), path, "exec", optimize=2) for path in paths]
    return f"{HOLE}\n".join(text for code in codes for text in _texts(code.co_consts))


def _texts(constants: Iterable[object]) -> Iterator[str]:
    """Yield the texts among the constants of a code object; values split an f-string into several texts."""
    for one in constants:
        if isinstance(one, str):
            yield one
        elif isinstance(one, CodeType):
            yield from _texts(one.co_consts)
        elif isinstance(one, tuple | frozenset):
            yield from _texts(one)


PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
ROWS = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and line.count(" | ") >= 2]

OTHERS = {
    "had untolerated taint": "kube-scheduler",
    "CreateContainerConfigError": "kubelet",
    "unresolvable CDI devices": "container-device-interface",
    "no such file or directory": "runc",
}
"""What somebody else says, and who."""

HOLES = re.compile(
    r"…|, (?=listening)|example\.com/fpga|FILE:4:28"
    r"|rpc error: code = |(?:NotFound )?desc = |(?:allocate|pre-start): ?"
)
"""What stands for something else, or is put before a message in another place."""


def messages() -> list[str]:
    """Return every message in the first column of a table under `It says`; others' are left out."""
    found = []
    section = ""
    for line in PAGE.splitlines():
        if line.startswith("| "):
            cells = line.split(" | ")
            if cells[0] in {"| It says", "| You see", "| Error", "| Trouble"}:
                section = cells[0]
            elif section == "| It says":
                found += [span for span in spans_of(cells[0]) if re.search(r"[a-z]{3} |[a-z]…|: ", span)]
    return [one for one in found if one not in OTHERS and not one.startswith(("kubectl ", "devplug "))]


def missing(message: str) -> list[str]:
    """Return the parts of a message, between its holes, that no text of the source has."""
    parts = (part.strip(" ,") for part in HOLES.split(message))
    return [part for part in parts if len(part) > 2 and part not in source_texts()]


def test_every_message_of_the_tables_is_one_that_is_said() -> None:
    assert len(messages()) > 40
    assert [(one, parts) for one in messages() if (parts := missing(one))] == []


def test_a_message_that_nobody_says_is_found() -> None:
    assert missing("the moon is … away")
    assert not missing("no right to create a socket in …")


def test_every_trouble_with_podresources_is_explained() -> None:
    table = PAGE.partition("| Trouble |")[2].partition("\n\n")[0]
    assert {trouble.value for trouble in Trouble} == set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def test_every_entry_is_found_from_what_is_seen() -> None:
    index = PAGE.partition("\n## ")[0]
    for heading in re.findall(r"^## (.+)$", PAGE, re.MULTILINE):
        if heading != "Still stuck":
            assert f"](#{heading.lower().replace(',', '').replace(' ', '-')})" in index, heading
