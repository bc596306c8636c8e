"""What our own pod may and may not be, as a reviewer of a cluster asks: faults, and what was granted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import yaml

from tests.deploy.renderings import Objects, container, pod_spec

ALWAYS = {"/var/lib/kubelet/device-plugins": False, "/var/lib/kubelet/pod-resources": True}
"""Host paths that each deployment has, and whether they are read-only."""


def faults(objects: Objects) -> list[str]:
    """Return what no deployment may have, whatever was granted to it."""
    return [*_pod_faults(pod_spec(objects)), *_container_faults(container(objects)), *_around_faults(objects)]


def granted(objects: Objects) -> set[str]:
    """Return what a deployment has beyond the least."""
    pod, only = pod_spec(objects), container(objects)
    context, names = only["securityContext"], {one["name"] for one in only["env"]}
    paths = _host_paths(objects)
    found = {path for path in paths if path not in {*ALWAYS, "/dev", "/dev/null", "/var/run/cdi"}}
    if "/dev" in paths:
        mounts = {one["mountPath"]: one for one in only["volumeMounts"]}
        found |= {"dev"} | ({"submounts"} if mounts["/dev"].get("subPath") != "." else set())
        found |= {"/dev/pts", "/dev/shm", "/dev/console"} - {*mounts}
    found |= {"cdi"} if "/var/run/cdi" in paths else set()
    found |= {"privileged"} if context.get("privileged") else set()
    found |= {"network"} if pod.get("hostNetwork") else set()
    found |= {"nvidia"} if pod.get("runtimeClassName") or "NVIDIA_VISIBLE_DEVICES" in names else set()
    found |= {"mig"} if context["capabilities"].get("add") or "NVIDIA_MIG_MONITOR_DEVICES" in names else set()
    found |= (
        {"token"}
        if pod["automountServiceAccountToken"] or any("Role" in kind for kind, _ in objects)
        else set()
    )
    return found


def _pod_faults(pod: dict[str, Any]) -> Iterator[str]:
    for key in ("hostPID", "hostIPC", "shareProcessNamespace"):
        if pod.get(key):
            yield f"has {key}"
    if pod["securityContext"]["seccompProfile"]["type"] != "RuntimeDefault":
        yield "has no seccomp profile"
    if pod["securityContext"]["runAsUser"] != 0:
        yield "cannot reach the kubelet's socket, which is root's"
    if pod["priorityClassName"] != "system-node-critical":
        yield "is evicted before what needs it"
    if {one.get("effect") for one in pod["tolerations"]} != {"NoSchedule", "NoExecute"}:
        yield "does not tolerate tainted machines"


def _container_faults(only: dict[str, Any]) -> Iterator[str]:
    context = only["securityContext"]
    if context["capabilities"]["drop"] != ["ALL"] or {*context["capabilities"].get("add", ())} - {
        "SYS_ADMIN"
    }:
        yield "keeps capabilities"
    if context["readOnlyRootFilesystem"] is not True:
        yield "can write to its root"
    if not context.get("privileged") and context["allowPrivilegeEscalation"] is not False:
        yield "may gain privileges"
    if context.get("privileged") and "allowPrivilegeEscalation" in context:
        yield "is refused by the API: privileged with allowPrivilegeEscalation"
    if set(only["resources"]["limits"]) != {"memory"} or {*only["resources"]["requests"]} != {
        "cpu",
        "memory",
    }:
        yield "has other limits than memory, or lacks requests"
    for name, path in (("startup", "/healthz"), ("liveness", "/healthz"), ("readiness", "/readyz")):
        if only[f"{name}Probe"]["httpGet"] != {"path": path, "port": "http"}:
            yield f"has no {name} probe"
    image = only["image"]
    if image.endswith(":latest") or not (":" in image.rpartition("/")[2] or "@" in image):
        yield "has an image of no version"


def _around_faults(objects: Objects) -> Iterator[str]:
    (daemon_set,) = (one for (kind, _), one in objects.items() if kind == "DaemonSet")
    update = daemon_set["spec"]["updateStrategy"]["rollingUpdate"]
    if update["maxSurge"] and not _may_surge(objects):
        yield "two of it would meet on one machine"
    if bool(update["maxSurge"]) == bool(update["maxUnavailable"]):
        yield "cannot be updated, or leaves a gap that is not needed"
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    if not daemon_set["spec"]["selector"]["matchLabels"].items() <= labels.items():
        yield "does not select its own pods"
    for path, read_only in {**ALWAYS, "/dev": True}.items():
        if _host_paths(objects).get(path, read_only) != read_only:
            yield f"may write to {path}, or may not"
    yield from _slice_faults({kind for kind, _ in objects})
    for (kind, name), one in objects.items():
        if kind == "ServiceAccount" and one["automountServiceAccountToken"] is not False:
            yield f"{kind} {name} hands out tokens"
        if kind == "ClusterRole":
            yield from _rule_faults(one["rules"])
        if kind == "NetworkPolicy" and one["spec"]["policyTypes"] != ["Ingress", "Egress"]:
            yield "leaves a way of the network open"


def _slice_faults(kinds: set[str]) -> Iterator[str]:
    if {"DeviceClass", "ClusterRole"} <= kinds and "ValidatingAdmissionPolicyBinding" not in kinds:
        yield "may write the ResourceSlices of other machines"


def _may_surge(objects: Objects) -> bool:
    """Whether two pods on one machine disturb each other in nothing: DRA drivers, with ports of their own."""
    resources = _configuration(objects)["resources"]
    return not pod_spec(objects).get("hostNetwork") and all(one.get("serve") == "dra" for one in resources)


def _configuration(objects: Objects) -> dict[str, Any]:
    (text,) = (one["data"]["config.yaml"] for (kind, _), one in objects.items() if kind == "ConfigMap")
    return cast("dict[str, Any]", yaml.safe_load(text))


def _rule_faults(rules: list[dict[str, Any]]) -> Iterator[str]:
    for rule in rules:
        words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        if (
            "*" in words
            or {"secrets", "pods"} & {*rule["resources"]}
            or ({"delete", "update"} & {*rule["verbs"]} and rule["resources"] != ["resourceslices"])
        ):
            yield f"may do too much: {rule}"


def _host_paths(objects: Objects) -> dict[str, bool]:
    """Return each mounted path of the host, and whether it is read-only."""
    mounts = {one["name"]: one.get("readOnly", False) for one in container(objects)["volumeMounts"]}
    volumes = pod_spec(objects)["volumes"]
    return {one["hostPath"]["path"]: mounts[one["name"]] for one in volumes if "hostPath" in one}
