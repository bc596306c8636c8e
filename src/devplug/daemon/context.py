"""The context of a daemon: the host, the owners of hardware and the holders of devices, for all resources."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.daemon.sources.host import Host, NotADeviceNodeError
from devplug.holds.decide import Face
from devplug.holds.ledger_store import resource_mark
from devplug.holds.names import FILE_NAME as NAMES_FILE
from devplug.holds.names import NamesRegister
from devplug.holds.ownership import Claims, HeldDevice, Ownership, held_by_pods, number_at
from devplug.linux.boot import boot_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from pathlib import Path

    from devplug.daemon.cdi.spec_files import CdiFolder
    from devplug.daemon.config.types import Resource
    from devplug.daemon.sources.device import HostDevice
    from devplug.holds.hardware import Hardware, Key, Use
    from devplug.holds.holders import Holders

logger = logging.getLogger(__name__)


async def _not_found(_: Use, __: bool) -> None:  # noqa: FBT001 -- a callback
    """Clean nothing, as no other resource finds the hardware."""


class DaemonContext(Struct):
    """The context of one daemon; lives as long as that."""

    host: Host = field(default_factory=Host)
    numa_nodes: tuple[int, ...] = ()
    """The NUMA nodes that its kubelet knows; none where that is not known."""
    clock: Callable[[], float] = time.monotonic
    """Seconds of a clock that never goes back."""
    given: dict[Face, dict[str, Use | None]] = field(default_factory=dict)
    """What every Allocate gave, by face and device ID, where `holders` is None."""
    claimed: Callable[[], Iterable[HeldDevice]] = lambda: ()
    """Returns the devices that claims use, of all drivers on this node."""
    releasing: dict[Face, set[str]] = field(default_factory=dict)
    """By face: the IDs of devices that claims release, and that are being cleaned."""
    clean_elsewhere: Callable[[Use, bool], Awaitable[str | None]] = _not_found
    """Has hardware cleaned that its own resource does not find or clean any more; returns why that failed."""
    claims_revision: Callable[[], object] = lambda: None
    """Returns a value that changes with `claimed`."""
    holders: Holders | None = None
    """The holders of devices; None if they cannot be known, as without the kubelet's monitoring socket."""
    claims_of: Callable[[Face], Claims] = lambda _face: Claims()
    """Returns what claims have of a resource's devices, by a driver."""
    cdi: CdiFolder | None = None
    """Where specs of ours go; None if no resource ever had `strategy: cdi`."""
    memory: Path | None = None
    """The folder for files that outlive the daemon; None to keep none."""
    on_look: Callable[[str, float], None] = lambda _name, _seconds: None
    """Called after each scan for devices, with the resource's name and the seconds that it took."""
    on_change: Callable[[], None] = lambda: None
    """Called when a resource finds other devices than before, even if the advertised list stays the same."""
    _ownership: Ownership[HostDevice] | None = None

    @property
    def ownership(self) -> Ownership[HostDevice]:
        """The owner of the decision which resource offers which hardware."""
        if self._ownership is None:
            boot = boot_id()
            register = NamesRegister(None if self.memory is None else self.memory / NAMES_FILE, boot=boot)
            self._ownership = Ownership(
                self._number_at,
                register,
                self._held,
                self._revision,
                boot,
                self._hardware_at,
            )
        return self._ownership

    def _number_at(self, path: str) -> Key | None:
        return number_at(self.host.inside(path))

    def _hardware_at(self, path: str) -> Hardware | None:
        """Return the hardware behind a device node of the host; None where sysfs does not know it."""
        from devplug.daemon.sources.hardware import device_of_node
        from devplug.daemon.sources.identities import groups_beside, identity_of

        with suppress(NotADeviceNodeError):
            if (node := self.host.node(path)) and (device := device_of_node(self.host, node)):
                ranks = self.ownership.names.ranks.assign(groups_beside(device))
                return identity_of(device, ranks).hardware
        return None

    def _held(self) -> Iterator[HeldDevice]:
        """Yield every held device of this node that is known here."""
        if self.holders is not None:
            yield from held_by_pods(self.holders.held())
        for (resource_name, driver), given in self.given.items():
            for device_id, use in given.items():
                yield HeldDevice(resource_name, device_id, use, driver=driver)
        for one in self.claimed():
            is_over = one.device_id in self.releasing.get(Face(one.resource_name, one.driver), ())
            yield replace(one, is_over=True) if is_over else one

    def _revision(self) -> object:
        revision = None if self.holders is None else self.holders.revision
        given = [len(given) for given in self.given.values()]
        releasing = [tuple(ids) for ids in self.releasing.values()]
        return revision, given, self.claims_revision(), releasing

    def holders_of(self, resource: Resource) -> Holders | None:
        """Return who knows the holders of a resource's devices; None if claims use them."""
        return None if resource.serve == "dra" else self.holders

    def host_for(self, resource_name: str) -> Host:
        """Return the host as the sources of one resource see it: their looks are counted."""
        return replace(self.host, on_look=partial(self.on_look, resource_name))

    def dirty_file(self, resource_name: str) -> Path | None:
        """Return where an older version has left which devices of a resource are to be cleaned."""
        return None if self.memory is None else self.memory / f"dirty-{resource_mark(resource_name)}.json"
