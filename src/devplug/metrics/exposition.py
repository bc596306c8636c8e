"""The exposition of families: the text that a scrape gets, in the two forms that Prometheus reads. Pure.

Text 0.0.4 is prometheus.io/docs/instrumenting/exposition_formats, OpenMetrics 1.0.0 is
prometheus.io/docs/specs/om/open_metrics_spec.
"""

from __future__ import annotations

import enum
import math
import re
from typing import TYPE_CHECKING, Final, cast

from devplug.errors import printable
from devplug.metrics.families import Family, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from devplug.metrics.families import HistogramSample, Metric, Sample


class Form(enum.Enum):
    """How families are written; the value is the Content-Type of the answer."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


# ── which form ────────────────────────────────────────────────────────────────────────────────────

_WEIGHT: Final = re.compile(r"[01](\.[0-9]*)?")
"""A q-value (RFC 9110, 12.4.2), with more digits than it allows too."""


def form_of(accept: str) -> Form:
    """Return the form that an Accept header asks for; text where it does not say, or asks for neither.

    Of two that are as welcome it is OpenMetrics only if the header names that: who sends `*/*` may be a
    person or a tool that knows only text. Parts that cannot be understood are passed over.
    """
    named, open_metrics = _wish(accept, "application/openmetrics-text", "1.0.0")
    _, text = _wish(accept, "text/plain", "0.0.4")
    is_wanted = open_metrics > text or (open_metrics == text > 0 and named)
    return Form.OPEN_METRICS if is_wanted else Form.TEXT


def _wish(accept: str, media_type: str, version: str) -> tuple[bool, float]:
    """How welcome a type is, by the range that says most about it, and whether that range names it."""
    family = media_type.partition("/")[0]
    exactness = {"*/*": 0, f"{family}/*": 1, media_type: 2}
    wishes = [(-1, 0.0)]
    for part in accept.lower().split(","):
        wanted, *parameters = (piece.strip() for piece in part.split(";"))
        if wanted not in exactness:
            continue
        given = dict(piece.split("=", 1) for piece in parameters if "=" in piece)
        weight = given.get("q", "1")
        if given.get("version", version).strip('"') == version and _WEIGHT.fullmatch(weight):
            wishes.append((exactness[wanted], min(float(weight), 1.0)))
    exact, most = max(wishes)
    return exact == 2, most


# ── the text ──────────────────────────────────────────────────────────────────────────────────────


def exposition(families: Iterable[Family], form: Form) -> bytes:
    """Return all families, by name; those without samples are left out.

    Families of the same metric, as of several processes, become one. ValueError where they contradict
    each other: the same labels twice, or two metrics with one name. What is no Unicode becomes `?`.
    """
    joined: dict[str, Family] = {}
    for family in families:
        name = family.metric.name
        joined[name] = _together(joined[name], family) if name in joined else family
    escaped = _Escaped()
    parts: list[str] = []
    for _, family in sorted(joined.items()):
        if family.samples:
            parts += _metadata(family.metric, form)
            is_histogram = family.metric.kind is Kind.HISTOGRAM
            parts += (_histogram_lines if is_histogram else _plain_lines)(family, escaped.__getitem__)
    if form is Form.OPEN_METRICS:
        parts.append("# EOF\n")
    return "".join(parts).encode(errors="replace")


def _together(one: Family, other: Family) -> Family:
    if one.metric != other.metric:
        raise ValueError(f"two different metrics are named {one.metric.name}")
    return Family(one.metric, cast("Sequence[Sample]", [*one.samples, *other.samples]))


def _metadata(metric: Metric, form: Form) -> Iterator[str]:
    """Yield what is said once of a metric, its stability first, as Kubernetes' components do."""
    is_open = form is Form.OPEN_METRICS
    name = metric.family_name if is_open else metric.name
    text = f"[{metric.stability.name}] {metric.help}".replace("\\", r"\\")
    if is_open:
        text = text.replace('"', r"\"")
    yield f"# HELP {name} {text}\n"
    yield f"# TYPE {name} {metric.kind.value}\n"
    if is_open and metric.unit:
        yield f"# UNIT {name} {metric.unit}\n"


def _plain_lines(family: Family, escaped: Callable[[str], str]) -> list[str]:
    metric = family.metric
    line = f"{metric.name}{_pattern(metric.labels)} %s\n"
    samples = cast("Sequence[Sample]", family.samples)
    return [line % (*map(escaped, labels), _number(value)) for labels, value in samples]


def _histogram_lines(family: Family, escaped: Callable[[str], str]) -> Iterator[str]:
    name, labels = family.metric.name, family.metric.labels
    for sample in cast("Sequence[HistogramSample]", family.samples):
        values = tuple(map(escaped, sample.labels))
        line = f"{name}_bucket{_pattern((*labels, 'le'))} %s\n"
        for bound, count in (*sample.buckets, (math.inf, sample.count)):
            yield line % (*values, _bound(bound), _number(count))
        for suffix, number in (("sum", sample.sum), ("count", sample.count)):
            yield f"{name}_{suffix}{_pattern(labels)} %s\n" % (*values, _number(number))


def _pattern(labels: Iterable[str]) -> str:
    pairs = ",".join(f'{label}="%s"' for label in labels)
    return f"{{{pairs}}}" if pairs else ""


class _Escaped(dict[str, str]):
    """Label values as they are written, each worked out once: most stand in many lines."""

    def __missing__(self, value: str) -> str:
        text = value if value.isprintable() else _plain(value)
        text = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        self[value] = text
        return text


def _plain(value: str) -> str:
    """Return a label value without what a terminal may obey; half characters stay, and become `?`."""
    return "".join(c if c == "\n" or "\ud800" <= c <= "\udfff" else printable(c) for c in value)


_SMALL: Final = {number: str(number) for number in range(1_025)}
"""Nearly all numbers of a scrape, as text."""
_ODD: Final = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}


def _number(value: float) -> str:
    """Return a sample's value as Go reads it, whole numbers without a point."""
    text = _SMALL.get(cast("int", value))
    if text is not None:
        return text
    text = repr(value)
    return _ODD.get(text) or text.removesuffix(".0")


def _bound(bound: float) -> str:
    """Return a bucket's bound, `1.0` rather than `1`: so OpenMetrics wants it, and so it is one series
    in both forms (Prometheus 3 writes it like this by itself).
    """
    return "+Inf" if bound == math.inf else repr(float(bound))
