"""The Kubernetes API of the sandbox over HTTP: requests become changes of the registry, and responses.

Requests and responses are values of pure modules; `app`, `handlers` and `listener` are the shell.
"""
