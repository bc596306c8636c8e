"""A sandbox with `--rbac`, as people have it: pods are their service accounts, and our roles suffice us."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import devplug
from tests.sandbox.kubectl.stage import Stage, why_kubectl_is_missing

CONFIG = """version: 1
resources:
- {name: example.com/a, discover: {static: {ids: [a0]}}, nodeSelector: {devices: "yes"}}
"""
ACCOUNT = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: shy}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  serviceAccountName: {account}
  automountServiceAccountToken: {mounts}
  containers: [{{name: main, image: asks}}]
"""
NODE_OF_TOKEN = "jsonpath={.status.userInfo.extra['authentication\\.kubernetes\\.io/node-name'][0]}"
ASKS = f"""
echo config ${{KUBECONFIG:-none}}
test -z "$KUBECONFIG" && exit
kubectl get pods --no-headers | cut -d' ' -f1
kubectl get nodes
kubectl auth whoami -o "{NODE_OF_TOKEN}"
exit 0
"""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    if why := why_kubectl_is_missing():
        pytest.skip(why)
    kubectl = Path(shutil.which("kubectl") or "").parent
    with tempfile.TemporaryDirectory(prefix="dp-", dir="/tmp") as folder:
        config = Path(folder) / "devplug.yaml"
        config.write_text(CONFIG)
        asks = ["sh", "-c", f"PATH=$PATH:{kubectl}; {ASKS}"]
        daemon = [
            sys.executable,
            "-m",
            "devplug",
            "run",
            "-c",
            str(config),
            "--kube-events",
            "--plugin-dir={dir}",
        ]
        images = [f"--image={name}={shlex.join(one)}" for name, one in (("asks", asks), ("ours", daemon))]
        with Stage(Path(folder), "--rbac", *images) as it:
            it.applied(ACCOUNT)
            yield it


def ended(stage: Stage, name: str, *, mounts: str, account: str = "reader") -> list[str]:
    """Run a pod to its end; return the lines that its program has printed."""
    stage.applied(POD.format(name=name, mounts=mounts, account=account))
    succeeded = "--for=jsonpath={.status.phase}=Succeeded"
    assert "condition met" in stage.kubectl("wait", succeeded, f"pod/{name}", "--timeout=60s")
    return stage.kubectl("logs", name).splitlines()


def test_the_programs_of_a_pod_are_its_service_account(stage: Stage) -> None:
    """D93: the token tells the node."""
    config, *pods, refused, node = ended(stage, "mounts", mounts="null")
    assert config.startswith(f"config {stage.place.folder}/accounts/")
    assert "mounts" in pods
    assert refused == (
        "Error from server (Forbidden): nodes is forbidden: "
        'User "system:serviceaccount:default:reader" cannot list resource "nodes" in API group "" at the '
        "cluster scope"
    )
    assert node == "worker-0"


def test_a_pod_gets_no_token_that_it_or_its_account_does_not_want(stage: Stage) -> None:
    assert ended(stage, "wants-none", mounts="false") == ["config none"]
    assert ended(stage, "shy", mounts="null", account="shy") == ["config none"]
    assert ended(stage, "not-shy", mounts="true", account="shy")[0] != "config none"


def test_a_program_of_the_terminal_is_the_service_account_that_is_named(stage: Stage) -> None:
    """D93: its token tells the node."""
    asks = ("kubectl", "auth", "whoami", "-o", NODE_OF_TOKEN)

    def ran(account: str) -> tuple[int, str]:
        words = ("--dir", stage.place.folder, "--service-account", account, "--", *asks)
        found = devplug("sandbox", "run", *words, HOME=str(stage.folder))
        return found.returncode, found.stdout or found.stderr

    assert ran("default/reader") == (0, "worker-0")
    assert ran("reader") == (0, "worker-0")
    assert ran("other/reader") == (
        1,
        'devplug: the sandbox makes no token: serviceaccounts "reader" not found\n',
    )
    assert not [file for file in stage.place.accounts.iterdir() if file.name.startswith("run-")]


def test_the_roles_of_our_manifests_suffice_for_the_daemon(stage: Stage) -> None:
    """The daemon reads its node's labels, and writes Events and the node's condition.

    The exporter asks only the kubelet.
    """
    stage.kubectl("label", "node", "worker-0", "devices=yes")
    config = stage.folder / "devplug.yaml"
    printed = devplug("manifests", "-c", config, "--kube-events", "--image", "ours")
    assert printed.returncode == 0, printed.stderr
    assert "daemonset.apps/devplug created" in stage.applied(printed.stdout)
    met = ("wait", "--for=condition=DevicesReady", "node/worker-0", "--timeout=60s")
    assert "condition met" in stage.kubectl(*met)
    while "ResourceReady" not in stage.kubectl("get", "events"):
        pass  # the test's time-out bounds it
    logs = stage.kubectl("logs", "-n", "devplug", "daemonset/devplug")
    assert "example.com/a" in logs
    assert "the API server refuses" not in logs
