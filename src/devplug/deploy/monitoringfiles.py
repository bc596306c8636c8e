"""What the repository keeps for Prometheus and Grafana, in its folder `deploy`, as texts.

`python -m devplug.deploy.monitoringfiles FOLDER` writes them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from devplug.deploy.alerts import prometheus_rule_text, rules_text
from devplug.deploy.grafana.dashboard import dashboard_text

__all__ = ["monitoring_files"]


def monitoring_files() -> dict[str, str]:
    """Return the text of each file, by its path below `deploy`."""
    return {
        "prometheus/rules.yaml": rules_text(),
        "prometheus/prometheusrule.yaml": prometheus_rule_text(),
        "grafana/dashboard.json": dashboard_text(),
    }


def _write(folder: Path) -> None:
    for path, text in monitoring_files().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
