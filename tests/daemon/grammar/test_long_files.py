"""Files within the limits that would take hours if anything were looked at once for each of the others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from devplug.daemon.grammar.globs import covers, covers_whole_root, regex_fault
from devplug.daemon.grammar.loading import load
from devplug.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

BOUND_SECONDS = 5.0
"""Of this thread's processor; each took minutes to days."""

HEAD = "version: 1\nresources:\n  - name: example.com/a\n    discover: "


def took(call: Callable[[], object]) -> float:
    started = time.thread_time()
    call()
    return time.thread_time() - started


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, "devplug.yaml")
    return [problem.message for problem in caught.value.problems]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("version: 1\n" + "".join(f"k{n}:\n" for n in range(24_000)), id="keys"),
        pytest.param("a: &a x\n" + "".join(f"k{n}: *a\n" for n in range(15_000)), id="aliases"),
        pytest.param(HEAD + '{usb: {serial: "' + "(" * 900_000 + '"}}\n', id="parentheses"),
        pytest.param(HEAD + '{path: "/dev/' + "[" * 900_000 + '"}\n', id="brackets"),
        pytest.param(
            HEAD + "{path: [" + ",".join(f'"/dev/{number}{"[" * 4000}"' for number in range(100)) + "]}\n",
            id="brackets in many globs",
        ),
        pytest.param(HEAD + '{path: "/dev/' + "*a" * 450_000 + '"}\n', id="stars"),
        pytest.param(
            HEAD
            + "{path: ["
            + ",".join(f"'/dev/*g{n}'" for n in range(5_000))
            + "]}\n  - name: example.com/b\n    discover: {path: ["
            + ",".join(f"/dev/l{n}" for n in range(5_000))
            + "]}\n",
            id="globs and paths",
        ),
    ],
)
def test_a_file_is_refused_in_seconds(text: str) -> None:
    assert took(lambda: problems(text)) < BOUND_SECONDS


@pytest.mark.parametrize("glob", ["(" * 4095, "[" * 4095, "[]" * 2000, "*[" * 2000, "a(" * 2000 + "b"])
def test_a_glob_as_long_as_a_path_is_judged_at_once(glob: str) -> None:
    assert took(lambda: (regex_fault(glob), covers_whole_root(f"/dev/{glob}", ["/dev"]))) < 0.5


def test_a_glob_that_is_longer_than_any_path_is_refused() -> None:
    long = "/dev/" + "a*" * 2046
    assert "has 4097 characters; no path has more than 4095" in str(regex_fault(long))
    assert not covers("*" * 4096, "a")


def test_what_covers_and_excludes_is_the_same_as_before() -> None:
    assert covers("/dev/[[]x", "/dev/[x")
    assert covers("/dev/a[", "/dev/a[")
    assert covers("/dev/[]a]x[", "/dev/]x[")
    assert regex_fault("usb(a|b)") is not None
    assert regex_fault("a(b") is None
    assert regex_fault("((a") is None
    assert regex_fault("a(b(c)") is not None
    config = load(HEAD + "{path: {glob: '/dev/me*', exclude: [/dev/mem]}}\n", "devplug.yaml")
    assert config.resources[0].discover.path[0].exclude == ("/dev/mem",)


def test_more_globs_and_paths_than_can_be_compared_are_refused_in_words() -> None:
    globs = ",".join(f"'/dev/*_g{n}'" for n in range(1_100))
    paths = ",".join(f"/dev/l{n}" for n in range(1_000))
    text = f"{HEAD}{{path: [{globs}]}}\n  - name: example.com/b\n    discover: {{path: [{paths}]}}\n"
    (message,) = problems(text)
    assert message == "there are too many globs and paths to compare them all; at most 1,000,000 pairs"
