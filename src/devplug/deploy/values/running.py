"""The values that say where the pods run, how they are probed, and who reads their metrics. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.deploy.values.rows import (
    COUNT,
    DURATION,
    FOLDER,
    MAP,
    MAPS,
    PORT,
    TEXT,
    TEXTS,
    TEXTS_BY_NAME,
    TRUTH,
    Group,
    Row,
    one_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.yamltext import Value

__all__ = ["RUNNING"]


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
