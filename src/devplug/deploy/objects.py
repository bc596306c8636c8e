"""The objects of a deployment: the DaemonSet with its configuration, and what stands around it. Pure.

Around it are namespace, account, rights, Service, monitors and network policy.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from devplug.deploy.template import MORE, AllOf, AnyOf, At, Either, Given, Named, Not, Part, Text, When
from devplug.k8s.kubelet_dir import KUBELET_ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.deploy.template import Tree

__all__ = [
    "CONFIG_FOLDER",
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


CONFIG_FOLDER: Final = "/etc/devplug"
PORT_NAME: Final = "http"

NEEDS_API: Final = AnyOf((Given("nodeLabels.enabled"), Given("kubeEvents.enabled")))
"""When the pod asks the API server, and needs a token."""

SELECTOR: Final[Mapping[str, Tree]] = {
    "app.kubernetes.io/name": Named("name"),
    "app.kubernetes.io/instance": Named("instance"),
}
"""Labels of our pods that never change: a DaemonSet's selector cannot."""

_HIDES_CONSOLE: Final = AllOf((Given("dev.enabled"), Given("dev.hideConsole")))

_CDI_FOLDER: Final = "/var/run/cdi"
_CONTEXT_OF_ALL: Final = ("privileged", "allowPrivilegeEscalation")

_MONITORING: Final = "monitoring.coreos.com/v1"
_ROLE_GROUP: Final = "rbac.authorization.k8s.io"
_ROLE_NAME: Final = Text("%s-%s", (Named("namespace"), Named("fullname")))
"""Roles of the cluster have no namespace, and two deployments may have one name."""

_LEVELS: Final = ("enforce", "audit", "warn")


# ── DaemonSet ─────────────────────────────────────────────────────────────────────────────────────


def _metadata(
    name: Tree,
    *,
    namespaced: bool = True,
    labels: Mapping[str, Tree] = MappingProxyType({}),
    annotations: str = "",
) -> Tree:
    """Return an object's metadata: its name and namespace, the labels that all have, and more of them.

    `annotations` is the path of the values that it has as annotations, if it may have any.
    """
    place: Mapping[str, Tree] = {"namespace": Named("namespace")} if namespaced else {}
    more: Mapping[str, Tree] = {"annotations": _if_given(annotations)} if annotations else {}
    whole: Mapping[str, Tree] = {
        **SELECTOR,
        "app.kubernetes.io/version": Named("version"),
        "app.kubernetes.io/component": "device-plugin",
        "app.kubernetes.io/part-of": Named("name"),
        "app.kubernetes.io/managed-by": Named("managedBy"),
        **labels,
    }
    return {"name": name, **place, "labels": whole, **more}


def _if_given(path: str) -> Tree:
    """Return the map or list at a path, as an entry that is left out if it is empty."""
    return When(Given(path), Part(path))


def config_map() -> Tree:
    """Return the ConfigMap with the configuration file."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(Named("configMapName")),
        "data": {"config.yaml": At("config.inline")},
    }


def daemon_set() -> Tree:
    """Return the DaemonSet."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(Named("fullname")),
        "spec": {
            "selector": {"matchLabels": SELECTOR},
            "updateStrategy": Part("updateStrategy"),
            "minReadySeconds": At("minReadySeconds"),
            "revisionHistoryLimit": At("revisionHistoryLimit"),
            "template": {"metadata": _pod_metadata(), "spec": _pod_spec()},
        },
    }


def _pod_metadata() -> Tree:
    checksum = When(Given("config.checksumRestart"), Named("checksum"))
    return {
        "labels": {
            **SELECTOR,
            "app.kubernetes.io/version": Named("version"),
            "app.kubernetes.io/component": "device-plugin",
            f"{MORE}podLabels": Part("podLabels"),
        },
        "annotations": When(
            AnyOf((Given("podAnnotations"), Given("config.checksumRestart"))),
            {"checksum/config": checksum, f"{MORE}podAnnotations": Part("podAnnotations")},
        ),
    }


