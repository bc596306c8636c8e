"""The objects of a deployment: the DaemonSet with its configuration, and what stands around it. Pure.

Around it are namespace, account, rights, Service, monitors and network policy. The chart's templates say the
same in Helm's language; a test renders both and compares.
"""

from __future__ import annotations

import hashlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.k8s.kubelet_dir import KUBELET_ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.deploy.chart import Values
    from devplug.deploy.names import Names
    from devplug.k8s.yaml import Value

__all__ = [
    "Object",
    "asks_api",
    "binding",
    "config_map",
    "daemon_set",
    "namespace",
    "network_policy",
    "pod_monitor",
    "role",
    "service",
    "service_account",
    "service_monitor",
]

Object: TypeAlias = dict[str, "Value"]

CONFIG_FOLDER: Final = "/etc/devplug"
PORT_NAME: Final = "http"
CDI_FOLDER: Final = "/var/run/cdi"

_MONITORING: Final = "monitoring.coreos.com/v1"
_ROLE_GROUP: Final = "rbac.authorization.k8s.io"
_LEVELS: Final = ("enforce", "audit", "warn")


def asks_api(values: Values) -> bool:
    """Whether the pod asks the API server, and needs a token."""
    return bool(values["nodeLabels"]["enabled"] or values["kubeEvents"]["enabled"])


# ── DaemonSet ─────────────────────────────────────────────────────────────────────────────────────


def _selector(names: Names) -> Object:
    """Return the labels of our pods that never change: a DaemonSet's selector cannot."""
    return {"app.kubernetes.io/name": names.name, "app.kubernetes.io/instance": names.release.name}


def _metadata(
    names: Names,
    name: str,
    *,
    is_namespaced: bool = True,
    labels: Mapping[str, Value] = MappingProxyType({}),
) -> Object:
    """Return an object's metadata: its name and namespace, the labels that all have, and more of them."""
    whole: Object = {
        **_selector(names),
        "app.kubernetes.io/version": names.release.version,
        "app.kubernetes.io/component": "device-plugin",
        "app.kubernetes.io/part-of": names.name,
        "app.kubernetes.io/managed-by": names.release.service,
        **labels,
    }
    return {"name": name, **({"namespace": names.namespace} if is_namespaced else {}), "labels": whole}


def _given(values: Values, *keys: str) -> Object:
    """Return the values with these keys that are not empty: as entries of the same names."""
    return {key: values[key] for key in keys if values[key]}


def config_map(values: Values, names: Names) -> Object:
    """Return the ConfigMap with the configuration file."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(names, names.config_map),
        "data": {"config.yaml": values["config"]["inline"]},
    }


def daemon_set(values: Values, names: Names) -> Object:
    """Return the DaemonSet."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(names, names.fullname),
        "spec": {
            "selector": {"matchLabels": _selector(names)},
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
        **_selector(names),
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
        **_given(values, "imagePullSecrets", "priorityClassName", "runtimeClassName", "hostNetwork"),
        **_given(values, "nodeSelector", "affinity", "tolerations"),
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
            # Here the container has them wherever the machine does: no command needs a flag.
            {"name": "device-plugins", "mountPath": f"{KUBELET_ROOT}/device-plugins"},
            {"name": "pod-resources", "mountPath": f"{KUBELET_ROOT}/pod-resources", "readOnly": True},
            *_dev_mounts(values["dev"]),
            *([{"name": "cdi", "mountPath": CDI_FOLDER}] if values["cdi"]["enabled"] else []),
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
    return [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
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


def _volumes(values: Values, names: Names) -> list[Value]:
    file = {"key": names.config_key, "path": "config.yaml"}
    volumes: list[Value] = [
        {"name": "config", "configMap": {"name": names.config_map, "items": [file]}},
        _host_path("device-plugins", f"{values['kubeletRoot']}/device-plugins"),
        _host_path("pod-resources", f"{values['kubeletRoot']}/pod-resources"),
    ]
    if values["dev"]["enabled"]:
        volumes += [_host_path("dev", "/dev"), {"name": "dev-empty", "emptyDir": {}}]
        if values["dev"]["hideConsole"]:
            volumes.append(_host_path("dev-null", "/dev/null", kind="CharDevice"))
    if values["cdi"]["enabled"]:
        volumes.append(_host_path("cdi", CDI_FOLDER, kind="DirectoryOrCreate"))
    return [*volumes, *values["extraVolumes"]]


def _host_path(name: str, path: str, *, kind: str = "Directory") -> Object:
    return {"name": name, "hostPath": {"path": path, "type": kind}}


# ── around it ─────────────────────────────────────────────────────────────────────────────────────


def namespace(_: Values, names: Names) -> Object:
    """Return the namespace: hostPath volumes need the Pod Security level "privileged"."""
    levels = {f"pod-security.kubernetes.io/{level}": "privileged" for level in _LEVELS}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": _metadata(names, names.namespace, is_namespaced=False, labels=levels),
    }


def service_account(values: Values, names: Names) -> Object:
    """Return the ServiceAccount, which brings no token by itself."""
    metadata = _metadata(names, names.service_account)
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {**metadata, **_given(values["serviceAccount"], "annotations")},
        "automountServiceAccountToken": False,
    }


