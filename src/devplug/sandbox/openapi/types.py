"""The types of all fields: those with fields of their own, the plain ones that they end in, and enums.

The tables of fields are written as `name! image args=4:[string] limits:{Quantity} *ProbeHandler`: words apart
by spaces. A word is a field's name and then, where they apply, `!` for a required field, `?` for a pointer,
`+` for a field that is written when it is empty too, `-` for a required field that is not, `=` and the number
in protobuf, `:` and the type. `[…]` is a list of a type, and `{…}` a map of texts to it. A field without a
number has that of the field before it plus one, and the first has 1. A field without a type is a text.
`*Type` stands for the fields of another type, which has no place of its own in an object (a Go struct's
embedded one); in protobuf it is a field with a number. `*TypeMeta` has no number: kind and version stand in
the envelope.

The values of enums are those that Kubernetes' OpenAPI has as `enum` (`+enum` in api/core/v1/types.go and its
like), in the order of the alphabet. The decoder takes any text; validation decides which values are allowed.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.strategicpatch import RULES
from devplug.sandbox.openapi.objectfields import (
    APPS,
    AUTHENTICATION,
    AUTHORIZATION,
    COORDINATION,
    CORE,
    EVENTS,
    META,
    NODES,
    RBAC,
    RESOURCE,
    RESOURCE_V1BETA1,
    RESOURCE_V1BETA2,
)
from devplug.sandbox.openapi.podfields import CONTAINERS, POD_STATUSES, PODS, VOLUMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.strategicpatch import FieldRule

_FIELD: Final = re.compile(
    r"(?P<name>\*?\w+)(?P<required>!?)(?P<mark>[?+-]?)(=(?P<number>\d+))?(:(?P<open>[\[{]?)(?P<type>[\w.]+)[\]}]?)?"
)
_EXACT: Final = "io.k8s.api.resource.v1"
"""The package whose objects are kept without the zero values that Go leaves out."""

_TYPE_META: Final = "*TypeMeta"

_PATCHED_AS: Final = {
    "DaemonSetStatus": "WithConditions",
    "EphemeralContainer": "Container",
    "NamespaceStatus": "WithConditions",
}
"""The types for which `strategicpatch` has another name."""


# ── How the tables are written ──


class Form(enum.Enum):
    """The form of a field: one value of its type, a list or a map."""

    ONE = ""
    LIST = "["
    MAP = "{"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a type, for as long as the program runs."""

    name: str
    type: str
    """The name of the type of its value, or of each of its values."""
    form: Form
    required: bool
    embedded: str
    """The Go struct inside of its type that it is written in; mostly empty."""
    mark: str = ""
    """`?` for a pointer, `+` for a field that is always written, `-` for a required one that is not."""


def read_parts(notation: str) -> Iterator[tuple[int, Field]]:
    """Yield the fields of a message with their numbers; an embedded struct is a field without a name."""
    number = 0
    for word in notation.split():
        found = _FIELD.fullmatch(word)
        assert found is not None, word
        name = found["name"]
        if name != _TYPE_META:
            number = int(found["number"] or number + 1)
        is_embedded = name.startswith("*")
        yield (
            number,
            Field(
                "" if is_embedded else name,
                name[1:] if is_embedded else found["type"] or "string",
                Form(found["open"] or ""),
                bool(found["required"]),
                "",
                found["mark"],
            ),
        )


def _read_fields(notation: str, tables: Mapping[str, str], embedded: str = "") -> Iterator[Field]:
    """Yield the fields of a type; `tables` has the types that it names with `*`."""
    for _, field in read_parts(notation):
        if field.name:
            yield replace(field, embedded=embedded)
        else:
            yield from _read_fields(tables[field.type], tables, field.type)


# ── Enums ──

