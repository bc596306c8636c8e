"""A small read-only HTTP server and its client, over TCP or a Unix socket: probes, metrics, status, pages.

Only this package knows HTTP's wire format (h11). It speaks no TLS and serves GET and HEAD.
"""