def _pod_spec() -> Tree:
    return {
        "serviceAccountName": Named("serviceAccountName"),
        "automountServiceAccountToken": Either(NEEDS_API, tree=True, otherwise=False),
        "enableServiceLinks": False,
        "imagePullSecrets": _if_given("imagePullSecrets"),
        "priorityClassName": When(Given("priorityClassName"), At("priorityClassName")),
        "runtimeClassName": When(Given("runtimeClassName"), At("runtimeClassName")),
        "hostNetwork": When(Given("hostNetwork"), tree=True),
        "nodeSelector": _if_given("nodeSelector"),
        "affinity": _if_given("affinity"),
        "tolerations": _if_given("tolerations"),
        "terminationGracePeriodSeconds": At("terminationGracePeriodSeconds"),
        "securityContext": Part("podSecurityContext"),
        "containers": [_container()],
        "volumes": [
            _config_volume(),
            _host_path("device-plugins", Text("%s/device-plugins", (At("kubeletRoot"),))),
            _host_path("pod-resources", Text("%s/pod-resources", (At("kubeletRoot"),))),
            When(Given("dev.enabled"), _host_path("dev", "/dev")),
            When(Given("dev.enabled"), {"name": "dev-empty", "emptyDir": {}}),
            When(_HIDES_CONSOLE, _host_path("dev-null", "/dev/null", kind="CharDevice")),
            When(Given("cdi.enabled"), _host_path("cdi", _CDI_FOLDER, kind="DirectoryOrCreate")),
            Part("extraVolumes"),
        ],
    }


def _container() -> Tree:
    return {
        "name": "devplug",
        "image": Named("image"),
        "imagePullPolicy": At("image.pullPolicy"),
        "args": [
            "run",
            f"--config={CONFIG_FOLDER}/config.yaml",
            Text("--listen=:%s", (At("port"),)),
            Text("--log-format=%s", (At("logFormat"),)),
            Text("--log-level=%s", (At("logLevel"),)),
            When(Given("kubeEvents.enabled"), "--kube-events"),
            Part("extraArgs"),
        ],
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            When(Given("nvidia.enabled"), {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}),
            When(Given("nvidia.enabled"), {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"}),
            # As NVIDIA's own chart does for MIG (templates/_helpers.tpl, addMigMonitorDevices).
            When(Given("nvidia.mig"), {"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"}),
            Part("extraEnv"),
        ],
        "ports": [{"name": PORT_NAME, "containerPort": At("port"), "protocol": "TCP"}],
        "startupProbe": _probe("/healthz", "startupProbe"),
        "livenessProbe": _probe("/healthz", "livenessProbe"),
        "readinessProbe": _probe("/readyz", "readinessProbe"),
        "resources": Part("resources"),
        "securityContext": Either(
            Given("deviceAccess.enabled"),
            # Without allowPrivilegeEscalation: the API refuses false beside privileged.
            {"privileged": True, f"{MORE}securityContext": Part("securityContext", _CONTEXT_OF_ALL)},
            Part("securityContext"),
        ),
        # Its usual place is in /dev, which is read-only here.
        "terminationMessagePath": "/run/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            # The folder and not the file: a file that is mounted alone never changes.
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            # Here the container has them wherever the machine does: no command needs a flag.
            {"name": "device-plugins", "mountPath": f"{KUBELET_ROOT}/device-plugins"},
            {"name": "pod-resources", "mountPath": f"{KUBELET_ROOT}/pod-resources", "readOnly": True},
            *_dev_mounts(),
            When(Given("cdi.enabled"), {"name": "cdi", "mountPath": _CDI_FOLDER}),
            Part("extraVolumeMounts"),
        ],
    }


def _dev_mounts() -> list[Tree]:
    """Return how the machine's /dev is mounted: without what a container could open there.

    Its device cgroup lets each container open terminals (136:*), the console (5:1) and the like, and files
    need no permission of it at all: shared memory, huge pages, message queues. Those lie in file systems
    that are mounted below /dev. The kubelet binds a sub-path without what is mounted below it
    (pkg/volume/util/subpath/subpath_linux.go, doBindSubPath), and `.` is the whole of /dev: new nodes appear
    in it, as it is the same file system. To hide each by a volume of its own would keep the pod from starting
    where one is not there: a runtime cannot make the folder in a /dev that is read-only already. Terminals
    and shared memory are on each machine, and are hidden so all the same; the console is, by /dev/null.
    """
    dev: Tree = {
        "name": "dev",
        "mountPath": "/dev",
        "subPath": When(Not(Given("dev.submounts")), "."),
        "readOnly": True,
        "recursiveReadOnly": "IfPossible",
    }
    return [
        When(Given("dev.enabled"), dev),
        When(Given("dev.enabled"), {"name": "dev-empty", "mountPath": "/dev/pts", "readOnly": True}),
        When(Given("dev.enabled"), {"name": "dev-empty", "mountPath": "/dev/shm", "readOnly": True}),  # noqa: S108
        When(_HIDES_CONSOLE, {"name": "dev-null", "mountPath": "/dev/console", "readOnly": True}),
    ]