def role(values: Values, names: Names) -> Object:
    """Return the ClusterRole: Nodes and Events of Nodes are not within a namespace that we know."""
    rules = [_rule("", "nodes", "get", "list", "watch")]
    if values["nodeLabels"]["enabled"]:
        rules.append(_rule("resource.k8s.io", "deviceclasses", "list"))
    if values["kubeEvents"]["enabled"]:
        rules += [_rule("", "nodes/status", "patch"), _rule("", "events", "create", "patch")]
    return {
        "apiVersion": f"{_ROLE_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": _metadata(names, names.role, is_namespaced=False),
        "rules": rules,
    }


def binding(_: Values, names: Names) -> Object:
    """Return the binding of role and account."""
    account = {"kind": "ServiceAccount", "name": names.service_account, "namespace": names.namespace}
    return {
        "apiVersion": f"{_ROLE_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(names, names.role, is_namespaced=False),
        "roleRef": {"apiGroup": _ROLE_GROUP, "kind": "ClusterRole", "name": names.role},
        "subjects": [account],
    }


def service(values: Values, names: Names) -> Object:
    """Return the headless Service: each machine's pod tells of its own devices."""
    metadata = _metadata(names, names.fullname)
    port = {"name": PORT_NAME, "port": values["port"], "targetPort": PORT_NAME, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, **_given(values["service"], "annotations")},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # who is not ready has the metrics that say why
            "selector": _selector(names),
            "ports": [port],
        },
    }


def pod_monitor(values: Values, names: Names) -> Object:
    """Return the PodMonitor of the Prometheus operator."""
    return _monitor("PodMonitor", "podMetricsEndpoints", values["podMonitor"], names)


def service_monitor(values: Values, names: Names) -> Object:
    """Return the ServiceMonitor of the Prometheus operator."""
    return _monitor("ServiceMonitor", "endpoints", values["serviceMonitor"], names)


def network_policy(values: Values, names: Names) -> Object:
    """Return the NetworkPolicy. Probes come from the machine itself and are let in always."""
    policy = values["networkPolicy"]
    port = {"protocol": "TCP", "port": PORT_NAME}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(names, names.fullname),
        "spec": {
            "podSelector": {"matchLabels": _selector(names)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [port], **_given(policy, "from")}],
            **({"egress": policy["apiServerEgress"]} if asks_api(values) else {}),
        },
    }


def _rule(group: str, resource: str, *verbs: str) -> Object:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _monitor(kind: str, endpoints: str, monitor: Values, names: Names) -> Object:
    endpoint: Object = {
        "port": PORT_NAME,
        "path": "/metrics",
        "interval": monitor["interval"],
        "scrapeTimeout": monitor["scrapeTimeout"],
        "honorLabels": monitor["honorLabels"],
        **_given(monitor, "relabelings", "metricRelabelings"),
    }
    return {
        "apiVersion": _MONITORING,
        "kind": kind,
        "metadata": _metadata(names, names.fullname, labels=monitor["labels"]),
        "spec": {"selector": {"matchLabels": _selector(names)}, endpoints: [endpoint]},
    }
