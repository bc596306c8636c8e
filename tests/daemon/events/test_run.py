"""`devplug run` as people start it, with an API server: it is asked and told, and else OpenSSL stays out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devplug.sandbox.client import SandboxClient
from devplug.sandbox.sandboxdir import SandboxDir
from tests.cli.programs import said_until, started

CONFIG = """\
version: 1
resources:
- {name: example.com/a, discover: {static: {ids: [a0]}}, nodeSelector: {kind: lab}}
- {name: example.com/b, discover: {static: {ids: [b0]}}}
"""


@pytest.fixture
def place(short_dir: Path) -> Iterator[SandboxDir]:
    """A sandbox in a process of its own."""
    one = SandboxDir(short_dir / "s")
    with started("sandbox", "up", "--dir", one.folder) as up:
        said_until(up, "KUBECONFIG", on_error=False)
        yield one


def wait(claim: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not claim():
        assert time.monotonic() < deadline


def events(client: SandboxClient) -> list[Any]:
    found: Any = client.ask("GET", "/api/v1/namespaces/default/events").body["items"]
    return [one["reason"] for one in found if one["reportingComponent"] == "devplug"]


def test_labels_and_events_work_in_the_real_command(place: SandboxDir, short_dir: Path) -> None:
    file = short_dir / "devplug.yaml"
    file.write_text(CONFIG)
    client = SandboxClient(place)
    account = {"KUBECONFIG": str(place.kubeconfig), "NODE_NAME": "worker-0"}
    run = ("run", "-c", file, "--kubelet-root", place.node("worker-0").folder, "--kube-events")
    with started(*run, **account) as daemon:
        said_until(daemon, "resource_name=example.com/b")
        labels = {"metadata": {"labels": {"kind": "lab"}}}
        client.ask("PATCH", "/api/v1/nodes/worker-0", labels, "application/merge-patch+json")
        said_until(daemon, "resource_name=example.com/a")
        # What is wrong at the daemon's first look is no event, so it has to have looked.
        wait(lambda: events(client).count("ResourceReady") == 2)
        file.write_text("version: 1\nresources: [{name: bad}]\n")
        wait(lambda: "ConfigRefused" in events(client))
        node: Any = client.ask("GET", "/api/v1/nodes/worker-0").body
        conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
        assert conditions["DevicesReady"] == "True"


def test_without_an_account_openssl_stays_out(short_dir: Path) -> None:
    code = (
        "import sys; from devplug.cli.main import main; sys.argv = ['devplug', 'run', '-c', '/nowhere']\n"
        "try: main()\n"
        "except SystemExit: print(sys.modules.get('ssl'), sys.modules.get('_hashlib'))"
    )
    variables = {name: text for name, text in os.environ.items() if name != "KUBECONFIG"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "None None\n"