_VALUES: Final[Mapping[str, str]] = {
    "AllocationConfigSource": "FromClaim FromClass",
    "AppArmorProfileType": "Localhost RuntimeDefault Unconfined",
    "AzureDataDiskCachingMode": "None ReadOnly ReadWrite",
    "AzureDataDiskKind": "Dedicated Managed Shared",
    "DNSPolicy": "ClusterFirst ClusterFirstWithHostNet Default None",
    "DaemonSetUpdateStrategyType": "OnDelete RollingUpdate",
    "DeviceAllocationMode": "All ExactCount",
    "DeviceTaintEffect": "NoExecute NoSchedule None",
    "DeviceTolerationOperator": "Equal Exists",
    "HostPathType": '"" BlockDevice CharDevice Directory DirectoryOrCreate File FileOrCreate Socket',
    "MountPropagationMode": "Bidirectional HostToContainer None",
    "NamespacePhase": "Active Terminating",
    "NodeInclusionPolicy": "Honor Ignore",
    "NodePhase": "Pending Running Terminated",
    "NodeSelectorOperator": "DoesNotExist Exists Gt In Lt NotIn",
    "PersistentVolumeAccessMode": "ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod",
    "PersistentVolumeMode": "Block Filesystem",
    "PodFSGroupChangePolicy": "Always OnRootMismatch",
    "PodPhase": "Failed Pending Running Succeeded Unknown",
    "PodQOSClass": "BestEffort Burstable Guaranteed",
    "PreemptionPolicy": "Never PreemptLowerPriority",
    "ProcMountType": "Default Unmasked",
    "Protocol": "SCTP TCP UDP",
    "PullPolicy": "Always IfNotPresent Never",
    "ResourceQuotaScope": """
        BestEffort CrossNamespacePodAffinity NotBestEffort NotTerminating PriorityClass Terminating
        VolumeAttributesClass
    """,
    "RestartPolicy": "Always Never OnFailure",
    "ScopeSelectorOperator": "DoesNotExist Exists In NotIn",
    "SeccompProfileType": "Localhost RuntimeDefault Unconfined",
    "Signal": """
        SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE
        SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX SIGRTMAX-1 SIGRTMAX-10 SIGRTMAX-11 SIGRTMAX-12 SIGRTMAX-13
        SIGRTMAX-14 SIGRTMAX-2 SIGRTMAX-3 SIGRTMAX-4 SIGRTMAX-5 SIGRTMAX-6 SIGRTMAX-7 SIGRTMAX-8 SIGRTMAX-9
        SIGRTMIN SIGRTMIN+1 SIGRTMIN+10 SIGRTMIN+11 SIGRTMIN+12 SIGRTMIN+13 SIGRTMIN+14 SIGRTMIN+15 SIGRTMIN+2
        SIGRTMIN+3 SIGRTMIN+4 SIGRTMIN+5 SIGRTMIN+6 SIGRTMIN+7 SIGRTMIN+8 SIGRTMIN+9 SIGSEGV SIGSTKFLT SIGSTOP
        SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU
        SIGXFSZ
    """,
    "SupplementalGroupsPolicy": "Merge Strict",
    "TaintEffect": "NoExecute NoSchedule PreferNoSchedule",
    "TerminationMessagePolicy": "FallbackToLogsOnError File",
    "TolerationOperator": "Equal Exists Gt Lt",
    "URIScheme": "HTTP HTTPS",
    "UnsatisfiableConstraintAction": "DoNotSchedule ScheduleAnyway",
}

_OPEN: Final = """
    Capability CauseType ConditionStatus ContainerRestartPolicy ContainerRestartRuleAction
    ContainerRestartRuleOnExitCodesOperator CoordinatedLeaseStrategy DaemonSetConditionType
    DeletionPropagation FinalizerName LabelSelectorOperator ManagedFieldsOperationType NamespaceConditionType
    NodeAddressType NodeConditionType OSName PodConditionType PodResizeStatus PodSELinuxChangePolicy
    RecursiveReadOnlyMode ResourceHealthStatus ResourceID ResourceName ResourceResizeRestartPolicy
    StatusReason StorageMedium UniqueVolumeName
"""

WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(_OPEN.split(), ()),
    **{word: tuple(value.strip('"') for value in values.split()) for word, values in _VALUES.items()},
}
"""The values by type; none for a type for which Kubernetes lists none."""

# ── Types ──

PLAIN: Final = frozenset(
    {
        "FieldsV1",
        "IntOrString",
        "MicroTime",
        "Quantity",
        "RawExtension",
        "ResourceList",
        "Time",
        "UID",
        "bool",
        "bytes",
        "int32",
        "int64",
        "string",
        *WORDS,
    }
)
"""The types without fields. `ResourceList` is a map of resource names to quantities."""

_PACKAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "io.k8s.api.apps.v1": APPS,
    "io.k8s.api.authentication.v1": AUTHENTICATION,
    "io.k8s.api.authorization.v1": AUTHORIZATION,
    "io.k8s.api.coordination.v1": COORDINATION,
    "io.k8s.api.core.v1": {**CONTAINERS, **CORE, **NODES, **POD_STATUSES, **PODS, **VOLUMES},
    "io.k8s.api.events.v1": EVENTS,
    "io.k8s.api.rbac.v1": RBAC,
    _EXACT: RESOURCE,
    "io.k8s.api.resource.v1beta1": RESOURCE_V1BETA1,
    "io.k8s.api.resource.v1beta2": RESOURCE_V1BETA2,
    "io.k8s.apimachinery.pkg.apis.meta.v1": META,
}


@dataclass(frozen=True, slots=True)
class Type:
    """A type with fields, for as long as the program runs."""

    name: str
    """Its name in the tables: Kubernetes' own, with the group in front where two groups have one of it."""
    package: str
    fields: Mapping[str, Field]
    """By name; those of embedded structs are among them."""
    parts: Mapping[int, Field]
    """The fields by their number in protobuf; an embedded struct is a field without a name."""

    @property
    def go_name(self) -> str:
        """The name of the Go struct, without its package."""
        return self.name.rpartition(".")[2]

    @property
    def is_exact(self) -> bool:
        """Whether its objects are kept without the zero values that Go leaves out."""
        return self.package == _EXACT

    @property
    def qualified(self) -> str:
        """The name in OpenAPI documents."""
        return f"{self.package}.{self.go_name}"


def _types() -> Iterator[Type]:
    tables = {name: fields for table in _PACKAGES.values() for name, fields in table.items()}
    for package, table in _PACKAGES.items():
        for name, notation in table.items():
            fields = {field.name: field for field in _read_fields(notation, tables)}
            parts = {number: field for number, field in read_parts(notation) if field.type != "TypeMeta"}
            yield Type(name, package, fields, parts)


TYPES: Final[Mapping[str, Type]] = {one.name: one for one in _types()}
"""The types with fields, by name."""


def type_of(resource: Resource) -> Type | None:
    """Return the type of a resource's objects; None for what the sandbox only refuses."""
    return None if resource.refusal else type_of_kind(resource.api_version, resource.kind)


def type_of_kind(api_version: str, kind: str) -> Type | None:
    """Return the type of the objects of a kind; None for a kind without a table."""
    group, _, version = api_version.rpartition("/")
    names = (f"{version}.{kind}", f"{group.partition('.')[0]}.{kind}", kind)
    return next((TYPES[name] for name in names if name in TYPES), None)


def patch_rule(one: Type, field: str) -> FieldRule | None:
    """Return how a strategic merge patch treats a field; None for the common way."""
    return RULES.get(_PATCHED_AS.get(one.name, one.name), {}).get(field)


def reachable(names: Iterable[str]) -> dict[str, Type]:
    """Return these types and all that stand inside of them, by name."""
    found: dict[str, Type] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in TYPES and name not in found:
            found[name] = TYPES[name]
            waiting.extend(field.type for field in TYPES[name].fields.values())
    return found
