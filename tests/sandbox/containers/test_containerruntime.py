"""Programs that stand in for containers: real processes, from their start to their end."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from devplug.errors import KubeletError, PluginError
from devplug.kubelet_dir import KUBELET_PLUGIN_DIR
from devplug.linux.processes import can_mount
from devplug.sandbox.nodes.containerruntime import ProcessRuntime
from tests.sandbox.containers.beds import order, pod, running

ROOT = Path(__file__).parents[3]
WAITS = "trap 'echo asked; exit 3' TERM; echo ready; sleep 1000 & wait"
"""A program of bash that waits, and says so when it is asked to end."""


def bash(script: str) -> Sequence[str]:
    return ["bash", "-c", script]


def seen_end(descriptor: int) -> bool:
    """Whether a process of a pidfd ends within ten seconds."""
    return bool(select.select([descriptor], [], [], 10)[0])


async def test_a_program_has_the_users_environment_and_the_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_USER", "here")
    folders = ("DEVPLUG_PLUGIN_DIR", "DEVPLUG_KUBELET_ROOT", "DEVPLUG_CDI_DIR")
    names = ("OF_THE_USER", *folders, "NODE_NAME", "POD", "DEVICES", "PYTHONUNBUFFERED")
    script = f"import json, os, sys; print(json.dumps([sys.argv[1:], *map(os.environ.get, {names})]))"
    env = [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        *({"name": name, "value": "/a/path/of/the/container"} for name in folders),
    ]
    plugins = str(tmp_path / "device-plugins")
    command = [sys.executable, "-c", script, "--dir={dir}", "{node}", "{args}"]
    async with running(tmp_path, command) as bed:
        one = pod(env=env, args=["-v", "$(POD)"])
        await bed.runtime.start(order(one, tmp_path / "device-plugins", envs=[("DEVICES", "d0,d1")]))
        assert (await bed.ends.get()).exit_code == 0
        words, *variables = json.loads(await bed.log(one))
        assert words == [f"--dir={plugins}", "worker-0", "-v", "plugin"]
        assert variables[:4] == ["here", plugins, str(tmp_path), str(tmp_path / "cdi")]
        assert variables[4:] == ["worker-0", "plugin", "d0,d1", "1"]


async def test_no_shell_reads_a_command_unless_it_is_one(tmp_path: Path) -> None:
    async with running(tmp_path, "echo '$HOME' '&&' {dir}x") as bed:
        one = await bed.start()
        await bed.ends.get()
        assert await bed.log(one) == f"$HOME && {tmp_path}/device-pluginsx\n"


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", 139)])
async def test_an_end_is_told_with_the_exit_code_of_a_container(
    tmp_path: Path, script: str, code: int
) -> None:
    async with running(tmp_path, bash(script)) as bed:
        await bed.start()
        end = await bed.ends.get()
        assert (end.pod_uid, end.container, end.exit_code) == ("u-1", "c", code)
        assert end.finished.tzinfo is not None


async def test_a_program_that_cannot_be_started_says_why_to_the_agent_and_in_its_log(tmp_path: Path) -> None:
    async with running(tmp_path, "/no/such/plugin --flag") as bed:
        one = pod()
        with pytest.raises(PluginError, match="cannot run /no/such/plugin --flag: No such file"):
            await bed.start(one)
        assert bed.ends.empty()
        said = "cannot run /no/such/plugin --flag: No such file or directory\n"
        assert await bed.log(one, follow=True) == said


async def test_stopping_asks_first_and_returns_when_the_program_is_gone(tmp_path: Path) -> None:
    async with running(tmp_path, bash(WAITS)) as bed:
        one = await bed.start()
        await bed.printed(one, "ready")
        await bed.runtime.stop("u-1", "c", 10)
        assert bed.ends.get_nowait().exit_code == 3
        assert await bed.log(one) == "ready\nasked\n"
        await bed.runtime.stop("u-1", "c", 10)
        await bed.runtime.stop("u-2", "never", 10)
        assert bed.ends.empty()


async def test_who_does_not_listen_is_killed_with_all_its_children_after_the_grace(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 1000 & echo $!; wait; wait"
    async with running(tmp_path, bash(script)) as bed:
        one = await bed.start()
        child = os.pidfd_open(int(await bed.printed(one, "\n")))
        await bed.runtime.stop("u-1", "c", 0.1)
        assert seen_end(child)
        os.close(child)
        assert bed.ends.get_nowait().exit_code == 137


async def test_a_child_that_was_asked_too_has_time_to_clean_up(tmp_path: Path) -> None:
    plugin = "trap 'sleep 0.1; echo 2; exit' TERM; echo 1; sleep 1000 & wait"
    # The shell around it ends at once.
    async with running(tmp_path, bash(f'bash -c "{plugin}" & wait')) as bed:
        one = await bed.start()
        await bed.printed(one, "1\n")
        await bed.runtime.stop("u-1", "c", 10)
        assert await bed.log(one) == "1\n2\n"


async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    async with running(tmp_path, bash("sleep 1000 & echo $!")) as bed:
        one = await bed.start()
        end = await bed.ends.get()
        assert end.exit_code == 0
        assert not Path("/proc", (await bed.log(one)).strip(), "exe").exists()


async def test_who_leaves_the_group_holds_up_nobody(tmp_path: Path) -> None:
    async with running(tmp_path, bash("setsid sleep 1000 & echo $!")) as bed:
        one = await bed.start()
        await bed.ends.get()
        child = int(await bed.log(one))
    os.kill(child, 9)


async def test_the_end_of_the_sandbox_ends_all_and_tells_nobody(tmp_path: Path) -> None:
    async with running(tmp_path, bash(WAITS)) as bed:
        pods = [await bed.start(pod(uid)) for uid in ("u-1", "u-2")]
        for one in pods:
            await bed.printed(one, "ready")
    assert bed.ends.empty()
    for one in pods:
        assert await bed.log(one, follow=True) == "ready\nasked\n"
    with pytest.raises(KubeletError, match="coming down"):
        await bed.start()


SANDBOX = """
import asyncio, sys
from pathlib import Path
from tests.sandbox.containers.beds import running

