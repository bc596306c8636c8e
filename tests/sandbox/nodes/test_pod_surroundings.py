"""Programs of pods find what a container of their pod has: a service account and the node's folders."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devplug.kubelet_dir import CDI_DIR, KUBELET_ROOT
from devplug.linux.processes import can_mount
from devplug.sandbox.api.kinds import known
from devplug.sandbox.cluster import Sandbox
from devplug.sandbox.registry import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, SERVICE_ACCOUNTS
from devplug.sandbox.sandboxdir import NodeDir
from devplug.sandbox.settings import SandboxSettings

ROOT = Path(__file__).resolve().parents[3]
needs_mounts = pytest.mark.skipif(
    not can_mount() or shutil.which("openssl") is None, reason="needs the right to mount, and openssl"
)

IN_CLUSTER = """
import json, os, ssl, urllib.error, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
found = sorted(os.listdir(folder))
if not found:
    raise SystemExit("no token: " + repr(os.environ["KUBECONFIG"]))
token, namespace = (open(f"{folder}/{name}").read() for name in ("token", "namespace"))
server = "https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}".format(**os.environ)
context = ssl.create_default_context(cafile=f"{folder}/ca.crt")
def code(path, body=None):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(server + path, body, headers)
    try:
        with urllib.request.urlopen(request, context=context) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
pods = code(f"/api/v1/namespaces/{namespace}/pods")
print(*found, namespace, "pods", pods, "nodes", code("/api/v1/nodes"))
"""
"""All that client-go's `rest.InClusterConfig` reads, and nothing else."""


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "program", **spec.pop("container", {})}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, "restartPolicy": "Never", **spec}}


@asynccontextmanager
async def sandbox(folder: Path, command: Sequence[str], *, rbac: bool = False) -> AsyncIterator[Sandbox]:
    images = {"program": tuple(command)}
    settings = SandboxSettings(folder=folder / "s", images=images, rbac=rbac)
    async with asyncio.timeout(100), Sandbox(settings).running() as started:
        yield started


async def printed(cluster: Sandbox, manifest: dict[str, Any]) -> str:
    """Run a pod's program to its end; return what it printed."""
    name = manifest["metadata"]["name"]
    cluster.registry.create(PODS, "default", manifest)
    async for event in cluster.registry.follow(PODS):
        found: Any = event.object
        if found["metadata"]["name"] == name and found["status"].get("phase") in {"Succeeded", "Failed"}:
            (log,) = cluster.place.logs.glob(f"default_{name}_*/c/0.log")
            return "\n".join(line.split(" ", 3)[3] for line in log.read_text().splitlines())
    raise AssertionError


def allow(cluster: Sandbox, account: str) -> None:
    """Let a service account list pods."""
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": "default"}]
    roles, bindings = (known(f"{group}/v1", kind) for kind in ("Role", "RoleBinding"))
    cluster.registry.create(roles, "default", {"kind": "Role", "metadata": {"name": "r"}, "rules": rules})
    role = {"apiGroup": group, "kind": "Role", "name": "r"}
    binding: dict[str, object] = {
        "kind": "RoleBinding",
        "metadata": {"name": "r"},
        "roleRef": role,
        "subjects": subjects,
    }
    cluster.registry.create(bindings, "default", binding)


@needs_mounts
async def test_a_program_is_its_service_account(short_dir: Path) -> None:
    async with sandbox(short_dir, (sys.executable, "-c", IN_CLUSTER), rbac=True) as cluster:
        allow(cluster, "reader")
        assert await printed(cluster, pod("p", serviceAccountName="reader")) == (
            "ca.crt namespace token default pods 200 nodes 403"
        )


@needs_mounts
async def test_without_roles_a_program_may_do_everything(short_dir: Path) -> None:
    async with sandbox(short_dir, (sys.executable, "-c", IN_CLUSTER)) as cluster:
        assert (await printed(cluster, pod("p"))).endswith("pods 200 nodes 200")


@needs_mounts
@pytest.mark.parametrize(
    ("of_account", "of_pod", "has_token"),
    [(False, None, False), (None, False, False), (False, True, True), (True, None, True)],
)
async def test_a_token_is_mounted_unless_pod_or_account_decline(
    short_dir: Path, *, of_account: bool | None, of_pod: bool | None, has_token: bool
) -> None:
    """The pod wins (pkg/serviceaccount/util.go, plugin/pkg/admission/serviceaccount/admission.go)."""
    key = "automountServiceAccountToken"
    async with sandbox(short_dir, (sys.executable, "-c", IN_CLUSTER)) as cluster:
        account = {"metadata": {"name": "a"}, **({} if of_account is None else {key: of_account})}
        cluster.registry.create(SERVICE_ACCOUNTS, "default", account)
        wish = {} if of_pod is None else {key: of_pod}
        told = await printed(cluster, pod("p", serviceAccountName="a", **wish))
        assert told == "no token: ''" if not has_token else told.startswith("ca.crt namespace token")


