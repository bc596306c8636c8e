"""The reference page on the metrics, from the catalogue: `python -m devplug.metrics.page`. Pure."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from devplug.metrics.bounded import DEVICE_SERIES_LIMIT
from devplug.metrics.catalogue import GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.metrics.families import Metric

__all__ = ["page"]

_INTRODUCTION = """\
# Metrics

What `/metrics` tells. It is written as OpenMetrics 1.0.0 for a client that asks for it, as Prometheus does,
and as text 0.0.4 for others. Names begin with `devplug_`, times are in seconds, and `resource` is a resource
name like `example.com/fpga`. A metric of which there is nothing to tell is left out.

The labels `namespace`, `pod` and `container` name the container that holds a device. Prometheus renames them
to `exported_namespace` and so on where it sets such labels of its own, unless the scrape has
`honor_labels: true` (`honorLabels` in a PodMonitor).

At most {limit:,} devices of a process have series of their own: held and unhealthy ones first, then by
resource name and ID. `devplug_device_series_omitted` says how many have none; the counts by resource are
complete.

*Alpha* metrics may change in any release, *beta* ones keep their labels, *stable* ones keep their meaning.
"""
_HEAD = "| name | type | labels | stability | what it says |\n|---|---|---|---|---|\n"


def page(groups: Iterable[tuple[str, tuple[Metric, ...]]]) -> str:
    """Return the whole page as Markdown: one table under each heading."""
    parts = [_INTRODUCTION.format(limit=DEVICE_SERIES_LIMIT)]
    for heading, metrics in groups:
        parts.append(f"## {heading}\n\n{_HEAD}{''.join(map(_row, metrics))}")
    return "\n".join(parts)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    return (
        f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.stability.value} | {metric.help} |\n"
    )


if __name__ == "__main__":
    sys.stdout.write(page(GROUPS))
