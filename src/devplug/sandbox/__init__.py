"""A one-node Kubernetes for devices: the emulated kubelet with an API server and a scheduler around it."""
