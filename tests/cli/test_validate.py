"""`devplug validate` as people meet it: every mistake at its place, what is found here, the exit code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devplug.cli.validate import validate
from tests.cli.programs import DEVPLUG, devplug, environment

MISTAKES = """version: 2
resources:
- name: example.com/serial
  discover: {usb: {vendor: 0403}}
- name: example.com/b
  discover: {path: /dev/b}
  expose: {permissions: rwx, env: {IDS: "{id}", PATH: /bin}}
"""


@pytest.fixture
def terminal() -> Iterator[str]:
    """A device that is really there, and that anybody may make."""
    primary, secondary = pty.openpty()
    yield os.ttyname(secondary)
    os.close(primary)
    os.close(secondary)


def validated(file: Path, *, looks_at_host: bool = True, output: str = "table") -> int:
    return validate(str(file), plugin_dir="/x", looks_at_host=looks_at_host, output=output, color="never")


def file_with(folder: Path, *resources: str) -> Path:
    file = folder / "devplug.yaml"
    file.write_text("version: 1\nresources:\n" + "".join(f"- {{{one}}}\n" for one in resources))
    return file


def test_each_mistake_is_a_line_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "devplug.yaml"
    file.write_text(MISTAKES)
    ran = devplug("validate", "--no-host", file)
    assert ran.returncode == 2
    *lines, last = ran.stdout.splitlines()
    places = [line.removeprefix(f"{file}:").partition(" ")[0] for line in lines]
    assert places == ["1:10:", "4:28:", "7:25:", "7:41:", "7:55:"]
    assert all(" error: " in line for line in lines)
    assert lines[1].endswith('resources[0].discover.usb.vendor: YAML reads 0403 as 259; write "0403"')
    assert last == "5 errors, 0 warnings"


def test_what_is_found_here_is_shown_and_what_has_mistakes_is_not_looked_for(
    tmp_path: Path, terminal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = terminal.rpartition("/")[2]
    file = file_with(
        tmp_path,
        f"name: example.com/tty, discover: {{path: {terminal}}}, share: {{replicas: 100}}",
        "name: example.com/none, discover: {path: /dev/devplug-none}",
        "name: example.com/bad, discover: {usb: {vendor: 0403}}",
        "name: example.com/other, discover: {path: /dev/devplug-other}, nodeNames: [elsewhere]",
    )
    code = validated(file)
    said = capsys.readouterr().out
    table = said[said.index("RESOURCE") :]
    assert table == (
        "RESOURCE           CAPACITY  MATCHES ON THIS HOST\n"
        f"example.com/tty    100       {name} ({terminal}) x 100 replicas\n"
        "example.com/none   0         nothing found\n"
        "example.com/bad    ?         not looked for (line 5)\n"
        "example.com/other  -         for other machines (nodeNames)\n"
        f"1 error, {said.count(': warning: ')} warning{'s' * (said.count(': warning: ') != 1)}\n"
    )
    assert code == 2


def test_the_name_of_the_machine_may_be_given(tmp_path: Path) -> None:
    file = file_with(tmp_path, "name: a.b/c, discover: {path: /dev/devplug-none}, nodeNames: [elsewhere]")
    assert "nothing found" in devplug("validate", file, NODE_NAME="elsewhere").stdout


def test_a_file_that_is_right_ends_well_also_with_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_with(
        tmp_path,
        "name: a.b/c, discover: {path: /dev/ttyUSB*}, share: {replicas: 2}",
        "name: a.b/d, discover: {path: /dev/devplug-none}, health: [{open: true}]",
    )
    code = validated(file, looks_at_host=False)
    said = capsys.readouterr().out
    assert code == 0
    assert said.splitlines() == [
        (
            f"{file}:3:67: warning: resources[0].share.replicas: up to 2 containers would have one device "
            "at once, and two programs on one serial line take each other's data"
        ),
        (
            f"{file}:4:63: warning: resources[1].health[0]: opening the device needs a devplug pod with "
            "access to devices; without access its answers are unknown"
        ),
        "0 errors, 2 warnings",
    ]


def test_without_the_host_nothing_of_it_is_shown(
    tmp_path: Path, terminal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_with(tmp_path, f"name: a.b/c, discover: {{path: {terminal}}}")
    validated(file, looks_at_host=False)
    assert capsys.readouterr().out == "0 errors, 0 warnings\n"


def test_terminals_are_warned_of_since_no_container_can_open_them(
    tmp_path: Path, terminal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_with(tmp_path, f"name: a.b/c, discover: {{path: {terminal}}}")
    assert validated(file) == 0
    assert f'warning: resources[0].discover: "{terminal}" is a pseudo-terminal' in capsys.readouterr().out


def test_what_two_resources_find_has_one_owner(
    tmp_path: Path, terminal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = terminal.rpartition("/")[2]
    link = tmp_path / "link"
    link.symlink_to(terminal)
    file = file_with(
        tmp_path, f"name: a.b/c, discover: {{path: {terminal}}}", f"name: a.b/d, discover: {{path: {link}}}"
    )
    if not str(link).startswith(("/tmp/", "/run/")):
        pytest.skip(f"{link} is not where device nodes may be")
    validated(file)
    said = capsys.readouterr().out
    assert 'warning: resources[1].discover: "link" belongs to a.b/c already' in said
    assert f"a.b/c     1         {name} ({terminal})\n" in said
    assert f"a.b/d     0         link ({link}), belongs to a.b/c\n" in said


def test_both_paths_of_a_node_are_in_the_wide_table(
    tmp_path: Path, terminal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_with(
        tmp_path, f"name: a.b/c, discover: {{path: {terminal}}}, expose: {{containerPath: /dev/port}}"
    )
    validated(file, output="wide")
    said = capsys.readouterr().out
    heading, row = said.splitlines()[-3:-1]
    assert heading.split() == [
        *("RESOURCE", "CAPACITY", "DEVICE", "NUMA", "HEALTH"),
        *("HOST", "PATH", "CONTAINER", "PATH"),
    ]
    assert row.split()[-3:] == ["Healthy", terminal, "/dev/port"]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_get_the_same_facts(
    tmp_path: Path, terminal: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_with(
        tmp_path,
        f"name: a.b/c, discover: {{path: {terminal}}}, share: {{replicas: 3}}",
        "name: a.b/d, discover: {path: dev/x}",
    )
    code = validated(file, output=output)
    said = capsys.readouterr().out
    facts = json.loads(said) if output == "json" else yaml.safe_load(said)
    assert code == 2
    assert [(one["line"], one["column"], one["path"]) for one in facts["errors"]] == [
        (4, 34, "resources[1].discover.path")
    ]
    first, second = facts["resources"]
    assert (first["capacity"], first["was_looked_for"], first["replicas"]) == (3, True, 3)
    (device,) = first["devices"]
    assert (device["id"], device["health"]) == (terminal.rpartition("/")[2], "healthy")
    assert device["device_nodes"] == [{"host": terminal, "container": terminal, "permissions": "rw"}]
    assert (second["capacity"], second["was_looked_for"], second["devices"]) == (None, False, [])


def test_a_file_may_come_from_standard_input() -> None:
    text = "version: 1\nresources: [{name: a.b/c, discover: {path: dev/x}}]\n"
    ran = subprocess.run(
        [*DEVPLUG, "validate", "-"],
        env=environment(),
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stdout.startswith("stdin:2:44: error: resources[0].discover.path: ")


def test_a_file_that_cannot_be_read_is_bad_input(tmp_path: Path) -> None:
    ran = devplug("validate", tmp_path / "none.yaml")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        f"{tmp_path}/none.yaml: error: cannot read {tmp_path}/none.yaml: No such file or directory\n"
    )


def test_a_file_that_is_no_yaml_has_one_error_and_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "devplug.yaml"
    file.write_text("a: 'x\n")
    code = validated(file)
    said = capsys.readouterr().out
    assert code == 2
    assert "this is not YAML" in said
    assert said.endswith("\n1 error, 0 warnings\n")
    assert "RESOURCE" not in said


def test_a_plugin_folder_with_a_long_path_is_told(tmp_path: Path) -> None:
    file = file_with(tmp_path, "name: a.b/c, discover: {path: /dev/devplug-none}")
    ran = devplug("validate", "--no-host", "--plugin-dir", f"/{'x' * 80}", file)
    assert "Unix sockets take 107: choose another --plugin-dir" in ran.stdout
    assert ran.returncode == 0


def test_on_a_terminal_lines_are_as_long_as_it_is_wide_and_go_on_further_right(tmp_path: Path) -> None:
    file = file_with(tmp_path, "name: a.b/c, discover: {usb: {vendor: 0403}}, health: [{open: true}]")
    primary, secondary = pty.openpty()
    termios.tcsetwinsize(secondary, (25, 60))
    with subprocess.Popen(
        [*DEVPLUG, "validate", "--color", "never", file.name],
        env=environment(TERM="xterm"),
        cwd=tmp_path,
        stdout=secondary,
        stderr=secondary,
    ) as process:
        os.close(secondary)
        shown = b""
        try:
            while chunk := os.read(primary, 4096):
                shown += chunk
        except OSError:  # how a terminal says that nobody writes any more
            pass
    os.close(primary)
    assert process.returncode == 2
    lines = shown.decode().splitlines()
    assert lines[:2] == [
        "devplug.yaml:3:42: error: resources[0].discover.usb.vendor:",
        '    YAML reads 0403 as 259; write "0403"',
    ]
    assert max(map(len, lines)) <= 60
