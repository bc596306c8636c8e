"""How a log line looks: a constant message, its facts, and never more than one line but for a traceback."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.logs import REPEAT_SECONDS, TEXT_LIMIT, FactFormatter, JsonFormatter, RepeatFilter


def line(facts: Mapping[str, object], level: int = logging.INFO) -> str:
    """What is printed for a record with these facts, without its time."""
    record = logging.makeLogRecord({"msg": "registered", "levelno": level, **facts})
    record.levelname = logging.getLevelName(level)
    return FactFormatter().format(record).partition(" ")[2]


def test_a_line_is_time_level_message_and_facts() -> None:
    assert line({"resource_name": "example.com/a", "devices": 2}) == (
        "INFO    registered  resource_name=example.com/a devices=2"
    )


def test_a_line_without_facts_is_its_message() -> None:
    assert line({}, logging.WARNING) == "WARNING registered"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        (7, "7"),
        (1.5, "1.5"),
        (None, "None"),
        (["a"], "['a']"),
        ("two words", '"two words"'),
        ("", '""'),
        ('say "a"', r'"say \"a\""'),
        ("a=b", '"a=b"'),
        ("one\ntwo", r'"one\ntwo"'),
        ("\x1b[31mred", r'"\u001b[31mred"'),
        ("grün", "grün"),
    ],
)
def test_a_fact_is_quoted_where_it_would_not_read_as_one(value: object, shown: str) -> None:
    assert line({"fact": value}) == f"INFO    registered  fact={shown}"


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}_", fullmatch=True), st.text(), max_size=4))
def test_no_fact_can_begin_another_line(facts: dict[str, str]) -> None:
    assert len(line(facts).splitlines()) == 1


def test_a_traceback_stands_below_the_line() -> None:
    try:
        raise ValueError("bad day")
    except ValueError:
        text = line({"exc_info": sys.exc_info(), "fact": 1})
    first, *rest = text.splitlines()
    assert first == "INFO    registered  fact=1"
    assert rest[0].startswith("Traceback")
    assert rest[-1] == "ValueError: bad day"


SHOW = """
import logging, sys
{before}
from devplug.logs import show_logs
show_logs({arguments})
show_logs()
logging.getLogger("devplug.x").info("registered", extra={{"devices": 2}})
logging.getLogger("devplug.audit").info("allocated")
logging.getLogger("devplug.x").debug("not shown")
"""


def shown(before: str = "", arguments: str = "") -> str:
    program = SHOW.format(before=before, arguments=arguments)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == ""
    return done.stderr


def test_lines_go_to_standard_error_once_where_nobody_set_up_logging() -> None:
    text, _ = shown().splitlines()
    assert text.endswith(" INFO    registered  devices=2")


def test_lines_are_json_where_that_is_asked_for() -> None:
    told, audit = map(json.loads, shown(arguments='form="json"').splitlines())
    assert told.pop("time").endswith("Z")
    assert told == {"level": "INFO", "logger": "devplug.x", "message": "registered", "devices": 2}
    assert audit["logger"] == "devplug.audit"


def test_audit_lines_are_written_at_every_level() -> None:
    (text,) = shown(arguments="logging.ERROR").splitlines()
    assert text.endswith(" INFO    allocated")


def test_a_program_that_set_up_logging_itself_keeps_its_own() -> None:
    before = "logging.basicConfig(format='mine %(message)s', level=logging.INFO)"
    assert shown(before) == "mine registered\nmine allocated\n"


def test_a_program_may_keep_its_log_quiet() -> None:
    assert shown("logging.basicConfig(level=logging.ERROR)") == ""


# ── JSON ──


def parsed(facts: Mapping[str, object]) -> Any:
    """The object that a record with these facts becomes, without its time."""
    record = logging.makeLogRecord({"msg": "registered", "levelname": "INFO", "name": "devplug.x", **facts})
    text = JsonFormatter().format(record)
    assert len(text.splitlines()) == 1
    told = json.loads(text)
    assert list(told)[:4] == ["time", "level", "logger", "message"]
    del told["time"]
    return told


class Mute:
    """Something whose text nobody gets."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class Broken(list[int]):
    """A list that breaks when it is read."""

    def __iter__(self) -> Any:
        raise RuntimeError("no")


def in_itself() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("plain", "plain"),
        ("one\ntwo", "one\ntwo"),
        (7, 7),
        (True, True),
        (None, None),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (2**70, str(2**70)),
        ([10**5000], ["<int without a text: ValueError>"]),
        ([1, ("a", None)], [1, ["a", None]]),
        ({"a": 1}, "{'a': 1}"),
        (b"raw", "b'raw'"),
        ("\udcff", "\\udcff"),
        (logging.INFO, 20),
        (Mute(), "<Mute without a text: RuntimeError>"),
        ([Mute()], ["<Mute without a text: RuntimeError>"]),
        (Broken([1]), "[1]"),
        (in_itself(), [[[["[[...]]"]]]]),
    ],
)
def test_a_fact_keeps_its_kind_in_json_where_json_has_it(value: object, told: object) -> None:
    assert parsed({"fact": value})["fact"] == told


