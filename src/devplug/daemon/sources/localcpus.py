"""Which NUMA node a set of processors belongs to, from the texts in which sysfs names processors. Pure.

A set is a number: bit n stands for processor n.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["cpus_of_list", "cpus_of_mask", "node_of_cpus"]

CPU_LIMIT: Final = 65_536
"""No kernel has as many processors (8,192 on x86): beyond it a text is nonsense, and must not cost memory."""

_RANGE: Final = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_MASK: Final = re.compile(r"(?:0x)?([0-9a-fA-F]+(?:,[0-9a-fA-F]+)*)")


def cpus_of_list(text: str) -> int | None:
    """Return the processors of a list such as `0-3,8`, as in `local_cpulist`; None if it is no list.

    The empty text is the empty list: so says the kernel of memory without processors.
    """
    cpus = 0
    for part in filter(None, text.split(",")):
        found = _RANGE.fullmatch(part)
        if not found:
            return None
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last >= CPU_LIMIT:
            return None
        cpus |= ((1 << (last - first + 1)) - 1) << first
    return cpus


def cpus_of_mask(text: str) -> int | None:
    """Return the processors of a mask such as `0000,000000ff`, as in `local_cpus`; None if it is no mask."""
    found = _MASK.fullmatch(text)
    digits = found[1].replace(",", "") if found else ""
    return int(digits, 16) if 0 < len(digits) <= CPU_LIMIT // 4 else None


def node_of_cpus(cpus: int, cpus_of_nodes: Mapping[int, int]) -> int | None:
    """Return the NUMA node that has all of these processors, or None.

    None too on a machine where only one node has processors: there, being near to it says nothing. Nodes
    without processors, as of memory alone, are nobody's.
    """
    if not cpus or sum(1 for of_node in cpus_of_nodes.values() if of_node) < 2:
        return None
    return next((node for node, of_node in sorted(cpus_of_nodes.items()) if not cpus & ~of_node), None)
