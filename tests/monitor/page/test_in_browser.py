"""The page in a real Chromium, of a real daemon and an emulated kubelet: it follows, and needs no mouse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from devplug.status import DeviceClaim, DriverStatus, ProcessStatus
from devplug.testing.kubelet import SyncKubelet
from tests.browser import Browser, browser, needs_chromium
from tests.monitor.page.madeup import made_up
from tests.monitor.page.nodes import EVIL, NOW, READER, RESOURCE, Source, device, held, node, resource, sick
from tests.monitor.page.scene import FPGA, KVM, SERIAL, Scene, asked, page_of

pytestmark = needs_chromium

RELEASE_SECONDS = 60.0
"""No call tells of a release: the daemon waits for two of the kubelet's answers, 10 s apart."""

FOCUSED = "document.activeElement.tile && document.activeElement.tile.id"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as one:
        yield one


@contextmanager
def watched(chromium: Browser, url: str) -> Iterator[Browser]:
    """The page in the browser; nothing may have gone wrong in it at the end, or have gone elsewhere."""
    chromium.errors.clear()
    chromium.requests.clear()
    chromium.look()
    chromium.open(url)
    chromium.wait("document.getElementById('link').dataset.state === 'live'")
    yield chromium
    assert chromium.errors == []
    assert {urlsplit(one).netloc for one in chromium.requests} == {urlsplit(url).netloc}
    chromium.open("about:blank")


def tile(name: str) -> str:
    return f"[...document.querySelectorAll('.tile')].find((one) => one.tile.id === {json.dumps(name)})"


def text(name: str) -> str:
    return f"({tile(name)}?.innerText ?? '')"


# ── it follows ──


@pytest.mark.parametrize("waits_for_release", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_the_page_follows_a_node_without_a_reload(
    chromium: Browser, kubelet: SyncKubelet, short_dir: Path, *, waits_for_release: bool
) -> None:
    scene = Scene(short_dir, kubelet)
    scene.start()
    with page_of(kubelet) as url, watched(chromium, url) as page:
        page.wait(f"{tile('tty0')} && {tile('fpga-3')} && {tile('kvm')}")
        page.value("window.isTheSamePage = true")
        boards = "[...document.querySelectorAll('.board h3')].map((one) => one.textContent)"
        assert page.value(boards) == ["NUMA node 0", "NUMA node 1", "No NUMA node"]

        scene.plug("tty2")
        page.wait(tile("tty2"))

        pod = kubelet.admit({SERIAL: 3, KVM: 4})
        page.wait(f"{text('tty0')}.includes('default/pod-1 (main)')")
        page.wait(f"{text('kvm')}.includes('4/10')")

        scene.fail("too hot")
        page.wait(f"{text('tty1')}.includes('too hot') && {tile('tty1')}.matches('.unhealthy.held')")
        page.wait(f"{tile('tty1')}.querySelector('.strip .u')")
        page.wait("document.title.startsWith('(3 unhealthy) worker-0')")
        scene.mend()
        page.wait(f"!{tile('tty1')}.matches('.unhealthy')")

        if waits_for_release:
            pod.delete()
            page.wait(f"{text('tty0')}.includes('free')", seconds=RELEASE_SECONDS)
            page.wait("document.getElementById('live').textContent.includes('released by')")

        shown = page.value("[...document.querySelectorAll('.tile')].map((one) => one.tile)")
        seen = asked(f"{url}state.json")
        groups = [group for board in seen["nodes"][0]["boards"] for group in board["groups"]]
        assert without_times(shown) == without_times([one for group in groups for one in group["tiles"]])
        assert {group["resource"] for group in groups} == {SERIAL, FPGA, KVM}
        assert page.value("window.isTheSamePage")


def without_times(tiles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name != "strip"} for one in tiles]


