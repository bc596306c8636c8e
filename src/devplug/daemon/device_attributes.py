"""What claims can know of a found device: attributes and capacities, named alike for all sources. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.attributes import AttributeValue, Partition
    from devplug.daemon.sources.device import HostDevice

__all__ = ["NO_FACTS", "PCIE_ROOT", "ClaimFacts", "attributes_of", "facts_for_claims"]

NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
"""Names that all drivers share, so that one claim can ask for devices of two drivers at one root or node
(k8s.io/dynamic-resource-allocation/deviceattribute; numaNode by KEP-6072, as one integer)."""

_FACTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "vendor": ("attr.idVendor", "attr.vendor"),
    "product": ("attr.idProduct", "attr.device"),
    "manufacturer": ("attr.manufacturer",),
    "model": ("model",),
    "serial": ("serial",),
    "uuid": ("uuid",),
    "driver": ("attr.driver",),
    "interface": ("interface",),
    "pciAddress": ("pciAddress",),
}
"""The facts of an attribute, of which the first that a device has counts. Names of files are none of them:
the kernel gives them anew at each re-plug."""

_PCIE_ROOT: Final = r"(?:^|/)(pci[0-9a-f]{4,}:[0-9a-f]{2})(?=/)"
_PCI_ADDRESS: Final = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_NUMBER: Final = r"0x[0-9a-f]+"


SECTOR_BYTES: Final = 512
"""In which the kernel counts the size of a disk, whatever its own sectors are."""


class ClaimFacts(Struct, frozen=True):
    """What claims can know of a device."""

    attributes: Mapping[str, AttributeValue]
    capacity: Mapping[str, int]
    partition: Partition | None = None


NO_FACTS: Final = ClaimFacts({}, {})


def facts_for_claims(found: HostDevice) -> ClaimFacts:
    """Return all that claims can know of a device."""
    return ClaimFacts(attributes_of(found), _capacity_of(found), found.partition)


def _capacity_of(found: HostDevice) -> Mapping[str, int]:
    """Return the numbers that a source knows, and the `size` of a disk in bytes."""
    sectors = str(found.facts.get("attr.size", ""))
    if sectors.isdecimal() and any(node.is_block for node in found.nodes):
        return {**found.capacity, "size": int(sectors) * SECTOR_BYTES}
    return found.capacity


def attributes_of(found: HostDevice) -> dict[str, AttributeValue]:
    """Return what a source knows of a device; its numbers have no `0x`, as in the selectors of the file."""
    attributes: dict[str, AttributeValue] = {"id": found.name}
    for name, facts in _FACTS_OF.items():
        if (value := next((found.facts[one] for one in facts if one in found.facts), None)) is not None:
            attributes[name] = _plain(str(value))
    if found.numa_node is not None:
        attributes["numaNode"] = attributes[NUMA_NODE] = found.numa_node
    if address := re.fullmatch(_PCI_ADDRESS, str(found.facts.get("pciAddress", ""))):
        attributes[PCI_BUS_ID] = address[0]
    if root := re.search(_PCIE_ROOT, found.hardware):
        attributes[PCIE_ROOT] = root[1]
    return attributes


def _plain(text: str) -> str:
    return text.removeprefix("0x") if re.fullmatch(_NUMBER, text) else text
