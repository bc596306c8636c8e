"""What crosses a socket: messages, methods and the transport. The only importer of gRPC and protobuf."""

from __future__ import annotations

import os

# gRPC reads this when it is loaded; without it, each connection that is lost leaves a line on stderr.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
