"""The DRA drivers of a program, by name; nothing of DRA is loaded before the first one."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.holds.hardware import after_release
from devplug.holds.ledger_store import IN_CODE, OtherFiles
from devplug.holds.ownership import Claims, HeldDevice, Whereabouts
from devplug.linux.durable_file import read_state
from devplug.wire.sockets import UNIX_SOCKETS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from devplug.driver.claims import ClaimUse
    from devplug.driver.node_driver import NodeDriver
    from devplug.driver.parameters import ParameterDecoder
    from devplug.driver.prepared_claims import PreparedClaims
    from devplug.driver.status import ClaimCounters
    from devplug.holds.decide import Face
    from devplug.plugin.environment import PluginEnvironment
    from devplug.status import DriverStatus
    from devplug.wire.values import PodResources


logger = logging.getLogger(__name__)

PLUGINS_NAME: Final = "plugins"
CLAIMS_NAME: Final = "prepared_claims.json"
"""The state file of a DRA driver of ours, in its folder below `plugins`."""

NODE_NAME_VARIABLE: Final = "NODE_NAME"
"""Where a DaemonSet puts the machine's name in Kubernetes; else the host name counts."""

POD_UID_VARIABLE: Final = "POD_UID"
"""Where a DaemonSet puts the UID of the pod, so that an old and a new one can serve side by side."""


def _claims_at(path: Path) -> tuple[ClaimUse, ...] | None:
    """Return the claims in another process's state file; None, after a logged warning, if it is damaged."""
    from devplug.driver.prepared_claims import claims_in

    try:
        claims, _ = claims_in(read_state(path))
    except (OSError, ValueError) as error:
        logger.warning(
            "cannot read which devices the claims of another DRA driver use",
            extra={"path": str(path), "reason": str(error)},
        )
        return None
    return tuple(claims.values())


def _is_served(folder: Path) -> bool:
    """Whether a process listens at a socket of the driver with this folder."""
    return {*folder.glob("dra*.sock")} > {*UNIX_SOCKETS.refusing(folder, "dra*.sock")}


class _StateFiles(OtherFiles["tuple[ClaimUse, ...]"]):
    """The state files of all drivers on the node; other instances of our drivers write ours, too."""

    def __init__(self, folder: Path, drivers: Mapping[str, NodeDriver]) -> None:
        super().__init__(f"{folder}/*/{CLAIMS_NAME}", self._paths_of_others, _claims_at)
        self._folder = folder
        self._drivers = drivers

    def paths(self) -> list[Path]:
        """Return the paths of all that there are."""
        # Not Path.glob, which raises without the right to read the folder.
        return sorted(map(Path, glob(f"{escape(str(self._folder))}/*/{CLAIMS_NAME}")))  # noqa: PTH207

    def _paths_of_others(self) -> list[Path]:
        return [one for one in self.paths() if one.parent.name not in self._drivers]

    def refresh(self) -> bool:
        """Read what has changed; return whether anything has."""
        own = [driver.refresh() for driver in self._drivers.values()]
        return super().refresh() or any(own)


