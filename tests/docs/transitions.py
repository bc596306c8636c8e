"""The transitions of a registration, drawn from its tables.

`python -m tests.docs.transitions` prints docs/architecture.md with them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from devplug.plugin.registration import CALLS, STREAMS
from devplug.plugin.watcher_registration import TRANSITIONS
from tests.docs.pages import DOCS

TABLES: Final[Mapping[str, Mapping[Any, Mapping[Any, str]]]] = {
    "our call": CALLS,
    "its stream": STREAMS,
    "our socket": TRANSITIONS,
}
"""For what has states: for each state and each event that can happen in it, the state after it."""

DRAWN: Final = re.compile(r"(<!-- transitions: (.+?) -->\n)(.*?)(<!-- transitions: end -->)", re.DOTALL)
"""A drawing in the page, with its title, and with what is before and after it."""


def drawn(title: str) -> str:
    """Return a table as Markdown: a row for each event, a column for each state before it."""
    table = TABLES[title]
    events = dict.fromkeys(event for row in table.values() for event in row)
    rows = [
        [title, *table],
        ["---"] * (1 + len(table)),
        *([event, *(row.get(event, "") for row in table.values())] for event in events),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    sys.stdout.write(DRAWN.sub(lambda found: found[1] + drawn(found[2]) + found[4], page))
