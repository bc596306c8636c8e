"""`run` for scripts: how a plugin's program ends, and what it prints."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devplug.kubelet.kubelet import Kubelet
from tests.kubelet.fakes import pod
from tests.plugin.fakes import allocatable, ended, plugin_sockets, start
from tests.waiting import until


@asynccontextmanager
async def with_script(
    short_dir: Path, program: str, ready: Callable[[Kubelet], object] = allocatable
) -> AsyncIterator[tuple[Kubelet, subprocess.Popen[str]]]:
    """A kubelet, and a script of its node that is ready and that the test ends."""
    async with Kubelet(short_dir).running() as kubelet:
        script = start(program, short_dir)
        try:
            await kubelet.wait(lambda: ready(kubelet))
            yield kubelet, script
            assert plugin_sockets(short_dir) == []
        finally:
            script.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_an_idle_script_with_code_0(short_dir: Path, number: signal.Signals) -> None:
    async with with_script(short_dir, "run(P())") as (_, script):
        script.send_signal(number)
        code, errors = ended(script)
    assert code == 0
    assert "Traceback" not in errors
    assert "registered with the kubelet  resource_name=example.com/a devices=1" in errors


async def test_a_signal_ends_a_script_whose_clean_up_raises(short_dir: Path) -> None:
    program = """
import asyncio
class Q(P):
    async def devices(self):
        try:
            yield [Device("a")]
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("no way to clean up")
run(Q())
"""
    async with with_script(short_dir, program) as (_, script):
        script.terminate()
        code, errors = ended(script)
    assert code == 0
    assert "devices() raised an error while it was closed" in errors


BLOCKED = {
    "a generator": """
import threading
class Q(P):
    def devices(self):
        yield [Device("a")]
        threading.Event().wait(3600)
""",
    "a thread of asyncio": """
import asyncio
class Q(P):
    async def devices(self):
        yield [Device("a")]
        await asyncio.to_thread(time.sleep, 3600)
""",
    "a thread of asyncio that nobody waits for": """
import asyncio
class Q(P):
    async def devices(self):
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
        yield [Device("a")]
        await asyncio.Event().wait()
""",
}


@pytest.mark.parametrize("program", BLOCKED.values(), ids=BLOCKED)
async def test_code_that_blocks_for_an_hour_does_not_hold_the_exit(short_dir: Path, program: str) -> None:
    async with with_script(short_dir, f"{program}\nrun(Q())") as (_, script):
        script.terminate()
        code, errors = ended(script)
    assert code == 0, errors


async def test_a_pod_that_is_being_admitted_when_the_signal_comes_has_its_answer(short_dir: Path) -> None:
    program = f"""
class Q(P):
    allocate_timeout_seconds = 60
    def allocate(self, devices):
        os.mkfifo("{short_dir}/begun")
        open("{short_dir}/go").read()
        return ContainerResponse.of(devices, envs={{"X": "1"}})
run(Q())
"""
    os.mkfifo(short_dir / "go")
    async with with_script(short_dir, program) as (kubelet, script), asyncio.TaskGroup() as group:
        admission = group.create_task(kubelet.run_pod(pod("p")))
        await until((short_dir / "begun").exists)
        script.terminate()
        (short_dir / "go").write_text("")
        options = (await admission).containers[0].options
        code, errors = ended(script)
    assert code == 0, errors
    assert options is not None
    assert options.envs == {"X": "1"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_the_script_at_once(short_dir: Path, number: signal.Signals) -> None:
    program = f"""
class Q(P):
    allocate_timeout_seconds = 60
    def allocate(self, devices):
        os.mkfifo("{short_dir}/begun")
        threading.Event().wait(3600)
run(Q())
"""
    async with Kubelet(short_dir).running() as kubelet, asyncio.TaskGroup() as group:
        script = start(program, short_dir)
        try:
            await kubelet.wait(lambda: allocatable(kubelet))
            group.create_task(kubelet.admit(pod("p")))
            await until((short_dir / "begun").exists)
            while script.poll() is None:
                script.send_signal(number)
                await asyncio.sleep(0)
        finally:
            assert ended(script)[0] == -number


async def test_the_first_example_of_the_guide_runs_as_a_script(short_dir: Path) -> None:
    program = """
import devplug

class Fpga(devplug.DevicePlugin):
    resource_name = "example.com/fpga"

    def devices(self):
        return [devplug.Device(f"fpga-{n}", numa_nodes=[n], device_nodes=[f"/dev/fpga{n}"]) for n in (0, 1)]

devplug.run(Fpga())
"""
    name = "example.com/fpga"
    async with with_script(short_dir, program, lambda kubelet: allocatable(kubelet, name) == 2) as (
        kubelet,
        script,
    ):
        listed = kubelet.devices(name)
        assert [(device.id, device.numa_nodes) for device in listed] == [("fpga-0", (0,)), ("fpga-1", (1,))]
        status = await kubelet.run_pod(pod("p", 2, name))
        options = status.containers[0].options
        assert options is not None
        assert {node.host_path for node in options.device_nodes} == {"/dev/fpga0", "/dev/fpga1"}
        script.terminate()
        code, errors = ended(script)
    assert code == 0, errors
    assert "allocated" in errors


def test_a_script_that_is_wrong_ends_with_the_faults(short_dir: Path) -> None:
    code, errors = ended(start("class Q(DevicePlugin):\n  def prestart(self, d): pass\nrun(Q())", short_dir))
    assert code == 1
    assert errors == (
        'devplug: Q has no resource_name; write resource_name = "example.com/kind"; '
        "Q has no method `devices`; Q has `prestart`, which nothing calls; did you mean `pre_start`?\n"
    )


def test_a_script_whose_devices_fail_at_the_start_shows_the_line_that_failed(short_dir: Path) -> None:
    program = """
class Q(P):
    def devices(self):
        raise OSError(19, "no such bus")
run(Q())
"""
    code, errors = ended(start(program, short_dir))
    assert code == 1
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith(
        "devplug: example.com/a: devices() failed: OSError(19, 'no such bus') ("
    )
    assert errors.endswith(" in Q.devices)\n")


def test_a_type_checker_catches_a_misspelt_name(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is a tool of developers")
    file = tmp_path / "plugin.py"
    file.write_text("import devplug\ndevplug.Device('a')\ndevplug.Devices\n")
    # What the names lead to does not matter here, and takes seconds to read.
    config = tmp_path / "mypy.ini"
    config.write_text(
        "[mypy]\n[mypy-devplug]\nfollow_imports = silent\n[mypy-devplug.*]\nfollow_imports = skip\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", os.devnull, file],
        check=False,
        capture_output=True,
        text=True,
    )
    assert 'plugin.py:3: error: Module has no attribute "Devices"' in checked.stdout
    assert "plugin.py:2" not in checked.stdout
