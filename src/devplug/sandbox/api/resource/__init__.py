"""The rules of Dynamic Resource Allocation's kinds (resource.k8s.io/v1): their validation, as values.

The order and the sentences are those of Kubernetes 1.36.2 (pkg/apis/resource/validation/validation.go).
"""
