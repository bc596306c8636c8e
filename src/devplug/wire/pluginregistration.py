"""The API by which the kubelet asks plugins that it found in plugins_registry: its messages and methods.

The versions v1, v1beta1 and v1alpha1 differ in nothing that crosses the socket. Pure.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from devplug.wire.codecs import codec, empty_codec, flag, text, texts
from devplug.wire.deviceplugin import Method
from devplug.wire.protobuf import Layout
from devplug.wire.values import PluginInfo, RegistrationStatus

_INFO: Final[Layout[PluginInfo]] = Layout(
    "PluginInfo",
    (text(1, "type"), text(2, "name"), text(3, "endpoint"), texts(4, "supported_versions")),
    attrgetter("type", "name", "endpoint", "supported_versions"),
    lambda type_, name, endpoint, versions: PluginInfo(type_, name, endpoint, tuple(versions)),
)
_STATUS: Final[Layout[RegistrationStatus]] = Layout(
    "RegistrationStatus",
    (flag(1, "plugin_registered"), text(2, "error")),
    attrgetter("plugin_registered", "error"),
    RegistrationStatus,
)

_SERVICE = "pluginregistration.Registration"

GET_INFO: Final[Method[None, PluginInfo]] = Method(
    _SERVICE, "GetInfo", empty_codec("InfoRequest"), codec(_INFO)
)
NOTIFY_REGISTRATION_STATUS: Final[Method[RegistrationStatus, None]] = Method(
    _SERVICE, "NotifyRegistrationStatus", codec(_STATUS), empty_codec("RegistrationStatusResponse")
)

LAYOUTS: Final = (_INFO, _STATUS)
"""The layouts of messages that cross a socket by themselves and have fields."""
