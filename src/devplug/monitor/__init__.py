"""The monitor: what is seen of devices, on a node and in a cluster."""
