"""The versions of resource.k8s.io, and its objects in each of them. Pure.

v1beta2 has every field where v1 has it. v1beta1 has a device's fields but its name one level deeper, in
`basic`, and what a request asks for one level higher, without `exactly` (pkg/apis/resource/v1beta1
conversion.go). DeviceClasses, statuses and all the rest are alike in the three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, with_part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GROUP: Final = "resource.k8s.io"

API_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Newest first; they came with Kubernetes 1.34, 1.33 and 1.32."""

_OTHER_SHAPE: Final = "v1beta1"

_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "DeviceClass": (),
    "ResourceClaim": ("spec", "devices", "requests"),
    "ResourceClaimTemplate": ("spec", "spec", "devices", "requests"),
    "ResourceSlice": ("spec", "devices"),
}
"""The kinds, and where each has the list whose maps differ; empty for none."""

_OF_REQUEST: Final = ("name", "firstAvailable")
"""The fields of a request that are at one place in all versions."""


def from_v1(kind: str, one: Object, version: str) -> Object:
    """Return an object of v1 as one of a version; what is of another API stays as it is."""
    return _converted(kind, one, version, version, _deep if kind == "ResourceSlice" else _direct)


def to_v1(kind: str, one: Object, version: str) -> Object:
    """Return an object of a version as one of v1, as `from_v1` has it: the same if it came from there.

    Fields that v1beta1 does not know of a device are gone.
    """
    return _converted(kind, one, version, API_VERSIONS[0], _flat if kind == "ResourceSlice" else _exact)


def _converted(
    kind: str, one: Object, other: str, version: str, change: Callable[[Object], Object]
) -> Object:
    """Return an object of one of the kinds in `version`; `other` is the one of the two that is not v1."""
    if kind not in _PLACES or other not in API_VERSIONS:
        return one
    if "apiVersion" in one:
        one = {**one, "apiVersion": f"{GROUP}/{version}"}
    found = entries(one, *_PLACES[kind]) if other == _OTHER_SHAPE else []
    if not found:
        return one
    changed = [change(inner) if isinstance(inner, dict) else inner for inner in found]
    return with_part(one, changed, *_PLACES[kind])


def _deep(device: Object) -> Object:
    basic = {key: value for key, value in device.items() if key != "name"}
    return {**_only(device, "name"), "basic": basic}


def _flat(device: Object) -> Object:
    return {**fields(device, "basic"), **_only(device, "name")}


def _direct(request: Object) -> Object:
    return {**fields(request, "exactly"), **_only(request, *_OF_REQUEST)}


def _exact(request: Object) -> Object:
    asked = {key: value for key, value in request.items() if key not in _OF_REQUEST}
    own = _only(request, *_OF_REQUEST)
    return {**own, "exactly": asked} if asked or not own.get("firstAvailable") else own


def _only(one: Object, *names: str) -> Object:
    return {name: one[name] for name in names if name in one}
