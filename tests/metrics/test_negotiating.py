"""Which form an Accept header asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.metrics.exposition import Form, form_of

OPEN = "application/openmetrics-text"
WITHOUT_TEXT = "application/json"
PROMETHEUS_2 = f"{OPEN};version=1.0.0,{OPEN};version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
PROMETHEUS_3 = (
    f"{OPEN};version=1.0.0;escaping=allow-utf-8;q=0.6,{OPEN};version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""What a scrape of Prometheus sends (scrape/scrape.go, acceptHeader)."""


@pytest.mark.parametrize(
    "accept",
    [
        PROMETHEUS_2,
        PROMETHEUS_3,
        OPEN,
        OPEN.upper(),
        f"{OPEN}; version=1.0.0; charset=utf-8",
        f'{OPEN}; version="1.0.0"',
        f"text/plain, {OPEN}",
        f"*/*, {OPEN}",
        "application/*, text/plain;q=0.5",
        f"{OPEN};q=0.2, text/plain;q=0.1",
        f"{OPEN};q=0.0001",
    ],
)
def test_who_asks_for_open_metrics_gets_it(accept: str) -> None:
    assert form_of(accept) is Form.OPEN_METRICS


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/html,application/xhtml+xml,*/*;q=0.8",
        "text/plain",
        "text/plain;version=0.0.4;q=1,*/*;q=0.1",
        f"{OPEN};q=0.1, text/plain;q=0.2",
        f"{OPEN};q=0, */*",
        f"{OPEN};version=0.0.1",
        f"{OPEN};version=2.0.0, text/plain;q=0.1",
        f"{OPEN};q=nan",
        f"{OPEN};q=-1",
        f"{OPEN};q=",
        WITHOUT_TEXT,
    ],
)
def test_who_does_not_gets_text(accept: str) -> None:
    assert form_of(accept) is Form.TEXT


@given(
    st.lists(st.sampled_from([OPEN, "text/plain", "*/*", ";", ",", "q=", "0.5", "version=", " ", '"', "="]))
)
def test_no_header_is_too_strange(parts: list[str]) -> None:
    assert form_of("".join(parts)) in Form


def test_a_form_is_told_by_its_content_type() -> None:
    assert [form_of(form.value) for form in Form] == list(Form)
