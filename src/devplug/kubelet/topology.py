"""The topology manager's rules: NUMA nodes, the merging of hints, and the policies. Pure.

A mask is a set of NUMA nodes as an integer, bit n for node n. `hints` makes the hints, `admission` asks for
them.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.errors import KubeletCrashError, KubeletError
from devplug.kubelet.gotext import go_quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from devplug.wire.values import ContainerMemory, DynamicResource

__all__ = [
    "DEFAULT_NUMA_NODES_LIMIT",
    "NO_AFFINITY",
    "ComputeShare",
    "Hints",
    "NodeHardware",
    "NumaNode",
    "Policy",
    "Scope",
    "TopologyHint",
    "TopologyRules",
    "TopologySettings",
    "mask_of",
    "nodes_of",
]


# ── the hardware, as far as device plugins and monitors notice it ─────────────────────────────────


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node of the machine, by its kernel number."""

    id: int
    distances: tuple[int, ...] | None = None
    """The row of the kernel's distance table (`/sys/devices/system/node/nodeN/distance`), in the order of
    the machine's nodes, 10 for the node itself; None if the kubelet could not read it."""


@dataclass(frozen=True, slots=True)
class ComputeShare:
    """What the CPU and memory managers and DRA have given one container. Fixed: nothing here allocates."""

    cpu_ids: tuple[int, ...] = ()
    """CPUs of its own."""
    memory: tuple[ContainerMemory, ...] = ()
    dynamic_resources: tuple[DynamicResource, ...] = ()

    @property
    def cdi_devices(self) -> tuple[str, ...]:
        """The CDI devices that DRA drivers have given it, by their qualified names."""
        resources = (resource for claim in self.dynamic_resources for resource in claim.claim_resources)
        return tuple(name for resource in resources for name in resource.cdi_devices)


_NO_SHARE: Final = ComputeShare()


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """A machine: its NUMA nodes, and a table of the containers' CPUs and memory, for monitors."""

    numa_nodes: tuple[NumaNode, ...] = (NumaNode(0, (10,)),)
    cpu_ids: tuple[int, ...] = ()
    """CPUs that containers can have for themselves; none, as under the CPU manager's policy `none`."""
    memory: tuple[ContainerMemory, ...] = ()
    """Memory and huge pages that the memory manager can give; none, as under its policy `None`."""
    shares: Mapping[str, ComputeShare] = field(default_factory=dict, hash=False)
    """`namespace/pod/container` → its share. A container that is not here uses the shared CPUs."""

    def share(self, namespace: str, pod_name: str, container_name: str) -> ComputeShare:
        """Return the CPUs, memory and claims of a container."""
        return self.shares.get(f"{namespace}/{pod_name}/{container_name}", _NO_SHARE)


# ── hints ─────────────────────────────────────────────────────────────────────────────────────────


_MASK_BITS: Final = 64


def mask_of(nodes: Iterable[int]) -> int:
    """Return the mask with these nodes; what is not between 0 and 63 is no node (bitmask.go)."""
    mask = 0
    for node in nodes:
        if 0 <= node < _MASK_BITS:
            mask |= 1 << node
    return mask


def nodes_of(mask: int) -> tuple[int, ...]:
    """Return the nodes of a mask, ascending."""
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


@dataclass(frozen=True, slots=True)
class TopologyHint:
    """One way to place something: on these NUMA nodes."""

    mask: int | None
    """None: anywhere."""
    is_preferred: bool


Hints: TypeAlias = "Sequence[TopologyHint] | None"
"""What is possible for one resource: None does not care, no hints at all means that it cannot be."""

NO_AFFINITY: Final = TopologyHint(None, is_preferred=False)
"""The hint of a container that the topology manager has not placed."""


# ── settings ──────────────────────────────────────────────────────────────────────────────────────


class Policy(enum.StrEnum):
    """The kubelet's `--topology-manager-policy`."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class Scope(enum.StrEnum):
    """The kubelet's `--topology-manager-scope`."""

    CONTAINER = "container"
    POD = "pod"


@dataclass(frozen=True, slots=True)
class TopologySettings:
    """The topology manager's settings as people write them; `TopologyRules.of` judges them."""

    policy: str = Policy.NONE
    scope: str = Scope.CONTAINER
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    """`prefer-closest-numa-nodes` and `max-allowable-numa-nodes`."""


DEFAULT_NUMA_NODES_LIMIT: Final = 8
"""How many NUMA nodes a machine may have, unless an option says otherwise (topology_manager.go)."""

