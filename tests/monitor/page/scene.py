"""What the page's tests look at: a daemon of its own process, an emulated kubelet, pods, and `devplug ui`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from devplug.testing.kubelet import SyncKubelet
from tests.cli.programs import DEVPLUG, said_until, started

SERIAL, FPGA, KVM = "example.com/serial", "example.com/fpga", "example.com/kvm"

CONFIG = """version: 1
resources:
- name: example.com/serial
  discover: {{path: "{folder}/by-id/*"}}
  health: [{{file: "{folder}/state", equals: ok, period: 1s, failureThreshold: 1, successThreshold: 1}}]
- name: example.com/fpga
  discover:
    static:
      ids: [fpga-0, fpga-1, fpga-2, fpga-3]
      numaNodes: {{fpga-0: 0, fpga-1: 0, fpga-2: 1, fpga-3: 1}}
- name: example.com/kvm
  discover: {{path: "{folder}/kvm"}}
  share: {{replicas: 10}}
"""


class Scene:
    """A node with three resources. `plug`, `unplug`, `fail` and `mend` change its serial adapters."""

    def __init__(self, folder: Path, kubelet: SyncKubelet, serial: Sequence[str] = ("tty0", "tty1")) -> None:
        self.folder = folder
        self.kubelet = kubelet
        (folder / "by-id").mkdir()
        self.mend()
        (folder / "kvm").symlink_to("/dev/null")
        for name in serial:
            self.plug(name)

    def start(self) -> None:
        config = self.folder / "devplug.yaml"
        config.write_text(CONFIG.format(folder=self.folder))
        self.kubelet.run(
            [*DEVPLUG, "run", "-c", str(config), "--kubelet-root", str(self.kubelet.root)],
            resources=[SERIAL, FPGA, KVM],
        )

    def plug(self, name: str) -> None:
        (self.folder / "by-id" / name).symlink_to("/dev/null")

    def unplug(self, name: str) -> None:
        (self.folder / "by-id" / name).unlink()

    def fail(self, why: str) -> None:
        """Make the serial adapters unhealthy; `why` is in the reason."""
        (self.folder / "state").write_text(why)

    def mend(self) -> None:
        (self.folder / "state").write_text("ok")


@contextmanager
def page_of(kubelet: SyncKubelet) -> Iterator[str]:
    """`devplug ui` for the kubelet's node, in a process of its own; yields the page's address."""
    options = ("--listen", "127.0.0.1:0", "--kubelet-root", kubelet.root)
    with started("ui", *options, NODE_NAME="worker-0") as process:
        yield address_in(said_until(process, "Ctrl-C", on_error=False))
        process.terminate()
        _, said = process.communicate(timeout=30)
        assert (process.returncode, said) == (0, "")


def address_in(line: str) -> str:
    return line.split(maxsplit=1)[0]


def asked(url: str) -> Any:
    with urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())
