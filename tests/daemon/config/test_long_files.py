"""Files within the limits that would take hours if anything were looked at once for each of the others."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from devplug.daemon.config.globs import covers, covers_whole_root, regex_fault
from devplug.daemon.config.loader import load
from devplug.errors import ConfigError

HEAD = "version: 1\nresources:\n  - name: example.com/a\n    discover: "


def calls(work: Callable[[], object]) -> int:
    """How many functions a piece of work calls: twice as many for twice as much, however fast the machine."""
    count = 0

    def called(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def many_keys(number: int) -> str:
    return "version: 1\n" + "".join(f"k{n}:\n" for n in range(number))


def many_aliases(number: int) -> str:
    return "a: &a x\n" + "".join(f"k{n}: *a\n" for n in range(number))


def globs_and_paths(number: int, paths: int) -> str:
    globs = ",".join(f"'/dev/*_g{n}'" for n in range(number))
    plain = ",".join(f"/dev/l{n}" for n in range(paths))
    return f"{HEAD}{{path: [{globs}]}}\n  - name: example.com/b\n    discover: {{path: [{plain}]}}\n"


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, "devplug.yaml")
    return [problem.message for problem in caught.value.problems]


@pytest.mark.parametrize("made", [many_keys, many_aliases])
def test_twice_as_long_a_file_is_twice_the_work(made: Callable[[int], str]) -> None:
    short, long = (calls(lambda: problems(made(number))) for number in (500, 1000))  # noqa: B023
    assert long < 2.5 * short


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(many_keys(24_000), id="keys", marks=pytest.mark.nightly),
        pytest.param(many_aliases(15_000), id="aliases", marks=pytest.mark.nightly),
        pytest.param(globs_and_paths(5_000, 5_000), id="globs and paths", marks=pytest.mark.nightly),
        pytest.param(HEAD + '{usb: {serial: "' + "(" * 900_000 + '"}}\n', id="parentheses"),
        pytest.param(HEAD + '{path: "/dev/' + "[" * 900_000 + '"}\n', id="brackets"),
        pytest.param(
            HEAD + "{path: [" + ",".join(f'"/dev/{number}{"[" * 4000}"' for number in range(100)) + "]}\n",
            id="brackets in many globs",
        ),
        pytest.param(HEAD + '{path: "/dev/' + "*a" * 450_000 + '"}\n', id="stars"),
    ],
)
def test_a_file_that_would_take_minutes_to_days_is_refused(text: str) -> None:
    assert problems(text)


@pytest.mark.parametrize("glob", ["(" * 4095, "[" * 4095, "[]" * 2000, "*[" * 2000, "a(" * 2000 + "b"])
def test_a_glob_as_long_as_a_path_is_judged_to_the_end(glob: str) -> None:
    regex_fault(glob)
    covers_whole_root(f"/dev/{glob}", ["/dev"])


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


@pytest.mark.nightly  # takes 7 s
def test_more_globs_and_paths_than_can_be_compared_are_refused_in_words() -> None:
    (message,) = problems(globs_and_paths(1_100, 1_000))
    assert message == "there are too many globs and paths to compare them all; at most 1,000,000 pairs"
