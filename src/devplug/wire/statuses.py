"""Our errors ⇄ gRPC's statuses, in one table: what the other end of a socket learns of a failure."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from devplug.errors import (
    AllocationError,
    AnswerTooLargeError,
    DeadlineError,
    DevplugError,
    ForbiddenPathError,
    IncidentError,
    InvalidRequestError,
    KubeletError,
    LimitError,
    NotOfferedError,
    NotReadyError,
    RemoteError,
    UnhealthyDeviceError,
    UnknownDeviceError,
    one_line,
)
from devplug.wire.codecs import MalformedMessageError

if TYPE_CHECKING:
    from devplug.wire.methods import Method

__all__ = ["FAILURES", "remote_error", "status_of"]

logger = logging.getLogger(__name__)

STATUS_OF_ERROR: Final[tuple[tuple[type[DevplugError], grpc.StatusCode], ...]] = (
    (MalformedMessageError, grpc.StatusCode.INVALID_ARGUMENT),
    (InvalidRequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (ForbiddenPathError, grpc.StatusCode.PERMISSION_DENIED),
    (UnknownDeviceError, grpc.StatusCode.NOT_FOUND),
    (UnhealthyDeviceError, grpc.StatusCode.FAILED_PRECONDITION),
    (LimitError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (NotReadyError, grpc.StatusCode.UNAVAILABLE),
    (DeadlineError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (NotOfferedError, grpc.StatusCode.UNIMPLEMENTED),
    (IncidentError, grpc.StatusCode.INTERNAL),
    (AnswerTooLargeError, grpc.StatusCode.INTERNAL),
    (AllocationError, grpc.StatusCode.FAILED_PRECONDITION),
    # The kubelet's handlers return plain Go errors, which gRPC sends as UNKNOWN (kubelet.md 1.1).
    (KubeletError, grpc.StatusCode.UNKNOWN),
)
"""First match wins. Anything else is INTERNAL with an incident number, and its text stays in the log."""

_GO_NAMES = {
    grpc.StatusCode.OK: "OK",
    grpc.StatusCode.CANCELLED: "Canceled",
    grpc.StatusCode.UNKNOWN: "Unknown",
    grpc.StatusCode.INVALID_ARGUMENT: "InvalidArgument",
    grpc.StatusCode.DEADLINE_EXCEEDED: "DeadlineExceeded",
    grpc.StatusCode.NOT_FOUND: "NotFound",
    grpc.StatusCode.ALREADY_EXISTS: "AlreadyExists",
    grpc.StatusCode.PERMISSION_DENIED: "PermissionDenied",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "ResourceExhausted",
    grpc.StatusCode.FAILED_PRECONDITION: "FailedPrecondition",
    grpc.StatusCode.ABORTED: "Aborted",
    grpc.StatusCode.OUT_OF_RANGE: "OutOfRange",
    grpc.StatusCode.UNIMPLEMENTED: "Unimplemented",
    grpc.StatusCode.INTERNAL: "Internal",
    grpc.StatusCode.UNAVAILABLE: "Unavailable",
    grpc.StatusCode.DATA_LOSS: "DataLoss",
    grpc.StatusCode.UNAUTHENTICATED: "Unauthenticated",
}

_CODES = {name: code for code, name in _GO_NAMES.items() if code is not grpc.StatusCode.OK}


def status_of(error: Exception, method: Method[Any, Any]) -> tuple[grpc.StatusCode, str]:
    """Return the status and text that the other end gets for `error`: its own, if it is a `RemoteError`."""
    if isinstance(error, RemoteError) and error.status in _CODES:
        return _CODES[error.status], error.text
    for error_class, code in STATUS_OF_ERROR:
        if isinstance(error, error_class):
            text = str(error)
            return code, text if isinstance(error, KubeletError) else one_line(text)
    incident = IncidentError(secrets.token_hex(3))
    logger.error(
        "call failed inside the server",
        extra={"method": method.name, "incident": incident.incident},
        exc_info=error,
    )
    return grpc.StatusCode.INTERNAL, str(incident)


FAILURES = (grpc.aio.AioRpcError, MalformedMessageError, asyncio.CancelledError)


def remote_error(error: BaseException, method: Method[Any, Any]) -> RemoteError:
    """Return what one of `FAILURES` means for the caller; raises it again if this task was cancelled."""
    if isinstance(error, grpc.aio.AioRpcError):
        text = error.details() or ""
        if "Deadline Exceeded" in text:  # grpcio's words, in several forms, for a deadline that passed here
            text = "context deadline exceeded"
        return RemoteError(_GO_NAMES[error.code()], text)
    if isinstance(error, MalformedMessageError):
        return RemoteError("Internal", f"cannot decode the answer to {method.name}: {error}")
    # A channel closed by its owner cancels its calls; that is an answer, not a cancellation of this task.
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise error
    return RemoteError("Canceled", "grpc: the client connection is closing")