def test_a_page_whose_server_comes_back_goes_on(chromium: Browser) -> None:
    with made_up(Source(node(resource(device("a"))))) as (url, _):
        chromium.look()
        chromium.open(url)
        chromium.wait(tile("a"))
    chromium.wait("document.getElementById('link').dataset.state === 'lost'")
    port = urlsplit(url).port
    with made_up(Source(node(resource(device("b")))), port=port or 0):
        chromium.wait(f"{tile('b')} && document.getElementById('link').dataset.state === 'live'")
    chromium.open("about:blank")


def test_a_release_is_told(chromium: Browser) -> None:
    source = Source(node(resource(held("tty0"))))
    with made_up(source) as (url, change), watched(chromium, url) as page:
        page.wait(f"{text('tty0')}.includes('lab/meter-0')")
        change(lambda: source.become(resource(device("tty0"))))
        page.wait(f"{text('tty0')}.includes('free')")
        page.wait("document.getElementById('live').textContent.includes('released by')")


def test_a_claim_is_shown_with_its_request_and_for_how_long(chromium: Browser) -> None:
    using = DeviceClaim(namespace="lab", name="port", request="r", device="a-1", since=NOW - 300)
    devices = held("a", claims=(using,)), device("b", claims=(using,), is_held=True), device("c")
    ours = resource(*devices, driver="devices.example.com")
    with made_up(Source(node(ours, at=NOW))) as (url, _), watched(chromium, url) as page:
        page.wait(f"{text('b')}.includes('claim lab/port')")
        assert "lab/meter-0 (reader)" in page.value(text("a"))
        page.value(f"{tile('b')}.click()")
        page.wait("document.querySelector('dialog').open")
        said = page.value("document.querySelector('dialog').innerText")
        assert "claim lab/port, request r, device a-1, for " in said
        assert "may be held" not in said
        assert "registered for claims" in page.value("document.querySelector('.resources').innerText")


# ── by the keyboard ──


def test_a_driver_stands_between_the_summary_and_the_boards(chromium: Browser) -> None:
    well = DriverStatus(name="d.example.com", is_registered=True, slices=1, devices=2)
    away = DriverStatus(name="e.example.com", is_registered=False, fault="it is away")
    process = ProcessStatus(process=1, version="1", python="3", started_at=NOW, drivers=(well, away))
    source = Source(node(resource(device("a")), processes=(process,)))
    with made_up(source) as (url, _), watched(chromium, url) as page:
        page.wait(tile("a"))
        lines = "[...document.querySelectorAll('.drivers li')].map((one) => [one.innerText, one.className])"
        assert page.value(lines) == [
            ["DRA driver d.example.com registered; 2 devices in 1 slice; 0 claims", ""],
            ["DRA driver e.example.com NOT registered; 0 devices in 0 slices; 0 claims: it is away", "bad"],
        ]
        order = "[...document.querySelector('.node').children].map((one) => one.classList[0])"
        assert page.value(order)[2:5] == ["resources", "drivers", "boards"]