_CLOSEST: Final = "prefer-closest-numa-nodes"
_LIMIT: Final = "max-allowable-numa-nodes"
_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def _boolean(name: str, text: str) -> bool:
    """Read what Go's strconv.ParseBool reads."""
    if text not in _TRUE | _FALSE:
        raise KubeletError(
            f"bad value for option {go_quoted(name)}: strconv.ParseBool: parsing {go_quoted(text)}: "
            "invalid syntax",
        )
    return text in _TRUE


def _limit(name: str, text: str) -> int:
    """Read what Go's strconv.Atoi reads; at least the default."""
    fault = None
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        fault = "invalid syntax"
    elif not -(2**63) <= int(text) < 2**63:
        fault = "value out of range"
    if fault:
        raise KubeletError(
            f"unable to convert policy option to integer {go_quoted(name)}: strconv.Atoi: "
            f"parsing {go_quoted(text)}: {fault}",
        )
    if int(text) < DEFAULT_NUMA_NODES_LIMIT:
        raise KubeletError(
            f"the minimum value of {go_quoted(name)} should not be less than {DEFAULT_NUMA_NODES_LIMIT}",
        )
    return int(text)


# ── policies ──────────────────────────────────────────────────────────────────────────────────────


Provider: TypeAlias = "Mapping[str, Hints]"
"""Resource → its hints, from one manager (devices, CPUs, memory); empty where it has no wishes."""


@dataclass(frozen=True, slots=True)
class TopologyRules:
    """A policy with its scope on one machine. Lives as long as its kubelet."""

    policy: Policy
    scope: Scope
    nodes: tuple[NumaNode, ...]
    prefers_closest: bool = False
    compat: bool = True
    """Whether what crashes the kubelet of 1.36 raises `KubeletCrashError` (see `_average_distance`)."""

    @classmethod
    def of(cls, settings: TopologySettings, machine: NodeHardware, *, compat: bool = True) -> TopologyRules:
        """Return the rules; raises `KubeletError` where the real kubelet ends (topology_manager.go).

        Under policy `none` nothing else is looked at.
        """
        if settings.policy == Policy.NONE:
            return cls(Policy.NONE, Scope.CONTAINER, machine.numa_nodes, compat=compat)
        prefers_closest, limit = False, DEFAULT_NUMA_NODES_LIMIT
        for name, text in sorted(settings.options.items()):
            if name == _CLOSEST:
                prefers_closest = _boolean(name, text)
            elif name == _LIMIT:
                limit = _limit(name, text)
            else:
                raise KubeletError(f"unknown Topology Manager Policy option: {go_quoted(name)}")
        if prefers_closest and any(node.distances is None for node in machine.numa_nodes):
            raise KubeletError(
                "cannot discover NUMA topology: error getting NUMA distances from cadvisor",
            )
        if len(machine.numa_nodes) > limit:
            raise KubeletError(f"unsupported on machines with more than {limit} NUMA Nodes")
        if settings.policy not in list(Policy):
            raise KubeletError(f'unknown policy: "{settings.policy}"')
        if settings.scope not in list(Scope):
            raise KubeletError(f'unknown scope: "{settings.scope}"')
        return cls(
            Policy(settings.policy),
            Scope(settings.scope),
            machine.numa_nodes,
            prefers_closest,
            compat,
        )

    @property
    def machine_mask(self) -> int:
        """All nodes of the machine."""
        return mask_of(node.id for node in self.nodes)

    @property
    def guarantees_alignment(self) -> bool:
        """Whether every admitted container is on one node (policy.go IsAlignmentGuaranteed)."""
        return self.policy is Policy.SINGLE_NUMA_NODE

    def merge(self, providers: Iterable[Provider]) -> tuple[TopologyHint, bool]:
        """Return the merged hint of the providers, and whether the pod may be admitted.

        Raises `KubeletCrashError` where the real kubelet panics.
        """
        if self.policy is Policy.NONE:
            return NO_AFFINITY, True
        wishes = list(_wishes(providers))
        if self.policy is Policy.SINGLE_NUMA_NODE:
            best = self._best([_single_node(hints) for hints in wishes])
            if best.mask == self.machine_mask:
                best = TopologyHint(None, best.is_preferred)
            return best, best.is_preferred
        best = self._best(wishes)
        return best, best.is_preferred or self.policy is Policy.BEST_EFFORT

    def _best(self, wishes: Sequence[Sequence[TopologyHint]]) -> TopologyHint:
        """Return the best of all combinations; the whole machine, not preferred, if none can be used."""
        aim = max((_narrowest(hints) for hints in wishes), default=0)
        best: TopologyHint | None = None
        machine_mask = self.machine_mask
        for combined in _combinations(wishes):
            mask = machine_mask if combined.mask is None else machine_mask & combined.mask
            if mask:
                candidate = TopologyHint(mask, combined.is_preferred)
                if best is None or self._is_better(candidate, best, aim):
                    best = candidate
        return best or TopologyHint(machine_mask, is_preferred=False)

    def _is_better(self, candidate: TopologyHint, best: TopologyHint, aim: int) -> bool:
        """Whether a candidate replaces the best one so far (policy.go HintMerger.compare).

        Preferred beats all. Of two that are not, the one nearer to `aim` nodes wins, from below if need be:
        the size that the resource with the widest need cannot do without.
        """
        assert candidate.mask is not None
        assert best.mask is not None
        if candidate.is_preferred != best.is_preferred:
            return candidate.is_preferred
        if candidate.is_preferred:
            return self._is_fitter(candidate.mask, best.mask)
        size, best_size = candidate.mask.bit_count(), best.mask.bit_count()
        if best_size > aim or size == best_size:
            return self._is_fitter(candidate.mask, best.mask)
        if best_size == aim or size > aim:
            return False
        return size > best_size

    def _is_fitter(self, mask: int, other: int) -> bool:
        """Whether a mask is narrower than another, or as narrow and with nodes closer to each other."""
        if mask == other:
            return False
        if mask.bit_count() != other.bit_count():
            return mask.bit_count() < other.bit_count()
        if self.prefers_closest and self.policy is not Policy.SINGLE_NUMA_NODE:
            other_distance, distance = self._average_distance(other), self._average_distance(mask)
            if distance != other_distance:
                return distance < other_distance
        return mask < other

    def _average_distance(self, mask: int) -> float:
        """Return the average distance over all pairs of nodes, each to itself included (numa_info.go).

        1.36 takes node numbers as positions in the distance rows, which ends in a panic where numbers are
        missing (0, 2, 5): with `compat` this raises `KubeletCrashError` there.
        """
        rows = {node.id: node.distances or () for node in self.nodes}
        places = {node.id: node.id if self.compat else at for at, node in enumerate(self.nodes)}
        total = count = 0
        for node in nodes_of(mask):
            for other in nodes_of(mask):
                if places[other] >= len(rows[node]):
                    raise KubeletCrashError(
                        f"runtime error: index out of range [{places[other]}] with length {len(rows[node])}",
                        "NUMADistances",
                    )
                total += rows[node][places[other]]
                count += 1
        return total / count


