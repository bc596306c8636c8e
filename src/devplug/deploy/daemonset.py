"""The DaemonSet: what the pod runs, what of the machine it has, and what it is allowed. Pure.

The chart's template says the same in Helm's language; a test renders both and compares.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from devplug.deploy.objects import PORT_NAME, asks_api, given, metadata, selector
from devplug.kubelet_dir import CDI_DIR, KUBELET_PLUGIN_DIR, KUBELET_ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.deploy.chart import Values
    from devplug.deploy.names import Names
    from devplug.deploy.objects import Object
    from devplug.k8s.yaml import Value

CONFIG_FOLDER: Final = "/etc/devplug"


def daemon_set(values: Values, names: Names) -> Object:
    """Return the DaemonSet."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(names, names.fullname),
        "spec": {
            "selector": {"matchLabels": selector(names)},
            "updateStrategy": values["updateStrategy"],
            "minReadySeconds": values["minReadySeconds"],
            "revisionHistoryLimit": values["revisionHistoryLimit"],
            "template": {"metadata": _pod_metadata(values, names), "spec": _pod_spec(values, names)},
        },
    }


def _pod_metadata(values: Values, names: Names) -> Object:
    checksum = hashlib.sha256(values["config"]["inline"].encode()).hexdigest()
    annotations = {
        **({"checksum/config": checksum} if values["config"]["checksumRestart"] else {}),
        **values["podAnnotations"],
    }
    labels = {
        **selector(names),
        "app.kubernetes.io/version": names.release.version,
        "app.kubernetes.io/component": "device-plugin",
        **values["podLabels"],
    }
    return {"labels": labels, **({"annotations": annotations} if annotations else {})}


def _pod_spec(values: Values, names: Names) -> Object:
    return {
        "serviceAccountName": names.service_account,
        "automountServiceAccountToken": asks_api(values),
        "enableServiceLinks": False,
        **given(values, "imagePullSecrets", "priorityClassName", "runtimeClassName", "hostNetwork"),
        **given(values, "nodeSelector", "affinity", "tolerations"),
        "terminationGracePeriodSeconds": values["terminationGracePeriodSeconds"],
        "securityContext": values["podSecurityContext"],
        "containers": [_container(values, names)],
        "volumes": _volumes(values, names),
    }


def _container(values: Values, names: Names) -> Object:
    return {
        "name": "devplug",
        "image": names.image,
        "imagePullPolicy": values["image"]["pullPolicy"],
        "args": [
            "run",
            f"--config={CONFIG_FOLDER}/config.yaml",
            f"--listen=:{values['port']}",
            f"--log-format={values['logFormat']}",
            f"--log-level={values['logLevel']}",
            *(["--kube-events"] if values["kubeEvents"]["enabled"] else []),
            *values["extraArgs"],
        ],
        "env": _environment(values),
        "ports": [{"name": PORT_NAME, "containerPort": values["port"], "protocol": "TCP"}],
        "startupProbe": {**_http_get("/healthz"), **values["startupProbe"]},
        "livenessProbe": {**_http_get("/healthz"), **values["livenessProbe"]},
        "readinessProbe": {**_http_get("/readyz"), **values["readinessProbe"]},
        "resources": values["resources"],
        "securityContext": _security_context(values),
        # Its usual place is in /dev, which is read-only here.
        "terminationMessagePath": "/run/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            # The folder and not the file: a file that is mounted alone never changes.
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "device-plugins", "mountPath": KUBELET_PLUGIN_DIR},
            {"name": "pod-resources", "mountPath": f"{_root_inside(values)}/pod-resources", "readOnly": True},
            *_dra_mounts(values),
            *_dev_mounts(values["dev"]),
            *([{"name": "cdi", "mountPath": CDI_DIR}] if _writes_cdi(values) else []),
            *values["extraVolumeMounts"],
        ],
    }


def _environment(values: Values) -> list[Value]:
    texts: dict[str, str] = {}
    if values["nvidia"]["enabled"]:
        texts |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
    if values["nvidia"]["mig"]:
        # As NVIDIA's own chart does for MIG (templates/_helpers.tpl, addMigMonitorDevices).
        texts["NVIDIA_MIG_MONITOR_DEVICES"] = "all"
    fields = {"NODE_NAME": "spec.nodeName"}
    if values["dra"]["enabled"]:
        fields["POD_UID"] = "metadata.uid"
        texts["DEVPLUG_KUBELET_ROOT"] = values["kubeletRoot"]
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        *({"name": name, "value": text} for name, text in texts.items()),
        *values["extraEnv"],
    ]


