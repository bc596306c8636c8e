"""The limits of a socket: bytes of a message, connections and calls. Pure."""

from __future__ import annotations

from typing import Final

__all__ = [
    "CALLS_AT_ONCE_LIMIT",
    "CONNECTIONS_LIMIT",
    "KUBELET_CONNECTIONS_LIMIT",
    "KUBELET_RECEIVE_LIMIT_BYTES",
    "MONITOR_RECEIVE_LIMIT_BYTES",
    "PLUGIN_RECEIVE_LIMIT_BYTES",
]

KUBELET_RECEIVE_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""What the kubelet takes in one message: grpc-go's default (kubelet.md 1.1)."""

PLUGIN_RECEIVE_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""What a plugin of ours takes: GetPreferredAllocation names every free device of a node."""

MONITOR_RECEIVE_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""What a monitor of ours takes: List names every device of every pod (as test/e2e_node/util.go)."""

CONNECTIONS_LIMIT: Final = 64
"""Connections of one server: the kubelet has one or two, and a monitor one."""

KUBELET_CONNECTIONS_LIMIT: Final = 1024
"""Connections of a kubelet's end, where all programs of a node call at once after its restart. The real one
takes as many as it has descriptors for."""

CALLS_AT_ONCE_LIMIT: Final = 1024
"""Calls and streams that one server holds at once; more are refused with RESOURCE_EXHAUSTED."""
