"""The objects of resource.k8s.io/v1 as values: slices with their devices, classes, claims and requests.

They are read from objects that the API server has taken, so nothing is checked, and what is missing has its
default. A device lives as long as its slice is not written again; what is known of it is remembered by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from devplug.dra.taints import Taint, Toleration
from devplug.k8s.node_selectors import NodeSelector
from devplug.k8s.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from fractions import Fraction

Json: TypeAlias = dict[str, Any]
"""A map of an API object."""

EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"
"""The two allocation modes."""

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""The finalizer of every claim that is allocated."""


class DeviceID(NamedTuple):
    """What names a device in the whole cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        """Return the form that stands in messages."""
        return "/".join(self)


class Attribute(NamedTuple):
    """The value of an attribute with its type, so that true and 1 differ."""

    kind: str
    """`bool`, `int`, `string` or `version`."""
    value: bool | int | str


# ── Devices and slices ──


@dataclass(frozen=True, slots=True)
class ValidRange:
    """What may be consumed of a capacity: from `least` in steps up to `most`."""

    least: Quantity
    most: Quantity | None
    step: Quantity | None


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How a request for a part of a capacity is rounded, and what counts when nothing is asked (D47)."""

    default: Quantity | None
    valid_values: tuple[Quantity, ...]
    valid_range: ValidRange | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much a device has of something."""

    value: Quantity
    policy: RequestPolicy | None = None


@dataclass(frozen=True, slots=True)
class CounterUse:
    """How much a device takes from the counters of one set when it is allocated."""

    counter_set: str
    counters: Mapping[str, Fraction]


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """One device of a slice; two are the same only if they are one object."""

    id: DeviceID
    attributes: Mapping[str, Attribute]
    """By name as the slice has it, with or without a domain."""
    capacity: Mapping[str, Capacity]
    consumes: tuple[CounterUse, ...]
    taints: tuple[Taint, ...]
    node_name: str
    node_selector: NodeSelector | None
    all_nodes: bool
    is_shareable: bool
    """Whether it allows multiple allocations."""
    binds_to_node: bool
    binding_conditions: tuple[str, ...]
    binding_failure_conditions: tuple[str, ...]
    verdicts: dict[str, object] = field(default_factory=dict, repr=False)
    """What selectors found about it, by expression: kept by `selectors`, right as long as the device is."""

    def attribute(self, qualified: str) -> Attribute | None:
        """Return an attribute by its full name; one without a domain is in the driver's (D46)."""
        found = self.attributes.get(qualified)
        if found is None:
            domain, _, identifier = qualified.partition("/")
            if domain == self.id.driver:
                found = self.attributes.get(identifier)
        return found

    @classmethod
    def of(cls, found: Json, driver: str, pool: str) -> Device:
        """Read one entry of a slice's `devices`."""
        selector = found.get("nodeSelector")
        return cls(
            DeviceID(driver, pool, found["name"]),
            {name: _attribute(one) for name, one in (found.get("attributes") or {}).items()},
            {name: _capacity(one) for name, one in (found.get("capacity") or {}).items()},
            tuple(
                CounterUse(one["counterSet"], _counters(one.get("counters")))
                for one in found.get("consumesCounters") or ()
            ),
            tuple(Taint.of(one) for one in found.get("taints") or ()),
            found.get("nodeName") or "",
            None if selector is None else NodeSelector.of(selector),
            bool(found.get("allNodes")),
            bool(found.get("allowMultipleAllocations")),
            bool(found.get("bindsToNode")),
            tuple(found.get("bindingConditions") or ()),
            tuple(found.get("bindingFailureConditions") or ()),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A ResourceSlice: devices of one pool, or counter sets that they share."""

    name: str
    driver: str
    pool: str
    generation: int
    count: int
    """How many slices the pool has, as this one says."""
    node_name: str
    node_selector: NodeSelector | None
    all_nodes: bool
    is_per_device: bool
    """Whether each device says itself which nodes reach it."""
    devices: tuple[Device, ...]
    counter_sets: tuple[tuple[str, Mapping[str, Fraction]], ...]
    """Names and counters of the sets that the devices of the pool share."""

    @classmethod
    def of(cls, found: Json) -> Slice:
        """Read a ResourceSlice object."""
        spec = found["spec"]
        driver, pool = spec["driver"], spec["pool"]
        selector = spec.get("nodeSelector")
        return cls(
            found["metadata"]["name"],
            driver,
            pool["name"],
            pool.get("generation") or 0,
            pool.get("resourceSliceCount") or 0,
            spec.get("nodeName") or "",
            None if selector is None else NodeSelector.of(selector),
            bool(spec.get("allNodes")),
            bool(spec.get("perDeviceNodeSelection")),
            tuple(Device.of(one, driver, pool["name"]) for one in spec.get("devices") or ()),
            tuple((one["name"], _counters(one.get("counters"))) for one in spec.get("sharedCounters") or ()),
        )


# ── Classes and claims ──


@dataclass(frozen=True, slots=True, eq=False)
class DeviceClass:
    """A DeviceClass: selectors and configuration that requests refer to by name."""

    name: str
    selectors: tuple[str, ...]
    config: tuple[Json, ...]
    extended_resource_name: str = ""
    created: str = ""
    """The time of creation as the API writes it, which sorts as text."""

    @classmethod
    def of(cls, found: Json) -> DeviceClass:
        """Read a DeviceClass object."""
        metadata, spec = found["metadata"], found.get("spec") or {}
        return cls(
            metadata["name"],
            _expressions(spec.get("selectors")),
            tuple(spec.get("config") or ()),
            spec.get("extendedResourceName") or "",
            metadata.get("creationTimestamp") or "",
        )


@dataclass(frozen=True, slots=True, eq=False)
class SubRequest:
    """What is asked for: `exactly`, or one of the alternatives of `firstAvailable`."""

    name: str
    """Of the request, or of the alternative inside it."""
    device_class: str
    selectors: tuple[str, ...]
    mode: str
    count: int
    has_admin_access: bool
    tolerations: tuple[Toleration, ...]
    capacity: Mapping[str, Quantity]
    tolerations_written: tuple[Json, ...] = ()
    """The tolerations as they stand in the claim, for the result."""

    @classmethod
    def of(cls, found: Json, name: str) -> SubRequest:
        """Read `exactly`, or one entry of `firstAvailable`."""
        tolerations = tuple(found.get("tolerations") or ())
        capacity = (found.get("capacity") or {}).get("requests") or {}
        count = found.get("count")
        return cls(
            name,
            found.get("deviceClassName") or "",
            _expressions(found.get("selectors")),
            found.get("allocationMode") or EXACT_COUNT,
            1 if count is None else count,
            bool(found.get("adminAccess")),
            tuple(Toleration.of(one) for one in tolerations),
            {key: Quantity.parse(str(text)) for key, text in capacity.items()},
            tuple({**one, "operator": one.get("operator") or "Equal"} for one in tolerations),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One entry of a claim's `requests`."""

    name: str
    alternatives: tuple[SubRequest, ...]
    """One if `exactly` is set."""
    is_list: bool
    """Whether they stand under `firstAvailable`, so that results name `REQUEST/ALTERNATIVE`."""

    def named(self, index: int) -> str:
        """Return the name that results have for one of the alternatives."""
        return f"{self.name}/{self.alternatives[index].name}" if self.is_list else self.name

    @classmethod
    def of(cls, found: Json) -> Request:
        """Read one entry of `requests`."""
        name, listed = found["name"], found.get("firstAvailable") or ()
        if listed:
            return cls(name, tuple(SubRequest.of(one, one["name"]) for one in listed), is_list=True)
        return cls(name, (SubRequest.of(found.get("exactly") or {}, name),), is_list=False)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint of a claim: all devices share one value, or no two do."""

    attribute: str
    requests: frozenset[str]
    is_distinct: bool

    @classmethod
    def of(cls, found: Json) -> Constraint:
        """Read one entry of `constraints`; with both attributes given, matchAttribute is used (D56)."""
        matching = found.get("matchAttribute")
        return cls(
            matching or found.get("distinctAttribute") or "",
            frozenset(found.get("requests") or ()),
            matching is None,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A ResourceClaim, as its object in the API shows it."""

    namespace: str
    name: str
    uid: str
    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...]
    config: tuple[Json, ...]
    allocation: Json | None = None
    """`status.allocation`; None if nothing is allocated."""
    reserved_for: tuple[str, ...] = ()
    """The UIDs of the pods that it is reserved for."""
    is_deleted: bool = False
    devices: tuple[Json, ...] = ()
    """`status.devices`: what drivers say of the allocated devices."""

    def __str__(self) -> str:
        """Return the form that stands in messages."""
        return f"{self.namespace}/{self.name}"

    @classmethod
    def of(cls, found: Json) -> Claim:
        """Read a ResourceClaim object."""
        metadata, status = found["metadata"], found.get("status") or {}
        devices = (found.get("spec") or {}).get("devices") or {}
        return cls(
            metadata.get("namespace") or "default",
            metadata.get("name") or "",
            metadata.get("uid") or "",
            tuple(Request.of(one) for one in devices.get("requests") or ()),
            tuple(Constraint.of(one) for one in devices.get("constraints") or ()),
            tuple(devices.get("config") or ()),
            status.get("allocation"),
            tuple(one.get("uid", "") for one in status.get("reservedFor") or ()),
            metadata.get("deletionTimestamp") is not None,
            tuple(status.get("devices") or ()),
        )


# ── Reading ──


def _attribute(found: Json) -> Attribute:
    for kind in ("string", "int", "bool", "version"):
        if (value := found.get(kind)) is not None:
            return Attribute(kind, value)
    return Attribute("", "")


def _capacity(found: Json) -> Capacity:
    policy = found.get("requestPolicy")
    return Capacity(Quantity.parse(str(found["value"])), None if policy is None else _policy(policy))


def _policy(found: Json) -> RequestPolicy:
    limits = found.get("validRange")
    return RequestPolicy(
        _quantity(found.get("default")),
        tuple(Quantity.parse(str(one)) for one in found.get("validValues") or ()),
        None
        if limits is None or limits.get("min") is None
        else ValidRange(
            Quantity.parse(str(limits["min"])), _quantity(limits.get("max")), _quantity(limits.get("step"))
        ),
    )


def _quantity(found: object) -> Quantity | None:
    return None if found is None else Quantity.parse(str(found))


def _counters(found: Json | None) -> dict[str, Fraction]:
    return {name: Quantity.parse(str(one["value"])).number for name, one in (found or {}).items()}


def _expressions(found: Iterable[Json] | None) -> tuple[str, ...]:
    return tuple((one.get("cel") or {}).get("expression") or "" for one in found or ())
