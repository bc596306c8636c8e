"""The fields of all kinds: their tables, the OpenAPI documents, and the decoder that checks objects by them.

Values in, values out: no socket, no file and no clock. Pure.
"""
