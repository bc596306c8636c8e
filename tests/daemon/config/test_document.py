"""Text to tree: what strict YAML is, where values stand, and files that are not worth reading on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from devplug.daemon.config.document import FASTEST_LOADER, SIZE_LIMIT_BYTES, parse_document
from devplug.daemon.config.tree import ListNode, MapNode, ScalarNode, path_text
from devplug.daemon.config_file import read_config_file
from devplug.errors import ConfigError


def problems(source: bytes | str) -> list[tuple[int, int, str]]:
    return [(one.line, one.column, str(one)) for one in parse_document(source).problems]


# ── bytes ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"", (0, 0, "the file is empty; write version: 1 and resources")),
        (b"# only a comment\n", (0, 0, "the file is empty; write version: 1 and resources")),
        (b"#" * (SIZE_LIMIT_BYTES + 1), (0, 0, "the file has 1048577 bytes; at most 1048576 are read")),
        (b"a: \xe4", (1, 4, "the byte 0xe4 is not UTF-8; save the file as UTF-8")),
        (b"a: 1\nb: \xff", (2, 4, "the byte 0xff is not UTF-8; save the file as UTF-8")),
        (b"\xef\xbb\xbfa: 1", (1, 1, "the file starts with a byte order mark; save it as UTF-8 without one")),
        ("a: 1".encode("utf-16"), (1, 1, "the file is UTF-16; save it as UTF-8")),
        (b"a: 1\nb: x\0", (2, 5, "a NUL byte cannot stand in this file")),
        (b"a: \x1b[0m", (1, 4, "the character U+001B cannot stand in this file")),
    ],
)
def test_bytes_that_are_no_text_are_refused_by_name(source: bytes, expected: tuple[int, int, str]) -> None:
    assert problems(source) == [expected]
    assert parse_document(source).root is None


# ── YAML ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a: 1\n---\nb: 2\n", (2, 1, "a second document starts here; a file has one")),
        ("a: 1\nb: 2\na: 3\n", (3, 1, 'the key "a" stands here again; the first is in line 1')),
        ("a:\n  b: 1\n  b: 2\n", (3, 3, 'a: the key "b" stands here again; the first is in line 2')),
        (
            "a: !!python/object:os.system x\n",
            (1, 4, 'a: the tag "!!python/object:os.system" is not supported; leave it out'),
        ),
        ("a: !!int '3'\n", (1, 4, 'a: the tag "!!int" is not supported; leave it out')),
        ("a: ! x\n", (1, 4, 'a: the tag "!" is not supported; leave it out')),
        ("a: &x 1\n", (1, 4, "a: &x: anchors are not supported; leave it out")),
        ("a: [*x]\n", (1, 5, "a[0]: *x: aliases are not supported; write the value out")),
        ("<<: {a: 1}\n", (1, 1, "merge keys (<<) are not supported; write the values out")),
        ("0403: x\n", (1, 1, 'YAML reads the key 0403 as 259; write "0403"')),
        ("on: x\n", (1, 1, 'YAML reads the key on as true; write "on"')),
        ("7: x\n", (1, 1, 'YAML reads the key 7 as a number; write "7"')),
        ("? [a]\n: b\n", (1, 3, "a key must be a text; a text with braces needs quotes")),
        ("a: {{ids}}\n", (1, 5, "a: a key must be a text; a text with braces needs quotes")),
        ("a: {b: /dev/x{index}}\n", (1, 14, "this is not YAML: ")),
        ("\ta: 1\n", (1, 1, "this is not YAML: ")),
        ("a: 'x\n", (2, 1, "this is not YAML: ")),
    ],
)
def test_yaml_beyond_the_plain_part_is_refused_at_its_place(
    source: str, expected: tuple[int, int, str]
) -> None:
    ((line, column, message),) = problems(source)
    assert (line, column) == expected[:2]
    assert message.startswith(expected[2])


def test_a_syntax_error_says_what_helps_if_the_line_shows_it() -> None:
    ((_, _, braces),) = problems("a: {b: /dev/x{index}}\n")
    assert braces.endswith('; a text with braces needs quotes, as in "/dev/serial{index}"')
    ((_, _, tabs),) = problems("a:\n\tb: 1\n")
    assert tabs.endswith("; indent with spaces, not with tabs")


def test_an_alias_bomb_is_refused_without_being_followed() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    found = problems(bomb)
    assert len(found) == 9 + 16
    assert (2, 8, "b[0]: *a: aliases are not supported; write the value out") in found


@pytest.mark.parametrize(
    "source", ["- " * 400_000, "[" * 500_000, "{a: " * 200_000, "\n".join(" " * n + "a:" for n in range(900))]
)
def test_a_deep_file_is_refused_at_the_level_that_is_too_much(source: str) -> None:
    ((_, _, message),) = problems(source)
    assert message.endswith("is more than 32 levels deep")


def test_a_file_of_too_many_values_is_refused_early() -> None:
    ((line, _, message),) = problems("- x\n" * 200_000)
    assert message == "the file has more than 100000 values"
    assert line == 100_000


def test_half_a_character_in_an_escape_is_refused() -> None:
    ((line, _, _),) = problems('a: "\\ud83d"\n')
    assert line == 1


# ── the tree ──────────────────────────────────────────────────────────────────────────────────────


def test_every_value_knows_its_line_and_column() -> None:
    root = parse_document("a: 1\nlist:\n  - x\n  - {k: 'v'}\n").root
    assert root == MapNode(
        1,
        1,
        {
            "a": (ScalarNode(1, 1, "a"), ScalarNode(1, 4, "1", "number", "1")),
            "list": (
                ScalarNode(2, 1, "list"),
                ListNode(
                    3,
                    3,
                    (
                        ScalarNode(3, 5, "x"),
                        MapNode(
                            4,
                            5,
                            {"k": (ScalarNode(4, 6, "k"), ScalarNode(4, 9, "v", quoted=True))},
                            braces=True,
                        ),
                    ),
                ),
            ),
        },
        braces=False,
    )


def test_columns_count_characters_and_not_bytes() -> None:
    root = parse_document("{ä: ü}").root
    assert isinstance(root, MapNode)
    ((_, value),) = root.items
    assert (value.line, value.column) == (1, 5)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x85", "\u2028", "\u2029"])
def test_a_line_ends_where_yaml_ends_it(end: str) -> None:
    """Also where a character is refused before YAML gets to see the file."""
    assert [(line, column) for line, column, _ in problems(f"a: 1{end}b: 2{end}c: \x0c")] == [(3, 4)]
    assert [line for line, _, _ in problems(f"a: 1{end}b: 2{end}b: 3")] == [3]


@pytest.mark.parametrize(("source", "place"), [("[", (1, 2)), ("a: \na", (2, 2)), ("a:\ra", (2, 2))])
def test_what_is_missing_at_the_end_is_missing_in_the_last_line(source: str, place: tuple[int, int]) -> None:
    ((line, column, _),) = problems(source)
    assert (line, column) == place


def test_a_value_that_is_nothing_at_the_end_of_a_file_is_in_its_last_line() -> None:
    root = parse_document("---").root
    assert isinstance(root, ScalarNode)
    assert (root.line, root.column) == (1, 4)


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_what_only_python_takes_for_the_end_of_a_line_is_none(mark: str) -> None:
    assert [(line, column) for line, column, _ in problems(f"a: 1\nb: 2{mark}")] == [(2, 5)]


def test_the_pure_python_parser_gives_the_same_trees_and_places() -> None:
    """PyYAML comes without libyaml where no wheel fits."""
    sources = [
        (
            "a: 0403\nb: [x, {y}, 'z', \"q\", yes, ~, 2024-01-01, 1e3]\nc:\n  - |\n    text\n  - "
            ">-\n    folded\n"
        ),
        "a: 1\na: 2\n? [x]\n: y\n7: !t 1\ne: &q 3\nf: *q\n",
        '{"a": [1, 2.5, true, null], "b": {}}',
        "a: 1\n---\nb: 2\n",
        "- " * 50,
    ]
    for source in sources:
        assert parse_document(source, yaml.SafeLoader) == parse_document(source, FASTEST_LOADER)


def test_a_path_quotes_keys_that_are_no_plain_words() -> None:
    assert path_text(("resources", 0, "expose", "env", "IDS")) == "resources[0].expose.env.IDS"
    assert path_text(("env", "P_{index}", 3)) == 'env["P_{index}"][3]'
    assert path_text(()) == ""


# ── reading the file ──────────────────────────────────────────────────────────────────────────────


def refusal(path: Path | str) -> str:
    with pytest.raises(ConfigError) as refused:
        read_config_file(path)
    (problem,) = refused.value.problems
    assert (problem.line, problem.column) == (0, 0)
    return str(problem)


def test_a_regular_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"version: 1\n")
    (tmp_path / "link").symlink_to("c.yaml")
    assert read_config_file(tmp_path / "c.yaml") == b"version: 1\n"
    assert read_config_file(str(tmp_path / "link")) == b"version: 1\n"


def test_what_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert refusal(missing) == f"cannot read {missing}: No such file or directory"
    assert refusal(tmp_path) == f"cannot read {tmp_path}: it is a folder"
    assert refusal("/dev/null") == "cannot read /dev/null: it is not a regular file"
    assert refusal(missing / "x\0") == f"cannot read {missing}/x\0: embedded null byte"


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert refusal(pipe) == f"cannot read {pipe}: it is not a regular file"


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(1 << 40)
    assert refusal(large) == f"cannot read {large}: it has more than 1048576 bytes"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_the_right_to_read_it_says_so(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0)
    assert refusal(secret) == f"cannot read {secret}: Permission denied"
