"""The view model of the page, in values that JSON has: what `/state.json` and each event carry. Pure."""

from __future__ import annotations

from typing import TypedDict


class Tile(TypedDict):
    """One device as it was found; replicas of it are one tile. Times are Unix times in seconds."""

    id: str
    resource: str
    health: str
    reason: str
    since: float | None
    leaves_at: float | None
    is_outdated: bool
    replicas: int
    """How many devices stand for it."""
    held: int
    """How many of those a container holds, or may hold."""
    holders: list[str]
    """`NAMESPACE/POD (CONTAINER)`, the first few; where none is known, `claim NAMESPACE/NAME`."""
    more_holders: int
    files: list[str]
    """Its files in `/dev`, the first few."""
    strip: str
    """Its health in the last hour, a letter for each slot (`history.slots`)."""


class TileGroup(TypedDict):
    """The tiles of one resource on one board."""

    resource: str
    tiles: list[Tile]
    hidden: int
    """How many more tiles there are that are not in `tiles`: healthy and free ones, unless a great many are
    not."""


class Board(TypedDict):
    """The devices near one NUMA node, or one set of them."""

    numa_nodes: list[int]
    title: str
    groups: list[TileGroup]


class Resource(TypedDict):
    """One line of a node's summary."""

    name: str
    capacity: int
    """A lower bound where only the kubelet knows the resource: where `is_registered` is None."""
    found: int
    """How many devices were found; `replicas` stand for each."""
    allocatable: int
    held: int
    replicas: int
    is_registered: bool | None
    registered_at: float | None
    fault: str
    is_retired: bool
    is_ours: bool
    driver: str
    """The DRA driver by which pods get its devices; empty for a device plugin."""


class Process(TypedDict):
    """A process of ours that serves plugins of the node."""

    process: int
    version: str
    started_at: float
    faults: list[str]
    file: str
    """Of its configuration; empty without one."""
    applied_at: float | None
    problems: list[str]


class Driver(TypedDict):
    """A DRA driver of ours."""

    text: str
    """As `devplug status` says it."""
    is_well: bool


class NodeView(TypedDict):
    """One node."""

    name: str
    at: float
    healthy: int
    """Devices, replicas counted, as the kubelet does; likewise below."""
    unhealthy: int
    not_known: int
    """Devices whose health no program says: a daemon is away, or only the kubelet lists them."""
    held: int
    resources: list[Resource]
    drivers: list[Driver]
    boards: list[Board]
    processes: list[Process]
    problems: list[str]
    kubelet_trouble: str
    hidden: int


class ChangeLine(TypedDict):
    """One thing that has happened."""

    at: float
    node: str
    kind: str
    resource: str
    device: str
    text: str
    times: int
    """How often it happened; `at` is the last time."""
    more_devices: int
    """How many other devices of the resource it happened to at the same look."""


class State(TypedDict):
    """All that the page shows."""

    at: float
    began_at: float
    window_seconds: float
    filter: str
    """Only tiles in which this text stands are here; empty for all."""
    nodes: list[NodeView]
    waiting: list[str]
    """Nodes of which nothing is known yet."""
    changes: list[ChangeLine]
    """The newest first."""


class SegmentView(TypedDict):
    """A time with the same health, until the next one's."""

    since: float
    health: str
    reason: str


class ClaimUse(TypedDict):
    """A claim that uses a device."""

    text: str
    """Its name, its request and the device's name in the slice, as far as they are known."""
    since: float | None


class Member(TypedDict):
    """One device that the kubelet counts."""

    id: str
    health: str
    reason: str
    is_held: bool
    holders: list[str]
    claims: list[ClaimUse]


class Details(TypedDict):
    """All there is to know of one tile, and whether it is still listed."""

    node: str
    id: str
    resource: str
    is_listed: bool
    health: str
    reason: str
    since: float | None
    leaves_at: float | None
    is_outdated: bool
    numa_nodes: list[int]
    files: list[str]
    attributes: dict[str, str]
    members: list[Member]
    more_members: int
    segments: list[SegmentView]
    """The newest first."""
