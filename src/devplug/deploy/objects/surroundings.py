"""What stands around the DaemonSet: namespace, account, rights, Service, monitors, network policy. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.deploy.objects.tree import MORE, At, Given, Named, Part, Text, When
from devplug.deploy.objects.workload import NEEDS_API, PORT_NAME, SELECTOR, if_given, metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.deploy.objects.tree import Tree

__all__ = [
    "binding",
    "namespace",
    "network_policy",
    "pod_monitor",
    "role",
    "service",
    "service_account",
    "service_monitor",
]

_MONITORING: Final = "monitoring.coreos.com/v1"
_ROLE_GROUP: Final = "rbac.authorization.k8s.io"
_ROLE_NAME: Final = Text("%s-%s", (Named("namespace"), Named("fullname")))
"""Roles of the cluster have no namespace, and two deployments may have one name."""

_LEVELS: Final = ("enforce", "audit", "warn")


def namespace() -> Tree:
    """Return the namespace: hostPath volumes need the Pod Security level "privileged"."""
    levels: Mapping[str, Tree] = {f"pod-security.kubernetes.io/{level}": "privileged" for level in _LEVELS}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": metadata(Named("namespace"), namespaced=False, labels=levels),
    }


def service_account() -> Tree:
    """Return the ServiceAccount, which brings no token by itself."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(Named("serviceAccountName"), annotations="serviceAccount.annotations"),
        "automountServiceAccountToken": False,
    }


def role() -> Tree:
    """Return the ClusterRole: Nodes and Events of Nodes are not within a namespace that we know."""
    classes: Tree = _rule("resource.k8s.io", "deviceclasses", "list")
    return {
        "apiVersion": f"{_ROLE_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": metadata(_ROLE_NAME, namespaced=False),
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
        "metadata": metadata(_ROLE_NAME, namespaced=False),
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
        "metadata": metadata(Named("fullname"), annotations="service.annotations"),
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
    sources = if_given("networkPolicy.from")
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(Named("fullname")),
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
        "relabelings": if_given(f"{values}.relabelings"),
        "metricRelabelings": if_given(f"{values}.metricRelabelings"),
    }
    return {
        "apiVersion": _MONITORING,
        "kind": kind,
        "metadata": metadata(Named("fullname"), labels=labels),
        "spec": {"selector": {"matchLabels": SELECTOR}, endpoints: [endpoint]},
    }
