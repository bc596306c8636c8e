"""The judged DRA driver: its command, the folders of one start, and the running one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from devplug.conformance.program import Program
from devplug.linux.processes import filled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

__all__ = ["DriverPlace", "DriverSubject", "Launch", "Running", "program_of"]


@dataclass(frozen=True, slots=True)
class DriverSubject:
    """The judged driver: its command, and how it is to be started.

    In the words of the command and the values of the environment, `{root}` becomes the kubelet's folder, with
    `plugins_registry` and `plugins` in it, `{cdi}` the folder of CDI files, `{kubeconfig}` the file for the
    API server, `{node}` the node's name, `{pod}` the UID of the driver's pod, `{work}` an empty folder. The
    variables KUBELET_ROOT, CDI_ROOT, KUBECONFIG, NODE_NAME and POD_UID have the first five as well.
    """

    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to that of the judge."""


@dataclass(frozen=True, slots=True)
class DriverPlace:
    """Where one start of a driver finds everything."""

    root: Path
    cdi: Path
    work: Path
    kubeconfig: Path
    node_name: str
    pod_uid: str
    output_file: Path

    @property
    def registry(self) -> Path:
        """`plugins_registry`."""
        return self.root / "plugins_registry"


class Running(Protocol):
    """A driver that was started; the one who starts it ends it."""

    started_at: float
    """Monotonic time."""

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None as long as it runs."""

    def last_words(self) -> str:
        """Return the last line that it printed."""

    async def wait(self, seconds: float) -> bool:
        """Wait for its end; returns whether it came in time."""

    async def stop(self, seconds: float) -> float | None:
        """Ask it to end; return how many seconds that took, None if it had to be killed. Safe to repeat."""

    async def kill(self) -> None:
        """End it without a chance to clean up."""


Launch: TypeAlias = "Callable[[DriverPlace], Awaitable[Running]]"
"""Starts the driver once more. Raises `PluginError` if it cannot be started."""


def program_of(subject: DriverSubject) -> Launch:
    """Return what starts the subject's command as a program."""

    async def launch(place: DriverPlace) -> Program:
        places = {
            "{root}": str(place.root),
            "{cdi}": str(place.cdi),
            "{work}": str(place.work),
            "{kubeconfig}": str(place.kubeconfig),
            "{node}": place.node_name,
            "{pod}": place.pod_uid,
        }
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "NODE_NAME": place.node_name,
            "KUBECONFIG": str(place.kubeconfig),
            "POD_UID": place.pod_uid,
            "KUBELET_ROOT": str(place.root),
            "CDI_ROOT": str(place.cdi),
            **{name: filled(value, places) for name, value in subject.environment.items()},
        }
        command = [filled(word, places) for word in subject.command]
        return await Program.spawned(command, environment, place.output_file)

    return launch
