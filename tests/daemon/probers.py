"""Health rules for tests, the prober that checks them, and the devices that they are checked on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from devplug.daemon.config.templates import parse_template
from devplug.daemon.config.types import HealthCommand, HealthRule
from devplug.daemon.health import Prober
from devplug.daemon.sources.device import HostDevice
from devplug.daemon.sources.host import Host
from devplug.devices import Health
from tests.daemon.hosts import tree
from tests.plugin.fakes import Time

RESOURCE = "example.com/a"
UP = HealthRule(attribute="state", equals="up", timeout_seconds=5)
CARD = "/sys/devices/pci0000:00/0000:00:01.0"


def prober(root: Path, *rules: HealthRule, time: Time | None = None) -> Prober:
    given: dict[str, Any] = {} if time is None else {"clock": time.clock, "sleep": time.sleep}
    return Prober(rules, Host(root), resource_name=RESOURCE, **given)


@contextmanager
def doubts() -> Iterator[Mapping[str, str]]:
    """Collect from the log why checks had no result, by device ID."""
    found: dict[str, str] = {}

    class Reasons(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "device_id" in record.__dict__:
                found[record.__dict__["device_id"]] = record.__dict__["reason"]

    log, handler = logging.getLogger("devplug.daemon.health"), Reasons()
    log.addHandler(handler)
    try:
        yield found
    finally:
        log.removeHandler(handler)


def command(*arguments: str, timeout_seconds: float = 5) -> HealthRule:
    return HealthRule(
        exec=HealthCommand(command=tuple(map(parse_template, arguments))), timeout_seconds=timeout_seconds
    )


def card(root: Path, text: str = "up", name: str = "card") -> HostDevice:
    """A device whose folder has the attribute `state`; several of them have one folder each."""
    folder = f"{CARD}/{name}"
    tree(root, {f"{folder[1:]}/state": text})
    return HostDevice(name, hardware=folder)


@asynccontextmanager
async def at_work(one: Prober) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(one.run())
        try:
            yield
        finally:
            task.cancel()


def unknown(reason: str) -> tuple[Health, str]:
    return Health.healthy(), reason


def file_rule(text: str) -> HealthRule:
    return HealthRule(file=parse_template(text), equals="ok", timeout_seconds=5)
