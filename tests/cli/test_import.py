"""`devplug import` as people meet it: the configuration, what is told beside it, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from devplug.cli.import_ import import_
from devplug.daemon.config.loader import load
from devplug.errors import ConfigError

WHOLE = "- devicematch: ^fuse$\n  nummaxdevices: 10\n"
PARTLY = WHOLE + "- devicematch: video\n  nummaxdevices: 1\n"
NOTHING = "- devicematch: video\n  nummaxdevices: 1\n"


def imported(*arguments: object, stdin: str = "") -> Result:
    return CliRunner().invoke(
        import_, [*map(str, arguments)], input=stdin, standalone_mode=False, catch_exceptions=False
    )


def file_with(folder: Path, text: str) -> Path:
    file = folder / "conf.yaml"
    file.write_text(text)
    return file


def test_what_is_whole_ends_well_and_is_a_file_that_loads(tmp_path: Path) -> None:
    ran = imported(file_with(tmp_path, WHOLE))
    assert ran.return_value == 0
    assert ran.stderr == ""
    assert load(ran.stdout, "x").resources[0].name == "smarter-devices/fuse"


def test_what_is_left_out_is_told_with_its_place_and_ends_with_1(tmp_path: Path) -> None:
    file = file_with(tmp_path, PARTLY)
    ran = imported(file)
    assert ran.return_value == 1
    assert ran.stderr.startswith(f'{file}:3:3: warning: [1]: the regular expression "video" matches anywhere')
    assert len(load(ran.stdout, "x").resources) == 1


def test_where_nothing_is_left_nothing_is_printed(tmp_path: Path) -> None:
    ran = imported(file_with(tmp_path, NOTHING))
    assert ran.return_value == 1
    assert ran.stdout == ""
    assert ran.stderr.endswith("no part of it could be translated\n")


def test_json_has_the_configuration_and_the_problems() -> None:
    ran = imported("-", "-o", "json", stdin=PARTLY)
    facts = json.loads(ran.stdout)
    assert facts["from"] == "smarter"
    assert facts["config"]["resources"][0]["share"] == {"replicas": 10}
    (problem,) = facts["problems"]
    assert (problem["grade"], problem["line"], problem["column"], problem["path"]) == ("warning", 3, 3, "[1]")
    assert ran.return_value == 1


def test_options_reach_the_translation() -> None:
    source = "devices: [{name: fuse, groups: [{paths: [{path: /dev/fuse, permissions: rw}]}]}]"
    ran = imported("--from", "squat", "--domain", "example.com", "-", stdin=source)
    assert "example.com/fuse" in ran.stdout


def test_a_file_that_cannot_be_read_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        imported(tmp_path / "none")
    with pytest.raises(ConfigError, match="known here; write"):
        imported("-", stdin="a: b")
