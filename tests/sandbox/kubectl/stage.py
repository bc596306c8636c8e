"""A sandbox in processes of its own, with kubectl and a plugin, for sessions that are played in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self
from urllib.request import Request, urlopen

from devplug.sandbox.sandboxdir import SandboxDir
from tests.cli.programs import ended, environment, said_until, started
from tests.sandbox.jsons import KUBECTL
from tests.sandbox.kubectl.playback import Between, Step, differences, filtered

_ROOT: Final = Path(__file__).parents[3]
_OLDEST: Final = (1, 27)
"""The oldest kubectl that the sandbox is for."""

_PATIENCE_SECONDS: Final = 30.0
"""How long a command that changes nothing is given again until it shows what was recorded."""

_SAMPLE: Final = "from devplug import run; from examples.sample import Sample; run(Sample({folder!r}))"


def why_kubectl_is_missing() -> str:
    """Return why nothing can be played on this machine, or nothing."""
    if shutil.which("kubectl") is None:
        return "kubectl is not installed"
    told = subprocess.run(
        ["kubectl", "version", "--client"], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"Client Version: v(\d+)\.(\d+)", told)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST:
        return f"kubectl is too old, or tells no version: {told}"
    return ""


class Stage:
    """A sandbox that is up for as long as the block; the folder's path is short enough for sockets."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.place = SandboxDir(folder / "s")
        self._options = options
        self._all = ExitStack()
        self._plugin: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        shutil.copytree(KUBECTL, self.folder / "inputs")
        self._up = up = self._all.enter_context(
            started("sandbox", "up", "--dir", self.place.folder, *self._options, **self._variables)
        )
        try:
            said_until(up, "KUBECONFIG", on_error=False)
        except AssertionError:
            assert up.stderr is not None
            raise AssertionError(up.stderr.read()) from None
        return self

    def __exit__(self, *_: object) -> None:
        with self._all:
            if self._plugin is not None:
                self.stop_plugin()
            self._up.terminate()
            assert ended(self._up) == 0

    @property
    def _variables(self) -> dict[str, str]:
        home = str(self.folder)  # kubectl's cache goes there
        return {"HOME": home, "PYTHONPATH": str(_ROOT), "KUBECONFIG": str(self.place.kubeconfig)}

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """Run kubectl in the folder of the inputs; return what it prints, on both streams."""
        ran = subprocess.run(
            ["kubectl", *arguments],
            cwd=self.folder / "inputs",
            env=environment(**self._variables, PATH=os.environ["PATH"]),
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * _PATIENCE_SECONDS,
            check=False,
        )
        return ran.stdout

    def applied(self, manifest: str) -> str:
        """Apply a manifest; return what kubectl says."""
        return self.kubectl("apply", "-f", "-", given=manifest)

    def asked(self, path: str, media_type: str = "application/json") -> str:
        """Return what the API server answers to GET."""
        record = self.place.running()
        assert record is not None
        headers = {"Accept": media_type, "Authorization": f"Bearer {record.token}"}
        with urlopen(Request(record.server + path, headers=headers), timeout=_PATIENCE_SECONDS) as answer:
            return str(answer.read().decode())

    def start_plugin(self) -> None:
        """Start the twin of upstream's sample plugin, as people would on their terminal."""
        program = _SAMPLE.format(folder=str(self.folder))
        arguments = ("sandbox", "run", "--dir", self.place.folder, "--", sys.executable, "-c", program)
        # The recorded plugin does not ask who holds what, which the kubelet would count.
        variables = {**self._variables, "DEVPLUG_POD_RESOURCES": str(self.folder / "nowhere.sock")}
        self._plugin = self._all.enter_context(started(*arguments, **variables))

    def stop_plugin(self) -> None:
        """Stop it, as with Ctrl-C."""
        assert self._plugin is not None
        self._plugin.terminate()
        ended(self._plugin)
        self._plugin = None

    def play(self, steps: Iterable[Step | Between]) -> dict[str, str]:
        """Play a session; return by its steps' names what was shown."""
        shown = {}
        for step in steps:
            match step:
                case Between.PLUGIN_STARTS:
                    self.start_plugin()
                case Between.PLUGIN_STOPS:
                    self.stop_plugin()
                case Between.CLEANS_UP:
                    self.kubectl("delete", "pod", "too-many", "k8sio", "zero", "unknown")
                    self.kubectl("delete", "quota", "q")
                case Step():
                    shown[step.name] = self._given(step)
        return shown

    def _given(self, step: Step) -> str:
        """Give a command; one that only looks is given again until it shows what is wanted."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            if step.path:
                shown = self.asked(step.path, step.media_type)
            else:
                shown = self.kubectl(*step.kubectl)
                shown = filtered(step.expression, shown) if step.expression else shown
            if step.changes or not differences(step, shown) or time.monotonic() > until:
                return shown