async def play():
    async with running(Path(sys.argv[1]), ["bash", "-c", "sleep 1000 & echo $$ $!; wait"]) as bed:
        one = await bed.start()
        print(await bed.printed(one, "\\n"), end="", flush=True)
        await asyncio.Event().wait()

asyncio.run(play())
"""


def test_the_programs_of_a_sandbox_that_was_killed_do_not_live_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SANDBOX, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as sandbox:
        assert sandbox.stdout is not None
        programs = [os.pidfd_open(int(pid)) for pid in sandbox.stdout.readline().split()]
        assert len(programs) == 2
        sandbox.kill()
        for program in programs:
            assert seen_end(program)
            os.close(program)


async def test_a_start_in_place_of_one_that_runs_ends_that_first(tmp_path: Path) -> None:
    async with running(tmp_path, bash(WAITS)) as bed:
        one = await bed.start()
        await bed.start(one, 1)
        assert bed.ends.get_nowait().exit_code == 137
        assert await bed.printed(one, "ready\n") == "ready\n"


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount")
async def test_a_plugin_finds_the_folder_of_its_node_at_the_compiled_in_path(tmp_path: Path) -> None:
    script = f"cat {KUBELET_PLUGIN_DIR}/mark-of-this-test"
    one = pod(volumeMounts=[{"name": "plugins", "mountPath": "/plugins"}])
    one["spec"]["volumes"] = [{"name": "plugins", "hostPath": {"path": KUBELET_PLUGIN_DIR}}]
    async with running(tmp_path, bash(script)) as bed:
        (tmp_path / "device-plugins" / "mark-of-this-test").write_text("found")
        await bed.start(one)
        await bed.ends.get()
        assert await bed.log(one) == "found"
    assert not Path(KUBELET_PLUGIN_DIR, "mark-of-this-test").exists()


def test_only_mapped_images_have_programs(tmp_path: Path) -> None:
    runtime = ProcessRuntime({"one": ["true"]}, tmp_path, lambda _: None)
    assert runtime.maps("example.com/x/one:1")
    assert not runtime.maps("example.com/one/x:1")
