"""NVML's events, which one thread waits for."""

from __future__ import annotations

import ctypes
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from devplug.daemon.sources.nvidia_gpu import GpuEvent
from devplug.daemon.sources.nvml import NVML_USERS, UnavailableError, concerns_all, opened, optional

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.daemon.sources.host import Host

logger = logging.getLogger(__name__)

SLICE_SECONDS: Final = 1.0
"""How long one wait in NVML lasts: nothing can end it earlier, and another thread may want NVML closed."""

AGAIN_SECONDS: Final = 30.0
"""How long after a failure it is tried again, if nothing has changed before."""

XID_EVENT: Final = 0x8
DOUBLE_BIT_EVENT: Final = 0x2
LOOK_EVENTS: Final = 0x100 | 0x4000 | 0x8000
"""MIG was set up anew, a GPU cannot be used, the wanted recovery action changed. By number, as in nvml.h:
older versions of nvidia-ml-py lack the names."""

EVENTS: Final = XID_EVENT | DOUBLE_BIT_EVENT | LOOK_EVENTS

DOUBLE_BIT_XID: Final = 48
"""The Xid of a double bit ECC error."""

_NO_INSTANCE: Final = 0xFFFFFFFF
"""nvml.h: the event is not about one instance."""


class EventListener:
    """Receives the driver's events of some GPUs; lives as long as its source is followed.

    One thread calls `run`; any other may call the other methods. `deliver` is called in the thread of `run`.
    """

    def __init__(self, host: Host, deliver: Callable[[GpuEvent], None]) -> None:
        self._host = host
        self._deliver = deliver
        self._lock = threading.Lock()
        self._wanted: frozenset[str] = frozenset()
        self._is_stopped = False
        self._woken = threading.Event()
        self._logged_reasons: set[str] = set()

    def follow(self, uuids: frozenset[str]) -> None:
        """Receive events of these GPUs, and of no others, from now on."""
        with self._lock:
            if uuids != self._wanted:
                self._wanted = uuids
                self._woken.set()

    def stop(self) -> None:
        """End `run`, at the end of its slice."""
        with self._lock:
            self._is_stopped = True
            self._woken.set()

    def run(self) -> None:
        """Receive and deliver events until `stop`."""
        while True:
            with self._lock:
                self._woken.clear()
                wanted = self._wanted
                if self._is_stopped:
                    return
            if not wanted:
                self._woken.wait()
                continue
            try:
                with NVML_USERS.among_others(), opened(self._host) as nvml:
                    reason = self._hear(nvml, wanted)
            except UnavailableError as error:
                reason = str(error)
            if reason:
                self._log_once(reason)
                self._woken.wait(AGAIN_SECONDS)

    def _log_once(self, reason: str) -> None:
        if reason not in self._logged_reasons:
            self._logged_reasons.add(reason)
            logger.warning(
                "cannot receive GPU events from NVML; GPU faults are found at each resync only",
                extra={"reason": reason},
            )

    def _hear(self, nvml: Any, wanted: frozenset[str]) -> str:  # noqa: ANN401 -- pynvml has no types
        """Deliver events until there is other work; return the error that ended it earlier."""
        try:
            events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError as error:
            return str(error)
        try:
            uuids = self._register(nvml, events, wanted)
            if not uuids:
                return "no GPU of this machine reports its faults"
            while not (self._woken.is_set() or NVML_USERS.should_close):
                try:
                    data = nvml.nvmlEventSetWait(events, int(SLICE_SECONDS * 1000))
                except nvml.NVMLError_Timeout:
                    continue
                self._deliver(_event(data, uuids))
        except nvml.NVMLError as error:
            if concerns_all(nvml, error) or error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                self._deliver(GpuEvent())
            return str(error)
        finally:
            with suppress(nvml.NVMLError):
                nvml.nvmlEventSetFree(events)
        return ""

    def _register(self, nvml: Any, events: object, wanted: frozenset[str]) -> dict[int | None, str]:  # noqa: ANN401
        """Return the UUIDs of the GPUs that will send events, by their handles.

        Single bit ECC errors are left out: the hardware corrects them, and there is Xid 92 if they are many.
        """
        uuids: dict[int | None, str] = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            handle, uuid = _identity(nvml, index)
            if uuid not in wanted:
                continue
            supported = optional(nvml, nvml.nvmlDeviceGetSupportedEventTypes, handle, default=0) & EVENTS
            if not supported:
                self._log_once(f"{uuid} reports no faults; it is too old for that")
                continue
            nvml.nvmlDeviceRegisterEvents(handle, supported, events)
            uuids[_number(handle)] = uuid
        return uuids


def _identity(nvml: Any, index: int) -> tuple[object, str]:  # noqa: ANN401
    """Return the handle and the UUID of a GPU; None and "" for a lost one: the others are followed."""
    try:
        handle: object = nvml.nvmlDeviceGetHandleByIndex(index)
        return handle, nvml.nvmlDeviceGetUUID(handle)
    except nvml.NVMLError as error:
        if concerns_all(nvml, error):
            raise
        return None, ""


def _number(handle: Any) -> int | None:  # noqa: ANN401
    return ctypes.cast(handle, ctypes.c_void_p).value


def _event(data: Any, uuids: dict[int | None, str]) -> GpuEvent:  # noqa: ANN401
    # The handle and not its UUID: a GPU that has just been lost has none any more.
    uuid = uuids.get(_number(data.device), "")
    if data.eventType == XID_EVENT:
        return GpuEvent(
            uuid, data.eventData, _instance(data.gpuInstanceId), _instance(data.computeInstanceId)
        )
    if data.eventType == DOUBLE_BIT_EVENT:
        return GpuEvent(uuid, DOUBLE_BIT_XID)
    return GpuEvent(uuid)


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else number
