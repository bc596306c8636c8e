"""What a Kubernetes API server decides, as functions on values: patches, selectors, storage, answers.

No socket, no file, no task and no clock: the time, UIDs and the random ends of names are given in.
"""
