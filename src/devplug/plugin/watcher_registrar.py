"""The registrar for kubelets that find the plugin's socket in `plugins_registry` and call it."""

from __future__ import annotations

from typing import Final

from devplug.plugin.registrar import Registrar, jitter, now
from devplug.plugin.watcher_registration import WatcherRegistration
from devplug.wire.deviceplugin import DEVICE_PLUGIN_VERSION
from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS
from devplug.wire.sockets import Binding, unary
from devplug.wire.values import PluginInfo, RegistrationStatus

_UNASKED: Final = "no kubelet asks at the sockets in plugins_registry; making them again from time to time"


class WatcherRegistrar(Registrar):
    """The registrar that answers a kubelet which has found the plugin's socket."""

    state = WatcherRegistration()

    def bindings(self) -> tuple[Binding, ...]:
        """Return the further services of the plugin's socket: the calls of the plugin watcher."""
        return unary(GET_INFO, self._get_info), unary(NOTIFY_REGISTRATION_STATUS, self._take_status)

    def socket_made(self) -> None:
        """Record that the plugin's socket is being made; a kubelet may call it before this returns."""
        self.state = self.state.made(now(), jitter())
        if self.state.fruitless:
            self._environment.say_once(_UNASKED, folder=str(self._environment.folder))

    def _follow_stream(self) -> None:
        self.state = self.state.streamed(now(), self._service.streams.open, jitter())

    async def _get_info(self, _: None) -> PluginInfo:
        """Answer GetInfo: a constant, as the kubelet waits for one second."""
        self.state = self.state.asked(now(), self._service.streams.opened, jitter())
        self._environment.unsay(_UNASKED)
        self._changed()
        # No endpoint: then it is the socket at which the kubelet asks. Our own path of it may be another than
        # the kubelet's, as that of a mounted folder in a container is.
        return PluginInfo("DevicePlugin", self._service.resource_name, "", (DEVICE_PLUGIN_VERSION,))

    async def _take_status(self, status: RegistrationStatus) -> None:
        """Record the result that NotifyRegistrationStatus reports."""
        if status.plugin_registered:
            self.state = self.state.accepted()
            self._note_accepted(now() - self.state.asked_at)
        else:
            self.state = self.state.refused(now(), jitter())
            self._counters.registrations.add("refused")
            refusal = f"the kubelet refused the registration: {status.error}"
            # The kubelet repeats itself for as long as our socket is there.
            if refusal != self.refusal:
                self.refusal = refusal
                self._log_refused(status.error)
        self._changed()
