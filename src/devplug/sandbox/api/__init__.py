"""The rules of a Kubernetes API server, as functions on values: patches, selectors, storage, validation.

No socket, no file, no task and no clock: the time, UIDs and the random ends of names are given in. Pure.
"""
