"""`devplug run` as people meet it: what it refuses to start with, what it says, and how it ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devplug.cli.run_options import DEFAULT_CONFIG
from devplug.kubelet.kubelet import Kubelet
from tests.cli.programs import (
    DEVPLUG,
    STATIC,
    config_file,
    devplug,
    ended,
    environment,
    run,
    said_until,
    started,
)

NOBODY = 65534


@pytest.fixture
def plugin_dir(short_dir: Path) -> Path:
    folder = short_dir / "device-plugins"
    folder.mkdir()
    return folder


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("kubelet"))


# ── what it does not start with ───────────────────────────────────────────────────────────────────


@pytest.mark.skipif(Path(DEFAULT_CONFIG).exists(), reason=f"this machine has {DEFAULT_CONFIG}")
def test_without_a_configuration_nothing_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "devplug.yaml").write_text(STATIC)
    ran = devplug("run", "--plugin-dir", tmp_path)
    assert ran.returncode == 2
    assert "devplug run -c devplug.yaml" in ran.stderr
    assert "devplug demo" in ran.stderr


def test_a_bad_configuration_is_refused_with_every_problem_at_its_place(plugin_dir: Path) -> None:
    file = config_file(
        plugin_dir,
        "version: 1\nresources:\n"
        "- {name: example.com/a, discover: {path: dev/x}}\n"
        "- {name: bad, discover: {path: /dev/mem}, size: 3}\n",
    )
    ran = devplug("run", "-c", file, "--plugin-dir", plugin_dir)
    assert ran.returncode == 2
    assert ran.stdout == ""
    places = [line.removeprefix(f"{file}:").split(": error: ")[0] for line in ran.stderr.splitlines()]
    assert places == ["3:42", "4:10", "4:32", "4:43"]
    assert all(line.startswith(f"{file}:") for line in ran.stderr.splitlines())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    ran = devplug("run", "-c", tmp_path / "none.yaml")
    assert ran.returncode == 2
    assert ran.stderr == (
        f"{tmp_path}/none.yaml: error: cannot read {tmp_path}/none.yaml: No such file or directory\n"
    )


def test_an_unknown_option_is_bad_input() -> None:
    ran = devplug("run", "--confg", "x")
    assert ran.returncode == 2
    assert "No such option" in ran.stderr


def test_a_plugin_folder_that_is_a_file_is_refused_by_name(tmp_path: Path) -> None:
    file = config_file(tmp_path)
    ran = devplug("run", "-c", file, "--plugin-dir", file)
    assert (ran.returncode, ran.stderr) == (2, f"devplug: {file} is not a folder\n")


@pytest.mark.parametrize(
    ("mode", "folder"),
    [
        pytest.param(0o500, "device-plugins", id="it may be read only"),
        pytest.param(0, "device-plugins/inner", id="not even the folder above may be looked into"),
    ],
)
def test_without_the_right_to_the_plugin_folder_the_right_is_named(
    plugin_dir: Path, mode: int, folder: str
) -> None:
    file = config_file(plugin_dir.parent)
    wanted = plugin_dir.parent / folder
    wanted.mkdir(exist_ok=True)
    plugin_dir.parent.chmod(0o755)
    plugin_dir.chmod(mode)
    # Others may have no right to read the interpreter: what is needed is loaded before the user changes.
    program = (
        "import difflib, os, sys, devplug.cli.run; from devplug.cli import main\n"
        f"if not os.getuid(): os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        f"sys.argv = ['devplug', 'run', '-c', '{file}', '--plugin-dir', '{wanted}']; main()"
    )
    ran = run([sys.executable, "-c", program])
    plugin_dir.chmod(0o700)
    assert ran.stderr == (
        f"devplug: no right to create a socket in {wanted}: run as uid 0, or let this user write there\n"
    )
    assert ran.returncode == 2


def test_a_resource_that_must_have_a_device_and_has_none_ends_it(plugin_dir: Path) -> None:
    file = config_file(
        plugin_dir, "version: 1\nresources: [{name: a.b/c, discover: {path: /dev/none}, whenNone: fail}]\n"
    )
    ran = devplug("run", "-c", file, "--plugin-dir", plugin_dir)
    assert ran.returncode == 1
    assert ran.stderr == "devplug: a.b/c: no device was found, and whenNone says fail\n"
    assert left_in(plugin_dir) == ["devplug.yaml"]


# ── running ───────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def kubelet_in(folder: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet(folder)
    async with asyncio.timeout(30), kubelet.running():
        yield kubelet


async def all_registered(kubelet: Kubelet) -> None:
    await kubelet.wait(lambda: dict(kubelet.capacity()) == {"example.com/a": 2, "example.com/b": 1})


async def test_each_registered_resource_is_one_line(plugin_dir: Path) -> None:
    async with kubelet_in(plugin_dir) as kubelet:
        with started("run", "-c", config_file(plugin_dir.parent), "--plugin-dir", plugin_dir) as daemon:
            await all_registered(kubelet)
            said = await asyncio.to_thread(said_until, daemon, "example.com/b")
            said += await asyncio.to_thread(said_until, daemon, "example.com/a") if "/a" not in said else ""
            daemon.terminate()
            assert await asyncio.to_thread(ended, daemon) == 0
        lines = sorted(line.split("registered with the kubelet")[1] for line in said.splitlines())
        assert [line.split()[:2] for line in lines] == [
            ["resource_name=example.com/a", "devices=2"],
            ["resource_name=example.com/b", "devices=1"],
        ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_and_leaves_nothing(plugin_dir: Path, number: signal.Signals) -> None:
    async with kubelet_in(plugin_dir) as kubelet:
        with started("run", "-c", config_file(plugin_dir.parent), "--plugin-dir", plugin_dir) as daemon:
            await all_registered(kubelet)
            assert any(stat.S_ISSOCK(path.stat().st_mode) for path in plugin_dir.glob("devplug-*"))
            daemon.send_signal(number)
            code = await asyncio.to_thread(ended, daemon)
            assert (code, left_in(plugin_dir)) == (0, [])


async def test_a_hang_up_has_the_file_read_also_where_no_event_tells_of_an_edit(plugin_dir: Path) -> None:
    """A file that is written to is told of when it is closed (inotify(7)); this one stays open."""
    file = config_file(plugin_dir.parent)
    async with kubelet_in(plugin_dir) as kubelet:
        with started("run", "-c", file, "--plugin-dir", plugin_dir) as daemon:
            await all_registered(kubelet)
            with file.open("w") as open_file:
                open_file.write(STATIC.replace("b0", "b0, b1, b2"))
                open_file.flush()
                daemon.send_signal(signal.SIGHUP)
                await kubelet.wait(lambda: kubelet.allocatable().get("example.com/b") == 3)
            daemon.send_signal(signal.SIGHUP)
            daemon.terminate()
            daemon.send_signal(signal.SIGHUP)
            assert await asyncio.to_thread(ended, daemon) == 0


async def test_on_a_terminal_a_hang_up_is_the_end(plugin_dir: Path) -> None:
    ours, its = os.openpty()

    try:
        file = config_file(plugin_dir.parent)
        command = [*DEVPLUG, "run", "-c", str(file), "--plugin-dir", str(plugin_dir)]
        async with kubelet_in(plugin_dir) as kubelet:
            daemon = await asyncio.create_subprocess_exec(
                *command, env=environment(), stdin=its, stderr=asyncio.subprocess.DEVNULL
            )
            await all_registered(kubelet)
            daemon.send_signal(signal.SIGHUP)
            assert await daemon.wait() == -signal.SIGHUP
    finally:
        os.close(ours)
        os.close(its)


async def test_the_file_and_the_folder_may_come_from_the_environment(plugin_dir: Path) -> None:
    file = config_file(plugin_dir.parent)
    async with kubelet_in(plugin_dir) as kubelet:
        with started("run", DEVPLUG_CONFIG=str(file), DEVPLUG_PLUGIN_DIR=str(plugin_dir)):
            await all_registered(kubelet)


async def test_the_folder_is_below_the_kubelets_root_if_a_flag_says_so_whatever_the_environment_says(
    plugin_dir: Path,
) -> None:
    file = config_file(plugin_dir.parent)
    elsewhere = str(plugin_dir.parent / "elsewhere")
    async with kubelet_in(plugin_dir) as kubelet:
        with started("run", "-c", file, "--kubelet-root", plugin_dir.parent, DEVPLUG_PLUGIN_DIR=elsewhere):
            await all_registered(kubelet)


def test_a_driver_without_an_account_for_the_cluster_says_what_the_pod_lacks(plugin_dir: Path) -> None:
    file = plugin_dir.parent / "claims.yaml"
    file.write_text(
        "{version: 1, driver: d.example.com, resources: "
        "[{name: example.com/a, serve: dra, discover: {static: {ids: [a]}}}]}"
    )
    (plugin_dir.parent / "plugins_registry").mkdir()
    with started("run", "-c", file, "--kubelet-root", plugin_dir.parent, KUBECONFIG="") as daemon:
        said = said_until(daemon, "cannot publish slices")
    assert "no ServiceAccount is mounted and KUBECONFIG is not set" in said


async def test_without_a_kubelet_it_waits_and_says_so_once(short_dir: Path) -> None:
    folder = short_dir / "later"

    with started("run", "-c", config_file(short_dir), "--plugin-dir", folder) as daemon:
        said = await asyncio.to_thread(said_until, daemon, "no kubelet here")
        assert f"folder={folder}" in said
        folder.mkdir()
        async with kubelet_in(folder) as kubelet:
            await all_registered(kubelet)
        daemon.terminate()
        _, rest = await asyncio.to_thread(daemon.communicate)
        assert "no kubelet here" not in rest


async def test_it_loads_neither_openssl_nor_what_other_commands_need(plugin_dir: Path) -> None:
    """OpenSSL is 8 MB and 20 ms, which a process that stays can do without."""
    unwanted = re.compile(r"rich|_ssl|devplug\.kubelet\b|devplug\.cli\.demo")

    async with kubelet_in(plugin_dir) as kubelet:
        arguments = ("run", "-c", config_file(plugin_dir.parent), "--plugin-dir", plugin_dir)
        with started(*arguments, PYTHONPROFILEIMPORTTIME="1") as daemon:
            await all_registered(kubelet)
            mapped = Path(f"/proc/{daemon.pid}/maps").read_text()
            daemon.terminate()
            _, said = await asyncio.to_thread(daemon.communicate)
    loaded = [line.rpartition("|")[2].strip() for line in said.splitlines() if "import time:" in line]
    assert "devplug.plugin.lifecycle" in loaded
    assert [name for name in loaded if unwanted.match(name)] == []
    assert re.findall(r"/(?:libssl|libcrypto|_ssl|_hashlib)[^/\s]*", mapped) == []
