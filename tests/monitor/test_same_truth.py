"""An hour in a sandbox, one thing each minute: page, terminal and tables show what the kubelet knows.

The minutes are shorter than a clock's; what happens in each is drawn from a seed, which a failure names.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import pytest

from devplug.sandbox.client import SandboxClient
from devplug.sandbox.sandboxdir import SandboxDir
from tests.browser import Browser, browser, needs_chromium
from tests.cli.programs import devplug, said_until, started
from tests.cli.status.terminals import Drawn, drawn

MINUTES: Final = 60
SEED: Final = 20261121
PATIENCE_SECONDS: Final = 60.0
TABLE_EVERY: Final = 3

EACH_ONCE: Final = ("plug", "pod", "shared", "break", "mend", "unplug", "edit", "restart")
"""What may happen, in an order in which it can; without `end`, of which nobody knows for many seconds."""

PORT, SHARED = "example.com/port", "example.com/shared"

CONFIG: Final = """\
version: 1
resources:
- name: example.com/port
  discover: {{path: "{dev}/port*"}}
  health: [{{file: "{folder}/state", equals: ok, period: 1s, failureThreshold: 1, successThreshold: 1}}]
  whenUnplugged: {{keepUnhealthyFor: 1s}}
- name: example.com/shared
  discover: {{static: {{ids: [board]}}}}
  share: {{replicas: {replicas}}}
"""

Facts = dict[str, tuple[str, str]]
"""By device as it was found: its health, and who holds it, as people read it."""


@dataclass
class Script:
    """What is plugged, broken and running, and what may happen next."""

    rng: random.Random
    ports: list[str] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)
    is_broken: bool = False
    made: int = 0
    replicas: int = 4

    def next(self) -> str:
        choices = ["plug", "pod", "shared", "restart", "break" if not self.is_broken else "mend", "edit"]
        if self.ports:
            choices.append("unplug")
        # Nobody tells of a release but the kubelet's next answers, so it takes its time.
        if self.pods and self.rng.random() < 0.12:
            choices.append("end")
        return self.rng.choice(choices)


class NeverError(Exception):
    """What was waited for has not come."""


class Hour:
    """A sandbox with a daemon in it, the three views of its node, and what happens there."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.script = Script(random.Random(seed))
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        place = SandboxDir(self._folder / "s")
        up = self._stack.enter_context(started("sandbox", "up", "--dir", place.folder))
        said_until(up, "KUBECONFIG", on_error=False)
        self.client = SandboxClient(place)
        self._write(is_good=True)
        (self._folder / "state").write_text("ok")
        self.client.operate("POST", "devices", "plug", names=["port0"])
        self.script.ports.append("port0")
        node = place.node("worker-0").folder
        run = ("run", "-c", self._folder / "devplug.yaml", "--kubelet-root", node)
        self._stack.enter_context(started(*run))
        wait(lambda: PORT in self._described(), "the daemon has not registered")
        views = ("--dir", place.folder)
        ui = self._stack.enter_context(started("ui", "--listen", "127.0.0.1:0", *views))
        url = said_until(ui, "Ctrl-C", on_error=False).split(maxsplit=1)[0]
        self.page: Browser = self._stack.enter_context(browser())
        self.page.look(width=1600, height=1400)
        self.page.open(url)
        self.screen: Drawn = self._stack.enter_context(drawn("top", *views, columns=160, lines=60))
        self._views = views

    def _write(self, *, is_good: bool) -> None:
        text = CONFIG.format(
            dev=self._folder / "s" / "dev", folder=self._folder, replicas=self.script.replicas
        )
        (self._folder / "devplug.yaml").write_text(text if is_good else f"{text}- nonsense\n")

    # ── what happens ──

    def happen(self, what: str) -> None:
        script = self.script
        match what:
            case "plug":
                script.made += 1
                script.ports.append(f"port{script.made}")
                self.client.operate("POST", "devices", "plug", names=[script.ports[-1]])
            case "unplug":
                name = script.ports.pop(script.rng.randrange(len(script.ports)))
                self.client.operate("POST", "devices", "unplug", names=[name])
            case "pod":
                self._make_pod(PORT)
            case "shared":
                self._make_pod(SHARED)
            case "end":
                for name in script.pods:
                    self.client.ask("DELETE", f"/api/v1/namespaces/default/pods/{name}")
                script.pods.clear()
            case "break" | "mend":
                script.is_broken = what == "break"
                (self._folder / "state").write_text("too hot" if script.is_broken else "ok")
            case "restart":
                self.client.operate("POST", "nodes", "worker-0", "restart-kubelet")
            case "edit":
                self._write(is_good=script.rng.random() < 0.5)

    def _make_pod(self, resource: str) -> None:
        self.script.made += 1
        name = f"p{self.script.made}"
        container = {"name": "c", "image": "i", "resources": {"limits": {resource: "1"}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container]},
        }
        assert self.client.ask("POST", "/api/v1/namespaces/default/pods", pod).code == 201
        self.script.pods.append(name)

    # ── what is true, and what is shown ──

    def _described(self) -> dict[str, list[dict[str, Any]]]:
        node = self.client.operate("GET", "nodes", "worker-0")
        resources: Any = node["resources"]
        return {one["name"]: one["devices"] for one in resources}

    def truth(self) -> Facts:
        """What the kubelet knows: its own words, from the other end of the plugin's socket."""
        described = self._described()
        facts = {
            one["id"]: (one["health"], readable(one["held_by"])) for one in described[PORT] if one["health"]
        }
        held = [readable(one["held_by"]) for one in described[SHARED] if one["held_by"]]
        facts["board"] = ("Healthy", shared(held, len(described[SHARED])))
        return facts

    def on_page(self) -> Facts:
        tiles = self.page.value(
            "[...document.querySelectorAll('.tile')].map((one) => one.getAttribute('aria-label'))"
        )
        return dict(map(tile_facts, tiles))

    def on_screen(self) -> Facts:
        return table_facts(self.screen.latest("q quit"))

    def in_table(self) -> Facts:
        return table_facts(devplug("status", *self._views).stdout)

    def check(self, minute: int, what: str) -> None:
        """Claim that all views come to show what the kubelet knows, and do so together.

        It knows all when each device is as the script left it: a check of health takes a second a device.
        """
        views = {"page": self.on_page, "terminal": self.on_screen}
        if minute % TABLE_EVERY == 0:
            views["table"] = self.in_table
        seen: dict[str, Facts] = {}

        def agree() -> bool:
            truth = self.truth()
            seen.update({name: look() for name, look in views.items()}, kubelet=truth)
            health = "Unhealthy" if self.script.is_broken else "Healthy"
            if any(name not in truth or truth[name][0] != health for name in self.script.ports):
                return False
            return all(one == truth for one in seen.values()) and self.truth() == truth

        try:
            wait(agree, "")
        except NeverError:
            raise AssertionError(f"minute {minute}, {what}: {json.dumps(seen, indent=1)}") from None


