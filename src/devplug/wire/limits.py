"""The limits of our gRPC sockets, each with its unit and reason. docs/threat-model.md repeats them. Pure."""

from __future__ import annotations

from typing import Final

# ── bytes of a message ──

KUBELET_RECEIVE_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""What the kubelet takes in one message: grpc-go's default (kubelet.md 1.1)."""

PLUGIN_RECEIVE_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""What a plugin of ours takes, as every plugin in Go. The largest request of a kubelet names the free devices
of a resource in GetPreferredAllocation: 0.7 MiB for 10,000 of them."""

MONITOR_RECEIVE_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""What a monitor of ours takes: List names every device of every pod (as test/e2e_node/util.go)."""

HELD_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""Bytes of requests that all servers of a process hold together, complete or not. Beyond it, the incomplete
request that holds most is refused: with a limit for each connection, many connections took all memory."""

# ── elements of a message: fields, and the numbers of a packed field ──

REQUEST_ELEMENTS_LIMIT: Final = 128 * 1024
"""What a server of ours takes: GetPreferredAllocation names each free device, and must not fail. In memory
10 MB."""

ELEMENTS_LIMIT: Final = 256 * 1024
"""What a client of ours takes: GetAllocatableResources has six elements for each device, so 43,000 devices.
In memory 20 MB, of the 192 MiB that the daemon's container has."""

INLINE_ELEMENTS_LIMIT: Final = 8 * 1024
"""What is decoded on the event loop, which that holds up for 20 to 60 ms; a larger message is decoded in a
thread."""

# ── connections, calls and streams of a server ──

CONNECTIONS_LIMIT: Final = 64
"""Connections of one server: the kubelet has one or two, and a monitor one. For another one, a connection of
the process that has most is closed, first one whose call is not complete."""

KUBELET_CONNECTIONS_LIMIT: Final = 1024
"""Connections of a kubelet's end, where all programs of a node call at once after its restart. The real one
takes as many as it has descriptors for."""

CALLS_AT_ONCE_LIMIT: Final = 1024
"""Calls that one server holds at once. For another one, an incomplete call ends, or one of a connection that
has more; else it is refused with RESOURCE_EXHAUSTED."""

STREAMS_LIMIT: Final = 16
"""Streams that one server holds at once: the kubelet has one, for a moment two. For another one, a stream of
the connection that has most ends."""
