"""The values of a deployment, in the order in which values.yaml has them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.deploy.schema import (
    COUNT,
    DURATION,
    FOLDER,
    MAP,
    MAPS,
    NAME,
    PORT,
    TEXT,
    TEXTS,
    TEXTS_BY_NAME,
    TRUTH,
    Group,
    Row,
    nested,
    one_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.k8s.yaml import Value

__all__ = ["GROUPS", "STARTER", "defaults", "rows"]

# ── what runs, what it serves, and what the pod is allowed to ─────────────────────────────────────

STARTER: Final = """\
version: 1
resources:
  - name: example.com/fuse
    discover:
      path: /dev/fuse
    share:
      replicas: 100
      maxPerContainer: 1
  - name: example.com/kvm
    discover:
      path: /dev/kvm
    share:
      replicas: 100
      maxPerContainer: 1
  - name: example.com/tun
    discover:
      path: /dev/net/tun
    share:
      replicas: 100
      maxPerContainer: 1
"""
"""A configuration for any Linux machine, to start from: devices that many pods may share without harm."""

GRANTED: Final = (
    Group(
        "The image",
        (
            Row("image.repository", "ghcr.io/devplug/devplug", TEXT, "Registry and name."),
            Row("image.tag", "", TEXT, "Tag. Default: the version of the chart."),
            Row(
                "image.digest",
                "",
                {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                "Digest; wins over the tag.",
            ),
            Row(
                "image.pullPolicy",
                "IfNotPresent",
                one_of("Always", "IfNotPresent", "Never"),
                "When it is pulled.",
            ),
            Row("imagePullSecrets", [], MAPS, "Secrets for the registry, as in `- name: my-secret`."),
        ),
    ),
    Group(
        "Names",
        (
            Row("nameOverride", "", NAME, "In place of the chart's name."),
            Row("fullnameOverride", "", NAME, "In place of the release's and the chart's name."),
            Row("namespaceOverride", "", NAME, "In place of the release's namespace."),
            Row(
                "createNamespace",
                default=False,
                schema=TRUTH,
                words="Make the namespace, with the Pod Security label that hostPath volumes need.",
            ),
        ),
    ),
    Group(
        "What is served",
        (
            Row(
                "config.inline",
                STARTER,
                TEXT,
                "The configuration file, whole (`--set-file config.inline=devplug.yaml`). "
                "The default is a starter: replace it.",
            ),
            Row(
                "config.existingConfigMap",
                "",
                TEXT,
                "A ConfigMap of yours instead; empty `config.inline` then.",
            ),
            Row("config.key", "config.yaml", {"type": "string", "minLength": 1}, "Its key."),
            Row(
                "config.checksumRestart",
                default=False,
                schema=TRUTH,
                words="Restart the pods when the configuration changes. They read it anew without that.",
            ),
        ),
    ),
    Group(
        "What the pod may do: as little as works; `devplug manifests --format chart-values -c FILE` "
        "says what a configuration needs",
        (
            Row(
                "dev.enabled",
                default=True,
                schema=TRUTH,
                words="See the machine's /dev, read-only: to find devices.",
            ),
            Row(
                "dev.submounts",
                default=False,
                schema=TRUTH,
                words="See what is mounted below /dev, too, but for terminals and shared memory: where the "
                "machine is itself a container whose device nodes are mounts (LXC, rootless kind).",
            ),
            Row(
                "dev.hideConsole",
                default=True,
                schema=TRUTH,
                words="Show /dev/null in place of the machine's /dev/console. A machine without one (k3d) "
                "needs `false`.",
            ),
            Row(
                "deviceAccess.enabled",
                default=False,
                schema=TRUTH,
                words="Open devices (health rules with `open` or `exec`, commands): the container is "
                "privileged, since nothing less passes the device cgroup.",
            ),
            Row(
                "cdi.enabled",
                default=False,
                schema=TRUTH,
                words="Write to /var/run/cdi: for `strategy: cdi`.",
            ),
            Row(
                "nvidia.enabled",
                default=False,
                schema=TRUTH,
                words="Ask the NVIDIA driver; needs `runtimeClassName`.",
            ),
            Row(
                "nvidia.mig",
                default=False,
                schema=TRUTH,
                words="See all MIG instances; needs `securityContext.capabilities.add: [SYS_ADMIN]`.",
            ),
            Row("runtimeClassName", "", TEXT, "Runtime class of the pod, as in nvidia."),
            Row(
                "hostNetwork",
                default=False,
                schema=TRUTH,
                words="Be in the machine's network: for `discover.net`. The port is then the machine's, too.",
            ),
            Row(
                "nodeLabels.enabled",
                default=False,
                schema=TRUTH,
                words="Read this machine's labels: for `nodeSelector`.",
            ),
            Row(
                "kubeEvents.enabled",
                default=False,
                schema=TRUTH,
                words="Write Events and a condition of the Node.",
            ),
            Row("serviceAccount.create", default=True, schema=TRUTH, words="Make a ServiceAccount."),
            Row(
                "serviceAccount.name", "", TEXT, "Its name. Default: the full name; without create, default."
            ),
            Row("serviceAccount.annotations", {}, TEXTS_BY_NAME, "Its annotations."),
            Row(
                "rbac.create",
                default=True,
                schema=TRUTH,
                words="Make the roles that nodeLabels and kubeEvents need.",
            ),
            Row(
                "podSecurityContext",
                {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
                MAP,
                "Security of the pod. User 0, because the kubelet's socket is root's.",
            ),
            Row(
                "securityContext",
                {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                    "seLinuxOptions": {"type": "container_device_plugin_t"},
                },
                MAP,
                "Security of the container. The SELinux type is container-selinux's for device plugins.",
            ),
            Row(
                "networkPolicy.enabled",
                default=True,
                schema=TRUTH,
                words="Let in only who asks the port, let out nothing.",
            ),
            Row("networkPolicy.from", [], MAPS, "Who may ask the port. Default: all."),
            Row(
                "networkPolicy.apiServerEgress",
                [{"ports": [{"protocol": "TCP", "port": port} for port in (443, 6443, 8443, 16443)]}],
                MAPS,
                "The way to the API server, open only with nodeLabels or kubeEvents.",
            ),
        ),
    ),
)

# ── where the pods run, how they are probed, and who reads their metrics ──────────────────────────


def _probe(name: str, period: int, failures: int, words: str) -> Row:
    timing: Mapping[str, Value] = {
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
    return Row(name, timing, MAP, words)


def _monitor(name: str, words: str) -> tuple[Row, ...]:
    return (
        Row(f"{name}.enabled", default=False, schema=TRUTH, words=words),
        Row(f"{name}.interval", "30s", DURATION, "Time between two scrapes."),
        Row(f"{name}.scrapeTimeout", "10s", DURATION, "A scrape that takes longer has failed."),
        Row(f"{name}.labels", {}, TEXTS_BY_NAME, "More labels, by which your Prometheus selects it."),
        Row(f"{name}.honorLabels", default=False, schema=TRUTH, words="Keep the labels of the metrics."),
        Row(f"{name}.relabelings", [], MAPS, "Relabelings of the target."),
        Row(f"{name}.metricRelabelings", [], MAPS, "Relabelings of the metrics."),
    )


RUNNING: Final = (
    Group(
        "Where it runs, and how",
        (
            Row(
                "kubeletRoot", "/var/lib/kubelet", FOLDER, "The kubelet's folder; k0s: /var/lib/k0s/kubelet."
            ),
            Row("nodeSelector", {"kubernetes.io/os": "linux"}, TEXTS_BY_NAME, "Labels of the machines."),
            Row("affinity", {}, MAP, "Affinity."),
            Row(
                "tolerations",
                [{"operator": "Exists", "effect": effect} for effect in ("NoSchedule", "NoExecute")],
                MAPS,
                "Tolerations. Default: all, since hardware machines are often tainted.",
            ),
            Row("priorityClassName", "system-node-critical", TEXT, "Priority class."),
            Row(
                "resources",
                {"requests": {"cpu": "10m", "memory": "48Mi"}, "limits": {"memory": "128Mi"}},
                MAP,
                "Measured: 46 MB with 8 devices, 83 MB with 10,000. No CPU limit: it would hold up pods.",
            ),
            Row(
                "updateStrategy",
                {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
                MAP,
                "No surge: two plugins on one machine would take the resource from each other.",
            ),
            Row("minReadySeconds", 5, COUNT, "How long a pod must be ready before the next is replaced."),
            Row("revisionHistoryLimit", 10, COUNT, "Old revisions that are kept for a rollback."),
            Row("terminationGracePeriodSeconds", 30, COUNT, "Time to end; it takes less than a second."),
            Row("podLabels", {}, TEXTS_BY_NAME, "More labels of the pods."),
            Row("podAnnotations", {}, TEXTS_BY_NAME, "Annotations of the pods."),
            Row("logFormat", "text", one_of("text", "json"), "Log lines as key=value or as JSON."),
            Row(
                "logLevel",
                "info",
                one_of("debug", "info", "warning", "error"),
                "What is logged, and what is worse.",
            ),
            Row("extraArgs", [], TEXTS, "More arguments of devplug run."),
            Row("extraEnv", [], MAPS, "More environment variables."),
            Row("extraVolumes", [], MAPS, "More volumes, as for the programs of exec rules."),
            Row("extraVolumeMounts", [], MAPS, "Where they are mounted."),
        ),
    ),
    Group(
        "Probes and metrics",
        (
            Row("port", 9410, PORT, "Port of /healthz, /readyz and /metrics."),
            _probe("startupProbe", 1, 60, "When /healthz is asked first. Timing and thresholds only."),
            _probe("livenessProbe", 10, 3, "When a hung process is restarted; it lives without a kubelet."),
            _probe(
                "readinessProbe",
                5,
                1,
                "When it is ready: each resource is registered, and the kubelet listens.",
            ),
            Row("service.enabled", default=True, schema=TRUTH, words="Make a headless Service for the port."),
            Row("service.annotations", {}, TEXTS_BY_NAME, "Its annotations."),
            *_monitor("podMonitor", "Make a PodMonitor; needs the Prometheus operator."),
            *_monitor("serviceMonitor", "Make a ServiceMonitor instead; needs service.enabled."),
            Row(
                "prometheusRule.enabled",
                default=False,
                schema=TRUTH,
                words="Make a PrometheusRule with the alerts.",
            ),
            Row(
                "prometheusRule.labels",
                {},
                TEXTS_BY_NAME,
                "More labels, by which your Prometheus selects it.",
            ),
            Row(
                "grafanaDashboard.enabled",
                default=False,
                schema=TRUTH,
                words="Make a ConfigMap with the dashboard, for Grafana's sidecar.",
            ),
            Row(
                "grafanaDashboard.labels",
                {"grafana_dashboard": "1"},
                TEXTS_BY_NAME,
                "Labels by which the sidecar finds it.",
            ),
        ),
    ),
)

# ── the table ─────────────────────────────────────────────────────────────────────────────────────

GROUPS: Final = (*GRANTED, *RUNNING)


def rows() -> Iterator[Row]:
    """Yield the rows of all groups."""
    for group in GROUPS:
        yield from group.rows


def defaults() -> dict[str, Value]:
    """Return all values as they are if nobody says otherwise."""
    return nested({row.path: row.default for row in rows()})
