"""`pods/log`: which container is meant, what of its log, and what is said when there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from devplug.k8s.objects import Object
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.options import LogOptions, log_options, refuse_without_log
from devplug.sandbox.registry import PODS
from tests.sandbox.server.beds import Kubectl, pod, registry_of_test, served

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
TWO: dict[str, Any] = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]},
}
ONE = {**TWO, "spec": {"containers": [{"name": "c"}]}}


def fault(one: Object, **query: str) -> str:
    with pytest.raises(StatusError) as error:
        log_options({key: [value] for key, value in query.items()}, one, NOW)
    return str(error.value)


def with_state(state: Object, last: Object | None = None) -> Object:
    status = {"name": "c", "state": state, "lastState": last or {}}
    return {**ONE, "status": {"containerStatuses": [status]}}


def no_log(one: Object, **query: str) -> str:
    options = log_options({key: [value] for key, value in query.items()}, one, NOW)
    with pytest.raises(StatusError) as error:
        refuse_without_log(one, options)
    assert error.value.code == 400
    return str(error.value)


def test_the_only_container_needs_no_name() -> None:
    assert log_options({}, ONE, NOW).container == "c"
    assert log_options({"container": ["i"]}, TWO, NOW).container == "i"


def test_the_container_must_be_one_of_the_pods() -> None:
    assert fault(TWO) == (
        "a container name must be specified for pod p, choose one of: [a b] "
        "or one of the init containers: [i]"
    )
    assert fault(ONE, container="x") == "container x is not valid for pod p"


def test_what_part_of_a_log_is_meant_is_read_from_the_query() -> None:
    query = {
        "follow": ["true"],
        "previous": ["true"],
        "timestamps": ["true"],
        "tailLines": ["0"],
        "limitBytes": ["7"],
        "sinceSeconds": ["60"],
    }
    told = log_options(query, ONE, NOW)
    assert (told.follow, told.previous, told.timestamps) == (True, True, True)
    assert (told.tail_lines, told.limit_bytes, told.since) == (0, 7, NOW - timedelta(minutes=1))
    assert log_options({"sinceTime": ["2026-11-21T07:00:00Z"]}, ONE, NOW).since == NOW - timedelta(hours=1)


def test_parts_that_there_cannot_be_are_refused_as_the_api_words_it() -> None:
    assert fault(ONE, tailLines="-1") == (
        'PodLogOptions "p" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0'
    )
    assert "limitBytes: Invalid value: 0: must be greater than 0" in fault(ONE, limitBytes="0")
    assert "sinceSeconds: Invalid value: 0" in fault(ONE, sinceSeconds="0")
    assert "at most one of `sinceTime` or `sinceSeconds`" in fault(
        ONE, sinceSeconds="1", sinceTime="2026-11-21T07:00:00Z"
    )
    assert "is no time" in fault(ONE, sinceTime="yesterday")


def test_a_container_that_has_not_begun_has_no_log() -> None:
    waiting = with_state({"waiting": {"reason": "ContainerCreating"}})
    assert no_log(waiting) == 'container "c" in pod "p" is waiting to start: ContainerCreating'
    pulled = with_state({"waiting": {"reason": "ImagePullBackOff"}})
    assert no_log(pulled) == 'container "c" in pod "p" is waiting to start: trying and failing to pull image'
    assert no_log(ONE) == 'container "c" in pod "p" is not available'
    assert no_log(with_state({})) == 'container "c" in pod "p" is waiting to start - no logs yet'
    running = with_state({"running": {}})
    assert no_log(running, previous="true") == 'previous terminated container "c" in pod "p" not found'


def test_a_container_that_has_begun_has_a_log() -> None:
    options = log_options({}, ONE, NOW)
    refuse_without_log(with_state({"running": {}}), options)
    refuse_without_log(with_state({"terminated": {}}), options)
    refuse_without_log(with_state({"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": {}}), options)


def test_kubectl_logs_prints_what_the_hook_tells(tmp_path: Path) -> None:
    asked: list[LogOptions] = []
    closed = asyncio.Event()

    async def logs(_pod: Object, options: LogOptions) -> AsyncGenerator[bytes, None]:
        asked.append(options)
        try:
            yield b"one\n"
            yield b"two\n"
            if options.follow:
                await asyncio.Event().wait()
        finally:
            closed.set()

    registry = registry_of_test()
    registry.create(PODS, "default", pod("p", nodeName="worker-0"))
    registry.create(PODS, "default", pod("unbound"))
    with served(registry, logs=logs) as server:
        kubectl = Kubectl(tmp_path, server.kubeconfig)
        early = kubectl("logs", "p")
        assert early.stderr == ('Error from server (BadRequest): container "c" in pod "p" is not available\n')
        statuses: Object = {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}
        server.do(lambda: registry.set_status(PODS, "default", "p", statuses))
        assert kubectl("logs", "p", "--tail=5", "--timestamps").stdout == "one\ntwo\n"
        assert (asked[-1].container, asked[-1].tail_lines, asked[-1].timestamps) == ("c", 5, True)
        assert kubectl("logs", "unbound").stdout == ""
        closed.clear()
        following = kubectl.begun("logs", "-f", "p")
        assert following.stdout is not None
        assert [following.stdout.readline() for _ in range(2)] == ["one\n", "two\n"]
        following.terminate()
        following.communicate(timeout=30)
        server.until(closed.is_set)
