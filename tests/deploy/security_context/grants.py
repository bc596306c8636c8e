"""What a pod's specification grants to one container of it, as a value: read from it, never assumed.

What the specification does not say has the API's default, which mostly is the wider one. What cannot be tried
here is an error, so that no test passes for a grant that it has not tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_UNITS: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9, "": 1}


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of the container."""

    path: str
    """Where the container has it."""
    host_path: str | None
    """Where the node has it; None for an empty folder or a ConfigMap."""
    volume: str
    """`hostPath`, `configMap` or `emptyDir`."""
    read_only: bool
    recursive: bool
    """Whether what is mounted below is read-only as well (`recursiveReadOnly`, KEP-3857)."""
    kind: str
    """The `type` of a hostPath, which says what has to be there or is made."""
    is_sub_path: bool
    """Whether it has a `subPath`: the kubelet binds that without what is mounted below
    (pkg/volume/util/subpath/subpath_linux.go, `doBindSubPath`: "bind" and not "rbind")."""


@dataclass(frozen=True, slots=True)
class Grants:
    """All that one container may do."""

    words: tuple[str, ...]
    """Its command and its arguments; what the image says stands before arguments alone."""
    has_command: bool
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    user_id: int
    capabilities: frozenset[str]
    no_new_privileges: bool
    read_only_root: bool
    seccomp: bool
    host_namespaces: frozenset[str]
    memory_bytes: int | None
    """The limit; None if there is none."""


def container_of(pod_spec: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """Return the container of that name, or the first."""
    found: dict[str, Any] = next(one for one in pod_spec["containers"] if name in {None, one["name"]})
    return found


def grants_of(pod_spec: Mapping[str, Any], node_name: str, container_name: str | None = None) -> Grants:
    """Return what the specification grants. Raises `ValueError` for what cannot be tried here."""
    container = container_of(pod_spec, container_name)
    context = {**pod_spec.get("securityContext", {}), **container.get("securityContext", {})}
    if context.get("privileged"):
        raise ValueError("a privileged container is not tried")
    changes = context.get("capabilities", {})
    if changes.get("add") or [*changes.get("drop", ())] != ["ALL"]:
        raise ValueError("capabilities are tried only where all are dropped and none is added")
    volumes = {volume["name"]: volume for volume in pod_spec.get("volumes", ())}
    mounts = [_mount(one, volumes[one["name"]]) for one in container.get("volumeMounts", ())]
    limit = container.get("resources", {}).get("limits", {}).get("memory")
    return Grants(
        (*container.get("command", ()), *container.get("args", ())),
        bool(container.get("command")),
        {one["name"]: _value(one, node_name) for one in container.get("env", ())},
        tuple(sorted(mounts, key=lambda mount: mount.path.count("/"))),
        context.get("runAsUser", 0),
        frozenset(),
        context.get("allowPrivilegeEscalation") is False,
        context.get("readOnlyRootFilesystem") is True,
        context.get("seccompProfile", {}).get("type") == "RuntimeDefault",
        frozenset(name for name in ("hostNetwork", "hostPID", "hostIPC") if pod_spec.get(name)),
        None if limit is None else _bytes(limit),
    )


def _mount(mount: Mapping[str, Any], volume: Mapping[str, Any]) -> Mount:
    (kind,) = volume.keys() - {"name"}
    if kind not in {"hostPath", "configMap", "emptyDir"} or mount.get("mountPropagation", "None") != "None":
        raise ValueError(f"a mount such as {mount['mountPath']} ({kind}) is not tried")
    if mount.get("subPath", ".") != ".":
        raise ValueError(f"{mount['mountPath']} shows a part of its volume, which is not tried")
    host = volume["hostPath"] if kind == "hostPath" else {}
    return Mount(
        mount["mountPath"],
        host.get("path"),
        kind,
        mount.get("readOnly") is True or kind == "configMap",
        mount.get("recursiveReadOnly") in {"Enabled", "IfPossible"},
        host.get("type", ""),
        "subPath" in mount,
    )


def _value(variable: Mapping[str, Any], node_name: str) -> str:
    if "value" in variable:
        return str(variable["value"])
    field = variable["valueFrom"]["fieldRef"]["fieldPath"]
    known = {"spec.nodeName": node_name, "metadata.name": "devplug-0", "metadata.namespace": "devplug"}
    return known[field]


def _bytes(quantity: str) -> int:
    digits = quantity.rstrip("KMGik")
    return int(digits) * _UNITS[quantity[len(digits) :]]
