"""The errors of HTTP/2: their codes (7), and whether one ends a stream or the connection (5.4)."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Why a stream or a connection ends (7)."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


def code_name(code: int) -> str:
    """Return the name of a received code; an unknown code is allowed (7)."""
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error code {code:#x}"


class ConnectionFaultError(Exception):
    """The other end broke the protocol for the whole connection: send GOAWAY and close (5.4.1)."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        self.code = code
        self.why = why
        super().__init__(f"{code.name}: {why}")


class StreamFaultError(Exception):
    """The other end broke the protocol for one stream: send RST_STREAM, go on with the others (5.4.2)."""

    def __init__(self, stream_id: int, code: ErrorCode, why: str) -> None:
        self.stream_id = stream_id
        self.code = code
        self.why = why
        super().__init__(f"stream {stream_id}: {code.name}: {why}")


class MisuseError(Exception):
    """Our own code asked for what HTTP/2 does not allow; nothing was sent."""
