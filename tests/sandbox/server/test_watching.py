"""Watches over real HTTP: what they send, how they end, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from devplug.k8s.objects import Object
from devplug.sandbox.api.options import ListOptions
from devplug.sandbox.registry import EVENTS, NAMESPACES, PODS, Registry
from devplug.sandbox.server.handlers import watched
from devplug.sandbox.server.routes import Request, Verb
from tests.sandbox.server.beds import TOKEN, Server, pod, registry_of_test, served

PODS_PATH = "/api/v1/namespaces/default/pods"
WATCH = f"{PODS_PATH}?watch=true"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


@pytest.fixture
def server() -> Iterator[Server]:
    with served(beat_seconds=0.02) as running:
        yield running


def line(answer: http.client.HTTPResponse) -> Any:
    return json.loads(answer.readline())


def seen(answer: http.client.HTTPResponse) -> tuple[str, str]:
    told = line(answer)
    return told["type"], told["object"]["metadata"].get("name", "")


def watchers(server: Server) -> int:
    return len(asyncio.all_tasks(server.loop))


def test_a_watch_tells_what_is_there_and_what_becomes_of_it(server: Server) -> None:
    server.ask("POST", PODS_PATH, pod("a"))
    with server.follow(WATCH) as answer:
        assert (answer.status, answer.getheader("content-type")) == (200, "application/json")
        assert seen(answer) == ("ADDED", "a")
        server.ask("POST", PODS_PATH, pod("b"))
        assert seen(answer) == ("ADDED", "b")
        server.ask(
            "PATCH",
            f"{PODS_PATH}/a",
            {"metadata": {"labels": {"x": "y"}}},
            {"Content-Type": "application/merge-patch+json"},
        )
        assert seen(answer) == ("MODIFIED", "a")
        server.ask("DELETE", f"{PODS_PATH}/b", {"gracePeriodSeconds": 0})
        assert seen(answer) == ("DELETED", "b")


def test_a_watch_begins_where_a_list_ended_and_heeds_selectors(server: Server) -> None:
    server.ask("POST", PODS_PATH, pod("a"))
    version = server.ask("GET", PODS_PATH).json["metadata"]["resourceVersion"]
    path = f"{WATCH}&resourceVersion={version}&fieldSelector=metadata.name%3Dc"
    with server.follow(path) as answer, server.follow(f"{PODS_PATH}/c?watch=1") as one:
        server.ask("POST", PODS_PATH, pod("b"))
        server.ask("POST", PODS_PATH, pod("c"))
        assert seen(answer) == ("ADDED", "c")
        assert seen(one) == ("ADDED", "c")


def test_a_watch_begins_at_once_even_when_there_is_nothing_to_tell(server: Server) -> None:
    with server.follow(WATCH) as answer:
        assert answer.status == 200


def test_rows_of_a_watch_have_their_columns_once(server: Server) -> None:
    server.ask("POST", PODS_PATH, pod("a"))
    server.ask("POST", PODS_PATH, pod("b"))
    with server.follow(WATCH, TABLE) as answer:
        first, second = line(answer)["object"], line(answer)["object"]
        server.ask("POST", PODS_PATH, pod("c"))
        third = line(answer)["object"]
    assert [one["kind"] for one in (first, second, third)] == ["Table"] * 3
    assert [bool(one["columnDefinitions"]) for one in (first, second, third)] == [True, False, False]
    assert [one["rows"][0]["cells"][0] for one in (first, second, third)] == ["a", "b", "c"]


def test_bookmarks_come_to_those_who_ask_and_never_before_what_they_vouch_for(server: Server) -> None:
    path = f"{WATCH}&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    with server.follow(path) as answer:
        ends = line(answer)
        assert ends["type"] == "BOOKMARK"
        assert ends["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        highest = 0
        names: list[str] = []
        while len(names) < 20:
            server.ask("POST", PODS_PATH, pod(f"p{len(names)}"))
            told = line(answer)
            while told["type"] == "BOOKMARK":
                highest = max(highest, int(told["object"]["metadata"]["resourceVersion"]))
                told = line(answer)
            names.append(told["object"]["metadata"]["name"])
            assert int(told["object"]["metadata"]["resourceVersion"]) > highest
        assert names == [f"p{number}" for number in range(20)]
        server.ask("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "of-another-kind"}})
        version = server.ask("GET", PODS_PATH).json["metadata"]["resourceVersion"]
        while (told := line(answer))["object"]["metadata"]["resourceVersion"] != version:
            assert told["type"] == "BOOKMARK"
    with server.follow(path.replace("allowWatchBookmarks=true", "timeoutSeconds=1")) as answer:
        assert "BOOKMARK" not in answer.read().decode()


def test_who_is_too_far_behind_is_told_so_in_a_line() -> None:
    registry = Registry(log_length=2)
    registry.create(NAMESPACES, "", {"metadata": {"name": "default"}})
    first = registry.version
    with served(registry) as server:
        for number in range(4):
            server.ask("POST", PODS_PATH, pod(f"p{number}"))
        answer = server.ask("GET", f"{WATCH}&resourceVersion={first}")
        assert (answer.code, answer.json["type"]) == (200, "ERROR")
        assert (answer.json["object"]["code"], answer.json["object"]["reason"]) == (410, "Expired")


def test_what_nobody_can_watch_is_refused_before_a_line_is_sent(server: Server) -> None:
    assert server.ask("GET", f"{WATCH}&resourceVersion=soon").code == 400
    assert server.ask("GET", f"{WATCH}&labelSelector=a+in+b").code == 400
    assert server.ask("GET", WATCH, headers={"Accept": "text/plain"}).code == 406


def test_a_watch_ends_when_its_time_is_over(server: Server) -> None:
    server.ask("POST", PODS_PATH, pod("a"))
    answer = server.ask("GET", f"{WATCH}&timeoutSeconds=1")
    assert (answer.code, answer.json["type"]) == (200, "ADDED")


def test_a_client_that_goes_away_leaves_no_task_behind(server: Server) -> None:
    before = server.do(lambda: watchers(server))
    with ExitStack() as followed:
        for _ in range(5):
            followed.enter_context(server.follow(WATCH))
        server.until(lambda: watchers(server) >= before + 5)
    server.until(lambda: watchers(server) <= before + 1)
    assert server.ask("POST", PODS_PATH, pod("a")).code == 201


def test_a_client_that_goes_away_in_its_request_leaves_no_task_behind(server: Server) -> None:
    before = server.do(lambda: watchers(server))
    connection = server.connect()
    connection.putrequest("POST", PODS_PATH)
    connection.putheader("Authorization", f"Bearer {TOKEN}")
    connection.putheader("Content-Length", "100")
    connection.endheaders(b"{")
    server.until(lambda: watchers(server) > before)
    connection.close()
    server.until(lambda: watchers(server) <= before + 1)


def test_a_server_that_stops_ends_watches_and_those_who_wait() -> None:
    with ExitStack() as after:
        with served() as server:
            answer = after.enter_context(server.follow(WATCH))
            waiting = after.enter_context(closing(server.connect()))
            waiting.putrequest("POST", PODS_PATH)
            waiting.putheader("Authorization", f"Bearer {TOKEN}")
            waiting.putheader("Content-Length", "100")
            waiting.endheaders(b"{")
            server.until(lambda: watchers(server) >= 4)
        assert answer.read() == b""
        assert waiting.getresponse().status == 503


def test_events_are_watched_in_the_form_of_their_group(server: Server) -> None:
    event: Object = {
        "metadata": {"name": "e", "namespace": "default"},
        "message": "hello",
        "involvedObject": {},
    }
    with server.follow("/apis/events.k8s.io/v1/events?watch=true") as answer:
        server.do(lambda: server.registry.create(EVENTS, "default", event))
        told = line(answer)["object"]
    assert (told["apiVersion"], told["note"]) == ("events.k8s.io/v1", "hello")


async def test_a_bookmark_never_passes_a_change_that_the_watcher_has_not_read() -> None:
    """The timer and a change come together: the change is told first, whoever wins."""
    registry = registry_of_test()
    request = Request(Verb.WATCH, PODS, "default")
    events = watched(registry, request, ListOptions(bookmarks=True), beat_seconds=0)
    await anext(events)
    told: list[str] = []
    for number in range(10):
        registry.create(PODS, "default", pod(f"p{number}"))
        while (some := await anext(events)) is not None:
            told += [event.type.value for event in some]
            if "ADDED" in [event.type.value for event in some]:
                break
    await events.aclose()
    assert told.count("ADDED") == 10


def test_every_watch_of_what_is_refused_is_silent(server: Server) -> None:
    assert server.ask("GET", "/apis/apps/v1/deployments?watch=true&timeoutSeconds=1").body == b""
