"""HTTP/2 (RFC 9113) without I/O, for clients and servers: bytes in, events out. It knows nothing of gRPC.

Users need only `connection`. Its rules are data or small functions in the files beside it: `frames`,
`headers`, `flow_control`, `streams`. Numbers in brackets are sections of RFC 9113 unless another document is
named. Pure.
"""
