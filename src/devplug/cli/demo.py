"""`devplug demo`: six steps with a real daemon and a kubelet of ours, on this machine's devices.

Every figure and every sentence in quotes is an answer of one of the two; nothing is written here beforehand.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from devplug.cli.demo_devices import HotPlug, best_plug, demo_config, devices_here, shared_here
from devplug.cli.demo_report import JsonReporter, TextReporter
from devplug.cli.exits import FAILED, OK
from devplug.daemon.config.loader import load
from devplug.errors import DevplugError
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod, PodPhase, PodStatus
from devplug.linux.notifier import within
from devplug.linux.processes import signal_process
from devplug.linux.signals import interrupt_on_stop
from devplug.plugin.resource_lock import LOCK_FOLDER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from devplug.cli.demo_report import Reporter
    from devplug.daemon.config.types import Config

Facts = dict[str, Any]

STEP_SECONDS: Final = 20.0
"""How long any step may take before the demo gives up and says which."""

LIST_SECONDS: Final = 1.0
"""How long a new list may take to reach the kubelet where many devices come and go."""

STEADY_DEVICES: Final = 2


class DemoError(DevplugError):
    """A step of the demo did not come to its end on this machine; the text says which and what was seen."""


def demo(*, output: str, color: str) -> int:
    """Run the demo and print its steps; return the exit code."""
    # The kubelet's log tells of every lost stream, which is what the story is about, and a source's that no
    # container could open a terminal.
    logging.getLogger("devplug").addHandler(logging.NullHandler())
    reporter: Reporter = JsonReporter() if output == "json" else TextReporter(color=color)
    interrupt_on_stop()  # the daemon, the devices and the folder have to be given back
    try:
        asyncio.run(play(reporter))
    finally:
        reporter.close()
    return OK if reporter.is_good() else FAILED


async def play(reporter: Reporter, new_plug: Callable[[], HotPlug] = best_plug) -> None:
    """Run the steps and report each to `reporter`, with devices that `new_plug` makes; raises `DemoError`.

    Whatever happens, the daemon, the devices and the temporary folder are gone at the end.
    """
    await _Demo(reporter, new_plug).play()


class _Demo:
    """One run of the demo, and everything that it has to release at its end."""

    def __init__(self, reporter: Reporter, new_plug: Callable[[], HotPlug]) -> None:
        self._reporter = reporter
        self._new_plug = new_plug
        self._folder = Path(tempfile.mkdtemp(prefix="devplug-demo-"))
        self._plugin_dir = self._folder / "device-plugins"
        self._plugs: list[HotPlug] = []

    async def play(self) -> None:
        try:
            await self._play()
        finally:
            for plug in self._plugs:
                with suppress(OSError):
                    await plug.unplug()
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _play(self) -> None:
        plug, config_file, config = await self._prepare()
        hot = f"example.com/{plug.kind}"
        self._reporter.found(devices_here(config))
        kubelet = Kubelet(self._plugin_dir)
        async with kubelet.running(), self._daemon(config_file) as (daemon, started_at):
            names = [resource.name for resource in config.resources]
            await self._registered(kubelet, names, started_at)
            held = await self._pods(kubelet, hot, names)
            await self._hot_plug(kubelet, hot, plug)
            await self._restart(kubelet, names, held)
            await self._stop(daemon)

    async def _prepare(self) -> tuple[HotPlug, Path, Config]:
        """Find what there is, and make two devices of the kind that is plugged: those of others may go."""
        self._plugin_dir.mkdir()
        firmware = self._folder / "firmware"
        firmware.mkdir()
        text = demo_config(shared_here(), self._new_plug(), firmware)
        config = load(text, "demo.yaml")
        for _ in range(STEADY_DEVICES):
            steady = self._new_plug()
            self._plugs.append(steady)
            await steady.plug()
        config_file = self._folder / "demo.yaml"
        config_file.write_text(text, encoding="utf-8")
        plug = self._new_plug()
        self._plugs.append(plug)
        return plug, config_file, config

    @asynccontextmanager
    async def _daemon(self, config_file: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, float]]:
        """Start `devplug run` as a process of its own; it is gone when the block is left."""
        started_at = time.monotonic()
        daemon = await asyncio.create_subprocess_exec(
            # -P: what lies in the current folder is no part of the daemon.
            *(sys.executable, "-P", "-m", "devplug", "run"),
            *("--config", str(config_file), "--plugin-dir", str(self._plugin_dir)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield daemon, started_at
        except DemoError as error:
            daemon.kill()
            said = (await daemon.stderr.read()).decode() if daemon.stderr else ""
            raise DemoError(f"{error}; the daemon said:\n{said}") from error
        finally:
            if daemon.returncode is None:
                daemon.kill()
                await daemon.wait()

    async def _registered(self, kubelet: Kubelet, names: Sequence[str], started_at: float) -> None:
        self._reporter.doing("the daemon starts and registers")
        async with _step("no registration"):
            await kubelet.wait(lambda: all(kubelet.capacity().get(name) for name in names))
        self._reporter.registered(
            {
                "resources": len(names),
                "ms_after_start": _milliseconds(started_at, time.monotonic()),
                "capacity": {name: kubelet.capacity()[name] for name in names},
                "allocatable": {name: kubelet.allocatable()[name] for name in names},
            },
        )

    async def _pods(self, kubelet: Kubelet, hot: str, names: Sequence[str]) -> tuple[str, ...]:
        """Run one pod, and ask for more than is left with another; return what the first one holds."""
        self._reporter.doing("two pods ask for devices")
        limits = {name: 1 for name in names if name == hot or name == names[0]}
        async with _step("the kubelet neither admitted nor refused pod-a"):
            pod = Pod("pod-a", "pod-a", containers=(Container("main", limits),))
            listed = kubelet.devices(hot)
            status = await kubelet.run_pod(pod)
            if status.phase is PodPhase.FAILED:
                # Somebody may just have closed the terminal that it got. A controller would try again, too.
                await within(LIST_SECONDS, kubelet.wait(lambda: kubelet.devices(hot) != listed))
                kubelet.remove_pod(pod.uid)
                status = await kubelet.run_pod(pod)
        if status.phase is not PodPhase.RUNNING:
            raise DemoError(f"pod-a does not run: {status.message or status.containers[0].message}")
        self._reporter.pod_runs(_pod_facts("pod-a", limits, status))
        more = {hot: kubelet.capacity()[hot]}
        async with _step("the kubelet neither admitted nor refused pod-b"):
            refused = await kubelet.admit(Pod("pod-b", "pod-b", containers=(Container("main", more),)))
        self._reporter.pod_refused(
            {
                "name": "pod-b",
                "limits": more,
                "phase": refused.phase.value,
                "reason": refused.reason,
                "message": refused.message,
            },
        )
        return _held(kubelet)

    async def _hot_plug(self, kubelet: Kubelet, hot: str, plug: HotPlug) -> None:
        self._reporter.doing("a device comes and goes")

        def is_listed() -> bool:
            return any(listed.id == device for listed in kubelet.devices(hot))

        plugged_at = await plug.plug()
        path = plug.path
        device = Path(path).name  # not whatever is new: others may plug something in at the same time
        async with _step(f"{path} did not reach the kubelet"):
            await kubelet.wait(is_listed)
        seen_at = time.monotonic()
        unplugged_at = await plug.unplug()
        async with _step(f"{path} did not leave the kubelet's table"):
            await kubelet.wait(lambda: not is_listed())
        self._reporter.hot_plugged(
            {
                "device": device,
                "path": path,
                "plugged_ms": _milliseconds(plugged_at, seen_at),
                "unplugged_ms": _milliseconds(unplugged_at, time.monotonic()),
            },
        )

    async def _restart(self, kubelet: Kubelet, names: Sequence[str], held: tuple[str, ...]) -> None:
        self._reporter.doing("the kubelet restarts")
        with kubelet.changes() as changes:
            await kubelet.restart()
            back_at = registered_at = 0.0
            missing = set(names)
            async with _step("no registration after the kubelet's restart"):
                while missing:
                    change = await anext(changes)
                    if change.kind is ChangeKind.STARTED:
                        back_at = change.at_seconds
                    if change.kind is ChangeKind.REGISTERED:
                        missing.discard(change.resource_name)
                        registered_at = change.at_seconds
        self._reporter.restarted(
            {
                "registered_ms": _milliseconds(back_at, registered_at),
                "pod": "pod-a",
                "phase": kubelet.pod("pod-a").phase.value,
                "kept": list(held) if _held(kubelet) == held else [],
            },
        )

    async def _stop(self, daemon: asyncio.subprocess.Process) -> None:
        self._reporter.doing("the daemon stops")
        stopped_at = time.monotonic()
        signal_process(daemon, signal.SIGTERM)
        async with _step("the daemon did not stop"):
            await daemon.communicate()
        # What remembers who holds which device has to stay: pod-a still does.
        left = sorted(
            path.name
            for path in self._plugin_dir.rglob("*")
            if path.name.startswith(("devplug", ".")) and path.name != LOCK_FOLDER
        )
        self._reporter.stopped(
            {
                "exit_code": daemon.returncode,
                "ms": _milliseconds(stopped_at, time.monotonic()),
                "left_behind": left,
            },
        )


def _pod_facts(name: str, limits: dict[str, int], status: PodStatus) -> Facts:
    options = status.containers[0].options
    assert options is not None
    return {
        "name": name,
        "limits": limits,
        "phase": status.phase.value,
        "device_nodes": [
            {"host": node.host_path, "container": node.container_path, "permissions": node.permissions}
            for node in options.device_nodes
        ],
        "env": dict(options.envs),
        "mounts": [
            {"host": mount.host_path, "container": mount.container_path, "read_only": mount.read_only}
            for mount in options.mounts
        ],
    }


def _held(kubelet: Kubelet) -> tuple[str, ...]:
    """Return what pod-a holds, as the kubelet's own records have it."""
    return tuple(
        id_
        for allocation in kubelet.allocations()
        if allocation.pod_uid == "pod-a"
        for id_ in allocation.device_ids
    )


@asynccontextmanager
async def _step(failure: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(STEP_SECONDS):
            yield
    except TimeoutError:
        raise DemoError(f"{failure} within {STEP_SECONDS:g} s") from None


def _milliseconds(start: float, end: float) -> float:
    return round(max(0.0, 1000 * (end - start)), 1)
