"""A store of pods and leases for tests, with a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from devplug.k8s.objects import Object, with_part
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import Resource, resource_of_path
from devplug.sandbox.api.store import Store
from devplug.sandbox.api.watchlog import WatchEvent

NOW = datetime(2026, 11, 21, 0, 21, 59, tzinfo=UTC)


def served(plural: str, group: str = "") -> Resource:
    found = resource_of_path(group, "v1", plural)
    assert found is not None
    return found


PODS, NODES, CONFIGS = served("pods"), served("nodes"), served("configmaps")


def pod(name: str = "p", **spec: object) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


def new_store(now: Callable[[], datetime] = lambda: NOW, **more: Any) -> Store:
    return Store(now=now, new_uid=lambda: "u", **more)


def create(
    store: Store, one: Object, resource: Resource = PODS, namespace: str = "default", **more: Any
) -> Any:
    return store.create(resource, namespace, one, **more)


def change(
    store: Store, value: object, *path: str, resource: Resource = PODS, name: str = "p", **more: Any
) -> Any:
    namespace = "default" if resource.namespaced else ""
    return store.update(resource, namespace, name, lambda old: with_part(old, value, *path), **more)


def refusal(call: Any, *given: Any, **more: Any) -> StatusError:
    with pytest.raises(StatusError) as refused:
        call(*given, **more)
    return refused.value


def told(events: list[WatchEvent]) -> list[tuple[str, str, str]]:
    found: list[Any] = [event.line for event in events]
    return [
        (
            line["type"],
            line["object"]["metadata"].get("name", ""),
            line["object"]["metadata"]["resourceVersion"],
        )
        for line in found
    ]
