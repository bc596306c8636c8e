"""What kinds look like, field by field: the OpenAPI documents, and what a decoder says of an object.

Values in, values out: no socket, no file and no clock.
"""
