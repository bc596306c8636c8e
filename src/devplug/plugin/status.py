"""The status of served plugins, and the status socket beside the plugins' sockets."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.attribute_rules import attribute_text
from devplug.errors import DevplugError, PluginError
from devplug.linux.inotify import until_absent, until_present
from devplug.linux.notifier import within
from devplug.plugin.resource_lock import LOCK_FOLDER
from devplug.status import STATUS_SOCKETS, DeviceStatus, ResourceStatus, health_word, status_socket_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from devplug.plugin.claimed_plugin import ClaimedPlugin
    from devplug.plugin.inventory import Inventory
    from devplug.plugin.lifecycle import Lifecycle
    from devplug.web.messages import Handler


logger = logging.getLogger(__name__)

# ── values ──


Describe: TypeAlias = "Callable[[Inventory], tuple[DeviceStatus, ...]]"
"""Makes the statuses of a plugin's devices."""


def resource_status(
    inventory: Inventory, lifecycle: Lifecycle | ClaimedPlugin, describe: Describe
) -> ResourceStatus:
    """Return the status of one plugin: its devices as `describe` makes them, and its registration."""
    return ResourceStatus(
        name=str(inventory.resource_name),
        devices=lifecycle.described(describe(inventory)),
        is_registered=lifecycle.is_registered,
        registered_at=lifecycle.registered_at,
        fault=lifecycle.fault,
        takeover=lifecycle.guard.takeover if lifecycle.guard else None,
        driver=lifecycle.driver,
        process=os.getpid(),
        given_at=inventory.given_at,
    )


def device_statuses(inventory: Inventory) -> tuple[DeviceStatus, ...]:
    """Return the statuses of devices, with the health that is advertised."""
    held_ids = inventory.held_ids()
    return tuple(
        DeviceStatus(
            id=device.id,
            health=health_word(device),
            reason=device.health.reason,
            since=inventory.since.get(device.id),
            numa_nodes=device.numa_nodes,
            device_nodes=tuple(node.host_path for node in device.device_nodes),
            attributes={name: attribute_text(value) for name, value in device.attributes.items()},
            is_held=device.id in held_ids,
        )
        for device in inventory.snapshot.devices.values()
    )


# ── the status socket ──

FIRST_SECONDS: Final = 2.0
"""How long registrations go first: they matter more than the status of a process that has just begun."""

RETRY_SECONDS: Final = 10.0


async def serve_status(folder: Path, wait_registered: Callable[[], Awaitable[None]], handle: Handler) -> None:
    """Answer at a status socket below `folder` until cancelled; an error is logged and retried."""
    await within(FIRST_SECONDS, wait_registered())
    logged_error = ""
    while True:
        await until_present(folder)
        try:
            await _serve_until_lost(folder / LOCK_FOLDER, handle)
            logged_error = ""
        except (OSError, DevplugError) as error:
            if str(error) != logged_error:
                logged_error = str(error)
                logger.warning(
                    "cannot make the status socket; devplug status does not show this process",
                    extra={"reason": logged_error},
                )
            await asyncio.sleep(RETRY_SECONDS)


async def _serve_until_lost(folder: Path, handle: Handler) -> None:
    """Serve at a new socket until that is gone. Raises `ListenError`, and `OSError` without descriptors."""
    # After the first registration: it is not needed for that, and takes as long as a third of it.
    from devplug.web.addresses import UnixAddress
    from devplug.web.server import serving as listening

    path = folder / status_socket_name(os.getpid(), os.urandom(2).hex())
    try:
        _prepare(folder)  # on the loop: a list of one folder, beside our locks; no probe of a socket waits
        async with listening(UnixAddress(str(path)), handle, name="status"):
            await until_absent(path)
    finally:
        _leave(folder)


def _prepare(folder: Path) -> None:
    """Make the folder, and remove the status sockets that dead processes left behind there."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in folder.parent.glob(STATUS_SOCKETS):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(OSError):
            probe.settimeout(0)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()


def _leave(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()  # only succeeds for the last owner


# ── another address ──


@asynccontextmanager
async def pages_at(listen: str | None, handle: Handler) -> AsyncIterator[None]:
    """Serve pages at an address for a block. Raises `PluginError` for a bad address, and `ListenError`."""
    if listen is None:
        yield
        return
    # HTTP: most programs do without.
    from devplug.web.addresses import parse_address
    from devplug.web.server import serving as answering

    try:
        address = parse_address(listen)
    except ValueError as error:
        raise PluginError(f"listen: {error}") from error
    async with answering(address, handle, name="probes"):
        yield
