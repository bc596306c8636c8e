"""Attacks on paths: they are swapped while they are asked for; a container never gets another file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.cdi.spec import UNPLUGGED_PATH
from devplug.daemon.cdi.spec_files import CdiFolder
from devplug.daemon.config.loader import load
from devplug.daemon.context import DaemonContext
from devplug.daemon.resource import ConfiguredPlugin
from devplug.devices import Device
from devplug.errors import ForbiddenPathError, UnhealthyDeviceError
from torture.catalogue import case
from torture.footprint import nothing_kept
from torture.hardware import discovered
from torture.path_swapper import swapped
from torture.testbed import RESOURCE

if TYPE_CHECKING:
    from pathlib import Path

    from devplug.devices import ContainerResponse
    from torture.catalogue import Trial

GOOD: Final = "/dev/null"

EVILS: Final = {
    "another-device": "/dev/zero",
    "memory": "/dev/mem",
    "file": "/etc/passwd",
    "folder": "/dev",
    "system": "/sys/class",
    "nothing": "/dev/devplug-none",
    "magic": "/proc/self/fd/0",
    "magic-to-the-same": "/proc/self/root/dev/null",
    "above": "../../../../../../../../../../../../etc/shadow",
    "circle": "circle",
}
"""What each device's path leads to for a half of the time; the rest of it, to the device."""

MANY: Final = 100
WARM_UP: Final = 200


@dataclass(frozen=True, slots=True)
class _Scene:
    """Devices behind links, each with its evil twin."""

    folder: Path

    @property
    def pairs(self) -> list[tuple[Path, Path]]:
        """The second links, of which no event tells a source, and what they are swapped with."""
        return [(self.folder / "middle" / name, self.folder / "evil" / name) for name in EVILS]

    def make(self) -> None:
        """Make all the links."""
        for name in ("by-id", "middle", "evil", "mounts", "good", "cdi"):
            (self.folder / name).mkdir()
        for name, target in EVILS.items():
            (self.folder / "by-id" / name).symlink_to(self.folder / "middle" / name)
            (self.folder / "middle" / name).symlink_to(GOOD)
            (self.folder / "evil" / name).symlink_to(target)
        (self.folder / "evil" / "circle").unlink()
        (self.folder / "evil" / "circle").symlink_to(self.folder / "by-id" / "circle")

    def plugin(self, expose: str) -> ConfiguredPlugin:
        """Return a plugin for them."""
        text = (
            f'version: 1\nresources: [{{name: {RESOURCE}, discover: {{path: "{self.folder}/by-id/*"}}, '
            f"expose: {{{expose}}}}}]"
        )
        (resource,) = load(text, "devplug.yaml").resources
        return ConfiguredPlugin(resource, DaemonContext(cdi=CdiFolder(self.folder / "cdi")))

    def spec(self) -> dict[str, list[str]]:
        """Return the host paths of each device that runtimes would read now."""
        (file,) = (self.folder / "cdi").glob("devplug*.json")
        return {
            device["name"]: [
                node.get("hostPath", node["path"]) for node in device["containerEdits"]["deviceNodes"]
            ]
            for device in json.loads(file.read_text())["devices"]
        }


async def _asked(plugin: ConfiguredPlugin, name: str) -> ContainerResponse | None:
    """Return what a container gets, None if it is refused as it should be; anything else is raised."""
    try:
        return await plugin.allocate([Device(name)])
    except (UnhealthyDeviceError, ForbiddenPathError):
        return None


@case(
    "paths-swapped-in-cdi-specs",
    fault="X23",
    promise="While links are swapped with evil ones, a CDI spec names the device's own file and nothing else",
    count=10_000,
    unit="Allocates",
    invariants="I3 I4",
)
async def paths_swapped_in_cdi_specs(trial: Trial) -> None:
    """Ask for devices by CDI name, and read what the runtime would read."""
    scene = _Scene(trial.folder)
    scene.make()
    plugin = scene.plugin("strategy: cdi")
    granted = 0
    async with discovered(plugin):
        for number in range(WARM_UP):
            await _asked(plugin, [*EVILS][number % len(EVILS)])
        async with nothing_kept(trial):
            with swapped(*scene.pairs):
                for turn in trial.rounds():
                    name = turn.random.choice([*EVILS])
                    response = await _asked(plugin, name)
                    if response is None:
                        continue
                    granted += 1
                    told = scene.spec()[name]
                    # A look after the Allocate may have found the evil link: then no container starts.
                    is_good = told in ([GOOD], [UNPLUGGED_PATH])
                    trial.check(is_good, f"I4: {name} was given as {told}", turn.number)
    trial.figure("granted", granted)
    # The attacker may not have had a turn within a few.
    happened = 0 < granted < trial.count or trial.count < MANY
    trial.check(happened, f"I4: {granted} were granted: the attack did not happen")


@case(
    "paths-swapped-in-answers",
    fault="X23",
    promise="While links are swapped with evil ones, an answer names the paths of the file and nothing else",
    count=40_000,
    unit="Allocates",
    invariants="I3 I4",
    brief=True,
)
async def paths_swapped_in_answers(trial: Trial) -> None:
    """Ask for devices with a mount each, whose path is swapped with one that leads into the system."""
    scene = _Scene(trial.folder)
    scene.make()
    for name in EVILS:
        (scene.folder / "mounts" / name).symlink_to(scene.folder / "good")
        (scene.folder / "evil" / f"mount-{name}").symlink_to("/etc")
    mounts = [(scene.folder / "mounts" / name, scene.folder / "evil" / f"mount-{name}") for name in EVILS]
    plugin = scene.plugin(f'mounts: [{{hostPath: "{scene.folder}/mounts/{{file}}"}}]')
    granted = 0
    async with discovered(plugin):
        async with nothing_kept(trial):
            with swapped(*scene.pairs, *mounts):
                for turn in trial.rounds():
                    name = turn.random.choice([*EVILS])
                    response = await _asked(plugin, name)
                    if response is None:
                        continue
                    granted += 1
                    nodes = [node.host_path for node in response.device_nodes]
                    paths = [mount.host_path for mount in response.mounts]
                    expected = ([f"{scene.folder}/by-id/{name}"], [f"{scene.folder}/mounts/{name}"])
                    trial.check((nodes, paths) == expected, f"I4: {name} got {nodes} {paths}", turn.number)
        # What lies there at last decides, not what was seen before.
        for name in EVILS:
            await _look_at_the_end(trial, scene, plugin, name)
    trial.figure("granted", granted)
    # The attacker may not have had a turn within a few.
    happened = 0 < granted < trial.count or trial.count < MANY
    trial.check(happened, f"I4: {granted} were granted: the attack did not happen")


async def _look_at_the_end(trial: Trial, scene: _Scene, plugin: ConfiguredPlugin, name: str) -> None:
    for target, mounted, is_granted in ((GOOD, f"{scene.folder}/good", True), (EVILS[name], "/etc", False)):
        for path, leads_to in ((scene.folder / "middle", target), (scene.folder / "mounts", mounted)):
            (path / name).unlink()
            (path / name).symlink_to(leads_to)
        response = await _asked(plugin, name)
        trial.check((response is not None) is is_granted, f"I4: {name} is granted: {response}")