def _http_get(path: str) -> Object:
    return {"httpGet": {"path": path, "port": PORT_NAME}}


def _security_context(values: Values) -> Object:
    context: Object = dict(values["securityContext"])
    if not values["deviceAccess"]["enabled"]:
        return context
    # Without allowPrivilegeEscalation: the API refuses false beside privileged.
    context.pop("allowPrivilegeEscalation", None)
    context.pop("privileged", None)
    return {"privileged": True, **context}


def _dev_mounts(dev: Values) -> list[Object]:
    """Return how the machine's /dev is mounted: without what a container could open there.

    Its device cgroup lets each container open terminals (136:*), the console (5:1) and the like, and files
    need no permission of it at all: shared memory, huge pages, message queues. Those lie in file systems
    that are mounted below /dev. The kubelet binds a sub-path without what is mounted below it
    (pkg/volume/util/subpath/subpath_linux.go, doBindSubPath), and `.` is the whole of /dev: new nodes appear
    in it, as it is the same file system. To hide each by a volume of its own would keep the pod from starting
    where one is not there: a runtime cannot make the folder in a /dev that is read-only already. Terminals
    and shared memory are on each machine, and are hidden so all the same; the console is, by /dev/null.
    """
    if not dev["enabled"]:
        return []
    sub_path: Object = {} if dev["submounts"] else {"subPath": "."}
    read_only: Object = {"readOnly": True, "recursiveReadOnly": "IfPossible"}
    mounts: list[Object] = [
        {"name": "dev", "mountPath": "/dev", **sub_path, **read_only},
        {"name": "dev-empty", "mountPath": "/dev/pts", "readOnly": True},
        {"name": "dev-empty", "mountPath": "/dev/shm", "readOnly": True},  # noqa: S108
    ]
    if dev["hideConsole"]:
        mounts.append({"name": "dev-null", "mountPath": "/dev/console", "readOnly": True})
    return mounts


def _root_inside(values: Values) -> str:
    """Return the kubelet's folder as the container has it: everywhere the same, so no command needs a flag.

    With DRA it is the machine's, as a driver tells the kubelet the whole path of its socket.
    """
    return str(values["kubeletRoot"]) if values["dra"]["enabled"] else KUBELET_ROOT


def _writes_cdi(values: Values) -> bool:
    return bool(values["cdi"]["enabled"] or values["dra"]["enabled"])


def _dra_folders(values: Values) -> Mapping[str, str]:
    """Return the folders of a driver's sockets and state, by the names of their volumes."""
    if not values["dra"]["enabled"]:
        return {}
    root = values["kubeletRoot"]
    return {
        "plugins-registry": f"{root}/plugins_registry",
        "dra": f"{root}/plugins/{values['dra']['driver']}",
    }


def _dra_mounts(values: Values) -> list[Object]:
    return [{"name": name, "mountPath": path} for name, path in _dra_folders(values).items()]


def _dra_volumes(values: Values) -> list[Object]:
    return [
        _host_path(name, path, kind="Directory" if name == "plugins-registry" else "DirectoryOrCreate")
        for name, path in _dra_folders(values).items()
    ]


def _volumes(values: Values, names: Names) -> list[Value]:
    file = {"key": names.config_key, "path": "config.yaml"}
    volumes: list[Value] = [
        {"name": "config", "configMap": {"name": names.config_map, "items": [file]}},
        _host_path("device-plugins", KUBELET_PLUGIN_DIR),  # compiled in; no --root-dir moves it
        _host_path("pod-resources", f"{values['kubeletRoot']}/pod-resources"),
    ]
    if values["dev"]["enabled"]:
        volumes += [_host_path("dev", "/dev"), {"name": "dev-empty", "emptyDir": {}}]
        if values["dev"]["hideConsole"]:
            volumes.append(_host_path("dev-null", "/dev/null", kind="CharDevice"))
    volumes += _dra_volumes(values)
    if _writes_cdi(values):
        volumes.append(_host_path("cdi", CDI_DIR, kind="DirectoryOrCreate"))
    return [*volumes, *values["extraVolumes"]]


def _host_path(name: str, path: str, *, kind: str = "Directory") -> Object:
    return {"name": name, "hostPath": {"path": path, "type": kind}}
