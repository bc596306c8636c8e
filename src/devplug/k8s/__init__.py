"""What a Kubernetes API object is, for everyone, and the client of an API server.

Nobody else knows lightkube, the extra `[k8s]`.
"""
