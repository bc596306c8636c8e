"""How a log line looks: a constant message, its facts, and never more than one line but for a traceback."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.logs import FactFormatter

if TYPE_CHECKING:
    from collections.abc import Mapping


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
show_logs()
show_logs()
logging.getLogger("devplug.x").info("registered", extra={{"devices": 2}})
logging.getLogger("devplug.x").debug("not shown")
"""


def shown(before: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SHOW.format(before=before)], check=True, capture_output=True, text=True
    )
    assert done.stdout == ""
    return done.stderr


def test_lines_go_to_standard_error_once_where_nobody_set_up_logging() -> None:
    (text,) = shown("").splitlines()
    assert text.endswith(" INFO    registered  devices=2")


def test_a_program_that_set_up_logging_itself_keeps_its_own() -> None:
    before = "logging.basicConfig(format='mine %(message)s', level=logging.INFO)"
    assert shown(before) == "mine registered\n"


def test_a_program_may_keep_its_log_quiet() -> None:
    assert shown("logging.basicConfig(level=logging.ERROR)") == ""
