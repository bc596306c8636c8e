"""grpcio as both ends of it need it: loaded once, quiet, and with its statuses by the names that we use."""

from __future__ import annotations

import os
from typing import Final

# gRPC reads this when it is loaded; without it, each connection that is lost leaves a line on stderr.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc
import grpc.aio

from devplug.wire.rpc.faults import STATUSES

__all__ = ["CODES", "NAMES", "grpc"]

CODES: Final = {STATUSES[code.value[0]]: code for code in grpc.StatusCode}
NAMES: Final = {code: name for name, code in CODES.items()}

# gRPC joins its poller thread when its last object is collected, wherever that happens to be, and now and
# then the thread never ends. One reference that is never given back keeps it for the life of the process.
grpc.aio.init_grpc_aio()  # type: ignore[attr-defined]  # the stubs lack it
