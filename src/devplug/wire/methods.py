"""The services of the device plugin API as data: every method with its path and its messages.

A new version of the API is a new row. The other APIs have theirs in `pluginregistration` and `podresources`,
which a plugin does not load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from devplug.wire import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.devices import ContainerResponse
    from devplug.exchange import AdvertisedDevice, PluginOptions, PreferenceRequest, RegisterRequest
    from devplug.wire.codecs import Codec

__all__ = [
    "ALLOCATE",
    "DEVICE_PLUGIN_VERSION",
    "GET_OPTIONS",
    "GET_PREFERRED_ALLOCATION",
    "LIST_AND_WATCH",
    "PRE_START_CONTAINER",
    "REGISTER",
    "Method",
]

Request = TypeVar("Request")
Response = TypeVar("Response")

DEVICE_PLUGIN_VERSION: Final = "v1beta1"
"""The one version of the device plugin API that kubelets since 1.10 serve (constants.go)."""


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Response]):
    """One remote call: where it is and what goes in and out."""

    service: str
    name: str
    request: Codec[Request]
    response: Codec[Response]
    is_stream: bool = False
    """Whether the answer is a stream of responses."""

    @property
    def path(self) -> str:
        """The HTTP/2 path, `/package.Service/Method`."""
        return f"/{self.service}/{self.name}"


_REGISTRATION = f"{DEVICE_PLUGIN_VERSION}.Registration"
_DEVICE_PLUGIN = f"{DEVICE_PLUGIN_VERSION}.DevicePlugin"

REGISTER: Final[Method[RegisterRequest, None]] = Method(
    _REGISTRATION,
    "Register",
    messages.REGISTER_REQUEST,
    messages.EMPTY,
)
GET_OPTIONS: Final[Method[None, PluginOptions]] = Method(
    _DEVICE_PLUGIN,
    "GetDevicePluginOptions",
    messages.EMPTY,
    messages.OPTIONS,
)
LIST_AND_WATCH: Final[Method[None, Sequence[AdvertisedDevice]]] = Method(
    _DEVICE_PLUGIN,
    "ListAndWatch",
    messages.EMPTY,
    messages.DEVICE_LIST,
    is_stream=True,
)
GET_PREFERRED_ALLOCATION: Final[Method[Sequence[PreferenceRequest], Sequence[tuple[str, ...]]]] = Method(
    _DEVICE_PLUGIN,
    "GetPreferredAllocation",
    messages.PREFERENCE_REQUEST,
    messages.PREFERENCE_RESPONSE,
)
ALLOCATE: Final[Method[Sequence[tuple[str, ...]], Sequence[ContainerResponse]]] = Method(
    _DEVICE_PLUGIN,
    "Allocate",
    messages.ALLOCATE_REQUEST,
    messages.ALLOCATE_RESPONSE,
)
PRE_START_CONTAINER: Final[Method[tuple[str, ...], None]] = Method(
    _DEVICE_PLUGIN,
    "PreStartContainer",
    messages.PRE_START_REQUEST,
    messages.PRE_START_RESPONSE,
)
