"""HTTP/2 as RFC 9113 has it, without I/O: bytes in, events out; both ends, and nothing of gRPC.

`connection` is what users hold. It keeps to rules that stand as data or as small functions beside it:
`frames`, `headers`, `flow_control`, `streams`. Numbers in brackets are sections of RFC 9113, if
no other document is named.
"""
