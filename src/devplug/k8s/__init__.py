"""Kubernetes API objects, for all packages, and the client of an API server."""