def _wishes(providers: Iterable[Provider]) -> Iterator[Sequence[TopologyHint]]:
    """Yield the hints for each resource, or for a provider without any (policy.go filterProvidersHints)."""
    for provider in providers:
        if not provider:
            yield (TopologyHint(None, is_preferred=True),)
        for _, hints in sorted(provider.items()):
            if hints is None:
                yield (TopologyHint(None, is_preferred=True),)
            else:
                yield hints or (TopologyHint(None, is_preferred=False),)


def _single_node(hints: Iterable[TopologyHint]) -> list[TopologyHint]:
    """Return the preferred hints that have one node or no opinion (policy_single_numa_node.go)."""
    return [hint for hint in hints if hint.is_preferred and (hint.mask is None or hint.mask.bit_count() == 1)]


def _narrowest(hints: Iterable[TopologyHint]) -> int:
    """Return the size of the narrowest hint; 0 where none has an opinion."""
    return min((hint.mask.bit_count() for hint in hints if hint.mask is not None), default=0)


def _combinations(wishes: Iterable[Iterable[TopologyHint]]) -> Iterator[TopologyHint]:
    """Yield what all combinations of one hint for each resource come to, each different result once.

    The real kubelet visits every combination (policy.go mergePermutation), 255 to the power of resources on
    eight nodes. All that counts of a combination is which nodes are in all of its masks, and whether all are
    preferred and equal; so the distinct results, in the order in which they are first met, do as well.
    """
    results = [_code(TopologyHint(None, is_preferred=True))]
    for hints in wishes:
        codes = dict.fromkeys(map(_code, hints))
        results = list(dict.fromkeys(chain.from_iterable(_joined(result, codes) for result in results)))
    for result in results:
        yield TopologyHint(None if result >> 1 == _ANYWHERE else result >> 1, bool(result & 1))


_ANYWHERE: Final = -1
"""The mask of a hint without one: as an integer it has all nodes."""


def _code(hint: TopologyHint) -> int:
    """Return a hint as one number: its mask, then whether it is preferred. There are many of them to join."""
    return (_ANYWHERE if hint.mask is None else hint.mask) << 1 | hint.is_preferred


def _joined(result: int, codes: Iterable[int]) -> Iterable[int]:
    """Return what a combination so far comes to with each further hint."""
    if not result & 1:
        return map(result.__and__, codes)
    is_anywhere = result >> 1 == _ANYWHERE
    return (
        result & code if is_anywhere or code == result or code >> 1 == _ANYWHERE else result & code & ~1
        for code in codes
    )
