"""The page without scripts: useful tables, in which nothing that a device is called can be markup."""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser
from importlib import resources

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.monitor.history import History
from devplug.monitor.node_view import UNANSWERED
from devplug.monitor.page.markup import page
from devplug.monitor.page.view import state
from devplug.status import DriverStatus, Holder, ProcessStatus
from tests.monitor.page.nodes import EVIL, NOW, READER, device, held, node, resource, sick

FRAME = resources.files("devplug.monitor.page").joinpath("static/page.html").read_text()


class Reader(HTMLParser):
    """The tags that a page has, and the texts of its cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.cells: list[str] = []
        self.scripts: list[str | None] = []
        self._is_cell = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self._is_cell = tag == "td"
        if tag == "td":
            self.cells.append("")
        if tag == "script":
            self.scripts.append(dict(attrs).get("src"))

    def handle_endtag(self, tag: str) -> None:
        self._is_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.cells[-1] += data


def page_of(history: History) -> Reader:
    return Reader(page(FRAME, state([*history.latest], history, NOW, began_at=NOW)))


def test_the_tables_say_what_the_page_says() -> None:
    history = History().after(node(resource(held("a", since=NOW - 70), sick("b", numa_nodes=(1,)))))
    cells = page_of(history).cells
    assert cells[:5] == ["example.com/port", "2", "1", "1", "registered"]
    assert cells[5:12] == ["1", "example.com/port", "b", "Unhealthy", "-", "-", "link down"]
    assert cells[12:] == ["-", "example.com/port", "a", "Healthy", "1m", "lab/meter-0 (reader)", "-"]


def test_a_driver_is_told_of_without_scripts_and_as_text() -> None:
    driver = DriverStatus(name=EVIL, is_registered=False)
    process = ProcessStatus(process=1, version="1", python="3", started_at=NOW, drivers=(driver,))
    history = History().after(node(processes=(process,)))
    text = page(FRAME, state([*history.latest], history, NOW, began_at=NOW))
    assert f"<p>DRA driver {escape(EVIL)} NOT registered; 0 devices in 0 slices; 0 claims</p>" in text


def test_replicas_stand_in_brackets_and_what_waits_for_devices_is_no_trouble() -> None:
    shared = resource(
        *(device(f"kvm::{number}") for number in range(10)), name="example.com/kvm", replicas=10
    )
    waiting = resource(name="example.com/tty", is_registered=False)
    others = resource(held("g0"), name="vendor.io/gpu", is_registered=None, process=None)
    ours = replace(others, name="vendor.io/left", fault=UNANSWERED)
    cells = page_of(History().after(node(shared, waiting, others, ours))).cells
    rows = [cells[start : start + 5] for start in range(0, 20, 5)]
    assert [(row[1], row[4]) for row in rows] == [
        ("10 (1 x 10 replicas)", "registered"),
        ("0", "waits for its first device"),
        ("1+", "another plugin's"),
        ("1+", "not known"),
    ]


def test_the_page_has_no_style_and_no_script_of_its_own() -> None:
    read = page_of(History().after(node(resource(sick("b")))))
    assert read.scripts == ["page.js"]
    assert not [tag for tag, names in read.tags if tag == "style" or {"style", "onclick"} & {*names}]


def test_hostile_names_and_reasons_are_text() -> None:
    evil = Holder(EVIL, EVIL, EVIL)
    before = History().after(node(resource(device(EVIL), name=EVIL), name=EVIL))
    after = node(
        resource(sick(EVIL, EVIL, is_held=True, holders=(evil,)), name=EVIL, fault=EVIL),
        name=EVIL,
        at=NOW + 1,
        problems=(EVIL,),
    )
    read = page_of(before.after(after))
    assert read.scripts == ["page.js"]
    assert "img" not in {tag for tag, _ in read.tags}
    assert EVIL in read.cells


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_no_text_adds_or_ends_an_element(name: str, reason: str, pod: str) -> None:
    def tags(one: str, why: str, holder: Holder) -> list[tuple[str, tuple[str, ...]]]:
        sickened = sick(one or "x", why or "why", is_held=True, holders=(holder,))
        return page_of(History().after(node(resource(sickened)))).tags

    assert tags(name, reason, Holder("lab", pod, "main")) == tags("x", "why", READER)


def test_a_name_that_looks_like_a_mark_of_the_frame_stays_text() -> None:
    read = page_of(History().after(node(name="<!-- tables -->")))
    assert "&lt;!-- tables --&gt;" in page(FRAME, state(["<!-- tables -->"], History(), NOW, began_at=NOW))
    assert read.scripts == ["page.js"]
