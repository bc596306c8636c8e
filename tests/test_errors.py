"""Error texts: one line, the field and the value named, short enough for a pod's status."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug import errors
from devplug.errors import (
    AllocationError,
    ConfigError,
    DevplugError,
    KubeletError,
    PluginError,
    Problem,
    RemoteError,
    UnhealthyDeviceError,
    UnknownDeviceError,
    one_line,
    quoted,
)

ANY_TEXT = st.text(alphabet=st.characters(codec=None))


@dataclass(frozen=True)
class Port:
    id: str


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ttyUSB0", '"ttyUSB0"'),
        ("", '""'),
        ('a"b', r'"a\"b"'),
        ("a\nb\x00", r'"a\nb\u0000"'),
        ("é", r'"\u00e9"'),
        (403, '"403"'),
        ("x" * 62, f'"{"x" * 62}"'),
        ("x" * 63, f'"{"x" * 59}..."'),
        ("\\" * 40, '"..."'),
    ],
)
def test_quoted_shows_a_value_escaped_and_cut(value: object, text: str) -> None:
    assert quoted(value) == text


@given(ANY_TEXT)
def test_quoted_is_short_printable_ascii(value: str) -> None:
    text = quoted(value)
    assert len(text) <= 64
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\n  lines\tand a tab", "two lines and a tab"),
        ("bell\x07 and escape\x1b[31m", "bell  and escape [31m"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 197 + "..."),
        ("é" * 100, "é" * 100),
        ("é" * 101, "é" * 98 + "..."),
    ],
)
def test_one_line_flattens_and_cuts(text: str, line: str) -> None:
    assert one_line(text) == line


@given(ANY_TEXT)
def test_one_line_is_printable_and_has_at_most_200_bytes(text: str) -> None:
    line = one_line(text)
    assert len(line.encode()) <= 200
    assert line.isprintable()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UnknownDeviceError("x\n", "example.com/foo"), r'device "x\n" is not known to example.com/foo'),
        (UnhealthyDeviceError("link down", Port("a")), 'device "a" is unhealthy (link down)'),
        (
            UnhealthyDeviceError("link down", Port("a"), Port("b")),
            'devices "a", "b" are unhealthy (link down)',
        ),
        (
            UnhealthyDeviceError("off", *map(Port, "abcde")),
            'devices "a", "b", "c" and 2 more are unhealthy (off)',
        ),
        (
            UnhealthyDeviceError("node missing", Port("a"), advice="delete and recreate the pod"),
            'device "a" is unhealthy (node missing); delete and recreate the pod',
        ),
        (UnhealthyDeviceError("switch reset failed"), "switch reset failed"),
        (PluginError("one", "two"), "one; two"),
        (RemoteError("NotFound", "no such pod"), "rpc error: code = NotFound desc = no such pod"),
        (
            errors.PluginFolderLostError("/plugins"),
            (
                "/plugins was deleted on the host while it was mounted here; nothing can be created in it "
                "any more; restart this container so that the folder is mounted again"
            ),
        ),
        (errors.IncidentError("7f3a01"), "internal error, incident 7f3a01"),
    ],
)
def test_an_error_reads_as_one_sentence(error: DevplugError, text: str) -> None:
    assert str(error) == text


def test_an_unhealthy_device_error_carries_its_facts() -> None:
    error = UnhealthyDeviceError("link down", Port("a"), advice="wait")
    assert (error.reason, error.devices, error.advice) == ("link down", (Port("a"),), "wait")


def test_a_config_error_lists_its_problems_in_file_order() -> None:
    error = ConfigError(
        "devplug.yaml",
        [
            Problem(6, 18, "resources[0].expose.env.IDS", "{id} stands for one device; write {ids}"),
            Problem(0, 0, "", "is empty"),
            Problem(4, 0, "resources", "is missing"),
        ],
    )
    assert error.lines() == [
        "devplug.yaml: error: is empty",
        "devplug.yaml:4: error: resources: is missing",
        "devplug.yaml:6:18: error: resources[0].expose.env.IDS: {id} stands for one device; write {ids}",
    ]
    assert str(error) == "\n".join(error.lines())


@pytest.mark.parametrize("branch", [ConfigError, PluginError, KubeletError, AllocationError, RemoteError])
def test_each_branch_is_caught_by_the_root_alone(branch: type[DevplugError]) -> None:
    assert branch.__bases__ == (DevplugError,)
