"""The care for the devices of a configured resource after their use: `onRelease` and `onLost`."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from devplug.daemon.config.templates import Missing
from devplug.daemon.container_response import device_ids, found_name
from devplug.daemon.sources.device import HostDevice
from devplug.errors import one_line
from devplug.holds.held_devices import Care

if TYPE_CHECKING:
    from devplug.daemon.command_result import CommandResult
    from devplug.daemon.config.types import Resource, TimedCommand

__all__ = ["care_of"]

logger = logging.getLogger(__name__)


def care_of(resource: Resource) -> Care[HostDevice]:
    """Return how the devices of a resource are cleaned up, by its configuration."""
    replicas = resource.share.replicas
    on_release, on_lost = resource.on_release, resource.on_lost

    async def clean(name: str, found: HostDevice | None) -> str:
        assert on_release is not None
        return await _run(resource.name, on_release.exec, found or HostDevice(name), "onRelease")

    async def lose(found: HostDevice) -> str:
        assert on_lost is not None
        return await _run(resource.name, on_lost.exec, found, "onLost")

    return Care(
        resource.name,
        clean if on_release is not None else None,
        lose if on_lost is not None else None,
        replicas=replicas,
        name_of=partial(found_name, replicas=replicas),
        ids_of=partial(device_ids, replicas=replicas),
    )


async def _run(resource_name: str, command: TimedCommand, found: HostDevice, key: str) -> str:
    """Run a command of the file for one device; return why it failed, or ""."""
    from devplug.daemon.commands import command_arguments, command_environment, run_command

    arguments = command_arguments(command.command, found)
    if isinstance(arguments, Missing):
        fault = f"{key}: {arguments.reason}"
    else:
        env = command_environment(resource_name, found)
        result = await run_command(arguments, timeout_seconds=command.timeout_seconds, env=env)
        fault = _fault(result, key, command.timeout_seconds)
    facts = {"resource_name": resource_name, "device_id": found.name}
    if fault:
        logger.warning("a command of the configuration failed", extra={**facts, "reason": fault})
    else:
        logger.info("a command of the configuration was run", extra={**facts, "key": key})
    return fault


def _fault(result: CommandResult, key: str, timeout_seconds: float) -> str:
    """Return why a command of the key `key` failed, or "" if it exited with 0 in time."""
    if result.fault:
        return one_line(f"{key}: {result.fault}")
    if result.was_killed:
        return f"{key} took longer than {timeout_seconds:g} s"
    if result.exit_code != 0:
        said = f": {result.first_line}" if result.first_line else ""
        return one_line(f"{key} ended with {result.exit_code}{said}")
    return ""
