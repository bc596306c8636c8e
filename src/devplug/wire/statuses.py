"""The statuses of gRPC: what our errors become at the other end, and those of HTTP/2 ("Errors"). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
    UnhealthyDeviceError,
    UnknownDeviceError,
)
from devplug.wire.codecs import MalformedMessageError, MessageTooLargeError
from devplug.wire.http2.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

STATUSES: Final = (
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
)
"""By their numbers, and spelt as Go does: so they stand in the status of a pod."""

CLOSING: Final = "grpc: the client connection is closing"
"""What Go says of a call on a connection that its owner has closed (clientconn.go ErrClientConnClosing)."""


class RpcError(Exception):
    """A call that ends with this status; its message is for the other end."""

    def __init__(self, status: str, text: str) -> None:
        self.status = status
        self.text = text
        super().__init__(f"{status}: {text}")


_OF_RESET: Final[Mapping[int, str]] = {
    ErrorCode.REFUSED_STREAM: "Unavailable",
    ErrorCode.CANCEL: "Canceled",
    ErrorCode.ENHANCE_YOUR_CALM: "ResourceExhausted",
    ErrorCode.INADEQUATE_SECURITY: "PermissionDenied",
}

_OF_HTTP: Final[Mapping[int, str]] = {
    400: "Internal",
    401: "Unauthenticated",
    403: "PermissionDenied",
    404: "Unimplemented",
    429: "Unavailable",
    502: "Unavailable",
    503: "Unavailable",
    504: "Unavailable",
}


def status_of_reset(code: int) -> str:
    """Return the status of a call whose stream was reset."""
    return _OF_RESET.get(code, "Internal")


def status_of_http(code: int) -> str:
    """Return the status of an answer that is not gRPC's ("http-grpc-status-mapping.md")."""
    return _OF_HTTP.get(code, "Unknown")


STATUS_OF_ERROR: Final[tuple[tuple[type[DevplugError], str], ...]] = (
    (MalformedMessageError, "InvalidArgument"),
    (MessageTooLargeError, "ResourceExhausted"),
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