def test_a_fact_cannot_take_the_place_of_what_every_line_has() -> None:
    told = parsed({"level": "mine", "time": 3, "logger": None})
    assert (told["level"], told["level_"], told["time_"], told["logger_"]) == ("INFO", "mine", 3, None)


def test_a_time_is_utc_with_microseconds() -> None:
    record = logging.makeLogRecord({"msg": "m", "created": 1700000000.25})
    assert json.loads(JsonFormatter().format(record))["time"] == "2023-11-14T22:13:20.250000Z"


def test_an_exception_is_text_on_the_same_line() -> None:
    try:
        raise ValueError("bad\nday")
    except ValueError:
        told = parsed({"exc_info": sys.exc_info()})
    assert told["exception"].startswith("Traceback")
    assert told["exception"].endswith("bad\nday")


def test_a_message_whose_arguments_do_not_fit_is_told_as_it_is() -> None:
    assert parsed({"msg": "%d of %d", "args": ("x",)})["message"] == "%d of %d"


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.builds(Mute)
    | st.sets(st.integers(), max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8).map(lambda name: f"{name}_"), anything, max_size=4), st.text())
def test_every_record_becomes_one_line_that_json_reads(facts: dict[str, object], message: str) -> None:
    told = parsed({**facts, "msg": message.replace("%", "")})
    assert len(told) == 3 + len(facts)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}_", fullmatch=True), anything, max_size=4))
def test_no_fact_breaks_a_line_of_text(facts: dict[str, object]) -> None:
    assert len(line(facts).splitlines()) == 1


# ── what other programs choose is bounded and printable ──


def line_of(
    facts: Mapping[str, object], message: str = "m", error: Exception | None = None
) -> tuple[str, str]:
    """The line in both forms."""
    record = logging.LogRecord(
        "devplug", logging.INFO, "", 0, message, (), (type(error), error, None) if error else None
    )
    vars(record).update(facts)
    return FactFormatter().format(record), JsonFormatter().format(record)


@pytest.mark.parametrize(
    "facts",
    [
        {"text": "x" * 2**22},
        {"ids": ["x" * 60] * 100_000},
        {"device_ids": [[f"d{number}"] for number in range(100_000)]},
        {"device_ids": [["x"] * 1000 for _ in range(1000)]},
        {"pods": {"a": "x" * 2**22}},
        {f"fact{number}": "x" * 10_000 for number in range(100)},
    ],
)
def test_a_line_is_bounded_whatever_its_facts_are(facts: Mapping[str, object]) -> None:
    for line in line_of(facts):
        assert len(line) < 100_000


def test_a_list_has_as_much_room_as_any_other_fact() -> None:
    for line in line_of({"names": ["x" * 100] * 1000, "nested": [["x"] * 1000] * 9, "other": "y" * 100}):
        assert len(line) < 4 * TEXT_LIMIT
        assert "y" * 100 in line


def test_a_cut_list_says_how_many_items_are_missing() -> None:
    _, line = line_of({"ids": ["x" * 1000] * 100})
    *kept, rest = json.loads(line)["ids"]
    assert rest == f"... and {100 - len(kept)} more"


def test_a_long_message_and_a_long_exception_are_cut() -> None:
    for line in line_of({}, "m" * 2**20, ValueError("e" * 2**20)):
        assert len(line) < 100_000
        assert "ValueError" in line


def test_no_control_character_of_an_exception_reaches_the_terminal() -> None:
    text, _ = line_of({"fact": "\x1b[2J\u202e"}, "m\x9b31m", ValueError("\x1b]0;title\x07\u2066"))
    assert text.replace("\n", "").isprintable()


# ── repeated lines ──


def passed(*records: tuple[float, str]) -> list[tuple[float, str, int]]:
    """The records at these seconds that a filter passes, with how many it held back before each."""
    found = RepeatFilter()
    made = [logging.makeLogRecord({"created": 1e9 + at, "msg": message}) for at, message in records]
    return [
        (one.created - 1e9, str(one.msg), one.__dict__.get("repeated", 0))
        for one in made
        if found.filter(one)
    ]


def test_equal_lines_of_a_library_pass_once_a_minute_with_their_number() -> None:
    flood = [(second / 10, f"no descriptor\nsocket {second}") for second in range(1300)]
    assert [(at, repeated) for at, _, repeated in passed(*flood)] == [(0.0, 0), (60.0, 599), (120.0, 599)]


def test_other_lines_pass_at_once() -> None:
    assert passed((0, "a"), (0, "b"), (1, "a")) == [(0, "a", 0), (0, "b", 0)]


def test_a_clock_that_goes_back_silences_no_line() -> None:
    assert len(passed((0, "a"), (-1 - REPEAT_SECONDS, "a"))) == 2


def test_many_different_lines_take_bounded_memory() -> None:
    found = RepeatFilter()
    for number in range(10_000):
        assert found.filter(logging.makeLogRecord({"msg": f"line {number}"}))
    assert len(found._known) <= 64
