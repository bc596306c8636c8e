"""A board around its panels, as Grafana 10 and later wants it written: layout, queries, variables. Pure.

The fields are those of Grafana's own schema (kinds/dashboard/dashboard_kind.cue, schema version 39).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.deploy.grafana.panels import Panel
    from devplug.yamltext import Value

__all__ = ["COLUMNS", "SCHEMA_VERSION", "choice", "datasource_choice", "panels_of"]

SCHEMA_VERSION: Final = 39
"""Of Grafana 10.3; later ones migrate it."""

COLUMNS: Final = 24
"""A board is this wide, and panels are measured in it."""

_DATASOURCE: Final[Value] = {"type": "prometheus", "uid": "${datasource}"}


def datasource_choice() -> Value:
    """Return the variable `datasource`: which Prometheus is asked."""
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
    }


def choice(name: str, label: str, query: str) -> Value:
    """Return a variable whose values come from a query; all of them are chosen at first."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


@dataclass(slots=True)
class _Layout:
    """Panels beside each other for as long as there is room, and then below."""

    x: int = 0
    y: int = 0
    line_height: int = 0
    placed: list[Value] = field(default_factory=list)

    def next_line(self) -> None:
        self.x, self.y, self.line_height = 0, self.y + self.line_height, 0

    def place(self, width: int, height: int, content: Mapping[str, Value]) -> None:
        if self.x + width > COLUMNS:
            self.next_line()
        place: Value = {"x": self.x, "y": self.y, "w": width, "h": height}
        self.placed.append({"id": len(self.placed) + 1, **content, "gridPos": place})
        self.x += width
        self.line_height = max(self.line_height, height)


def panels_of(rows: Sequence[tuple[str, Sequence[Panel]]]) -> list[Value]:
    """Return the panels of a board in their places, under the titles of their rows."""
    layout = _Layout()
    for title, panels in rows:
        layout.next_line()
        layout.place(COLUMNS, 1, {"type": "row", "title": title, "collapsed": False, "panels": []})
        for panel in panels:
            layout.place(panel.width, panel.height, _panel(panel))
    return layout.placed


def _panel(panel: Panel) -> Mapping[str, Value]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "editorMode": "code",
                "expr": query.expression,
                "legendFormat": query.legend,
                "format": panel.format,
                "instant": panel.is_instant,
                "range": not panel.is_instant,
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": panel.defaults, "overrides": list(panel.overrides)},
        "options": panel.options,
        "transformations": list(panel.transformations),
    }
