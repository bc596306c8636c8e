"""`devplug status -w` and `devplug top` while a node changes: real processes, events, and a real terminal."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from devplug.testing import SyncKubelet
from tests.cli.programs import DEVPLUG, devplug, ended, environment, started
from tests.cli.status.made import configured, meter, plug, read_until, served, unplug
from tests.cli.status.terminals import drawn


@pytest.fixture
def on_node(kubelet: SyncKubelet, short_dir: Path) -> Iterator[SyncKubelet]:
    """A kubelet with a daemon that serves tty0."""
    file = configured(short_dir)
    plug(short_dir, "tty0")
    with served(kubelet, file, tty=1):
        yield kubelet


# ── devplug status -w ─────────────────────────────────────────────────────────────────────────────


def test_each_change_is_a_line_below_the_first_table(on_node: SyncKubelet, short_dir: Path) -> None:
    with started("status", "-w", "--kubelet-root", on_node.root) as watch:
        table = read_until(watch, "daemon ready")
        assert table.splitlines()[0].startswith("RESOURCE")
        plug(short_dir, "tty1")
        assert " example.com/tty tty1 appeared" in read_until(watch, "tty1")
        unplug(short_dir, "tty1")
        assert " example.com/tty tty1 unhealthy (unplugged)" in read_until(watch, "unplugged")
        on_node.admit(meter())
        assert "tty0 held (default/meter-0/reader)" in read_until(watch, "held")
        watch.send_signal(signal.SIGINT)
        assert ended(watch) == 0


def test_programs_get_a_document_for_each_change(on_node: SyncKubelet, short_dir: Path) -> None:
    def devices(line: str) -> list[str]:
        return [one["id"] for resource in json.loads(line)["resources"] for one in resource["devices"]]

    with started("status", "-w", "-o", "json", "--kubelet-root", on_node.root) as watch:
        assert devices(read_until(watch, "tty0").splitlines()[-1]) == ["tty0"]
        plug(short_dir, "tty1")
        assert devices(read_until(watch, "tty1").splitlines()[-1]) == ["tty0", "tty1"]
        watch.terminate()
        assert ended(watch) == 0


def test_a_node_where_nobody_answers_yet_is_waited_for(kubelet: SyncKubelet, short_dir: Path) -> None:
    with started("status", "-w", "--kubelet-root", kubelet.root) as watch:
        assert "no plugin has listed a resource here" in read_until(watch, "no daemon answers")
        with served(kubelet, configured(short_dir), tty=0):
            assert " example.com/tty appeared" in read_until(watch, "appeared")


def test_it_ends_quietly_when_nobody_reads_on(on_node: SyncKubelet, short_dir: Path) -> None:
    with subprocess.Popen(
        [*DEVPLUG, "status", "-w", "--kubelet-root", str(on_node.root)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        read_until(watch, "daemon ready")
        watch.stdout.close()
        plug(short_dir, "tty1")
        assert watch.stderr.read() == ""
    assert watch.returncode == 0


def test_on_a_terminal_the_table_is_drawn_over(on_node: SyncKubelet, short_dir: Path) -> None:
    with drawn("status", "-w", "--kubelet-root", on_node.root) as shown:
        shown.until(lambda text: "tty0" in text and "daemon ready" in text)
        plug(short_dir, "tty1")
        shown.until(lambda text: "tty1" in text)
        assert "appeared" not in shown.raw
        shown.process.send_signal(signal.SIGINT)
        assert shown.ended() == 0


def test_a_table_that_is_higher_than_the_terminal_says_so(kubelet: SyncKubelet, short_dir: Path) -> None:
    file = configured(short_dir)
    for number in range(30):
        plug(short_dir, f"tty{number}")
    with served(kubelet, file, tty=30), drawn("status", "-w", "--kubelet-root", kubelet.root) as shown:
        text = shown.until(lambda text: "more lines" in text)
        assert "12 more lines; devplug top scrolls" in text


# ── devplug top ───────────────────────────────────────────────────────────────────────────────────


def test_top_follows_a_node_and_its_keys_and_leaves_the_terminal_as_it_was(
    on_node: SyncKubelet, short_dir: Path
) -> None:
    with drawn("top", "--kubelet-root", on_node.root) as shown:
        before = shown.mode()
        first = shown.until(lambda text: "daemon ready" in text and "tty0" in text)
        assert "1 resource, 1 device: 1 healthy, 0 not, 0 held" in first
        assert "\x1b[?1049h" in shown.raw or shown.mode() != before
        plug(short_dir, "tty1")
        shown.until(lambda text: "tty1 appeared" in text and "2 devices" in text)
        on_node.admit(meter())
        shown.until(lambda text: "default/meter-0 (reader)" in text)
        unplug(short_dir, "tty1")
        shown.until(lambda text: "tty1 unhealthy (unplugged)" in text)
        shown.type("u")
        shown.until(lambda text: "unhealthy only: on" in text and "row 1 of" in text)
        shown.type("uh\x1b[B")
        shown.until(lambda text: "held only: on" in text)
        shown.resize(120, 40)
        grown = shown.until(lambda text: text.count("\n") == 39)
        assert "q quit" in grown.splitlines()[-1]
        assert shown.mode() != before
        shown.type("q")
        assert shown.ended() == 0
        assert shown.mode() == before
        assert shown.raw.rstrip().endswith(("\x1b[?1049l", "\x1b[?25h"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_top_as_q_does(on_node: SyncKubelet, number: signal.Signals) -> None:
    with drawn("top", "--kubelet-root", on_node.root) as shown:
        before = shown.mode()
        shown.until(lambda text: "tty0" in text)
        shown.process.send_signal(number)
        assert shown.ended() == 0
        assert shown.mode() == before


def test_top_without_a_terminal_says_what_to_use(tmp_path: Path) -> None:
    ran = devplug("top", "--kubelet-root", tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == "devplug: top needs a terminal; for files and pipes: devplug status -w\n"
