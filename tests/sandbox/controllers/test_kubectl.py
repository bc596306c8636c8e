"""What controllers do, as a real kubectl sees it: rollouts, deletions and namespaces of a whole sandbox."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from devplug.sandbox.cluster import Sandbox
from devplug.sandbox.settings import SandboxSettings

DAEMONS = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: plugin}
spec:
  selector: {matchLabels: {app: plugin}}
  template:
    metadata: {labels: {app: plugin}}
    spec:
      containers: [{name: c, image: "busybox:1"}]
"""


async def kubectl(sandbox: Sandbox, *words: str, stdin: str = "") -> str:
    """Run it, and return what it prints; it may not fail."""
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        *words,
        env={**os.environ, "KUBECONFIG": str(sandbox.kubeconfig)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate(stdin.encode())
    assert process.returncode == 0, printed.decode()
    return printed.decode().rstrip("\n")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
async def test_kubectl_rolls_daemons_out_and_takes_them_away(short_dir: Path) -> None:
    sandbox = Sandbox(SandboxSettings(folder=short_dir / "sandbox", nodes=2))
    async with asyncio.timeout(50), sandbox.running():
        done = 'daemon set "plugin" successfully rolled out'
        await kubectl(sandbox, "apply", "-f", "-", stdin=DAEMONS)
        first = await kubectl(sandbox, "rollout", "status", "ds/plugin")
        assert first.splitlines()[-1] == done
        await kubectl(sandbox, "set", "image", "ds/plugin", "c=busybox:2")
        assert (await kubectl(sandbox, "rollout", "status", "ds/plugin")).splitlines()[-1] == done
        images = "jsonpath={.items[*].spec.containers[*].image}"
        assert await kubectl(sandbox, "get", "pods", "-o", images) == "busybox:2 busybox:2"
        await kubectl(sandbox, "delete", "ds", "plugin", "--cascade=orphan")
        owners = "jsonpath={.items[*].metadata.ownerReferences}"
        assert await kubectl(sandbox, "get", "pods", "-o", owners) == ""
        assert len((await kubectl(sandbox, "get", "pods", "-o", "name")).splitlines()) == 2
        await kubectl(sandbox, "apply", "-f", "-", stdin=DAEMONS)
        await kubectl(sandbox, "delete", "ds", "plugin", "--cascade=foreground")
        assert await kubectl(sandbox, "get", "ds,pods", "-o", "name") == ""
        await kubectl(sandbox, "apply", "-f", "-", stdin=DAEMONS)
        await kubectl(sandbox, "delete", "ds", "plugin")
        await kubectl(sandbox, "wait", "--for=delete", "pod", "-l", "app=plugin", "--timeout=30s")
        assert await kubectl(sandbox, "get", "pods", "-o", "name") == ""


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
async def test_kubectl_waits_for_a_namespace_to_end_with_what_is_in_it(short_dir: Path) -> None:
    sandbox = Sandbox(SandboxSettings(folder=short_dir / "sandbox"))
    async with asyncio.timeout(50), sandbox.running():
        await kubectl(sandbox, "create", "namespace", "tutorial")
        await kubectl(sandbox, "run", "-n", "tutorial", "p", "--image=busybox")
        await kubectl(sandbox, "delete", "namespace", "tutorial")
        listed = await kubectl(sandbox, "get", "namespaces", "-o", "name")
        assert listed.split() == [
            f"namespace/{name}" for name in ("default", "kube-node-lease", "kube-public", "kube-system")
        ]
