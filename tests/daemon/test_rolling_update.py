"""A rolling update of a DaemonSet with `maxSurge: 1`: for a while two daemons serve a node's claims."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from devplug.daemon.config.loader import load
from devplug.deploy.manifests import manifests, values_for
from devplug.deploy.names import Release
from devplug.deploy.security_context import needs_of
from devplug.driver.device_entries import device_name
from devplug.driver.prepared_claims import claims_in
from devplug.k8s.yaml import yaml_text
from tests.cli.programs import ended, said_until, started
from tests.sandbox.kubectl.stage import Stage, why_kubectl_is_missing

pytest.importorskip("cel_expr_python", reason="there is no wheel for this machine")
pytestmark = pytest.mark.skipif(
    bool(why_kubectl_is_missing()), reason=why_kubectl_is_missing() or "kubectl is there"
)

CONFIG = """
version: 1
driver: devices.example.com
resources:
  - name: example.com/fpga
    serve: dra
    discover: {{static: {{ids: {ids}}}}}
    expose: {{env: {{FPGA: "{{ids}}"}}}}
    onRelease: {{exec: {{command: [/bin/sh, -c, "echo $DEVPLUG_DEVICE_ID >> {folder}/cleaned"]}}}}
"""
POD = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}}}
spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: fpga.example.com}}}}]}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{{name: fpga, resourceClaimName: {name}}}]
  containers: [{{name: c, image: busybox, resources: {{claims: [{{name: fpga}}]}}}}]
"""
OLD, NEW, NEXT = (f"{digit * 8}-2222-3333-4444-555555555555" for digit in "1ab")


