"""The API by which the kubelet asks plugins that it found in plugins_registry: its messages and methods.

The versions v1, v1beta1 and v1alpha1 differ in nothing that crosses the socket.
"""

from __future__ import annotations

from typing import Final

from devplug.exchange import PluginInfo, RegistrationStatus
from devplug.wire.codecs import Fields, codec, empty_codec
from devplug.wire.methods import Method

__all__ = ["GET_INFO", "NOTIFY_REGISTRATION_STATUS"]


def _fill_info(message: Fields, info: PluginInfo) -> None:
    message.type = info.type
    message.name = info.name
    message.endpoint = info.endpoint
    message.supported_versions.extend(info.supported_versions)


def _info_value(message: Fields) -> PluginInfo:
    return PluginInfo(message.type, message.name, message.endpoint, tuple(message.supported_versions))


def _fill_status(message: Fields, status: RegistrationStatus) -> None:
    message.plugin_registered = status.plugin_registered
    message.error = status.error


def _status_value(message: Fields) -> RegistrationStatus:
    return RegistrationStatus(message.plugin_registered, message.error)


_SERVICE = "pluginregistration.Registration"

GET_INFO: Final[Method[None, PluginInfo]] = Method(
    _SERVICE,
    "GetInfo",
    empty_codec("pluginregistration.InfoRequest"),
    codec("pluginregistration.PluginInfo", _fill_info, _info_value),
)
NOTIFY_REGISTRATION_STATUS: Final[Method[RegistrationStatus, None]] = Method(
    _SERVICE,
    "NotifyRegistrationStatus",
    codec("pluginregistration.RegistrationStatus", _fill_status, _status_value),
    empty_codec("pluginregistration.RegistrationStatusResponse"),
)
