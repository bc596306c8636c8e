"""gRPC over HTTP/2, without I/O: what a request, a message and an outcome are on a stream, for both ends.

It follows gRPC's "PROTOCOL-HTTP2.md", which the modules name by its chapters.
"""
