"""The panels of a Grafana dashboard, and the board around them, as Grafana 10 and later wants them.

The options are those of Grafana 10's panels (public/app/plugins/panel), the fields those of its schema
(kinds/dashboard/dashboard_kind.cue, version 39); what a reader would not miss is left to its default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.k8s.yaml import Value

__all__ = [
    "COLUMNS",
    "GREEN_FROM_ONE",
    "PLAIN",
    "RED_FROM_ONE",
    "SCHEMA_VERSION",
    "Panel",
    "Query",
    "choice",
    "datasource_choice",
    "heatmap",
    "lines",
    "panels_of",
    "stat",
    "table",
    "timeline",
]


PLAIN: Final = (("text", None),)
RED_FROM_ONE: Final = (("green", None), ("red", 1))
GREEN_FROM_ONE: Final = (("red", None), ("green", 1))
"""Colours, each with the value from which it holds."""

SCHEMA_VERSION: Final = 39
"""Of Grafana 10.3; later ones migrate it."""

COLUMNS: Final = 24
"""A board is this wide, and panels are measured in it."""

_DATASOURCE: Final[Value] = {"type": "prometheus", "uid": "${datasource}"}


# ── panels ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel; `legend` names its series by their labels."""

    expression: str
    legend: str = "__auto"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a board, without its place."""

    kind: str
    title: str
    description: str
    queries: tuple[Query, ...]
    width: int
    height: int
    defaults: Mapping[str, Value]
    """What holds for all of its fields."""
    options: Mapping[str, Value]
    overrides: tuple[Value, ...] = ()
    transformations: tuple[Value, ...] = ()
    format: str = "time_series"
    is_instant: bool = False
    """Whether only the last value is asked for."""


def _steps(colours: Sequence[tuple[str, int | None]]) -> Value:
    return {"mode": "absolute", "steps": [{"color": color, "value": value} for color, value in colours]}


def _words(words: Mapping[int, tuple[str, str]]) -> Value:
    """Return words and colours for values."""
    options: Value = {
        str(value): {"text": text, "color": color, "index": index}
        for index, (value, (text, color)) in enumerate(words.items())
    }
    return [{"type": "value", "options": options}]


def _legend(placement: str = "bottom") -> Value:
    return {"displayMode": "list", "placement": placement, "showLegend": True, "calcs": []}


def stat(
    title: str,
    description: str,
    *queries: Query,
    width: int,
    height: int = 5,
    colors: Sequence[tuple[str, int | None]] = PLAIN,
    unit: str = "none",
    words: Mapping[int, tuple[str, str]] | None = None,
    mode: str = "value_and_name",
) -> Panel:
    """Return large numbers, one for each series; `words` stand for values, each with its colour."""
    return Panel(
        "stat",
        title,
        description,
        queries,
        width,
        height,
        {
            "unit": unit,
            "color": {"mode": "thresholds"},
            "thresholds": _steps(colors),
            "mappings": _words(words or {}) if words else [],
        },
        {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "orientation": "auto",
            "textMode": mode,
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
        },
        is_instant=True,
    )


def lines(
    title: str,
    description: str,
    *queries: Query,
    width: int,
    height: int = 8,
    unit: str = "none",
    is_stepped: bool = False,
) -> Panel:
    """Return curves over time."""
    return Panel(
        "timeseries",
        title,
        description,
        queries,
        width,
        height,
        {
            "unit": unit,
            "min": 0,
            "color": {"mode": "palette-classic"},
            "custom": {
                "drawStyle": "line",
                "lineInterpolation": "stepAfter" if is_stepped else "linear",
                "lineWidth": 1,
                "fillOpacity": 10,
                "showPoints": "auto",
                "spanNulls": False,
            },
        },
        {"legend": _legend(), "tooltip": {"mode": "multi", "sort": "desc"}},
    )


def timeline(
    title: str,
    description: str,
    *queries: Query,
    words: Mapping[int, tuple[str, str]],
    width: int,
    height: int = 10,
) -> Panel:
    """Return one bar over time for each series, in the colours of its values."""
    return Panel(
        "state-timeline",
        title,
        description,
        queries,
        width,
        height,
        {
            "color": {"mode": "fixed", "fixedColor": "text"},
            "mappings": _words(words),
            "custom": {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False},
        },
        {
            "mergeValues": True,
            "showValue": "never",
            "alignValue": "left",
            "rowHeight": 0.8,
            "legend": _legend(),
            "tooltip": {"mode": "single", "sort": "none"},
        },
    )


def heatmap(title: str, description: str, query: Query, *, width: int, height: int = 8) -> Panel:
    """Return the buckets of a histogram over time, in seconds."""
    return Panel(
        "heatmap",
        title,
        description,
        (query,),
        width,
        height,
        {"custom": {"scaleDistribution": {"type": "linear"}}},
        {
            "calculate": False,
            "cellGap": 1,
            "color": {
                "mode": "scheme",
                "scheme": "Oranges",
                "scale": "exponential",
                "exponent": 0.5,
                "steps": 64,
            },
            "filterValues": {"le": 1e-9},
            "rowsFrame": {"layout": "auto"},
            "yAxis": {"axisPlacement": "left", "unit": "s"},
            "legend": {"show": True},
            "tooltip": {"show": True, "mode": "single", "yHistogram": False},
        },
        format="heatmap",
    )


def table(
    title: str,
    description: str,
    query: Query,
    *,
    columns: Mapping[str, str],
    words: Mapping[int, tuple[str, str]] | None = None,
    width: int,
    height: int = 10,
) -> Panel:
    """Return one row for each series. `columns` are its labels, and `Value`, by the titles they get."""
    value = columns.get("Value", "Value")
    coloured: Value = {
        "matcher": {"id": "byName", "options": value},
        "properties": [
            {"id": "mappings", "value": _words(words or {})},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        ],
    }
    kept: Value = {"id": "filterFieldsByName", "options": {"include": {"names": list(columns)}}}
    named: Value = {
        "id": "organize",
        "options": {
            "excludeByName": {},
            "indexByName": {label: index for index, label in enumerate(columns)},
            "renameByName": dict(columns),
        },
    }
    return Panel(
        "table",
        title,
        description,
        (query,),
        width,
        height,
        {"custom": {"align": "auto", "filterable": True, "inspect": False}},
        {"showHeader": True, "cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"], "fields": ""}},
        overrides=(coloured,) if words else (),
        transformations=(kept, named),
        format="table",
        is_instant=True,
    )


# ── board ─────────────────────────────────────────────────────────────────────────────────────────


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
