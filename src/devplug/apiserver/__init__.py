"""What a cluster's API server knows, as plain maps. Nobody else knows lightkube, the extra `[k8s]`."""
