"""The files of the Helm chart, by path below its folder."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from devplug.deploy.alerts import rules_text
from devplug.deploy.grafana.dashboard import dashboard_text
from devplug.deploy.helmtext import template_text
from devplug.deploy.manifests import DOCUMENTS
from devplug.deploy.objects.names import CHART
from devplug.deploy.values.files import schema_text, values_text
from devplug.deploy.values.rows import overridden
from devplug.deploy.values.table import defaults
from devplug.yamltext import yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.yamltext import Value

__all__ = ["KUBE_VERSION", "chart_files"]

KUBE_VERSION: Final = ">=1.31.0-0"
"""What the objects are checked against begins there."""

SOURCE: Final = "https://github.com/devplug/devplug"
DESCRIPTION: Final = "Puts a machine's hardware into pods: a device plugin from a configuration file"

_FILED: Final = """\
{{- if .Values.@VALUES@.enabled }}
apiVersion: @API@
kind: @KIND@
metadata:
  name: {{ printf "%s@SUFFIX@" (include "devplug.fullname" .) | toJson }}
  namespace: {{ include "devplug.namespace" . | toJson }}
  labels:
    app.kubernetes.io/name: {{ include "devplug.name" . | toJson }}
    app.kubernetes.io/instance: {{ include "devplug.instance" . | toJson }}
    app.kubernetes.io/managed-by: {{ include "devplug.managedBy" . | toJson }}
    {{- with .Values.@VALUES@.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
@BODY@
{{- end }}
"""
"""An object whose content is a file of the chart: its braces are Prometheus's and Grafana's, not Helm's."""

_RULES: Final = {
    "VALUES": "prometheusRule",
    "API": "monitoring.coreos.com/v1",
    "KIND": "PrometheusRule",
    "SUFFIX": "",
    "BODY": 'spec:\n  {{- .Files.Get "files/rules.yaml" | nindent 2 }}',
}
_DASHBOARD: Final = {
    "VALUES": "grafanaDashboard",
    "API": "v1",
    "KIND": "ConfigMap",
    "SUFFIX": "-dashboard",
    "BODY": 'data:\n  devplug.json: {{ .Files.Get "files/dashboard.json" | toJson }}',
}


def chart_files(version: str, changes: Mapping[str, Value]) -> dict[str, str]:
    """Return the text of each file of the chart, with `changes` over the default values."""
    made = {
        "Chart.yaml": _chart_text(version),
        "values.yaml": values_text(overridden(defaults(), changes)),
        "values.schema.json": schema_text(),
        ".helmignore": "*.tgz\n*.prov\n",
        "files/rules.yaml": rules_text(),
        "files/dashboard.json": dashboard_text(),
        "templates/prometheusrule.yaml": _filed(_RULES),
        "templates/dashboard.yaml": _filed(_DASHBOARD),
    }
    for name in ("_helpers.tpl", "NOTES.txt"):
        made[f"templates/{name}"] = files("devplug.deploy").joinpath("texts", name).read_text("utf-8")
    for document in DOCUMENTS:
        head = '{{- include "devplug.check" . }}' if document.name == "daemonset" else ""
        made[f"templates/{document.name}.yaml"] = template_text(document, head=head)
    return made


def _filed(words: Mapping[str, str]) -> str:
    text = _FILED
    for name, word in words.items():
        text = text.replace(f"@{name}@", word)
    return text


def _chart_text(version: str) -> str:
    return yaml_text(
        {
            "apiVersion": "v2",
            "name": CHART,
            "description": DESCRIPTION,
            "type": "application",
            "version": version,
            "appVersion": version,
            "kubeVersion": KUBE_VERSION,
            "home": SOURCE,
            "sources": [SOURCE],
            "keywords": ["device-plugin", "hardware", "gpu", "fpga", "usb", "hot-plug"],
            "maintainers": [{"name": "The devplug authors", "url": SOURCE}],
            "annotations": {
                "artifacthub.io/category": "integration-delivery",
                "artifacthub.io/license": "Apache-2.0",
                "artifacthub.io/prerelease": "true" if version.startswith("0.") else "false",
                "artifacthub.io/images": f"- name: devplug\n  image: ghcr.io/devplug/devplug:{version}\n",
                "artifacthub.io/links": f"- name: documentation\n  url: {SOURCE}/tree/main/docs\n",
            },
        }
    )
