"""Our errors ⇄ gRPC's statuses, in one table: what the other end of a socket learns of a failure."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any, Final

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
from devplug.wire.rpc.faults import STATUSES, RpcError

if TYPE_CHECKING:
    from devplug.wire.methods import Method

__all__ = ["STATUS_OF_ERROR", "refusal_of"]

logger = logging.getLogger(__name__)

STATUS_OF_ERROR: Final[tuple[tuple[type[DevplugError], str], ...]] = (
    (MalformedMessageError, "InvalidArgument"),
    (InvalidRequestError, "InvalidArgument"),
    (ForbiddenPathError, "PermissionDenied"),
    (UnknownDeviceError, "NotFound"),
    (UnhealthyDeviceError, "FailedPrecondition"),
    (LimitError, "ResourceExhausted"),
    (NotReadyError, "Unavailable"),
    (DeadlineError, "DeadlineExceeded"),
    (NotOfferedError, "Unimplemented"),
    (IncidentError, "Internal"),
    (AnswerTooLargeError, "Internal"),
    (AllocationError, "FailedPrecondition"),
    # The kubelet's handlers return plain Go errors, which gRPC sends as Unknown (kubelet.md 1.1).
    (KubeletError, "Unknown"),
)
"""First match wins. Anything else is Internal with an incident number, and its text stays in the log."""


def refusal_of(error: Exception, method: Method[Any, Any]) -> RpcError:
    """Return what the other end gets for `error`: its own status and text, if it is a `RemoteError`."""
    if isinstance(error, RemoteError) and error.status in STATUSES[1:]:
        return RpcError(error.status, error.text)
    for error_class, status in STATUS_OF_ERROR:
        if isinstance(error, error_class):
            text = str(error)
            return RpcError(status, text if isinstance(error, KubeletError) else one_line(text))
    incident = IncidentError(secrets.token_hex(3))
    logger.error(
        "call failed inside the server",
        extra={"method": method.name, "incident": incident.incident},
        exc_info=error,
    )
    return RpcError("Internal", str(incident))
