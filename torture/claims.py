"""The claims of a cluster as its API server has them, and what a killed driver has left of them on a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from devplug.conformance.dra.claims import claim_object, result_of
from devplug.conformance.dra.slice_rules import Device
from devplug.driver.claim_spec import read_file
from devplug.driver.node_driver import TURNS_NAME
from devplug.driver.prepared_claims import LOCK_NAME, STATE_NAME, claims_in
from devplug.k8s.errors import NotThereError
from devplug.wire.dra import ClaimName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devplug.driver.claims import ClaimUse
    from devplug.k8s.objects import Object

DRIVER: Final = "devices.example.com"
NODE: Final = "torture-node"
NAMESPACE: Final = "default"
MEMORY: Final = Path("/dev/shm")
"""A folder in memory: what a killed process has written there is there, and nothing waits for a disk."""


@dataclass(slots=True)
class Claims:
    """The claims of a cluster: a scheduler allocates them here, a driver reads them."""

    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """By namespace and name."""
    _count: int = 0

    def allocate(self, *devices: str, name: str = "", uid: str = "", share_id: str = "") -> ClaimName:
        """Allocate devices to a claim, a new one unless its name and UID are given."""
        self._count += 1
        name = name or f"claim-{self._count}"
        uid = uid or f"uid-{self._count}"
        results = [result_of(Device(NODE, one), DRIVER, share_id=share_id) for one in devices]
        made: dict[str, Any] = dict(claim_object(name, results, NODE))
        made["metadata"] = {"namespace": NAMESPACE, "name": name, "uid": uid}
        self.objects[NAMESPACE, name] = made
        return ClaimName(NAMESPACE, uid, name)

    def release(self, claim: ClaimName) -> None:
        """Take the allocation of a claim away, as when its pods are gone."""
        self.objects[claim.namespace, claim.name]["status"] = {}

    def delete(self, claim: ClaimName) -> None:
        """Delete a claim."""
        del self.objects[claim.namespace, claim.name]

    async def get_claim(self, namespace: str, name: str) -> Object:
        """Return a claim's object, as a `ClaimReader` does."""
        try:
            return self.objects[namespace, name]
        except KeyError:
            raise NotThereError(f"there is no ResourceClaim {name}") from None


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The files of a driver on a node, as anybody may read them."""

    folder: Path
    """That of the driver, with its state."""
    cdi: Path

    def prepared(self) -> dict[str, ClaimUse]:
        """Return the claims that have a CDI file, by UID."""
        found = {}
        for path in self._files(self.cdi):
            if path.suffix in {".yaml", ".json"}:
                use = read_file(path.read_bytes())
                assert use is not None, f"{path.name} is no file of a claim"
                found[use.uid] = use
        return found

    def in_use(self) -> dict[str, list[str]]:
        """Return the device IDs of each claim in use that the state file has, by UID."""
        try:
            claims, _ = claims_in((self.folder / STATE_NAME).read_bytes())
        except FileNotFoundError:
            return {}
        in_use = {uid: use for uid, use in claims.items() if not use.is_released}
        return {uid: [device.device_id for device in use.devices] for uid, use in in_use.items()}

    def remains(self) -> list[str]:
        """Return what is there that no driver without claims has: files of claims, and half of files."""
        found = [path.name for path in self._files(self.cdi)]
        for path in self._files(self.folder):
            if path.is_dir():  # copies of CDI files
                found += [one.name for one in self._files(path)]
                continue
            is_of_claims = path.name not in {STATE_NAME, LOCK_NAME, TURNS_NAME} and not path.is_socket()
            found += [path.name] if is_of_claims else []
        return sorted([*found, *self.in_use()])

    @staticmethod
    def _files(folder: Path) -> Iterator[Path]:
        found: Iterable[Path] = sorted(folder.iterdir()) if folder.exists() else ()
        yield from found


def doubly(uses: Iterable[ClaimUse]) -> list[str]:
    """Return the devices that two claims have, and do not share."""
    return [
        f"{one.device_id} is in {first.uid} and {second.uid}"
        for first, second in combinations(uses, 2)
        for one in first.devices
        if any(one.excludes(other) for other in second.devices)
    ]
