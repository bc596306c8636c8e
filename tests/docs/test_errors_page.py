"""docs/errors.md has every exception with its branch and status, and no text that the source has not."""

from __future__ import annotations

import re

from devplug import errors
from devplug.errors import DevplugError
from devplug.wire.statuses import STATUS_OF_ERROR
from tests.docs.pages import DOCS, spans_of
from tests.docs.test_messages import missing

PAGE = (DOCS / "errors.md").read_text(encoding="utf-8")

FILLED = re.compile(
    r'"[^"]*"|\bexample\.com/\w+|\b(?=\w*\d)[0-9a-f]{6}\b|-?\b\d+(?:s\b)?|AllocateRequest'
    r"|\bis (?=unhealthy)|\((?:node missing|unplugged|its node is another device now)\);?"
)
"""What fills the holes of a text in the page's examples."""


def upper(status: str) -> str:
    """`NOT_FOUND` of `NotFound`: Go spells a status one way, and gRPC's own pages the other."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", status).upper()


def exceptions() -> list[type[DevplugError]]:
    found = [getattr(errors, name) for name in errors.__all__]
    return [one for one in found if isinstance(one, type) and issubclass(one, DevplugError)]


def shown_exceptions() -> str:
    rows = []
    for one in sorted(exceptions(), key=lambda error: [base.__name__ for base in reversed(error.__mro__)]):
        branch = one.__mro__[1].__name__
        doc = " ".join((one.__doc__ or "").split("\n\n")[0].split())
        status = next((upper(status) for kind, status in STATUS_OF_ERROR if issubclass(one, kind)), "")
        rows.append(
            f"| `{one.__name__}` | {'' if branch == 'Exception' else f'`{branch}`'} | {doc} | {status} |\n"
        )
    return "| Exception | Is a | What it means | Status |\n|---|---|---|---|\n" + "".join(rows)


def test_every_exception_is_on_the_page_with_its_branch_and_status() -> None:
    shown = re.search(r"<!-- exceptions: .*?-->\n(.*?)<!-- exceptions: end -->", PAGE, re.DOTALL)
    assert shown
    assert shown[1] == shown_exceptions()


def test_every_text_of_an_answer_is_one_that_the_source_has() -> None:
    texts = []
    for line in PAGE.splitlines():
        cells = line.split(" | ")
        if len(cells) >= 3 and re.fullmatch(r"[A-Z_]{3,}|as for Allocate", cells[1]):
            texts += [span for span in spans_of(cells[2]) if len(span) > 12]
    assert len(texts) > 20
    faults = []
    for text in texts:
        holed = FILLED.sub("…", text)
        holed = re.sub(r"^(allocate|prefer|pre-start|list-and-watch): ", "", holed)
        faults += [(text, part) for part in missing(holed)]
    assert not faults
