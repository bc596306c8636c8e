"""The environment of all plugins of a program: what they share on the machine."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from msgspec import Struct, field

from devplug.errors import PluginError, quoted
from devplug.holds.ledger_store import IN_CODE
from devplug.kubelet_dir import (
    CDI_DIR_VARIABLE,
    KUBELET_PLUGIN_DIR,
    KUBELET_ROOT_VARIABLE,
    POD_RESOURCES_NAME,
    REGISTRY_NAME,
)
from devplug.linux.exhaustion import raise_descriptor_limit
from devplug.linux.inotify import shared_watcher
from devplug.linux.trust import check_trusted
from devplug.plugin.registration import RegistrationMode, chosen_mode
from devplug.plugin.resource_lock import new_socket_name
from devplug.wire.sockets import UNIX_SOCKETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from devplug.devices import StrPath
    from devplug.k8s.account import Account
    from devplug.linux.inotify import Watcher
    from devplug.wire.sockets import Sockets


logger = logging.getLogger(__name__)

PLUGIN_DIR_VARIABLE: Final = "DEVPLUG_PLUGIN_DIR"

POD_RESOURCES_VARIABLE: Final = "DEVPLUG_POD_RESOURCES"
"""Names the kubelet's PodResources socket where its --root-dir is not the folder above the plugin folder."""

Registration: TypeAlias = Literal["socket", "watcher", "auto"]
"""How the kubelet comes to know the plugins. `socket`: they call it at its socket in the plugin folder.
`watcher`: it finds their sockets in `plugins_registry` beside that folder; it may take seconds to look, and
minutes after a failure. `auto`: `socket`, unless only `plugins_registry` is there, as in a container that is
given nothing else. What it chose stays, for the two must never be mixed: the end of one stream ends the
other. That folder follows the kubelet's --root-dir (kubelet.go), which the plugin folder does not: where it
is not the usual one, `DEVPLUG_KUBELET_ROOT` names it."""

REGISTRATIONS_AT_ONCE: Final = 16

DESCRIPTORS_EACH: Final = 4
"""Descriptors of one resource: lock, socket, stream of the kubelet, and one for a call meanwhile."""

DESCRIPTORS_BESIDE: Final = 64
"""Descriptors for everything else: pages, sources, files, programs that are started."""


class PluginEnvironment(Struct):
    """The folder with the sockets, how plugins get known there, and how many of them call at once."""

    folder: Path
    mode: RegistrationMode = RegistrationMode.SOCKET
    root: Path | None = None
    """The kubelet's --root-dir, below which DRA drivers have their sockets; None for the folder above."""
    registering: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REGISTRATIONS_AT_ONCE))
    sockets: Sockets = UNIX_SOCKETS
    watching: Callable[[], AbstractAsyncContextManager[Watcher]] = shared_watcher
    name_socket: Callable[[str], str] = new_socket_name
    """Returns, for a resource name, a file name that no socket has had yet."""
    cdi_folder: Path | None = None
    """Where a DRA driver writes its CDI files; None for /var/run/cdi. `environment_at` has it of
    `DEVPLUG_CDI_DIR`."""
    account_of: Callable[[], Account] | None = None
    """Returns the account of DRA drivers; None for the mounted one."""
    node_name: str | None = None
    """The name of this Node for DRA drivers; None for `NODE_NAME`, or else the host name."""
    owner: str = IN_CODE
    """The owner of holds and claims that are recorded: `IN_CODE`, or empty for a daemon."""
    _said: set[str] = field(default_factory=set)
    _places: set[object] = field(default_factory=set)

    def take_place(self, owner: object) -> str:
        """Count a plugin that needs a lock, a socket and a stream; return why it has no place, or ""."""
        if owner not in self._places and len(self._places) >= _places()[1]:
            raise_descriptor_limit()
            limit, places = _places()
            if len(self._places) >= places:
                return f"the limit of {limit} open files allows {places} resources; raise it (ulimit -n)"
        self._places.add(owner)
        return ""

    def leave_place(self, owner: object) -> None:
        """Give a place back. Safe to repeat."""
        self._places.discard(owner)

    def say_once(self, message: str, **facts: object) -> None:
        """Log a warning about the node, once for all plugins, until `unsay` ends it."""
        if message not in self._said:
            self._said.add(message)
            logger.warning(message, extra=facts)

    def unsay(self, message: str) -> None:
        """Record that the reason of a warning is gone, so that it may be logged again."""
        self._said.discard(message)


def _places() -> tuple[int, int]:
    """Return the limit of descriptors, and for how many plugins it is enough."""
    limit = getrlimit(RLIMIT_NOFILE)[0]
    return limit, max((limit - DESCRIPTORS_BESIDE) // DESCRIPTORS_EACH, 1)


def environment_at(
    plugin_dir: StrPath | None, registration: str, kubelet_root: StrPath | None = None
) -> PluginEnvironment:
    """Return where sockets go, and how plugins register there.

    `kubelet_root` is the kubelet's --root-dir, else `DEVPLUG_KUBELET_ROOT`, else the folder above the plugin
    folder. Raises `PluginError` for an unknown mode, and `KubeletError` for a folder that other users could
    change: they could take the kubelet's place, or say who holds which device.
    """
    if registration not in get_args(Registration):
        raise PluginError(f'registration: {quoted(registration)} is none of "socket", "watcher" and "auto"')
    folder = Path(plugin_dir or os.environ.get(PLUGIN_DIR_VARIABLE) or KUBELET_PLUGIN_DIR).absolute()
    root = Path(
        kubelet_root
        or os.environ.get(KUBELET_ROOT_VARIABLE)
        # Above it by its name, also where it is a link or does not exist.
        or Path(os.path.normpath(folder)).parent
    ).absolute()
    registry = root / REGISTRY_NAME
    mode = chosen_mode(registration, has_plugin_dir=_is_folder(folder), has_registry=_is_folder(registry))
    used = folder if mode is RegistrationMode.SOCKET else registry
    check_trusted(used, "let only root and the user of this process write there, or name another folder")
    cdi = os.environ.get(CDI_DIR_VARIABLE)
    return PluginEnvironment(used, mode, root=root, cdi_folder=Path(cdi) if cdi else None)


def pod_resources_at(plugin_dir: StrPath | None) -> Path:
    """Return the PodResources socket: `DEVPLUG_POD_RESOURCES`, or the one beside the plugin folder."""
    if named := os.environ.get(POD_RESOURCES_VARIABLE):
        return Path(named).absolute()
    folder = Path(plugin_dir or os.environ.get(PLUGIN_DIR_VARIABLE) or KUBELET_PLUGIN_DIR).absolute()
    return Path(os.path.normpath(folder)).parent / "pod-resources" / "kubelet.sock"


def _is_folder(path: Path) -> bool:
    """Whether there is a folder, or may be one that this user must not see: that error is raised later."""
    try:
        return path.is_dir()
    except PermissionError:
        return True


def root_of(pod_resources: Path | None) -> Path | None:
    """Return the kubelet's --root-dir, which has its socket for monitors; None if that is elsewhere."""
    if pod_resources is None or pod_resources.parent.name != POD_RESOURCES_NAME:
        return None
    return pod_resources.parent.parent
