"""Kubernetes API objects, for all packages, and the client of an API server.

No other package imports lightkube, the extra `[k8s]`.
"""