class Drivers:
    """The drivers; they live in `group`."""

    def __init__(
        self, group: asyncio.TaskGroup, environment: PluginEnvironment, decode: ParameterDecoder | None
    ) -> None:
        self.is_any = asyncio.Event()
        """Set with the first driver."""
        self._group = group
        self._environment = environment
        self._decode = decode
        self._drivers: dict[str, NodeDriver] = {}
        self._folder = (environment.root or environment.folder.parent) / PLUGINS_NAME
        self.others = _StateFiles(self._folder, self._drivers)
        """By path: the claims of drivers in other processes."""
        self.pods: Callable[[], Sequence[PodResources]] = tuple
        """Returns what the kubelet's PodResources listed last; nothing where that is not known, or is old."""
        self.whereabouts: Callable[[Callable[[str, str], bool]], Whereabouts] = lambda _: Whereabouts()
        """As `Ownership.whereabouts`."""
        self._undecided: dict[str, Collection[str]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def driver(self, name: str) -> NodeDriver:
        """Return the driver of this name, which is started at the first use."""
        if name not in self._drivers:
            from devplug.driver.device_entries import device_name
            from devplug.driver.node_driver import NodeDriver
            from devplug.driver.parameters import decoded

            self._drivers[name] = driver = NodeDriver(
                name,
                self._environment.node_name or os.environ.get(NODE_NAME_VARIABLE) or platform.node(),
                self._decode or decoded,
                kubelet_root=self._environment.root or self._environment.folder.parent,
                cdi_folder=self._environment.cdi_folder,
                pod_uid=os.environ.get(POD_UID_VARIABLE, ""),
                account_of=self._environment.account_of,
                owner=self._environment.owner,
                pods=lambda: self.pods(),  # noqa: PLW0108 -- it is set later
                whereabouts=lambda wanted: self.whereabouts(lambda *one: device_name(*one) == wanted),
            )
            driver.note_undecided(self._undecided.get(name, ()))
            self.is_any.set()
            self._tasks.append(self._group.create_task(driver.run(), name=f"devplug driver {name}"))
        return self._drivers[name]

    @property
    def counters(self) -> Mapping[str, ClaimCounters]:
        """What the kubelet asked each driver since the start, by name."""
        return {name: driver.counters for name, driver in self._drivers.items()}

    def claims_of(self, face: Face) -> Claims:
        """Return what claims have of a resource's devices."""
        name = str(face.resource_name)

        def store() -> PreparedClaims:
            return self.driver(face.driver).store

        return Claims(
            lambda: store().held_ids(name),
            lambda device_id: store().use_of(name, device_id),
            lambda: store().ids_to_clean(name),
            lambda uses: self.driver(face.driver).adopt(name, uses),
            lambda: store().are_records_lost,
            lambda: store().prepared_ids(name),
        )

    def claim_uids(self) -> frozenset[str]:
        """Return the UIDs of the claims that use devices of any driver."""
        return frozenset(uid for driver in self._drivers.values() for uid in driver.store.claims)

    @property
    def claims_revision(self) -> int:
        """A number that changes whenever claims begin or end to use devices."""
        return sum(driver.store.revision for driver in self._drivers.values()) + self.others.revision

    def held(self) -> Iterator[HeldDevice]:
        """Yield the devices that claims of all processes use; a claim with admin access uses none."""
        claims = [(name, tuple(driver.store.recorded())) for name, driver in self._drivers.items()]
        claims += [(path.parent.name, found) for path, found in self.others.contents.items()]
        for driver, claim in ((driver, claim) for driver, found in claims for claim in found):
            for one in claim.devices:
                if claim.is_released:
                    use = after_release(one.use)
                    yield HeldDevice(one.resource_name, one.device_id, use, is_over=True, driver=driver)
                elif not one.has_admin_access:
                    holder = f"ResourceClaim {claim}"
                    yield HeldDevice(one.resource_name, one.device_id, one.use, holder, driver=driver)

    def left_behind(self, own: str) -> dict[str, frozenset[str]]:
        """Return what daemons' claims use, by driver: by `own`, and by drivers that are not served."""
        found = {}
        for path in self.others.paths():
            driver = path.parent.name
            if driver != own and (driver in self._drivers or _is_served(path.parent)):
                continue
            claims = _claims_at(path) or ()
            devices = [device for one in claims if one.owner != IN_CODE for device in one.devices]
            if devices:
                found[driver] = frozenset(device.resource_name for device in devices)
        return found

    def statuses(self) -> tuple[DriverStatus, ...]:
        """Return the status of each driver at this moment, by name."""
        return tuple(driver.status() for _, driver in sorted(self._drivers.items()))

    def note_undecided(self, name: str, resource_names: Collection[str]) -> None:
        """Note which resources a driver may have yet; see `NodeDriver.note_undecided`. This starts none."""
        self._undecided[name] = resource_names
        if name in self._drivers:
            self._drivers[name].note_undecided(resource_names)

    def set_evicts(self, face: Face, *, evicts: bool) -> None:
        """Record for the resource's driver, if it has one, whether an Unhealthy device ends pods."""
        if face.driver:
            self._drivers[face.driver].set_evicts(face.resource_name, evicts=evicts)

    async def close(self) -> None:
        """Stop all drivers, which finish their work on claims."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()