def _config_volume() -> Tree:
    file: Tree = {"key": Named("configKey"), "path": "config.yaml"}
    return {"name": "config", "configMap": {"name": Named("configMapName"), "items": [file]}}


def _host_path(name: str, path: Tree, *, kind: str = "Directory") -> Tree:
    return {"name": name, "hostPath": {"path": path, "type": kind}}


def _probe(path: str, values: str) -> Tree:
    return {"httpGet": {"path": path, "port": PORT_NAME}, f"{MORE}{values}": Part(values)}


# ── around it ─────────────────────────────────────────────────────────────────────────────────────


def namespace() -> Tree:
    """Return the namespace: hostPath volumes need the Pod Security level "privileged"."""
    levels: Mapping[str, Tree] = {f"pod-security.kubernetes.io/{level}": "privileged" for level in _LEVELS}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": _metadata(Named("namespace"), namespaced=False, labels=levels),
    }


def service_account() -> Tree:
    """Return the ServiceAccount, which brings no token by itself."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(Named("serviceAccountName"), annotations="serviceAccount.annotations"),
        "automountServiceAccountToken": False,
    }


def role() -> Tree:
    """Return the ClusterRole: Nodes and Events of Nodes are not within a namespace that we know."""
    classes: Tree = _rule("resource.k8s.io", "deviceclasses", "list")
    return {
        "apiVersion": f"{_ROLE_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": _metadata(_ROLE_NAME, namespaced=False),
        "rules": [
            _rule("", "nodes", "get", "list", "watch"),
            When(Given("nodeLabels.enabled"), classes),
            When(Given("kubeEvents.enabled"), _rule("", "nodes/status", "patch")),
            When(Given("kubeEvents.enabled"), _rule("", "events", "create", "patch")),
        ],
    }


def binding() -> Tree:
    """Return the binding of role and account."""
    return {
        "apiVersion": f"{_ROLE_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(_ROLE_NAME, namespaced=False),
        "roleRef": {"apiGroup": _ROLE_GROUP, "kind": "ClusterRole", "name": _ROLE_NAME},
        "subjects": [
            {"kind": "ServiceAccount", "name": Named("serviceAccountName"), "namespace": Named("namespace")}
        ],
    }


def service() -> Tree:
    """Return the headless Service: each machine's pod tells of its own devices."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(Named("fullname"), annotations="service.annotations"),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # who is not ready has the metrics that say why
            "selector": SELECTOR,
            "ports": [{"name": PORT_NAME, "port": At("port"), "targetPort": PORT_NAME, "protocol": "TCP"}],
        },
    }


def pod_monitor() -> Tree:
    """Return the PodMonitor of the Prometheus operator."""
    return _monitor("PodMonitor", "podMonitor", "podMetricsEndpoints")


def service_monitor() -> Tree:
    """Return the ServiceMonitor of the Prometheus operator."""
    return _monitor("ServiceMonitor", "serviceMonitor", "endpoints")


def network_policy() -> Tree:
    """Return the NetworkPolicy. Probes come from the machine itself and are let in always."""
    port: Tree = {"protocol": "TCP", "port": PORT_NAME}
    sources = _if_given("networkPolicy.from")
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(Named("fullname")),
        "spec": {
            "podSelector": {"matchLabels": SELECTOR},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [port], "from": sources}],
            "egress": When(NEEDS_API, Part("networkPolicy.apiServerEgress")),
        },
    }


def _rule(group: str, resource: str, *verbs: str) -> Tree:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _monitor(kind: str, values: str, endpoints: str) -> Tree:
    labels = {f"{MORE}labels": Part(f"{values}.labels")}
    endpoint: Tree = {
        "port": PORT_NAME,
        "path": "/metrics",
        "interval": At(f"{values}.interval"),
        "scrapeTimeout": At(f"{values}.scrapeTimeout"),
        "honorLabels": At(f"{values}.honorLabels"),
        "relabelings": _if_given(f"{values}.relabelings"),
        "metricRelabelings": _if_given(f"{values}.metricRelabelings"),
    }
    return {
        "apiVersion": _MONITORING,
        "kind": kind,
        "metadata": _metadata(Named("fullname"), labels=labels),
        "spec": {"selector": {"matchLabels": SELECTOR}, endpoints: [endpoint]},
    }
