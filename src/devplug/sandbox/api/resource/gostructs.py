"""Go structs of DRA as JSON, as errors about a whole struct tell it: Go's names, in the struct's order.

They are the API server's internal types (pkg/apis/resource/types.go), which have no JSON tags, so that every
field is told, also an empty one. A table's word is a field's Go name, `=` and its name in JSON if that is not
the same with a small first letter, `?` for a pointer, `#` for a number, and `:` and a struct's name, in `[…]`
for a list of it; `:[]` is a list of texts, `:{}` a map, and `:*` what is told as it stands in JSON.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.errors import Verbatim, go_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.k8s.objects import Object

_TABLES: Final[Mapping[str, str]] = {
    "ResourceClaimTemplateSpec": "Spec:ResourceClaimSpec",
    "ResourceClaimSpec": "Devices:DeviceClaim",
    "DeviceClaim": """
        Requests:[DeviceRequest] Constraints:[DeviceConstraint] Config:[DeviceClaimConfiguration]
    """,
    "DeviceRequest": "Name Exactly?:ExactDeviceRequest FirstAvailable:[DeviceSubRequest]",
    "ExactDeviceRequest": """
        DeviceClassName Selectors:[DeviceSelector] AllocationMode Count# AdminAccess?
        Tolerations:[DeviceToleration] Capacity?:CapacityRequirements
    """,
    "DeviceSubRequest": """
        Name DeviceClassName Selectors:[DeviceSelector] AllocationMode Count# Tolerations:[DeviceToleration]
        Capacity?:CapacityRequirements
    """,
    "CapacityRequirements": "Requests:{}",
    "DeviceSelector": "CEL=cel?:CELDeviceSelector",
    "CELDeviceSelector": "Expression",
    "DeviceConstraint": "Requests:[] MatchAttribute? DistinctAttribute?",
    "DeviceClaimConfiguration": "Requests:[] Opaque?:OpaqueDeviceConfiguration",
    "OpaqueDeviceConfiguration": "Driver Parameters:*",
    "DeviceToleration": "Key Operator Value Effect TolerationSeconds?",
    "AllocationResult": "Devices:DeviceAllocationResult NodeSelector?:NodeSelector AllocationTimestamp?",
    "DeviceAllocationResult": """
        Results:[DeviceRequestAllocationResult] Config:[DeviceAllocationConfiguration]
    """,
    "DeviceRequestAllocationResult": """
        Request Driver Pool Device AdminAccess? Tolerations:[DeviceToleration] BindingConditions:[]
        BindingFailureConditions:[] ShareID? ConsumedCapacity:{}
    """,
    "DeviceAllocationConfiguration": "Source Requests:[] Opaque?:OpaqueDeviceConfiguration",
    "NodeSelector": "NodeSelectorTerms:[NodeSelectorTerm]",
    "NodeSelectorTerm": "MatchExpressions:[NodeSelectorRequirement] MatchFields:[NodeSelectorRequirement]",
    "NodeSelectorRequirement": "Key Operator Values:[]",
    "DeviceAttribute": """
        IntValue=int? BoolValue=bool? StringValue=string? VersionValue=version? IntValues=ints:[]
        BoolValues=bools:[] StringValues=strings:[] VersionValues=versions:[]
    """,
    "PodResourceClaim": "Name ResourceClaimName? ResourceClaimTemplateName?",
    "SharedDeviceID": "Driver Pool Device ShareID",
}

_WORD: Final = re.compile(r"(?P<go>\w+)(=(?P<json>\w+))?(?P<mark>[?#]?)(:(?P<type>\S+))?")
_FIELDS: Final = {
    name: [found for word in table.split() if (found := _WORD.fullmatch(word))]
    for name, table in _TABLES.items()
}


def go_struct(name: str, value: object) -> Verbatim:
    """Return a struct as an error tells it."""
    return Verbatim(go_json(_struct(name, value), sort_keys=False))


def go_list(name: str, values: list[object]) -> Verbatim:
    """Return a list of structs as an error tells it."""
    return Verbatim(go_json([_struct(name, one) for one in values], sort_keys=False))


def _struct(name: str, value: object) -> Object:
    given = value if isinstance(value, dict) else {}
    return {
        word["go"]: _field(word, given.get(word["json"] or word["go"][0].lower() + word["go"][1:]))
        for word in _FIELDS[name]
    }


def _field(word: re.Match[str], value: object) -> object:
    type_ = word["type"]
    if value is None and word["mark"] != "#" and (type_ or word["mark"]) and type_ not in _TABLES:
        return None
    match type_:
        case None:
            return (0 if word["mark"] == "#" else "") if value is None else value
        case "*" | "[]":
            return value
        case "{}":
            return dict(sorted(value.items())) if isinstance(value, dict) else value
        case listed if listed.startswith("["):
            return [_struct(listed[1:-1], one) for one in value] if isinstance(value, list) else value
    return None if value is None and word["mark"] else _struct(type_, value)