def test_all_can_be_done_by_the_keyboard(chromium: Browser) -> None:
    devices = [device(f"port-{n}", numa_nodes=(n // 10,), attributes={"serial": f"A{n}"}) for n in range(20)]
    with made_up(Source(node(resource(*devices)))) as (url, _), watched(chromium, url) as page:
        page.wait("document.querySelectorAll('.tile').length === 20")
        while page.value(FOCUSED) is None:
            page.press("Tab")
        assert page.value(FOCUSED) == "port-0"
        page.press("ArrowRight")
        assert page.value(FOCUSED) == "port-1"
        page.press("ArrowLeft")
        page.press("ArrowLeft")
        assert page.value(FOCUSED) == "port-0"
        page.press("End")
        assert page.value(FOCUSED) == "port-19"
        page.press("Home")
        page.press("ArrowDown")
        below = page.value(FOCUSED)
        assert below not in {"port-0", "port-1"}
        page.press("ArrowUp")
        assert page.value(FOCUSED) == "port-0"
        assert page.value("document.querySelectorAll(\".tile[tabindex='0']\").length") == 1

        page.press("Enter")
        page.wait("document.querySelector('dialog').open")
        assert "serial" in page.value("document.querySelector('dialog').innerText")
        page.press("Escape")
        page.wait("!document.querySelector('dialog').open")
        assert page.value(FOCUSED) == "port-0"

        page.press("/")
        page.type("port-13")
        visible = "[...document.querySelectorAll('.tile')].filter((one) => one.offsetParent).length"
        page.wait(f"{visible} === 1")
        page.press("Enter")
        assert page.value(FOCUSED) == "port-13"
        page.press("/")
        page.press("Escape")
        page.wait(f"{visible} === 20")
        assert page.value(FOCUSED) == "port-13"


def test_what_has_the_focus_keeps_it_when_the_page_changes(chromium: Browser) -> None:
    source = Source(node(resource(device("a"), device("b"))))
    with made_up(source) as (url, change), watched(chromium, url) as page:
        page.wait(tile("b"))
        page.value(f"{tile('b')}.focus()")
        change(lambda: source.become(resource(device("a"), device("aa"), sick("b"))))
        page.wait(tile("aa"))
        assert page.value(FOCUSED) == "b"
        assert "link down" in page.value("document.activeElement.innerText")


def test_the_summary_says_what_is_shared_what_waits_and_what_only_the_kubelet_told(chromium: Browser) -> None:
    shared = resource(
        *(device(f"kvm::{number}") for number in range(10)), name="example.com/kvm", replicas=10
    )
    waiting = resource(name="example.com/tty", is_registered=False)
    others = resource(held("g0"), name="vendor.io/gpu", is_registered=None, process=None)
    with made_up(Source(node(shared, waiting, others))) as (url, _), watched(chromium, url) as page:
        page.wait(tile("kvm"))
        cells = (
            "[...document.querySelectorAll('.resources tbody tr')].map((row) => row.children[%d].innerText)"
        )
        assert page.value(cells % 3) == ["10 (1 × 10 replicas)", "0", "1+"]
        assert page.value(cells % 4) == ["registered", "waits for its first device", "another plugin’s"]
        assert page.value("document.querySelectorAll('.resources .bad').length") == 0


# ── for everybody ──


def test_a_screen_reader_is_told_what_is_seen(chromium: Browser) -> None:
    status = node(resource(held("tty0"), sick("tty1", "unplugged")))
    with made_up(Source(status)) as (url, _), watched(chromium, url) as page:
        page.wait(tile("tty1"))
        buttons = page.names("button")
        assert f"tty0, {RESOURCE}, Healthy; held by lab/meter-0 (reader)" in buttons
        assert f"tty1, {RESOURCE}, Unhealthy: unplugged; not held" in buttons
        assert all(buttons)
        assert page.names("searchbox") == ["Filter devices"]
        assert {"No NUMA node", "Node worker-0"} <= {*page.names("region")}
        assert page.names("rowheader") == [RESOURCE]
        assert all(page.names("link"))


def test_a_change_is_a_sentence_with_its_subject(chromium: Browser) -> None:
    source = Source(node(resource(device("tty0"))))
    with made_up(source) as (url, change), watched(chromium, url) as page:
        page.wait(tile("tty0"))
        change(lambda: source.become(resource(sick("tty0", "unplugged")), resource(name="example.com/fpga")))
        page.wait("document.querySelectorAll('#changes li').length == 2")
        sentences = page.value("[...document.querySelectorAll('#changes .what')].map((one) => one.innerText)")
        assert sentences == [
            f"tty0 is unhealthy: unplugged\n{RESOURCE}",
            "resource example.com/fpga appeared",
        ]
        told = page.value("document.getElementById('live').textContent")
        assert told == f"tty0 of {RESOURCE} is unhealthy: unplugged. resource example.com/fpga appeared"


@pytest.mark.parametrize("is_dark", [False, True])
def test_all_text_stands_out_from_its_ground(chromium: Browser, *, is_dark: bool) -> None:
    """At least 4.5 to 1, as WCAG 2.2 wants it (1.4.3)."""
    status = node(
        resource(
            held("a"), sick("b", is_held=True, holders=(READER,)), device("c"), device("d", health="Unknown")
        ),
        problems=("run as root",),
    )
    source = Source(status)
    with made_up(source) as (url, change), watched(chromium, url) as page:
        page.look(is_dark=is_dark)
        change(
            lambda: source.become(resource(sick("a"), held("b"), device("c"), device("d", health="Unknown")))
        )
        page.wait("document.querySelectorAll('#changes li').length")
        assert page.value(LOW_CONTRAST) == []


LOW_CONTRAST = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const color = rgba(getComputedStyle(element).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest(".hidden")) continue;
    const [one, two] = [light(rgba(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) low.push(`${walker.currentNode.data.trim()}: ${ratio.toFixed(2)}`);
  }
  return low;
})()
"""


@pytest.mark.parametrize("width", [320, 768, 1920])
def test_nothing_sticks_out_of_the_window(chromium: Browser, width: int) -> None:
    long = "usb-FTDI_FT232R_USB_UART_A7004kxQ-if00-port0-and-then-some-63-b"
    names = ("x" * 63 + ".example.com/" + "y" * 63, RESOURCE)
    status = node(
        *(resource(held(long), sick("b", "r" * 300), name=name) for name in names), problems=("p" * 400,)
    )
    source = Source(status)
    with made_up(source) as (url, change), watched(chromium, url) as page:
        page.look(width=width)
        change(lambda: source.become(*(resource(sick(long, "r" * 300), name=name) for name in names)))
        page.wait(f"{tile(long)}?.matches('.unhealthy')")
        assert page.value("document.documentElement.scrollWidth") <= width


# ── hostile texts, great numbers ──


def test_hostile_texts_stay_texts(chromium: Browser) -> None:
    status = node(resource(sick(EVIL, EVIL), name=EVIL, fault=EVIL), name=EVIL, problems=(EVIL,))
    source = Source(status)
    with made_up(source) as (url, change), watched(chromium, url) as page:
        page.wait(tile(EVIL))
        change(lambda: source.become(resource(device(EVIL, attributes={EVIL: EVIL}), name=EVIL)))
        page.wait("document.querySelectorAll('#changes li').length")
        page.value(f"{tile(EVIL)}.click()")
        page.wait("document.querySelector('dialog').open")
        assert page.value("document.querySelector('dialog dt + dd').textContent") == EVIL
        assert page.value("document.querySelectorAll('img, script:not([src=\"page.js\"])').length") == 0


def test_ten_thousand_devices_are_drawn_in_part_and_found_by_the_filter(chromium: Browser) -> None:
    devices = [device(f"port-{n}") for n in range(10_000)]
    devices[7000] = sick("port-7000")
    with made_up(Source(node(resource(*devices)))) as (url, _), watched(chromium, url) as page:
        page.wait(tile("port-7000"))
        assert page.value("document.querySelectorAll('.tile').length") <= 600
        assert page.value(tile("port-9999")) is None
        page.press("/")
        page.type("port-9999")
        page.wait(tile("port-9999"))
        page.press("Escape")
        page.wait("document.querySelectorAll('.tile').length > 100")


def test_a_browser_without_scripts_shows_the_tables(chromium: Browser) -> None:
    with made_up(Source(node(resource(sick("plain1", "unplugged"))))) as (url, _):
        chromium.errors.clear()
        chromium.call("Emulation.setScriptExecutionDisabled", value=True)
        try:
            chromium.call("Page.navigate", url=url)
            while "plain1" not in (cells := chromium.names("cell")):
                pass
            assert {"Unhealthy", "unplugged"} <= {*cells}
            assert chromium.names("searchbox") == []
        finally:
            chromium.call("Emulation.setScriptExecutionDisabled", value=False)
            chromium.open("about:blank")
        assert chromium.errors == []
