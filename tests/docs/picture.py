"""The demo of README.md: recorded once as facts, drawn as text and as a picture by what draws it for people.

`python -m tests.docs.picture` draws docs/images/demo.svg and the text in README.md anew; with `--record` it
plays the demo first.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from contextlib import redirect_stdout
from typing import Any, Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from devplug.cli.demo_report import Reporter, TextReporter
from tests.docs.pages import DOCS, ROOT

RECORDING: Final = DOCS / "images" / "demo.json"
"""What `devplug demo --output json` printed."""

PICTURE: Final = DOCS / "images" / "demo.svg"
README: Final = ROOT / "README.md"

SHOWN: Final = re.compile(r"(<!-- demo: .*?-->\n```text\n)(.*?)(```\n<!-- demo: end -->)", re.DOTALL)
"""The demo's text in README.md, with what is before and after it."""

_COLUMNS: Final = 100

_THEME: Final = TerminalTheme(
    (28, 31, 38),
    (225, 228, 232),
    [(0, 0, 0), (235, 110, 110), (130, 200, 140), (230, 190, 110)] + [(225, 228, 232)] * 4,
)

# Rich's own has fonts from another server, which a page may not load and a reader may not want.
_FORMAT: Final = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="devplug demo">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}
.{unique_id}-title {{ font-family: ui-sans-serif, sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def recording() -> dict[str, Any]:
    """Return the facts of the recorded demo."""
    facts: dict[str, Any] = json.loads(RECORDING.read_text(encoding="utf-8"))
    return facts


def told(facts: dict[str, Any]) -> str:
    """Return the text that the demo prints of these facts where no terminal is."""
    text = io.StringIO()
    with redirect_stdout(text):
        reporter = TextReporter(color="never")
        reporter._console = Console(width=_COLUMNS, force_terminal=False)
        _tell(reporter, facts)
    return text.getvalue()


def drawn(facts: dict[str, Any]) -> str:
    """Return the picture of a terminal in which the demo tells these facts."""
    reporter = TextReporter(color="auto")
    reporter._console = console = Console(
        record=True, width=_COLUMNS, force_terminal=True, color_system="truecolor", file=io.StringIO()
    )
    console.print("[bold]$ devplug demo[/]")
    _tell(reporter, facts)
    picture = console.export_svg(title="devplug demo", theme=_THEME, code_format=_FORMAT, unique_id="demo")
    return re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE)


def _tell(reporter: Reporter, facts: dict[str, Any]) -> None:
    runs, refused = facts["pods"]
    reporter.found(facts["devices"])
    reporter.registered(facts["registration"])
    reporter.pod_runs(runs)
    reporter.pod_refused(refused)
    reporter.hot_plugged(facts["hot_plug"])
    reporter.restarted(facts["restart"])
    reporter.stopped(facts["stop"])
    assert reporter.is_good()


def _record() -> None:
    played = subprocess.run(
        [sys.executable, "-m", "devplug", "demo", "--output", "json"], stdout=subprocess.PIPE, check=True
    )
    RECORDING.write_text(json.dumps(json.loads(played.stdout), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if "--record" in sys.argv[1:]:
        _record()
    facts = recording()
    PICTURE.write_text(drawn(facts), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    README.write_text(SHOWN.sub(lambda found: found[1] + told(facts) + found[3], text), encoding="utf-8")