def wait(claim: Callable[[], object], why: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not claim():
        if time.monotonic() > deadline:
            raise NeverError(why)


def readable(held_by: str) -> str:
    """A holder as people read it, from `NAMESPACE/POD/CONTAINER`; nothing for none."""
    pod, _, container = held_by.rpartition("/")
    return f"{pod} ({container})" if pod else ""


def shared(holders: list[str], replicas: int) -> str:
    return f"held {len(holders)} of {replicas}" if holders else ""


_ROW: Final = re.compile(
    r"(?:\S+ +)?(?P<name>port\d+|board)(?: x \d+ replicas)? +\S+ +\S+ +"
    r"(?P<health>Healthy|Unhealthy) +\S+ +(?P<held>.*)"
)


def table_facts(text: str) -> Facts:
    """The rows of devices in a table of `devplug status` or on the screen of `devplug top`."""
    found = [_ROW.fullmatch(line.strip()) for line in text.splitlines()]
    return {row["name"]: (row["health"], plain(row["held"].strip())) for row in found if row}


def plain(held: str) -> str:
    """Who holds a device, of replicas only how many."""
    if found := re.match(r"held \d+ of \d+", held):
        return found[0]
    return "" if held == "-" else held.removesuffix("; restart to refresh")


def tile_facts(sentence: str) -> tuple[str, tuple[str, str]]:
    """What a tile of the page says of itself, to those who see it and to those who hear it."""
    found = re.match(
        r"(?P<name>\S+), \S+, (?P<health>Healthy|Unhealthy)(?:: [^;]*)?;"
        r"(?: (?P<count>\d+) of (?P<replicas>\d+) replicas held;)? "
        r"(?:not held|(?P<unnamed>may be held)|held by (?P<holders>[^;]*))",
        sentence,
    )
    assert found, sentence
    held = found["holders"] or found["unnamed"] or ""
    if found["replicas"]:
        held = f"held {found['count']} of {found['replicas']}" if found["count"] != "0" else ""
    return found["name"], (found["health"], held)


@pytest.mark.nightly  # takes 10 s
@needs_chromium
def test_page_terminal_and_tables_show_the_same_truth_of_each_thing_that_happens(short_dir: Path) -> None:
    with Hour(short_dir, SEED) as hour:
        hour.check(0, "the beginning")
        for minute, what in enumerate(EACH_ONCE, 1):
            before = hour.truth()
            hour.happen(what)
            if what not in {"edit", "restart"}:
                wait(lambda: hour.truth() != before, f"{what} changed nothing")  # noqa: B023
            hour.check(minute, what)


@needs_chromium
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_page_terminal_and_tables_show_the_same_truth_for_an_hour(short_dir: Path) -> None:
    with Hour(short_dir, SEED) as hour:
        hour.check(0, "the beginning")
        for minute in range(1, MINUTES + 1):
            what = hour.script.next()
            hour.happen(what)
            hour.check(minute, what)