@needs_mounts
async def test_a_static_pod_has_no_token(short_dir: Path) -> None:
    async with sandbox(short_dir, (sys.executable, "-c", IN_CLUSTER)) as cluster:
        manifests = cluster.place.node("worker-0").manifests
        (manifests / "p.json").write_text(
            '{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": '
            '[{"name": "c", "image": "program"}], "restartPolicy": "Never"}}'
        )
        async for event in cluster.registry.follow(PODS):
            found: Any = event.object
            if found["status"].get("phase") == "Failed":
                break
        (log,) = cluster.place.logs.glob("default_p-worker-0_*/c/0.log")
        assert "no token" in log.read_text()


SAYS = "import os; print(*(os.environ[name] for name in ('KUBECONFIG', 'KUBERNETES_SERVICE_HOST')), sep='|')"


async def test_a_program_never_finds_the_cluster_of_its_user(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by a kubeconfig nor as a pod: a driver would publish its devices there."""
    monkeypatch.setenv("KUBECONFIG", "/the/users/own")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    async with sandbox(short_dir, (sys.executable, "-c", SAYS)) as cluster:
        kubeconfig, _, host = (await printed(cluster, pod("p"))).partition("|")
        assert Path(kubeconfig).parent == cluster.place.accounts
        assert host in {"", "127.0.0.1"}


# ── the node's folders ──


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/var/lib/kubelet", {"/var/lib/kubelet": ""}),
        ("/var/lib/kubelet/", {"/var/lib/kubelet": ""}),
        ("/var/lib", {"/var/lib/kubelet": ""}),
        ("/var/lib/kubelet/device-plugins", {"/var/lib/kubelet/device-plugins": "device-plugins"}),
        ("/var/lib/kubelet/plugins/a.b", {"/var/lib/kubelet/plugins/a.b": "plugins/a.b"}),
        ("/var/lib/kubelet/a-file", {"/var/lib/kubelet": ""}),
        ("/etc/cdi", {"/etc/cdi": "cdi"}),
        ("/var/run/cdi", {"/var/run/cdi": "cdi"}),
        ("/var/lib/kubelet-2", {}),
        ("/var/lib/kubelet/../cdi", {}),
        ("/dev", {}),
        ("/", {}),
    ],
)
def test_a_container_finds_the_folders_that_its_pod_mounts(
    tmp_path: Path, path: str, found: Mapping[str, str]
) -> None:
    (tmp_path / "a-file").touch()
    mounts = NodeDir(tmp_path).mounts([path])
    assert mounts == {place: tmp_path / inside for place, inside in found.items()}
    assert all(folder.is_dir() or place in {"/etc/cdi", CDI_DIR} for place, folder in mounts.items())


DRIVER = """
import asyncio, sys
from tests.conformance.dra import right_driver

class Driver(right_driver.RightDriver):
    registered = asyncio.Event()

    async def take_status(self, _):
        self.registered.set()

    async def publish(self):
        await self.registered.wait()
        await super().publish()

right_driver.RightDriver = Driver
sys.exit(right_driver.main())
"""
"""A driver that publishes once it is registered: a pod that comes sooner is tried again after a minute."""


@needs_mounts
async def test_a_driver_with_compiled_in_paths_serves_claims_as_a_pod(short_dir: Path) -> None:
    """As drivers are deployed: three folders of the node are mounted, and the paths are those of a node."""
    paths = {"registry": f"{KUBELET_ROOT}/plugins_registry", "plugins": f"{KUBELET_ROOT}/plugins"}
    paths["cdi"] = CDI_DIR
    variables = {"KUBELET_ROOT": KUBELET_ROOT, "CDI_ROOT": CDI_DIR, "PYTHONPATH": str(ROOT)}
    uid = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    container = {
        "env": [uid, *({"name": name, "value": value} for name, value in variables.items())],
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in paths.items()],
    }
    volumes = [{"name": name, "hostPath": {"path": path}} for name, path in paths.items()]
    async with sandbox(short_dir, (sys.executable, "-c", DRIVER)) as cluster:
        registry = cluster.registry
        registry.create(PODS, "default", pod("driver", container=container, volumes=volumes))
        async for _ in registry.follow(RESOURCE_SLICES):
            break
        classes = known("resource.k8s.io/v1", "DeviceClass")
        selectors = [{"cel": {"expression": "device.driver == 'mutant.example.com'"}}]
        registry.create(classes, "", {"metadata": {"name": "one"}, "spec": {"selectors": selectors}})
        requests = [{"name": "r", "exactly": {"deviceClassName": "one"}}]
        claim = {"metadata": {"name": "one"}, "spec": {"devices": {"requests": requests}}}
        registry.create(RESOURCE_CLAIMS, "default", claim)
        user = pod("user", resourceClaims=[{"name": "r", "resourceClaimName": "one"}])
        user["spec"]["containers"] = [
            {"name": "c", "image": "other", "resources": {"claims": [{"name": "r"}]}}
        ]
        registry.create(PODS, "default", user)
        async for event in registry.follow(PODS):
            found: Any = event.object
            if found["metadata"]["name"] == "user" and found["status"].get("phase") == "Running":
                break
        assert list(cluster.place.node("worker-0").cdi.iterdir())