class Update:
    """A node of a sandbox on which daemons come and go, as pods of one DaemonSet do."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.cdi = stage.folder / "cdi"
        self.cdi.mkdir()
        self.config = self.write("devplug.yaml", *"abcd")
        self.kubelet_root = stage.place.folder / "nodes" / "worker-0"
        values = values_for(needs_of(load(self.config.read_text(), "c.yaml")))
        objects = manifests(values, Release("devplug", "devplug", "1"))
        stage.applied("---\n".join(yaml_text(one) for one in objects if one["kind"] == "DeviceClass"))

    def write(self, name: str, *ids: str) -> Path:
        """Write a configuration with these devices."""
        path = self.stage.folder / name
        path.write_text(CONFIG.format(folder=self.stage.folder, ids=f"[{', '.join(ids)}]"))
        return path

    def daemon(
        self, pod_uid: str, config: Path | None = None
    ) -> AbstractContextManager[subprocess.Popen[str]]:
        """Start a daemon as the container of a pod."""
        options = "--kubelet-root", self.kubelet_root, "--cdi-dir", self.cdi
        return started("run", "-c", config or self.config, *options, **self._variables(pod_uid))

    def _variables(self, pod_uid: str) -> dict[str, str]:
        kubeconfig = str(self.stage.place.kubeconfig)
        return {"KUBECONFIG": kubeconfig, "NODE_NAME": "worker-0", "POD_UID": pod_uid}

    def start_pod(self, name: str) -> str:
        """Start a pod with a claim; return the ID of its device once it runs."""
        self.stage.applied(POD.format(name=name))
        waiting = "--for=jsonpath={.status.phase}=Running", "--timeout=50s"
        assert "condition met" in self.stage.kubectl("wait", f"pod/{name}", *waiting)
        claim = self.shown("resourceclaim", name)
        (file,) = self.cdi.glob(f"*-claim-{claim['metadata']['uid']}.yaml")
        (device,) = json.loads(file.read_text().partition("\n")[2])["devices"]
        (variable,) = device["containerEdits"]["env"]
        return str(variable.removeprefix("FPGA="))

    def end_pod(self, name: str) -> None:
        """Delete a pod and its claim; return once its claim is unprepared, which its deletion waits for."""
        for kind in ("pod", "resourceclaim"):
            assert "deleted" in self.stage.kubectl("delete", kind, name, "--wait", "--timeout=50s")

    def shown(self, *what: str) -> Any:
        return json.loads(self.stage.kubectl("get", *what, "-o", "json"))

    def slices(self) -> list[tuple[str, str]]:
        """Return the slices with their versions: each write gives one another."""
        return _versions(self.shown("resourceslices")["items"])

    def has_published(self, *ids: str) -> list[tuple[str, str]]:
        """Return the slices once they have exactly these devices."""
        wanted = sorted(device_name("example.com/fpga", one) for one in ids)
        while True:
            found = self.shown("resourceslices")["items"]
            if sorted(one["name"] for item in found for one in item["spec"]["devices"]) == wanted:
                return _versions(found)

    def cleaned(self) -> list[str]:
        """Return the devices for which `onRelease` has run, each as often as it has."""
        file = self.stage.folder / "cleaned"
        return sorted(file.read_text().split()) if file.exists() else []

    def left(self) -> list[str]:
        """Return what is still kept of claims, and of devices to clean."""
        state = self.kubelet_root / "plugins" / "devices.example.com" / "prepared_claims.json"
        return [str(one) for one in (*claims_in(state.read_bytes())[0], *self.cdi.iterdir())]


def _versions(slices: Any) -> list[tuple[str, str]]:
    return [(one["metadata"]["name"], one["metadata"]["resourceVersion"]) for one in slices]


@pytest.fixture
def update(short_dir: Path) -> Iterator[Update]:
    with Stage(short_dir) as stage:
        yield Update(stage)


def is_ready(daemon: subprocess.Popen[str]) -> None:
    """Return once the kubelet calls this daemon."""
    said_until(daemon, "registered with the kubelet")


def end(daemon: subprocess.Popen[str]) -> None:
    daemon.send_signal(signal.SIGTERM)
    assert ended(daemon) == 0


def test_claims_are_served_before_while_and_after_two_daemons_run(update: Update) -> None:
    with update.daemon(OLD) as old:
        is_ready(old)
        given = {"before": update.start_pod("before")}
        published = update.slices()
        assert published
        with update.daemon(NEW) as new:
            is_ready(new)
            given["while"] = update.start_pod("while")
            end(old)
            given["after"] = update.start_pod("after")
            assert len(set(given.values())) == len(given)
            assert update.cleaned() == []
            for name in given:
                update.end_pod(name)
            assert update.cleaned() == sorted(given.values())
            assert update.slices() == published
            end(new)
    assert update.left() == []


@pytest.mark.nightly  # takes 7 s
def test_each_daemon_releases_what_the_other_one_prepared_and_once(update: Update) -> None:
    """The update is undone: its daemon dies, and the old one is asked again."""
    with update.daemon(OLD) as old:
        is_ready(old)
        with update.daemon(NEW) as new:
            is_ready(new)
            given = [update.start_pod("one")]
            new.kill()
        given.append(update.start_pod("two"))
        update.end_pod("one")
        assert update.cleaned() == given[:1]
        with update.daemon(NEXT) as following:
            is_ready(following)
            update.end_pod("two")
            assert update.cleaned() == sorted(given)
            again = update.start_pod("three")
            assert update.cleaned() == sorted(given)
            update.end_pod("three")
            assert update.cleaned() == sorted([*given, again])
            end(following)
        end(old)
    assert update.left() == []


def test_of_two_daemons_with_different_files_only_the_one_that_registered_last_publishes(
    update: Update,
) -> None:
    """Each would undo what the other one writes, and the scheduler's view would never stand still."""
    before, after = update.write("before.yaml", "a", "b"), update.write("after.yaml", "b", "c")
    with update.daemon(OLD, before) as old:
        is_ready(old)
        update.has_published("a", "b")
        with update.daemon(NEW, after) as new:
            is_ready(new)
            published = update.has_published("b", "c")
            update.write("before.yaml", "a", "b", "d")  # what the old one serves changes, too
            said_until(old, "configuration reloaded")
            given = update.start_pod("while")
            assert given in {"b", "c"}
            assert update.slices() == published
            new.kill()
            ended(new)
        update.has_published("a", "b", "d")
        with update.daemon(NEXT, after) as following:
            is_ready(following)
            published = update.has_published("b", "c")
            end(old)
            update.end_pod("while")
            assert update.slices() == published
            end(following)
    assert update.left() == []


@pytest.mark.nightly  # takes 6 s
def test_a_claim_of_a_device_that_only_one_of_two_files_has_is_released_by_whoever_is_asked(
    update: Update,
) -> None:
    before, after = update.write("before.yaml", "a"), update.write("after.yaml", "b")
    with update.daemon(OLD, before) as old:
        is_ready(old)
        assert update.start_pod("old") == "a"
        with update.daemon(NEW, after) as new:
            is_ready(new)
            assert update.start_pod("new") == "b"
            update.end_pod("old")
            assert update.cleaned() == ["a"]
            new.kill()
        update.end_pod("new")
        assert update.cleaned() == ["a", "b"]
        assert update.start_pod("again") == "a"
        update.end_pod("again")
        end(old)
    assert update.left() == []
