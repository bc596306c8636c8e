"""The objects around the DaemonSet. Pure.

They are configuration, namespace, account, rights, DeviceClasses, Service, monitors and policies. The chart's
templates say the same in Helm's language; a test renders both and compares.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.deploy.chart import Values
    from devplug.deploy.names import Names
    from devplug.k8s.yaml import Value

Object: TypeAlias = dict[str, "Value"]

PORT_NAME: Final = "http"

_MONITORING: Final = "monitoring.coreos.com/v1"
_ROLE_GROUP: Final = "rbac.authorization.k8s.io"
_LEVELS: Final = ("enforce", "audit", "warn")


def asks_api(values: Values) -> bool:
    """Whether the pod asks the API server, and needs a token."""
    return any(values[part]["enabled"] for part in ("nodeLabels", "kubeEvents", "dra"))


# ── what all have ─────────────────────────────────────────────────────────────────────────────────────


def selector(names: Names) -> Object:
    """Return the labels of our pods that never change: a DaemonSet's selector cannot."""
    return {"app.kubernetes.io/name": names.name, "app.kubernetes.io/instance": names.release.name}


def metadata(
    names: Names,
    name: str,
    *,
    is_namespaced: bool = True,
    labels: Mapping[str, Value] = MappingProxyType({}),
) -> Object:
    """Return an object's metadata: its name and namespace, the labels that all have, and more of them."""
    whole: Object = {
        **selector(names),
        "app.kubernetes.io/version": names.release.version,
        "app.kubernetes.io/component": "device-plugin",
        "app.kubernetes.io/part-of": names.name,
        "app.kubernetes.io/managed-by": names.release.service,
        **labels,
    }
    return {"name": name, **({"namespace": names.namespace} if is_namespaced else {}), "labels": whole}


def given(values: Values, *keys: str) -> Object:
    """Return the values with these keys that are not empty: as entries of the same names."""
    return {key: values[key] for key in keys if values[key]}


def config_map(values: Values, names: Names) -> Object:
    """Return the ConfigMap with the configuration file."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(names, names.config_map),
        "data": {"config.yaml": values["config"]["inline"]},
    }


# ── DRA ───────────────────────────────────────────────────────────────────────────────────────────


def device_classes(values: Values, names: Names) -> list[Object]:
    """Return a DeviceClass for each resource: pods ask for it in a claim, or by extendedResourceName."""
    driver = values["dra"]["driver"]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": metadata(names, one["name"], is_namespaced=False),
            "spec": {
                "selectors": [
                    {
                        "cel": {
                            "expression": f'device.driver == "{driver}" && '
                            f'device.attributes["{driver}"].resource == "{one["attribute"]}"'
                        }
                    }
                ],
                **(
                    {"extendedResourceName": one["extendedResourceName"]}
                    if one["extendedResourceName"]
                    else {}
                ),
            },
        }
        for one in values["dra"]["classes"]
    ]


def slice_policy(values: Values, names: Names) -> Object:
    """Return the policy that holds each pod of ours to its driver's ResourceSlices of its own Node.

    A role cannot say that. The Node is in the pod's token (KEP-4193, authentication.kubernetes.io/node-name).
    """
    user = f"system:serviceaccount:{names.namespace}:{names.service_account}"
    driver = values["dra"]["driver"]
    written = 'request.operation == "DELETE" ? oldObject : object'
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata(names, names.role, is_namespaced=False),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["resource.k8s.io"],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE", "DELETE"],
                        "resources": ["resourceslices"],
                    }
                ]
            },
            "matchConditions": [
                {"name": "is-devplug", "expression": f'request.userInfo.username == "{user}"'},
            ],
            "variables": [
                {
                    "name": "ownNode",
                    "expression": "request.userInfo.extra"
                    "[?'authentication.kubernetes.io/node-name'][0].orValue('')",
                },
                {"name": "sliceNode", "expression": f"({written}).spec.?nodeName.orValue('')"},
                {"name": "sliceDriver", "expression": f"({written}).spec.driver"},
            ],
            "validations": [
                {
                    "expression": "variables.ownNode != '' && variables.ownNode == variables.sliceNode",
                    "messageExpression": "'devplug on node ' + variables.ownNode + ' may not write a "
                    "ResourceSlice of node ' + variables.sliceNode",
                },
                {
                    "expression": f"variables.sliceDriver == '{driver}'",
                    "messageExpression": f"'devplug is the driver {driver} and may not write a "
                    "ResourceSlice of driver ' + variables.sliceDriver",
                },
            ],
        },
    }


def slice_policy_binding(_: Values, names: Names) -> Object:
    """Return the binding that puts the policy into effect."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata(names, names.role, is_namespaced=False),
        "spec": {"policyName": names.role, "validationActions": ["Deny"]},
    }


# ── around it ─────────────────────────────────────────────────────────────────────────────────────


def namespace(_: Values, names: Names) -> Object:
    """Return the namespace: hostPath volumes need the Pod Security level "privileged"."""
    levels = {f"pod-security.kubernetes.io/{level}": "privileged" for level in _LEVELS}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": metadata(names, names.namespace, is_namespaced=False, labels=levels),
    }


def service_account(values: Values, names: Names) -> Object:
    """Return the ServiceAccount, which brings no token by itself."""
    own = metadata(names, names.service_account)
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {**own, **given(values["serviceAccount"], "annotations")},
        "automountServiceAccountToken": False,
    }


def role(values: Values, names: Names) -> Object:
    """Return the ClusterRole: Nodes and Events of Nodes are not within a namespace that we know."""
    reads_labels = values["nodeLabels"]["enabled"] or values["kubeEvents"]["enabled"]
    rules = [_rule("", "nodes", *(("get", "list", "watch") if reads_labels else ("get",)))]
    if values["kubeEvents"]["enabled"]:
        rules += [_rule("", "nodes/status", "patch"), _rule("", "events", "create", "patch")]
    if values["dra"]["enabled"]:
        # What a driver needs (KEP-4381): its own slices, and the claims that the kubelet names to it.
        slices = ("get", "list", "watch", "create", "update", "patch", "delete")
        rules += [
            _rule("resource.k8s.io", "resourceslices", *slices),
            _rule("resource.k8s.io", "resourceclaims", "get"),
        ]
    return {
        "apiVersion": f"{_ROLE_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": metadata(names, names.role, is_namespaced=False),
        "rules": rules,
    }


def binding(_: Values, names: Names) -> Object:
    """Return the binding of role and account."""
    account = {"kind": "ServiceAccount", "name": names.service_account, "namespace": names.namespace}
    return {
        "apiVersion": f"{_ROLE_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata(names, names.role, is_namespaced=False),
        "roleRef": {"apiGroup": _ROLE_GROUP, "kind": "ClusterRole", "name": names.role},
        "subjects": [account],
    }


def service(values: Values, names: Names) -> Object:
    """Return the headless Service: each machine's pod tells of its own devices."""
    own = metadata(names, names.fullname)
    port = {"name": PORT_NAME, "port": values["port"], "targetPort": PORT_NAME, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**own, **given(values["service"], "annotations")},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # who is not ready has the metrics that say why
            "selector": selector(names),
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
        "metadata": metadata(names, names.fullname),
        "spec": {
            "podSelector": {"matchLabels": selector(names)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [port], **given(policy, "from")}],
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
        **given(monitor, "relabelings", "metricRelabelings"),
    }
    return {
        "apiVersion": _MONITORING,
        "kind": kind,
        "metadata": metadata(names, names.fullname, labels=monitor["labels"]),
        "spec": {"selector": {"matchLabels": selector(names)}, endpoints: [endpoint]},
    }
