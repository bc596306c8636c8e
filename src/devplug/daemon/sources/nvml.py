"""NVML, the NVIDIA driver's library: what it says, as values. All of it blocks, so threads call it.

No state is kept between calls: each opens NVML, which counts its users, and closes it again. The library is
loaded at the first call.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from devplug.daemon.sources.nvidia_gpu import Gpu, GpuReading, MigInstance, mig_profile, pci_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devplug.daemon.sources.host import Host

logger = logging.getLogger(__name__)

ALONE_LIMIT_SECONDS: Final = 10.0
"""How long a fresh reading waits until all others have closed NVML; one of them may hang."""

LIBRARY: Final = "libnvidia-ml.so.1"
DRIVER_ROOTS: Final = ("/run/nvidia/driver", "")
"""Where a driver lies that is not on the loader path: the GPU operator's, and the host's own."""
LIBRARY_FOLDERS: Final = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
)

RECOVERY_ACTION_FIELD: Final = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION of nvml.h; older versions of nvidia-ml-py lack the name."""

RECOVERY_ACTIONS: Final = {
    0: "",
    1: "a reset of this GPU",
    2: "a reboot of the machine",
    3: "an end of what runs on its NVLink peers",
    4: "an end of what runs on it, and its reset",
    5: "a recovery of its IMEX domain",
    6: "a reset of its PCIe bus",
    7: "a reboot of the whole system",
}
"""nvmlDeviceGpuRecoveryAction_t of nvml.h, in words."""

Result = TypeVar("Result")


class UnavailableError(Exception):
    """The driver cannot be asked at all; the text says why, and what to do."""


class NvmlUsers:
    """The users of NVML in this process. NVML sees a GPU that came back only after all have closed it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._waiting = 0

    @property
    def should_close(self) -> bool:
        """Whether another thread waits to be alone; a thread that has NVML open for long has to check it."""
        return self._waiting > 0

    @contextmanager
    def among_others(self) -> Iterator[None]:
        """Have NVML open in the block, beside others; waits while another is, or wants to be, alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting)
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self, limit_seconds: float = ALONE_LIMIT_SECONDS) -> Iterator[None]:
        """Have NVML open in the block, when all others have closed it or at the limit."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._count, limit_seconds)
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1
                self._changed.notify_all()


NVML_USERS: Final = NvmlUsers()
"""The users of this process."""


def read(host: Host, *, is_fresh: bool = False) -> GpuReading:
    """Return what the driver says now. May block for as long as the driver does; never raises for its errors.

    With `is_fresh` NVML is closed and opened before, so that GPUs and a driver that came back are seen, too.
    """
    try:
        with NVML_USERS.alone() if is_fresh else NVML_USERS.among_others(), opened(host) as nvml:
            return _reading(nvml)
    except UnavailableError as error:
        return GpuReading(missing=str(error))


@contextmanager
def opened(host: Host) -> Iterator[Any]:
    """Open NVML for the block and give the module `pynvml`; raises `UnavailableError` if that cannot be."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        raise UnavailableError(
            "the Python package nvidia-ml-py is not installed; install devplug[nvidia]",
        ) from None
    try:
        _open(nvml, host)
    except nvml.NVMLError as error:
        raise UnavailableError(_whole_reason(nvml, error)) from error
    try:
        yield nvml
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _open(nvml: Any, host: Host) -> None:  # noqa: ANN401 -- pynvml has no types
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        library = _library(host) if error.value == nvml.NVML_ERROR_LIBRARY_NOT_FOUND else None
        if library is None:
            raise
        nvml.nvmlLib = library
        nvml.nvmlInit()


def _library(host: Host) -> ctypes.CDLL | None:
    """Return the driver's library from where drivers are installed, or None."""
    for root in DRIVER_ROOTS:
        for folder in LIBRARY_FOLDERS:
            path = host.inside(f"{root}{folder}/{LIBRARY}")
            if os.path.exists(path):  # noqa: PTH110
                try:
                    return ctypes.CDLL(path)
                except OSError as error:
                    logger.debug("cannot load a library", extra={"path": path, "reason": str(error)})
    return None


def _whole_reason(nvml: Any, error: Exception) -> str:  # noqa: ANN401
    """Return why the driver cannot be asked, and what to do."""
    texts = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: f"{LIBRARY} was not found; run this pod with "
        "runtimeClassName: nvidia, or mount the driver's root folder",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded on this machine",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver was upgraded and this process has "
        "the library of the old one; restart this pod",
        nvml.NVML_ERROR_NO_PERMISSION: "the driver refuses this process; "
        "run this pod with runtimeClassName: nvidia",
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver is too old for nvidia-ml-py; upgrade the driver",
    }
    value = getattr(error, "value", None)
    return texts.get(value, f"NVML cannot be opened: {error}")


def concerns_all(nvml: Any, error: Exception) -> bool:  # noqa: ANN401
    """Whether an error says that the driver is gone, and not one of its GPUs."""
    return getattr(error, "value", None) in {
        nvml.NVML_ERROR_UNINITIALIZED,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }


def _reading(nvml: Any) -> GpuReading:  # noqa: ANN401
    gpus: list[Gpu] = []
    unanswered: list[str] = []
    try:
        count: int = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise UnavailableError(_whole_reason(nvml, error)) from error
    for index in range(count):
        try:
            gpus.append(_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index)))
        except UnicodeDecodeError:
            unanswered.append("the driver reports impossible values for it")
        except nvml.NVMLError as error:
            if concerns_all(nvml, error):
                raise UnavailableError(_whole_reason(nvml, error)) from error
            unanswered.append(_lost_reason(nvml, error))
    return GpuReading(tuple(gpus), tuple(unanswered))


def _lost_reason(nvml: Any, error: Exception) -> str:  # noqa: ANN401
    texts = {
        nvml.NVML_ERROR_GPU_IS_LOST: "lost: it fell off the bus",
        nvml.NVML_ERROR_RESET_REQUIRED: "it must be reset",
    }
    return texts.get(getattr(error, "value", None), f"the driver cannot reach it: {error}")


def optional(nvml: Any, ask: Callable[..., Result], *arguments: object, default: Result) -> Result:  # noqa: ANN401
    """Return NVML's answer, or `default` if GPU or driver do not support it; raises if the GPU is lost."""
    try:
        return ask(*arguments)
    except nvml.NVMLError as error:
        if concerns_all(nvml, error) or error.value in {
            nvml.NVML_ERROR_GPU_IS_LOST,
            nvml.NVML_ERROR_RESET_REQUIRED,
        }:
            raise
        return default


def _gpu(nvml: Any, handle: object) -> Gpu:  # noqa: ANN401
    mig_mode: list[int] = optional(nvml, nvml.nvmlDeviceGetMigMode, handle, default=[0, 0])
    is_in_mig_mode = bool(mig_mode[0])
    memory: Any = optional(nvml, nvml.nvmlDeviceGetMemoryInfo, handle, default=None)
    memory_bytes: int = 0 if memory is None else memory.total
    mig_slices: int = optional(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle, default=0)
    remapped: tuple[int, ...] = optional(nvml, nvml.nvmlDeviceGetRemappedRows, handle, default=(0, 0, 0, 0))
    return Gpu(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        pci_address=_address(nvml.nvmlDeviceGetPciInfo(handle)),
        minor=optional(nvml, nvml.nvmlDeviceGetMinorNumber, handle, default=None),
        model=optional(nvml, nvml.nvmlDeviceGetName, handle, default=""),
        serial=optional(nvml, nvml.nvmlDeviceGetSerial, handle, default=""),
        memory_bytes=memory_bytes,
        mig_slices=mig_slices,
        is_in_mig_mode=is_in_mig_mode,
        instances=_instances(nvml, handle, memory_bytes, mig_slices) if is_in_mig_mode else (),
        links=_links(nvml, handle),
        action_wanted=_action_wanted(nvml, handle),
        has_failed_memory=bool(remapped[3]),
    )


def _address(info: Any) -> str:  # noqa: ANN401
    bus_id: str | bytes = info.busId
    return pci_address(bus_id.decode() if isinstance(bus_id, bytes) else bus_id)


def _instances(nvml: Any, handle: object, memory_bytes: int, count: int) -> tuple[MigInstance, ...]:  # noqa: ANN401
    found = []
    for index in range(count):
        mig = optional(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index, default=None)
        if mig is None:
            continue
        sizes: Any = optional(nvml, nvml.nvmlDeviceGetAttributes, mig, default=None)
        name = optional(nvml, nvml.nvmlDeviceGetName, mig, default="")
        given = (0, 0, 0)
        if sizes is not None:
            given = (sizes.gpuInstanceSliceCount, sizes.computeInstanceSliceCount, sizes.memorySizeMB)
        found.append(
            MigInstance(
                uuid=nvml.nvmlDeviceGetUUID(mig),
                profile=mig_profile(name, *given, memory_bytes // 2**20),
                gpu_instance=nvml.nvmlDeviceGetGpuInstanceId(mig),
                compute_instance=nvml.nvmlDeviceGetComputeInstanceId(mig),
                memory_bytes=given[2] * 2**20,
                gpu_slices=given[0],
                compute_slices=given[1],
            ),
        )
    return tuple(found)


def _links(nvml: Any, handle: object) -> dict[str, int]:  # noqa: ANN401
    links: dict[str, int] = {}
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        is_active = optional(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link, default=None)
        if is_active is None:
            break
        kind = optional(nvml, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link, default=None)
        if is_active and kind != nvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU:
            info: Any = optional(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link, default=None)
            end = _address(info) if info is not None else ""
            links[end] = links.get(end, 0) + 1
    return links


def _action_wanted(nvml: Any, handle: object) -> str | None:  # noqa: ANN401
    """Return the recovery action that the driver wants, in words; None before R570, which cannot say."""
    values: Any = optional(nvml, nvml.nvmlDeviceGetFieldValues, handle, [RECOVERY_ACTION_FIELD], default=None)
    if values is None or values[0].nvmlReturn != nvml.NVML_SUCCESS:
        return None
    number: int = values[0].value.uiVal
    return RECOVERY_ACTIONS.get(number, f"recovery action {number}")
