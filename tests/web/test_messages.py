"""What is refused before any handler sees it, and the headers of all answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.web.messages import Page, Request, head_of, http_date, reason_of, refusal, request_of

OF_THIS_MACHINE = [
    "127.0.0.1",
    "127.0.0.1:9410",
    "[::1]:9410",
    "[::1]",
    "localhost",
    "LOCALHOST:9410",
    "10.1.2.3",
]


def judged(
    target: str = "/",
    *,
    method: str = "GET",
    version: str = "1.1",
    is_loopback: bool = True,
    headers: Mapping[str, str] | None = None,
) -> Request | Page:
    return request_of(
        method,
        target,
        version,
        {"host": "localhost"} | dict(headers or {}),
        is_local=False,
        is_loopback=is_loopback,
    )


def status(answer: Request | Page) -> int:
    return answer.status if isinstance(answer, Page) else 200


def test_a_target_is_decoded_into_path_and_query() -> None:
    found = judged("/a%20b/%C3%A4?x=1&y=%26+2&x=3&z", headers={"accept": "text/html"})
    assert found == Request("/a b/ä", {"x": "3", "y": "& 2", "z": ""}, "text/html", is_local=False)


@pytest.mark.parametrize(
    "target", ["", "x", "*", "localhost:80", "?x", "/%FF", "/?%FF=1", "https://localhost/"]
)
def test_a_target_that_is_no_path_is_refused(target: str) -> None:
    assert status(judged(target)) == 400


def test_a_query_with_too_many_fields_is_refused() -> None:
    assert status(judged("/?" + "&".join("a" * 65))) == 400


def test_a_target_with_a_scheme_is_taken_as_a_path() -> None:
    assert judged("http://localhost:9410/a?b=c") == Request("/a", {"b": "c"})
    assert judged("http://localhost:9410") == Request("/")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "get", "TRACE"])
def test_methods_that_change_things_are_refused_with_those_that_do_not(method: str) -> None:
    answer = judged(method=method)
    assert isinstance(answer, Page)
    assert (answer.status, answer.headers) == (405, {"Allow": "GET, HEAD"})


@pytest.mark.parametrize("headers", [{"content-length": "1"}, {"transfer-encoding": "chunked"}])
def test_requests_with_a_body_are_refused(headers: dict[str, str]) -> None:
    assert status(judged(headers=headers)) == 413


def test_an_empty_body_is_no_body() -> None:
    assert status(judged(headers={"content-length": "0"})) == 200


@pytest.mark.parametrize("version", ["0.9", "2.0", "1.2", "3.0"])
def test_other_versions_are_refused(version: str) -> None:
    assert status(judged(version=version)) == 400


@pytest.mark.parametrize("host", OF_THIS_MACHINE)
def test_a_server_on_loopback_answers_to_addresses_and_localhost(host: str) -> None:
    assert status(judged(headers={"host": host})) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9410",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[evil]",
        "1:2:3",
    ],
)
def test_a_server_on_loopback_refuses_names_that_may_be_rebound(host: str) -> None:
    assert status(judged(headers={"host": host})) == 421
    assert status(judged(f"http://{host}/")) == 421
    assert status(judged(headers={"host": host}, is_loopback=False)) == 200


def test_a_request_without_a_host_comes_from_no_browser() -> None:
    assert status(judged(version="1.0", headers={"host": ""})) == 200


@given(st.integers(0, 4_000_000_000))
def test_a_date_is_written_as_mail_writes_it(seconds: int) -> None:
    assert http_date(time.gmtime(seconds)) == formatdate(seconds, usegmt=True)


def test_every_answer_says_that_it_is_neither_sniffed_nor_stored() -> None:
    headers = dict(head_of(Page("x", headers={"X-A": "b"}), 1, "now", is_last=True))
    assert headers == {
        "Date": "now",
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": "1",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        "X-A": "b",
        "Connection": "close",
    }


def test_a_status_without_a_phrase_goes_without() -> None:
    assert (reason_of(404), reason_of(299)) == ("Not Found", "")


def test_a_body_in_a_form_that_nobody_knows_is_refused_in_the_words_for_bodies() -> None:
    """The status is h11's own, as for `Transfer-Encoding: gzip`."""
    assert reason_of(501) == "Not Implemented"
    page = refusal(501)
    assert isinstance(page.body, str)
    assert page.body.startswith("requests with a body are not taken")
