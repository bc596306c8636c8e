"""The manifests of a deployment: objects, kustomize base, and the values that a configuration needs. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from devplug.daemon.footprint import LIMIT_MEBIBYTES
from devplug.deploy import objects
from devplug.deploy.chart import defaults, overridden
from devplug.deploy.daemonset import daemon_set
from devplug.deploy.names import class_name, names_of
from devplug.driver.device_entries import resource_value
from devplug.k8s.yaml import comments, yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.deploy.chart import Values
    from devplug.deploy.names import Release
    from devplug.deploy.objects import Object
    from devplug.deploy.security_context import Needs
    from devplug.k8s.yaml import Value

NVIDIA_RUNTIME_CLASS: Final = "nvidia"

_IMAGE: Final = re.compile(
    r"(?P<repository>[^@]+?)(:(?P<tag>[\w][\w.-]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)

_CONFIG_FILE = "config.yaml"


def manifests(values: Values, release: Release) -> list[Object]:
    """Return the objects of a release, with these values over the defaults, in the order to apply them."""
    whole = overridden(defaults(), values)
    has_role = whole["rbac"]["create"] and objects.asks_api(whole)
    has_policy = whole["rbac"]["create"] and whole["dra"]["enabled"]
    wanted = {
        objects.namespace: whole["createNamespace"],
        objects.service_account: whole["serviceAccount"]["create"],
        objects.role: has_role,
        objects.binding: has_role,
        objects.config_map: whole["config"]["inline"],
        objects.slice_policy: has_policy,
        objects.slice_policy_binding: has_policy,
        daemon_set: True,
        objects.service: whole["service"]["enabled"],
        objects.network_policy: whole["networkPolicy"]["enabled"],
        objects.pod_monitor: whole["podMonitor"]["enabled"],
        objects.service_monitor: whole["serviceMonitor"]["enabled"],
    }
    names = names_of(whole, release)
    made = [make(whole, names) for make, is_wanted in wanted.items() if is_wanted]
    return made + (objects.device_classes(whole, names) if whole["dra"]["enabled"] else [])


def values_for(needs: Needs, *, may_open: bool = True) -> dict[str, Value]:
    """Return the values that grant what is needed, as far as they are not the defaults.

    With `may_open` false, opening devices is not granted: rules that do have unknown answers then.
    """
    values: dict[str, Value] = {} if needs.dev else {"dev": {"enabled": False}}
    on: Value = {"enabled": True}
    if needs.device_access and may_open:
        values["deviceAccess"] = on
    if needs.cdi_folder:
        values["cdi"] = on
    if needs.nvidia:
        values["nvidia"] = {"enabled": True, "mig": True} if needs.mig else on
    if needs.host_network:
        values["hostNetwork"] = True
    if needs.node_labels:
        values["nodeLabels"] = on
    values |= _dra_values(needs)
    if needs.nvidia:
        values["runtimeClassName"] = NVIDIA_RUNTIME_CLASS
    if needs.mig:
        values["securityContext"] = {"capabilities": {"add": ["SYS_ADMIN"]}}
    if needs.memory_mebibytes > LIMIT_MEBIBYTES:
        values["resources"] = {"limits": {"memory": f"{needs.memory_mebibytes}Mi"}}
    if needs.folders:
        named = [(f"files-{number}", folder) for number, (folder, _) in enumerate(needs.folders)]
        values["extraVolumes"] = [
            {"name": name, "hostPath": {"path": folder, "type": "DirectoryOrCreate"}}
            for name, folder in named
        ]
        values["extraVolumeMounts"] = [
            {"name": name, "mountPath": folder, "readOnly": True} for name, folder in named
        ]
    return values


def _dra_values(needs: Needs) -> dict[str, Value]:
    if not needs.driver:
        return {}
    classes: list[Value] = [
        {"name": class_name(name), "attribute": resource_value(name), "extendedResourceName": name}
        for name, _ in needs.dra
    ]
    values: dict[str, Value] = {"dra": {"enabled": True, "driver": needs.driver, "classes": classes}}
    if needs.may_surge:
        values["updateStrategy"] = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    return values


def image_values(image: str) -> dict[str, Value]:
    """Return the values for an image's name, as in `registry:5000/devplug:1.0`. Raises ValueError."""
    match = _IMAGE.fullmatch(image)
    if not match or " " in image:
        raise ValueError(f"{image!r} is no image; write REGISTRY/NAME:TAG")
    return {"image": {key: match[key] or "" for key in ("repository", "tag", "digest")}}


def lines_for(needs: Needs, *, may_open: bool = True, kube_events: bool = False) -> list[str]:
    """Return what the pod is allowed, and why, line by line."""
    lines = [
        "Granted: uid 0 without capabilities, the folders of the kubelet's sockets; and as the file needs:",
        *_line("the machine's /dev, read-only, to find devices and not to open them", needs.dev),
        *_line("writing to /var/run/cdi", needs.cdi_folder),
        *_line("the NVIDIA driver, by the runtime class nvidia", needs.nvidia),
        *_line("MIG instances, by the capability SYS_ADMIN", needs.mig),
        *_line("the machine's network", needs.host_network),
        *_line("a token, to read Nodes", needs.node_labels),
        *_line(
            "a token, to read claims and write the ResourceSlices of its Node; /var/run/cdi and the sockets "
            "of DRA drivers",
            ("driver", *(place for _, place in needs.dra)) if needs.driver else (),
        ),
        *(f"- {folder}, read-only: {place}" for folder, place in needs.folders),
    ]
    if kube_events:
        lines.append(
            "- a token, to read Nodes and to write Events and a condition of the Node: --kube-events"
        )
    if needs.device_access and may_open:
        lines += [
            *_line("opening devices", needs.device_access),
            "  so the container is privileged: nothing less passes the device cgroup. Where commands",
            "  open no device, --no-device-access leaves that out.",
        ]
    elif needs.device_access:
        lines += _line(
            "opening devices is NOT granted; the answers of these may be unknown", needs.device_access
        )
    if needs.left:
        lines += _line("not mounted, since the container has such a folder itself", needs.left)
    return lines


def _line(what: str, places: tuple[str, ...]) -> list[str]:
    if not places:
        return []
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return [f"- {what}: {', '.join(places[:3])}{more}"]


# ── kustomize ─────────────────────────────────────────────────────────────────────────────────────


def base_files(values: Values, release: Release, head: Iterable[str] = ()) -> dict[str, str]:
    """Return the text of each file: an object each, the configuration, and what puts them together.

    An overlay replaces the configuration by a configMapGenerator with `behavior: replace`. `head` has the
    lines of a comment before all.
    """
    made: dict[str, str] = {}
    generated: list[Value] = []
    for one in manifests(values, release):
        metadata = cast("Mapping[str, Value]", one["metadata"])
        if one["kind"] == "ConfigMap":
            data = cast("Mapping[str, str]", one["data"])
            made |= data
            options: Value = {"disableNameSuffixHash": True, "labels": metadata["labels"]}
            generated.append(
                {
                    "name": metadata["name"],
                    "namespace": metadata["namespace"],
                    "files": [*data],
                    "options": options,
                }
            )
        else:
            file = f"{str(one['kind']).lower()}.yaml"
            made[file] = f"{made[file]}---\n{yaml_text(one)}" if file in made else yaml_text(one)
    resources = [name for name in made if name != _CONFIG_FILE]
    made["kustomization.yaml"] = comments(head) + yaml_text(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": resources,
            # Without a hash in the name: the pods read a changed file anew, and need not be replaced.
            "configMapGenerator": generated,
        }
    )
    return made
